"""A letter becomes a state again: to its lane, key, value and own headers untouched. Pure.

The partition is that of the agent's key, as agents choose it, so the worker that has the agent's other states gets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tools.dead.filters import lane_of
from topics.headers import Echoed
from topics.letters import DeadLetter, headers_again
from topics.names import FleetNames
from topics.partitions import Partitioner

RECORD_OVERHEAD_BYTES: Final = 128
"""The record batch's header (61), the record's own lengths, and some air."""
HEADER_OVERHEAD_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Resend:
    """A letter on its way back."""

    letter: DeadLetter
    topic: str
    partition: int
    headers: Echoed

    @property
    def size_bytes(self) -> int:
        """At most what the record takes, alone in a batch."""
        headers = sum(len(name.encode()) + len(value or b"") + HEADER_OVERHEAD_BYTES for name, value in self.headers)
        return len(self.letter.key or b"") + len(self.letter.value or b"") + headers + RECORD_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Unsendable:
    """A letter that cannot be sent again, and why."""

    letter: DeadLetter
    why: str


class Resender:
    """Knows the fleet's lanes: their names, partition counts by topic, and the largest record that they take."""

    def __init__(self, names: FleetNames, partitions: Mapping[str, int], max_bytes: int, run: str) -> None:
        self._names = names
        self._partitioners = {topic: Partitioner(count) for topic, count in partitions.items()}
        self._counts = dict(partitions)
        self._max_bytes = max_bytes
        self._run = run

    def resend(self, letter: DeadLetter) -> Resend | Unsendable:
        """Where the letter goes and with which headers; without its history if only that makes it too large."""
        if lane_of(letter, self._names) is None:
            found = letter.failure.topic or "nothing"
            return Unsendable(letter, f"it names {found} as its origin, no lane of fleet {self._names.fleet}")
        if letter.value is None:  # left out where the letter was too large for its topic, or never there
            return Unsendable(letter, f"it has no state: {letter.message[-200:]}")
        for with_history in (True, False):
            headers = headers_again(letter, self._run, with_history=with_history)
            again = Resend(letter, letter.failure.topic, self._partition(letter), headers)
            if again.size_bytes <= self._max_bytes:
                return again
        return Unsendable(letter, f"it has {again.size_bytes} bytes, its lane takes {self._max_bytes}")

    def _partition(self, letter: DeadLetter) -> int:
        topic = letter.failure.topic
        if letter.key is not None:
            return self._partitioners[topic](letter.key)
        return max(letter.failure.partition, 0) % self._counts[topic]
