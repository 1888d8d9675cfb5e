"""The redaction hook: a function of the operator's that sees each record before it is written.

`module:function` or `path/to/file.py:function`, from the command line only. The function takes a `Recorded` and gives
it back, or one with another key, value or headers (`record._replace(key=b"")`), or None: then the record is left out.
What is wrong with it is one line, and nothing that it has not seen is written.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from tools.recording.recorded import Recorded
from topics.errors import FleetError

Redact = Callable[[Recorded], Recorded | None]


class RedactionError(FleetError):
    """The hook cannot be loaded, failed on a record, or gave something that is no record."""

    exit_code: ClassVar[int] = 2


def load_redaction(name: str) -> Redact:
    """The function that this name means, its results checked. Raises `RedactionError`."""
    place, _, function_name = name.rpartition(":")
    if not place or not function_name:
        raise RedactionError(f"--redact is {name!r}, expected MODULE:FUNCTION or FILE.py:FUNCTION")
    function = getattr(_load(place), function_name, None)
    if not callable(function):
        what = "has no function" if function is None else "is not a function:"
        raise RedactionError(f"--redact {name}: {place} {what} {function_name}")
    return _checked(function, name)


def _load(place: str) -> ModuleType:
    try:
        return _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    except RedactionError:
        raise
    except (Exception, SystemExit) as error:
        raise RedactionError(f"--redact {place} cannot be loaded: {_where(error)}") from error


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, "")  # as `python -m` has it: a module of the present folder
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove("")


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise RedactionError(f"--redact {path}: there is no such file")
    spec = importlib.util.spec_from_file_location("fleet_redaction", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass in the file looks itself up there
    spec.loader.exec_module(module)
    return module


def _checked(function: Callable[[Recorded], object], name: str) -> Redact:
    def redact(record: Recorded) -> Recorded | None:
        try:
            redacted = function(record)
        except Exception as error:
            raise RedactionError(f"--redact {name} failed on {_id(record)}: {_where(error)}") from error
        if redacted is None or redacted is record:
            return redacted
        if not isinstance(redacted, Recorded):
            gave = f"gave {type(redacted).__name__} for {_id(record)}"
            raise RedactionError(f"--redact {name} {gave}, expected a Recorded or None")
        if wrong := _changed(record, redacted) or _wrong_type(redacted):
            raise RedactionError(f"--redact {name}, {_id(record)}: {wrong}")
        return redacted

    return redact


def _changed(record: Recorded, redacted: Recorded) -> str | None:
    """What only Kafka decides, or the recording could not be continued."""
    for field in ("topic", "partition", "offset", "timestamp_ms", "timestamp_type"):
        if getattr(record, field) != getattr(redacted, field):
            return f"{field} is changed to {getattr(redacted, field)!r}; only key, value and headers may be"
    return None


def _wrong_type(redacted: Any) -> str | None:
    for field in ("key", "value"):
        if not isinstance(getattr(redacted, field), bytes | None):
            return f"{field} is {type(getattr(redacted, field)).__name__}, expected bytes or None"
    if not isinstance(redacted.headers, tuple):
        return f"headers is {type(redacted.headers).__name__}, expected a tuple of (name, value) pairs"
    for header in redacted.headers:
        match header:
            case (str(), bytes() | None):
                continue
        return f"header {header!r:.60} is no pair of a name (str) and a value (bytes or None)"
    return None


def _id(record: Recorded) -> str:
    return f"{record.topic} {record.partition}:{record.offset}"


def _where(error: BaseException) -> str:
    frames = [at for at in traceback.extract_tb(error.__traceback__) if not at.filename.startswith("<frozen")]
    at = f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error)[:200]}{at}"
