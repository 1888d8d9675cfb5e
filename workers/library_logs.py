"""What libraries log through the standard library's logging, as events of the worker.

Beside the path; `workers.logs` installs it. aiokafka is written for the author of a client: it logs an ERROR
for what it then retries, and repeats it several times a second while a broker is away. Its levels are lowered
by one, what is expected is left out, and the same complaint is said once in ten seconds.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

from structlog.typing import FilteringBoundLogger

REPEAT_AFTER_S: Final = 10.0
"""A person reads a line every ten seconds; aiokafka writes ten a second while a broker is away."""

_COMPLAINTS_KEPT: Final = 256  # aiokafka has about 90 texts; beyond this something formats its own, and we start afresh
_TEXT_LIMIT: Final = 500  # characters; an assignment of many partitions fills a screen

_EXPECTED: Final = (
    # Until the broker has made __consumer_offsets, the first join of a new cluster is told to come back.
    ("Group Coordinator Request failed", "CoordinatorNotAvailable"),
    ("Group Coordinator Request failed", "CoordinatorLoadInProgress"),
)


class LibraryLogs(logging.Handler):
    """Turns log records into events: our own packages' as they are, libraries' under one event name each."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__()
        self._log = log
        self._said_s: dict[tuple[str, str], float] = {}
        self._unsaid: dict[tuple[str, str], int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """One record, one event, one line; never raises into the library."""
        if sys.is_finalizing():
            return  # clients that complain in __del__: modules are gone, nothing can be formatted any more
        try:
            self._route(record)
        except Exception:  # as every handler of the standard library does
            self.handleError(record)

    def _route(self, record: logging.LogRecord) -> None:
        package = record.name.split(".", 1)[0]
        if package in ("aiokafka", "kafka"):
            self._kafka(record)
        elif package in ("topics", "workers", "tools"):
            self._say(record.levelno, record, record.getMessage())
        elif package == "asyncio" and record.exc_info:
            self._say(logging.ERROR, record, "unhandled_exception", text=_one_line(record))
        else:
            self._say(record.levelno, record, "library", text=_one_line(record))

    def _kafka(self, record: logging.LogRecord) -> None:
        text = _one_line(record)
        if record.levelno < logging.ERROR or _is_expected(text):
            self._say(logging.DEBUG, record, "kafka_library", text=text)
            return
        complaint = (record.name, str(record.msg))
        if record.created - self._said_s.get(complaint, float("-inf")) < REPEAT_AFTER_S:
            self._unsaid[complaint] = self._unsaid.get(complaint, 0) + 1
            return
        if len(self._said_s) >= _COMPLAINTS_KEPT:
            self._said_s.clear()
        self._said_s[complaint] = record.created
        unsaid = self._unsaid.pop(complaint, 0)
        self._say(logging.WARNING, record, "kafka_library", text=text, **({"unsaid": unsaid} if unsaid else {}))

    def _say(self, level: int, record: logging.LogRecord, event: str, **fields: object) -> None:
        if record.exc_info:
            fields["exc_info"] = record.exc_info
        self._log.log(level, event, logger=record.name, **fields)


def _one_line(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:  # a library's format string and its arguments do not fit: say what there is
        text = f"{record.msg} {record.args}"
    text = " ".join(text.split())
    return text if len(text) <= _TEXT_LIMIT else text[:_TEXT_LIMIT] + "…"


def _is_expected(text: str) -> bool:
    return any(text.startswith(start) and inside in text for start, inside in _EXPECTED)
