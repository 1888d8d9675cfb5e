"""Recorded states become outgoing ones: numbered, rewritten, with a due time and a partition. Sync, no Kafka.

Takes the recording's lists in their order, gives pieces for the sender. The same recording and the same choices give
the same numbers every time, which is what a resumed run relies on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tools.recording.recorded import Recorded
from tools.replay.rewrite import Headers, copied_key, headers_again, shifted
from tools.replay.schedule import Schedule
from tools.replay.send import Piece
from topics.errors import FleetError
from topics.outbox import Place
from topics.partitions import Partitioner

PIECE_STATES: Final = 256
"""What the sender takes at once at full speed: 2 ms of work."""
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

    def at(self, topic: str, partition: int, key: bytes | None, *, is_copy: bool) -> int:
        """Index into `all`."""
        partitioner = self._partitioners[topic]
        if not self._rekey and not is_copy and partition < partitioner.partitions:
            return self._first[topic] + partition
        return self._first[topic] + (partition % partitioner.partitions if key is None else partitioner(key))


@dataclass(frozen=True, slots=True)
class Done:
    """What an earlier run has sent: every number below `below`, and these."""

    below: int = 0
    also: Collection[int] = frozenset()

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

    def pieces(self, begin: Callable[[], Iterable[Sequence[Recorded]]], begin_us: int) -> Iterator[Piece]:
        """`begin` starts reading the recording; `begin_us` is the Unix time (µs) at which the first state is due."""
        schedule, number, piece = Schedule(self.speed), 0, Piece()
        begun_us: int | None = None  # recorded time of the first state that is still to be sent
        for _ in range(self.loops):
            for records in begin():
                for record in records:
                    due_us = schedule.due_us(record.timestamp_ms)
                    for copy in range(self.copies):
                        if number not in self.done:
                            begun_us = due_us if begun_us is None else begun_us
                            self._add(piece, number, record, copy, due_us - begun_us, begin_us)
                        number += 1
                    if len(piece.numbers) >= PIECE_STATES:
                        yield piece
                        piece = Piece()
            schedule.next_loop()
        self.total = number
        yield piece

    def _add(self, piece: Piece, number: int, record: Recorded, copy: int, due_us: int, begin_us: int) -> None:
        key = record.key if copy == 0 else copied_key(record.key, copy)
        sent_us = begin_us + due_us if self.speed is not None else time.time_ns() // 1000
        value = record.value
        if value is not None:
            value = shifted(value, sent_us - record.timestamp_ms * 1000)
        headers = headers_again(record.headers, self.run + number.to_bytes(8, "big"))
        if len(headers) > 1 or len(key or b"") + len(value or b"") > self.max_bytes >> 1:
            size = _size(key, value, headers)
            if size > self.max_bytes:
                self.unsendable.append(Unsendable(number, name_of(record), size))
                return
        piece.numbers.append(number)
        piece.dues_us.append(due_us)
        piece.places.append(self.places.at(record.topic, record.partition, key, is_copy=copy > 0))
        piece.keys.append(key)
        piece.values.append(value)
        piece.headers.append(headers)


def name_of(record: Recorded) -> str:
    """A state as people find it again: agent, topic/partition:offset of the recording."""
    agent = "no agent" if record.key is None else f"agent {record.key.decode(errors='replace')}"
    return f"{agent} ({record.topic}/{record.partition}:{record.offset})"


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """At most what the record takes, alone in a batch."""
    taken = sum(len(name.encode()) + len(value or b"") + HEADER_OVERHEAD_BYTES for name, value in headers)
    return len(key or b"") + len(value or b"") + taken + RECORD_OVERHEAD_BYTES


def require_partitions(recorded: Iterable[Place], topics: Mapping[str, str], partitions: Mapping[str, int]) -> None:
    """Every recorded partition is there at the target. Raises `FleetError`."""
    for topic, number in recorded:
        target = topics[topic]
        if number >= partitions[target]:
            raise FleetError(
                f"the recording has states of {topic} partition {number}, {target} has {partitions[target]} "
                "partitions: --rekey spreads agents over them by their keys"
            )
