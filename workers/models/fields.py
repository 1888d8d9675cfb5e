"""Reads a JSON object field by field, so that every mistake in a manifest names its place.

Takes what `json` gave, gives plain Python values, raises `ModelError` with found, expected and where. Never
guesses: a string is no number, and what nobody asked for is refused by `end()`.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections import Counter
from typing import Any, Final

from topics.errors import DecodeError
from topics.wire import check_depth
from workers.models.errors import ModelError, one_line

MAX_TEXT_CHARACTERS: Final = 200
MAX_DEPTH: Final = 32
"""Levels of nesting; a manifest needs four and its arguments a few more."""

_MISSING: Any = object()
_KINDS: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


class Fields:
    """One JSON object whose fields are taken one after the other."""

    def __init__(self, found: Any, where: str) -> None:
        self._where = where
        if not isinstance(found, dict):
            raise ModelError(f"{where}: found {shown(found)}, expected an object")
        self._left: dict[str, Any] = dict(found)
        self._known: list[str] = []

    def text(self, key: str, default: str = _MISSING) -> str:
        value: str = self._take(key, str, default)
        if len(value) > MAX_TEXT_CHARACTERS or not value.isprintable():  # it stands in errors, which are one line
            raise self.wrong(key, value, f"at most {MAX_TEXT_CHARACTERS} printable characters")
        return value

    def flag(self, key: str, default: bool = _MISSING) -> bool:
        value: bool = self._take(key, bool, default)
        return value

    def whole(self, key: str, default: int = _MISSING) -> int:
        value: int = self._take(key, int, default)
        return value

    def number(self, key: str, default: float = _MISSING) -> float:
        value = self._take(key, float, default)
        if not 0 <= value <= sys.float_info.max:  # a JSON 1e999 is infinity, and whole numbers know no end
            raise self.wrong(key, value, "a finite number ≥ 0")
        return float(value)

    def items(self, key: str, default: list[Any] = _MISSING) -> list[Any]:
        value: list[Any] = self._take(key, list, default)
        return value

    def mapping(self, key: str, default: dict[str, Any] = _MISSING) -> dict[str, Any]:
        value: dict[str, Any] = self._take(key, dict, default)
        return value

    def any(self, key: str, default: Any = _MISSING) -> Any:
        """Whatever is there."""
        return self._take(key, object, default)

    def inner(self, key: str) -> Fields:
        """The object under `key`, to be read field by field as well."""
        return Fields(self.mapping(key), self.path(key))

    def rest(self) -> dict[str, Any]:
        """Everything not taken yet."""
        return dict(self._left)

    def path(self, key: str) -> str:
        key = key if len(key) <= 60 else f"{key[:59]}…"
        return f"{self._where}: {key}" if ":" not in self._where else f"{self._where}.{key}"

    def wrong(self, key: str, found: Any, expected: str) -> ModelError:
        """The error to raise when the value has the right type and is still not acceptable."""
        return ModelError(f"{self.path(key)} is {shown(found)}, expected {expected}")

    def end(self) -> None:
        """Refuse every field nobody took."""
        for key in self._left:
            near = difflib.get_close_matches(key, self._known, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(self._known)}"
            raise ModelError(f"{self._where}: unknown key {shown(key)}; {hint}")

    def _take(self, key: str, kind: type, default: Any) -> Any:
        self._known.append(key)
        value = self._left.pop(key, default)
        if value is _MISSING:
            raise ModelError(f'{self._where}: "{key}" is missing, expected {_KINDS[kind]}')
        if value is not default and not _is_a(value, kind):
            raise self.wrong(key, value, _KINDS[kind])
        return value


def _is_a(value: Any, kind: type) -> bool:
    if kind is object:
        return True
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind


def shown(found: Any) -> str:
    """`found` the way it stands in the file, shortened."""
    text = json.dumps(found, default=str)
    return text if len(text) <= 60 else f"{text[:57]}…"


def parse_object(raw: bytes, where: str) -> Fields:
    """The JSON object in `raw`; `ModelError` names line and column of a mistake and refuses keys given
    twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
            raise ModelError(f"{where}: key {shown(min(twice))} is given twice; keep one")
        return found

    def no_constant(name: str) -> Any:
        raise ModelError(f"{where}: {name} is not JSON; write a number")

    try:
        found = json.loads(raw.decode("utf-8"), object_pairs_hook=unique, parse_constant=no_constant)
        check_depth(found, MAX_DEPTH)
    except json.JSONDecodeError as error:
        raise ModelError(f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, a number or a nesting without end
        raise ModelError(f"{where} is not readable JSON in UTF-8: {one_line(error)}") from error
    except DecodeError as error:
        raise ModelError(f"{where} nests deeper than {MAX_DEPTH} levels; write it flatter") from error
    return Fields(found, where)
