"""What a worker says: one event, one line, in a form for people or for machines."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from topics.errors import SettingsError
from workers.library_logs import REPEAT_AFTER_S, LibraryLogs
from workers.logs import adopt, configure, get_logger


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Logging is one for the whole process: leave it to other tests as it was."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level, warnings.showwarning, threading.excepthook)
    names = ("topics", "workers", "tools", "aiokafka", "kafka")
    levels = {name: logging.getLogger(name).level for name in names}
    yield
    root.handlers, warnings.showwarning, threading.excepthook = before[0], before[2], before[3]
    root.setLevel(before[1])
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    structlog.reset_defaults()


def configured(format: str = "json", level: str = "info", **fields: str) -> io.StringIO:
    """Where the configured logs go."""
    stream = io.StringIO()
    configure(format, level, fields=fields, stream=stream)  # type: ignore[arg-type]
    return stream


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    """The JSON lines so far."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_json_has_one_object_per_line_with_its_fields() -> None:
    """Event, level, logger, time in UTC, the worker's own fields and those of the call."""
    stream = configured(worker="w1")
    get_logger("workers.commit").info("committed", lane="high", seconds=0.25)
    (event,) = events(stream)
    assert event.pop("timestamp").endswith("Z")
    assert event == {
        "event": "committed",
        "level": "info",
        "logger": "workers.commit",
        "worker": "w1",
        "lane": "high",
        "seconds": 0.25,
    }


def test_text_is_one_readable_line() -> None:
    """For people: no braces, the fields as name=value."""
    stream = configured("text", worker="w1")
    get_logger("workers.commit").warning("commit_failed", lane="high", error="timed out after 5 s")
    (line,) = stream.getvalue().splitlines()
    assert re.match(r"\d\d:\d\d:\d\d\.\d{3} warning  commit_failed  ", line)
    assert line.endswith('  lane=high error="timed out after 5 s" (workers.commit)')


def test_a_terminal_gets_colors() -> None:
    """The level is what the eye looks for."""
    stream = Terminal()
    configure("auto", stream=stream)
    get_logger("workers").error("stopped")
    assert "\x1b[31merror" in stream.getvalue()


@pytest.mark.parametrize(("stream", "is_json"), [(Terminal(), False), (io.StringIO(), True)])
def test_auto_is_text_on_a_terminal_and_json_elsewhere(stream: io.StringIO, is_json: bool) -> None:
    """A person and a log collector both get what they can read, without a setting."""
    configure("auto", stream=stream)
    get_logger("workers").info("ready")
    assert stream.getvalue().startswith("{") == is_json


def test_events_below_the_level_are_not_written() -> None:
    """`level` is where showing begins."""
    stream = configured(level="warning")
    log = get_logger("workers")
    log.debug("a")
    log.info("b")
    log.warning("c")
    assert [event["event"] for event in events(stream)] == ["c"]


def test_a_logger_made_before_follows_a_later_configuration() -> None:
    """Modules make their loggers on import, long before settings are read."""
    log = get_logger("workers.receive")
    first = configured()
    log.info("one")
    second = configured(level="error")
    log.info("two")
    log.error("three")
    assert [event["event"] for event in events(first)] == ["one"]
    assert [event["event"] for event in events(second)] == ["three"]


def test_what_comes_from_outside_cannot_forge_a_line() -> None:
    """An agent's ID with line breaks and terminal codes stays inside its own quoted field."""
    stream = configured("text")
    get_logger("workers.admit").warning("rejected", agent="a\n12:00:00 [info] fine\x1b[2J", reason=ValueError("x\ny"))
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_json_stays_json_with_odd_values() -> None:
    """Numbers that JSON does not know, and objects, become text."""
    stream = configured()
    get_logger("workers").info("odd", rate=float("nan"), path=structlog, raw=b"\xff")
    (event,) = events(stream)
    assert event["rate"] == "nan"


def test_an_exception_is_one_line_with_error_and_place() -> None:
    """Text for people names the error and where it was raised; a traceback only at level debug."""
    for level, wants_traceback in (("info", False), ("debug", True)):
        stream = configured("text", level)
        try:
            raise ValueError("observation has shape (5,)")
        except ValueError:
            get_logger("workers").error("batch_failed", exc_info=True)
        (line,) = stream.getvalue().splitlines()
        assert 'error="ValueError: observation has shape (5,)"' in line
        assert "where=test_logs.py:" in line
        assert ("Traceback" in line) == wants_traceback


def test_json_keeps_the_traceback_inside_its_line() -> None:
    """Machines hold it for whoever looks later."""
    stream = configured()
    try:
        raise ValueError("x")
    except ValueError as err:
        get_logger("workers").error("batch_failed", exc_info=err)
    (event,) = events(stream)
    assert "Traceback (most recent call last)" in event["traceback"]


def test_a_stderr_that_is_gone_does_not_stop_the_worker() -> None:
    """Whoever reads the logs may die first."""
    stream = configured()
    stream.close()
    get_logger("workers").error("still_running")


def test_a_wrong_level_is_one_clear_line() -> None:
    """Named as found, with what is expected."""
    with pytest.raises(SettingsError, match=r"'loud'.*debug, info, warning, error"):
        configure("text", "loud")  # type: ignore[arg-type]


# aiokafka


def test_warnings_of_aiokafka_are_for_debug() -> None:
    """It warns about what it then retries; nobody has to act."""
    for level, shown in (("info", 0), ("debug", 1)):
        stream = configured(level=level)
        library = logging.getLogger("aiokafka.consumer.group_coordinator")
        library.debug("a fetch")
        library.info("Discovered coordinator 1 for group fleet.high")
        library.warning("Heartbeat failed for group %s because it is rebalancing", "fleet.high")
        assert [event["event"] for event in events(stream)] == ["kafka_library"] * shown
    assert events(stream)[0]["text"] == "Heartbeat failed for group fleet.high because it is rebalancing"
    assert events(stream)[0]["level"] == "debug"


