"""What a worker says: events with fields, one line each, to stderr.

Beside the path. `get_logger(name).info("event_name", field=…)`: readable on a terminal, JSON otherwise. What
libraries log (aiokafka above all), Python's warnings, and exceptions that nobody caught become events of the
same shape. Nothing here is called per record.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping, MutableMapping
from math import isfinite
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from topics.errors import SettingsError
from workers.library_logs import LibraryLogs

LogFormat = Literal["auto", "text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

Event = MutableMapping[str, Any]

_LEVELS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def get_logger(name: str) -> FilteringBoundLogger:
    """The logger of a module (`get_logger(__name__)`); it may be made before `configure`."""
    return cast(FilteringBoundLogger, structlog.get_logger(name))


def configure(
    format: LogFormat = "auto",
    level: LogLevel = "info",
    *,
    fields: Mapping[str, str] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Send every event of this process from `level` up to stderr; a later call replaces an earlier one.

    Args:
        format: `auto` is text on a terminal and JSON elsewhere.
        level: from where on events are shown. `debug` adds tracebacks and aiokafka's warnings.
        fields: said with every JSON line, for whoever searches many workers' logs (`worker`, `fleet`).
        stream: instead of stderr.

    Raises:
        SettingsError: format or level is none of those above.
    """
    if format not in ("auto", "text", "json") or level not in _LEVELS:
        raise SettingsError(
            f"log format {format!r} and level {level!r}: "
            f"format is auto, text or json, level one of {', '.join(_LEVELS)}"
        )
    on_terminal = (stream or sys.stderr).isatty()
    has_colors = on_terminal and not os.environ.get("NO_COLOR")  # see no-color.org
    is_text = format == "text" or (format == "auto" and on_terminal)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _add_logger,
            _ErrorInOneLine(with_traceback=level == "debug" or not is_text),
            *(_as_text(has_colors) if is_text else _as_json(fields or {})),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *name: _Lines(stream, *name),
        cache_logger_on_first_use=False,  # a logger used before follows a new configuration
    )
    _route_the_rest(_LEVELS[level])


class _Lines:
    """Writes lines. A reader of stderr that has gone away must not take the worker with it."""

    def __init__(self, stream: TextIO | None, name: str = "") -> None:
        self.name = name
        self._stream = stream

    def msg(self, line: str) -> None:
        stream = self._stream or sys.stderr
        try:
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):
            return

    debug = info = warning = error = critical = msg


def _add_logger(logger: Any, _method: str, event: Event) -> Event:
    event.setdefault("logger", logger.name)
    return event


def adopt(library: str) -> None:
    """Let a library that brings handlers of its own (torch does, when it is imported) log through ours."""
    logger = logging.getLogger(library)
    logger.handlers.clear()
    logger.propagate = True


def _as_text(colors: bool) -> list[Processor]:
    return [structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False), _TextLine(colors)]


_COLORS = {"debug": "\x1b[2m", "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}
_RESET = "\x1b[0m"


class _TextLine:
    """`12:00:00.123 warning  commit_failed  lane=high error="…" (workers.commit)`.

    Not structlog's ConsoleRenderer, because some versions print line breaks and terminal codes of a value as
    they are: agents' IDs and libraries' texts come from outside, and must not forge a line.
    """

    def __init__(self, colors: bool) -> None:
        self._colors = _COLORS if colors else {}
        self._reset = _RESET if colors else ""

    def __call__(self, _logger: object, _method: str, event: Event) -> str:
        time_ms = str(event.pop("timestamp"))[:-3]
        level = str(event.pop("level"))
        name = _quoted(event.pop("event"))
        logger = event.pop("logger", "")
        fields = " ".join(f"{key}={_quoted(value)}" for key, value in event.items())
        color = self._colors.get(level, "")
        line = f"{time_ms} {color}{level:<8}{self._reset if color else ''} {name}"
        return f"{line}{'  ' if fields else ''}{fields}" + (f" ({logger})" if logger else "")


def _as_json(fields: Mapping[str, str]) -> list[Processor]:
    def add_fields(_logger: object, _method: str, event: Event) -> Event:
        return {**fields, **event}

    return [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_fields,
        structlog.processors.JSONRenderer(serializer=_json),
    ]


def _json(event: Event, **_: object) -> str:
    strict = {
        name: str(value) if isinstance(value, float) and not isfinite(value) else value for name, value in event.items()
    }
    return json.dumps(strict, default=str)


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    if text and text.isprintable() and not set(text) & set(" =\"'"):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


class _ErrorInOneLine:
    """`exc_info` becomes `error` and `where` (innermost frame), and `traceback` for those who want it."""

    def __init__(self, *, with_traceback: bool) -> None:
        self._with_traceback = with_traceback

    def __call__(self, _logger: object, _method: str, event: Event) -> Event:
        error = _exception(event.pop("exc_info", None))
        if error is None:
            return event
        event["error"] = f"{type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)
        if frames:
            event["where"] = f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}"
        if self._with_traceback:
            event["traceback"] = "".join(traceback.format_exception(error))
        return event


def _exception(exc_info: object) -> BaseException | None:
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return cast(BaseException | None, exc_info[1])
    return sys.exc_info()[1] if exc_info else None


def _route_the_rest(level: int) -> None:
    """The standard library's logging, warnings and dying threads go the same way."""
    root = logging.getLogger()
    root.handlers = [handler for handler in root.handlers if not isinstance(handler, LibraryLogs)]
    root.addHandler(LibraryLogs(structlog.get_logger()))
    root.setLevel(logging.WARNING)
    for package in ("topics", "workers", "tools"):
        logging.getLogger(package).setLevel(level)
    for library in ("aiokafka", "kafka"):
        logging.getLogger(library).setLevel(logging.WARNING)
    warnings.showwarning = _show_warning
    threading.excepthook = _thread_crashed


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    # Whoever runs a worker cannot act on a deprecation; whoever works on it starts it with level debug.
    concerns_authors = issubclass(category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning))
    log = get_logger("py.warnings")
    say = log.debug if concerns_authors else log.warning
    say("python_warning", category=category.__name__, text=str(message), where=f"{filename}:{lineno}")


def _thread_crashed(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit:
        return
    name = args.thread.name if args.thread else "?"
    get_logger("threading").error("thread_crashed", thread=name, exc_info=args.exc_value or True)
