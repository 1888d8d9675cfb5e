"""The answers' process: reads the target's states and actions back from Kafka, and records what belongs to the run.

A process of its own, so that reading and compressing never makes a state late. Takes a `Wanted`, then hears over the
pipe how many states there are, or that it should stop; tells counts twice a second, and at last a `Found`. The pipe's
end means that the replay is gone: it finishes the file and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np
from aiokafka.structs import ConsumerRecord, TopicPartition

from tools.record.source import Source
from tools.recording.about import About
from tools.recording.recorded import Recorded
from tools.recording.write import RecordingWriter
from tools.replay.bookmark import number_in
from topics.errors import FleetError
from topics.kafka import quiet_library_logs
from topics.outbox import Place
from topics.settings import FleetSettings

TELL_EVERY_S: Final = 0.5
FLUSH_EVERY_S: Final = 2.0
NICE: Final = 5
"""Sending in time comes first."""
SEEN, ANSWERED = 1, 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to record: states and answers of the run, read from `begin` on."""

    settings: FleetSettings
    run: bytes
    begin: Mapping[Place, int]
    out: Path
    about: About
    answers_within_s: float


@dataclass(slots=True)
class Found:
    """What came of the run. Numbers are those of its states."""

    states: int = 0
    answered: int = 0
    states_twice: int = 0
    answers_twice: int = 0
    unseen: list[int] = field(default_factory=list)
    """Acknowledged, but not in their topic."""
    unanswered: list[int] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    """Offsets that retention took before they could be read."""
    error: str | None = None
    """Why the recording is not whole."""


class Tally:
    """Which states of the run were seen in their topic and which were answered: two bits a state."""

    def __init__(self, run: bytes, actions: str) -> None:
        self._run = run
        self._actions = actions
        self._marks = bytearray()
        self.found = Found()

    def __repr__(self) -> str:
        return f"<Tally {self.found.answered} of {self.found.states} answered>"

    def take(self, records: Iterable[ConsumerRecord]) -> list[Recorded]:
        """Mark these records; gives those that belong to the run."""
        ours = []
        for record in records:
            number = number_in(self._run, record.headers)
            if number is None:
                continue
            self._mark(number, ANSWERED if record.topic == self._actions else SEEN)
            ours.append(
                Recorded(
                    record.topic,
                    record.partition,
                    record.offset,
                    record.timestamp,
                    record.timestamp_type,
                    record.key,
                    record.value,
                    record.headers,
                )
            )
        return ours

    def _mark(self, number: int, mark: int) -> None:
        if number >= len(self._marks):
            self._marks.extend(bytes(max(4096, number + 1 - len(self._marks))))
        is_new = not self._marks[number] & mark
        self._marks[number] |= mark
        found = self.found
        if mark == SEEN:
            found.states, found.states_twice = found.states + is_new, found.states_twice + (not is_new)
        else:
            found.answered, found.answers_twice = found.answered + is_new, found.answers_twice + (not is_new)

    def finish(self, total: int, left_out: Iterable[int]) -> Found:
        """What is missing of `total` states, `left_out` of which were never sent."""
        marks = np.zeros(total, np.uint8)
        known = np.frombuffer(self._marks, np.uint8)[:total]
        marks[: len(known)] = known
        marks[[*left_out]] = SEEN | ANSWERED
        self.found.unseen = np.flatnonzero(marks & SEEN == 0).tolist()
        self.found.unanswered = np.flatnonzero(marks & ANSWERED == 0).tolist()
        return self.found


@dataclass(slots=True)
class Patience:
    """When to stop waiting: everything is there, or nothing new has come for `quiet_s` since all was sent."""

    quiet_s: float
    total: int | None = None
    """How many numbers were given; None while states are being sent."""
    left_out: frozenset[int] = frozenset()
    """Numbers of states that were not sent."""
    stopped: bool = False
    _known: int = -1
    _news_at_s: float = 0.0

    def hear(self, order: tuple[int, frozenset[int]] | None) -> None:
        """All is sent: total and left out; or None: stop."""
        if order is None:
            self.stopped = True
        else:
            self.total, self.left_out = order

    def is_over(self, found: Found, now_s: float) -> bool:
        """`now_s` monotonic."""
        known = found.states + found.answered
        if self.total is None or known != self._known:
            self._known, self._news_at_s = known, now_s
        if self.stopped or self.total is None:
            return self.stopped
        sent = self.total - len(self.left_out)
        return (found.states >= sent and found.answered >= sent) or now_s - self._news_at_s > self.quiet_s


def main(wanted: Wanted, pipe: Connection) -> None:
    """The process. Ctrl-C is for the replay, which then tells us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    quiet_library_logs()
    tally = Tally(wanted.run, wanted.settings.names.actions)
    try:
        asyncio.run(_collect(wanted, tally, pipe))
    except (FleetError, OSError) as error:
        tally.found.error = str(error)
    with contextlib.suppress(OSError):
        pipe.send(tally.found)


async def _collect(wanted: Wanted, tally: Tally, pipe: Connection) -> None:
    writer = RecordingWriter(wanted.out, wanted.about, rotate_bytes=None, rotate_s=None)
    patience = Patience(wanted.answers_within_s)
    try:
        async with Source(wanted.settings.kafka, lambda _line: None) as source:
            source.begin({TopicPartition(*place): offset for place, offset in wanted.begin.items()})
            await _follow(source, tally, patience, writer, pipe)
            tally.found.deleted = [str(span) for span in source.deleted]
    except (EOFError, BrokenPipeError, ConnectionResetError):
        patience.total = None  # the replay is gone; the file is finished all the same
    finally:
        writer.finish()
    if patience.total is not None:
        tally.finish(patience.total, patience.left_out)


async def _follow(source: Source, tally: Tally, patience: Patience, writer: RecordingWriter, pipe: Connection) -> None:
    told_at = flushed_at = 0.0
    while not patience.is_over(tally.found, now := time.monotonic()):
        if now - told_at > TELL_EVERY_S:
            told_at = now
            pipe.send((tally.found.states, tally.found.answered))
        while pipe.poll():
            patience.hear(pipe.recv())
        for records in (await source.poll()).values():
            writer.add(tally.take(records))
        if now - flushed_at > FLUSH_EVERY_S:
            flushed_at = now
            writer.flush()