def test_errors_of_aiokafka_are_warnings_in_one_line() -> None:
    """Someone may have to act, but the process is not wrong."""
    stream = configured()
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        logging.getLogger("aiokafka.producer.sender").exception("Unexpected\nerror in %s", "sender routine")
    (event,) = events(stream)
    assert event["event"] == "kafka_library"
    assert event["level"] == "warning"
    assert event["logger"] == "aiokafka.producer.sender"
    assert event["text"] == "Unexpected error in sender routine"
    assert event["error"] == "RuntimeError: boom"


def test_what_is_expected_at_the_first_join_is_not_shown() -> None:
    """A new cluster has no group coordinator yet: a newcomer must not read of an error."""
    stream = configured()
    library = logging.getLogger("aiokafka.consumer.group_coordinator")
    for name in ("[Error 15] GroupCoordinatorNotAvailableError", "[Error 15] CoordinatorNotAvailableError"):
        library.error("Group Coordinator Request failed: %s", name)
    assert stream.getvalue() == ""
    library.error("Group Coordinator Request failed: %s", "[Error 30] GroupAuthorizationFailedError")
    assert len(events(stream)) == 1


def test_the_same_complaint_is_said_once_in_a_while() -> None:
    """aiokafka repeats itself several times a second while a broker is away."""
    stream = configured()
    library_logs = next(h for h in logging.getLogger().handlers if isinstance(h, LibraryLogs))

    def complain(at_s: float, node: int) -> None:
        record = logging.LogRecord(
            "aiokafka", logging.ERROR, __file__, 1, "Unable connect to node with id %s", (node,), None
        )
        record.created = at_s
        library_logs.emit(record)

    for tenth in range(50):
        complain(1_000.0 + tenth / 10, 1)
    complain(1_000.0 + REPEAT_AFTER_S, 1)
    first, later = events(stream)
    assert "unsaid" not in first
    assert later["unsaid"] == 49


def test_other_libraries_are_heard_from_warning_on() -> None:
    """Under one event name, with the text as a field."""
    stream = configured()
    logging.getLogger("somebody.else").info("quiet")
    logging.getLogger("somebody.else").warning("slow\npath")
    (event,) = events(stream)
    assert (event["event"], event["logger"], event["text"]) == ("library", "somebody.else", "slow path")


def test_a_library_with_handlers_of_its_own_is_adopted() -> None:
    """torch writes to stderr by itself once it is imported."""
    stream = configured()
    library = logging.getLogger("selfish")
    library.addHandler(logging.StreamHandler())
    library.propagate = False
    adopt("selfish")
    logging.getLogger("selfish.part").warning("slow")
    (event,) = events(stream)
    assert (event["logger"], event["text"]) == ("selfish.part", "slow")


def test_our_own_standard_loggers_keep_their_event_and_level() -> None:
    """`topics` may not import `workers`, so it logs through the standard library."""
    stream = configured()
    logging.getLogger("topics.client").info("late_reply")
    (event,) = events(stream)
    assert (event["event"], event["level"], event["logger"]) == ("late_reply", "info", "topics.client")


def test_a_format_that_does_not_fit_is_still_said() -> None:
    """A library's broken log call is not the worker's problem."""
    stream = configured()
    library_logs = next(h for h in logging.getLogger().handlers if isinstance(h, LibraryLogs))
    library_logs.emit(logging.LogRecord("aiokafka", logging.ERROR, __file__, 1, "%s and %s", ("one",), None))
    assert events(stream)[0]["text"] == "%s and %s ('one',)"


def test_complaints_of_a_dying_interpreter_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiokafka complains in `__del__` after the modules are gone: nothing can be formatted then."""
    stream = configured()
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    logging.getLogger("asyncio").error("Unclosed AIOKafkaProducer")
    assert stream.getvalue() == ""


# what nobody caught


def test_warnings_are_events() -> None:
    """Python's warnings come in one line; deprecations are for authors, at level debug."""
    stream = configured()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configured_hook = sys.modules["workers.logs"]._show_warning
        warnings.showwarning = configured_hook
        warnings.warn("this device is slow", UserWarning, stacklevel=1)
        warnings.warn("old call", DeprecationWarning, stacklevel=1)
    (event,) = events(stream)
    assert event["event"] == "python_warning"
    assert event["category"] == "UserWarning"
    assert event["text"] == "this device is slow"
    assert "test_logs.py" in event["where"]


async def test_an_exception_that_no_one_awaited_is_one_event() -> None:
    """asyncio's own text spans lines and a traceback; ours is one event at ERROR."""
    stream = configured("text")
    loop = asyncio.get_running_loop()
    loop.call_exception_handler(
        {
            "message": "Task exception was never retrieved",
            "exception": ValueError("x"),
            "future": loop.create_future(),
        }
    )
    (line,) = stream.getvalue().splitlines()
    assert "unhandled_exception" in line
    assert 'error="ValueError: x"' in line


def test_a_thread_that_dies_is_an_event() -> None:
    """A predictor thread must not die in silence."""
    stream = configured()

    def crash() -> None:
        raise RuntimeError("device lost")

    thread = threading.Thread(target=crash, name="predictor-cuda0")
    hook, threading.excepthook = threading.excepthook, sys.modules["workers.logs"]._thread_crashed
    thread.start()
    thread.join()
    threading.excepthook = hook
    (event,) = events(stream)
    assert (event["event"], event["thread"]) == ("thread_crashed", "predictor-cuda0")
    assert event["error"] == "RuntimeError: device lost"
