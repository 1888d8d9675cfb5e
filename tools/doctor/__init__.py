"""`fleet doctor`: looks over a fleet's cluster, groups, model and machine, and says for each fault what to do."""
