"""Dead letters on the wire: the headers that say what happened, and the history that a redriven state carries.

The worker writes a letter's headers, `fleet dead` reads them and sends letters again. An agent may send any header,
so nothing here trusts one: what is malformed counts as absent, and everything that is carried on has a limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from aiokafka.structs import ConsumerRecord

from topics.headers import Echoed, Headers

PREFIX: Final = "fleet_dead-"
"""Headers that start with this are ours; an agent's own are dropped."""
ATTEMPTS: Final = PREFIX + "attempts"
"""How often the state has failed, in decimal digits; on a redriven state: how often before."""
HISTORY: Final = PREFIX + "history"
"""JSON list of the failures before this one, oldest first."""
LETTER: Final = PREFIX + "letter"
"""partition:offset of the letter that this state was redriven from."""
RUN: Final = PREFIX + "run"
"""The redrive that sent it."""
NOTE: Final = PREFIX + "note"
"""On records of the dead-letter topic that are no letter but a note of a redrive (tools/dead/notes.py)."""

KEPT: Final = (HISTORY, LETTER, RUN)
MAX_HISTORY: Final = 8
"""Failures that a state remembers; the newest stay."""
MAX_KEPT_BYTES: Final = 4096
"""Of one header that is carried on. Eight failures in a fleet with a name of usual length take 1 KiB."""
MAX_LABEL_CHARACTERS: Final = 64
MAX_ATTEMPTS: Final = 999_999


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure: its label, when (Unix µs), and where the state was read."""

    reason: str
    time_us: int
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of the dead-letter topic. What its headers do not say is empty, -1 or None; `attempts` is at least 1."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    failure: Failure
    message: str
    worker: str
    model: str
    attempts: int
    history: tuple[Failure, ...]
    redriven_from: str | None

    @property
    def id(self) -> str:
        """partition:offset in the dead-letter topic."""
        return f"{self.partition}:{self.offset}"

    @property
    def agent(self) -> str:
        """The key as text."""
        return (self.key or b"").decode(errors="backslashreplace")

    @property
    def own_headers(self) -> Echoed:
        """The state's headers as its agent sent them."""
        return own(self.headers)


def own(headers: Headers) -> Echoed:
    """`headers` without ours."""
    return [(name, value) for name, value in headers if not name.startswith(PREFIX)]  # type: ignore[misc]


def earlier(headers: Headers) -> tuple[int, Echoed]:
    """From the headers of a state: how often it failed before, and which of our headers its next letter keeps."""
    kept = [(name, value) for name, value in headers if name in KEPT and value and len(value) <= MAX_KEPT_BYTES]
    return _count(dict(headers).get(ATTEMPTS)), kept


def read_letter(record: ConsumerRecord) -> DeadLetter:
    """The letter in a record; never raises, whatever its headers hold."""
    found = dict(record.headers)

    def text(name: str) -> str:
        return (found.get(PREFIX + name) or b"").decode(errors="backslashreplace")

    failure = Failure(
        reason=text("reason") or "unknown",
        time_us=_count(found.get(PREFIX + "time_us"), digits=18) or record.timestamp * 1000,
        topic=text("topic"),
        partition=_count(found.get(PREFIX + "partition"), absent=-1),
        offset=_count(found.get(PREFIX + "offset"), absent=-1, digits=18),
    )
    return DeadLetter(
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=record.headers,
        failure=failure,
        message=text("message"),
        worker=text("worker"),
        model=text("model"),
        attempts=max(1, _count(found.get(ATTEMPTS))),
        history=decode_history(found.get(HISTORY)),
        redriven_from=text("letter") or None,
    )


def headers_again(letter: DeadLetter, run: str, *, with_history: bool = True) -> Echoed:
    """Headers of the state that is sent again: its own, then its history, its letter and the redrive."""
    ours: Echoed = [(ATTEMPTS, b"%d" % min(letter.attempts, MAX_ATTEMPTS))]
    if with_history:
        ours.append((HISTORY, encode_history([*letter.history, letter.failure])))
    return [*letter.own_headers, *ours, (LETTER, letter.id.encode()), (RUN, run.encode())]


def encode_history(failures: Sequence[Failure]) -> bytes:
    """The newest failures as JSON, at most `MAX_HISTORY` of them and `MAX_KEPT_BYTES` in all."""
    newest = list(failures[-MAX_HISTORY:])
    while len(encoded := _json(newest)) > MAX_KEPT_BYTES:
        del newest[0]
    return encoded


def decode_history(value: bytes | None) -> tuple[Failure, ...]:
    """The failures in a history header; what is not a failure is left out."""
    try:
        entries = json.loads((value or b"[]")[: MAX_KEPT_BYTES + 1])
    except (ValueError, RecursionError):
        return ()
    return tuple(map(_failure, filter(_is_failure, entries[-MAX_HISTORY:]))) if isinstance(entries, list) else ()


_TYPES: Final[Mapping[str, type]] = {"reason": str, "time_us": int, "topic": str, "partition": int, "offset": int}


def _json(failures: Sequence[Failure]) -> bytes:
    entries = [asdict(failure) | {"reason": failure.reason[:MAX_LABEL_CHARACTERS]} for failure in failures]
    return json.dumps(entries, separators=(",", ":")).encode()


def _is_failure(entry: Any) -> bool:
    return isinstance(entry, dict) and all(type(entry.get(name)) is wanted for name, wanted in _TYPES.items())


def _failure(entry: Mapping[str, Any]) -> Failure:
    return Failure(**{name: entry[name] for name in _TYPES})


def _count(value: bytes | None, *, absent: int = 0, digits: int = 6) -> int:
    """A number in decimal digits; `absent` for anything else."""
    return int(value) if value and value.isdigit() and len(value) <= digits else absent
