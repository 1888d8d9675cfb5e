"""How the demo's processes talk to the one that started them: one JSON object a line on standard output.

The other way a process hears one line on standard input: the cluster's address, when it is there. End of file means
that the process is not needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from topics.errors import FleetError


def tell(**fields: Any) -> None:
    """Say something to the starting process. Blocks when nobody reads and the pipe is full."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def wait_for_turn() -> str | None:
    """Wait until the cluster is there: its bootstrap servers, or None if we are not needed."""
    return sys.stdin.readline().strip() or None


def run_process(main: Callable[[Mapping[str, Any]], None]) -> int:
    """Run `main` with the JSON object in the first argument; a `FleetError` becomes an `error` line. The exit code."""
    try:
        main(json.loads(sys.argv[1]))
    except FleetError as error:
        tell(error=str(error))
        return error.exit_code
    except ExceptionGroup as group:
        found = _first(group)
        if not isinstance(found, FleetError):
            raise
        tell(error=str(found))
        return found.exit_code
    return 0


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
