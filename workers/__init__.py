"""One worker process: receive, admit, lanes, schedule, predict, reply, commit."""
