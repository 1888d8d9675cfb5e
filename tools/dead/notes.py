"""Notes: what redrives write into the dead-letter topic about themselves, so that a crash forgets nothing.

A note has the header `fleet_dead-note`, no key, and JSON as its value. `begin`, `alive` and `end` go to partition 0,
which puts the redrives of a fleet in an order; `sending` and `settled` go to the partition of their letters, so they
outlive them: retention deletes a partition from its front. Reasons: docs/decisions/0007-redrive.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, get_args

from aiokafka.structs import ConsumerRecord

from topics.letters import NOTE

VERSION: Final = b"1"
Kind = Literal["begin", "alive", "sending", "settled", "end"]


@dataclass(frozen=True, slots=True)
class Note:
    """One note of the redrive `run`.

    begin: the run wants to send; `resumes` names runs that were cut off and whose work it goes on with.
    alive: it still runs. end: it will send no more, and everything in its batches was sent or is settled.
    sending: batch number `batch` comes next: letters at `offsets` of this partition. All batches before it were
        acknowledged. `positions`: "topic:partition" → an offset before which none of the batch can be.
    settled: written by another run for a batch that was cut off: of it, `offsets` were not sent.
    """

    kind: Kind
    run: str
    batch: int = -1
    offsets: tuple[int, ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    resumes: tuple[str, ...] = ()


def is_note(record: ConsumerRecord) -> bool:
    """Whether a record of the dead-letter topic is a note. Workers let no agent's header of this name through."""
    return any(name == NOTE for name, _ in record.headers)


def encode_note(note: Note) -> bytes:
    """A note as JSON, without what is empty."""
    return json.dumps({name: value for name, value in asdict(note).items() if value not in ((), {}, -1)}).encode()


def decode_note(value: bytes | None) -> Note | None:
    """The note in a record's value; None for anything else, such as a note of a later version."""
    try:
        fields = json.loads(value or b"")
        return Note(
            kind=_kind(fields["kind"]),
            run=_run(fields["run"]),
            batch=int(fields.get("batch", -1)),
            offsets=_numbers(fields.get("offsets", ())),
            positions={str(place): int(offset) for place, offset in fields.get("positions", {}).items()},
            resumes=tuple(map(_run, fields.get("resumes", ()))),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _kind(found: Any) -> Kind:
    if found not in get_args(Kind):
        raise ValueError(found)
    kind: Kind = found
    return kind


def _run(found: Any) -> str:
    if not isinstance(found, str) or not found:
        raise ValueError(found)
    return found


def _numbers(found: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(int, found))
