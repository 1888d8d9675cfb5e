"""A record as it lies in a recording, and the error of everything that reads or writes one."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple, TypeAlias

from topics.errors import FleetError
from topics.names import LANES, Lane

Kind = Literal["states", "actions", "dead"]
"""What a topic of a fleet holds."""
Place: TypeAlias = tuple[str, int]
"""Topic and partition."""


class RecordingError(FleetError):
    """A recording cannot be read or written; the text names the file."""

    exit_code: ClassVar[int] = 1


class Recorded(NamedTuple):
    """One Kafka record: where it was, when (ms since 1970 in UTC), and its bytes, untouched."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    """0: set by whoever sent it, 1: by the broker."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def kind_and_lane(topic: str, fleet: str) -> tuple[Kind, Lane | None]:
    """What a topic of `fleet` holds. Everything that is neither states nor dead letters holds answers."""
    for lane in LANES:
        if topic == f"{fleet}.states.{lane}":
            return "states", lane
    return ("dead", None) if topic == f"{fleet}.dead" else ("actions", None)
