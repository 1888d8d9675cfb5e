"""Recorded states become outgoing ones: numbered, rewritten, with a due time and a partition. Sync, no Kafka.

Takes the recording's lists in their order, gives pieces for the sender. The same recording and the same choices give
the same numbers every time, which is what a resumed run relies on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

import numpy as np

from tools.recording.recorded import Recorded
from tools.replay.rewrite import Headers, copied_key, headers_again
from tools.replay.schedule import Schedule
from tools.replay.send import Piece
from tools.replay.times import shifted_all
from topics.errors import FleetError
from topics.outbox import Place
from topics.partitions import Partitioner

PIECE_STATES: Final = 512
"""What the sender takes at once at full speed: 1 ms of work."""
RECORD_OVERHEAD_BYTES: Final = 128
"""The record batch's header (61), the record's own lengths, and some air."""
HEADER_OVERHEAD_BYTES: Final = 8


class Places:
    """Where states go: the recorded partition, or (`rekey`, copies of agents) that of the key as agents choose it."""

    def __init__(self, topics: Mapping[str, str], partitions: Mapping[str, int], *, rekey: bool) -> None:
        """`topics`: recorded topic → target topic; `partitions`: how many each target topic has."""
        self.all: list[Place] = []
        self._rekey = rekey
        self._first: dict[str, int] = {}
        self._partitioners: dict[str, Partitioner] = {}
        for recorded, target in topics.items():
            self._first[recorded] = len(self.all)
            self._partitioners[recorded] = Partitioner(partitions[target])
            self.all += [(target, number) for number in range(partitions[target])]

    def at(self, topic: str, partition: int, key: bytes | None, copy: int) -> int:
        """Index into `all`."""
        partitioner = self._partitioners[topic]
        if not copy and not self._rekey:
            return self._first[topic] + partition
        return self._first[topic] + (partition % partitioner.partitions if key is None else partitioner(key))


@dataclass(frozen=True, slots=True)
class Done:
    """What an earlier run has sent: every number below `below`, and these."""

    below: int = 0
    also: Collection[int] = frozenset()

    @property
    def count(self) -> int:
        """How many that are."""
        return self.below + len(self.also)

    def __contains__(self, number: int) -> bool:
        return number < self.below or number in self.also


@dataclass(frozen=True, slots=True)
class Unsendable:
    """A state that its topic would not take."""

    number: int
    state: str
    size_bytes: int


@dataclass(slots=True)
class Outgoing:
    """How recorded states become outgoing ones; iterate `pieces` once."""

    run: bytes
    places: Places
    speed: float | None
    loops: int
    copies: int
    max_bytes: int
    done: Done = field(default_factory=Done)
    unsendable: list[Unsendable] = field(default_factory=list)
    total: int | None = None
    """How many numbers there are, once the last piece is made."""
    _begun_us: int | None = None
    """Recorded due time of the first state that is still to be sent: now it is due at 0."""

    def pieces(self, begin: Callable[[], Iterable[Sequence[Recorded]]], begin_us: int) -> Iterator[Piece]:
        """`begin` starts reading the recording; `begin_us` is the Unix time (µs) at which the first state is due."""
        schedule, number, at_once = Schedule(self.speed), 0, max(1, PIECE_STATES // self.copies)
        for _ in range(self.loops):
            for records in begin():
                for at in range(0, len(records), at_once):
                    some = records[at : at + at_once]
                    piece = self._piece(some, number, schedule, begin_us)
                    if piece.numbers:
                        yield piece
                    number += len(some) * self.copies
            schedule.next_loop()
        self.total = number

    def _piece(self, records: Sequence[Recorded], first: int, schedule: Schedule, begin_us: int) -> Piece:
        copies, numbers = self.copies, range(first, first + len(records) * self.copies)
        times_ms = np.array([record.timestamp_ms for record in records], np.int64)
        dues_us = schedule.dues_us(times_ms)
        if self._begun_us is None:
            unsent = next((number for number in numbers if number not in self.done), None)
            self._begun_us = None if unsent is None else int(dues_us[(unsent - first) // copies])
        dues_us -= self._begun_us or 0
        sent_us = begin_us + dues_us if self.speed is not None else time.time_ns() // 1000
        values = shifted_all([record.value for record in records], sent_us - times_ms * 1000)
        ids = np.array(numbers, ">u8").tobytes()
        each = [(record, copy) for record in records for copy in range(copies)]
        keys = [copied_key(record.key, copy) for record, copy in each]
        piece = Piece(
            [*numbers],
            np.repeat(dues_us, copies).tolist(),
            [
                self.places.at(record.topic, record.partition, key, copy)
                for (record, copy), key in zip(each, keys, strict=True)
            ],
            keys,
            [value for value in values for _ in range(copies)],
            [
                headers_again(record.headers, self.run + ids[at : at + 8])
                for (record, _), at in zip(each, range(0, len(ids), 8), strict=True)
            ],
        )
        self._leave_out(piece, records)
        return piece

    def _leave_out(self, piece: Piece, records: Sequence[Recorded]) -> None:
        """Drop what an earlier run has sent, and what its topic would not take."""
        columns = zip(piece.numbers, piece.keys, piece.values, piece.headers, strict=True)
        sizes = [_size(key, value, headers) for _, key, value, headers in columns]
        if not self.done.below and max(sizes) <= self.max_bytes:
            return
        kept = []
        for at, number in enumerate(piece.numbers):
            if number in self.done:
                continue
            if sizes[at] <= self.max_bytes:
                kept.append(at)
            else:
                self.unsendable.append(Unsendable(number, name_of(records[at // self.copies]), sizes[at]))
        for column in fields(piece):
            whole = getattr(piece, column.name)
            whole[:] = [whole[at] for at in kept]


def name_of(record: Recorded) -> str:
    """A state as people find it again: agent, topic/partition:offset of the recording."""
    agent = "no agent" if record.key is None else f"agent {record.key.decode(errors='replace')}"
    return f"{agent} ({record.topic}/{record.partition}:{record.offset})"


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """At most what the record takes, alone in a batch."""
    size = len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES
    if len(headers) > 1:  # else it is the correlation ID, which the overhead has room for
        size += sum(len(name.encode()) + len(text or b"") + HEADER_OVERHEAD_BYTES for name, text in headers)
    return size


def require_partitions(recorded: Iterable[Place], topics: Mapping[str, str], partitions: Mapping[str, int]) -> None:
    """Every recorded partition is there at the target. Raises `FleetError`."""
    for topic, number in recorded:
        target = topics[topic]
        if number >= partitions[target]:
            raise FleetError(
                f"the recording has states of {topic} partition {number}, {target} has {partitions[target]} "
                "partitions: --rekey spreads agents over them by their keys"
            )
