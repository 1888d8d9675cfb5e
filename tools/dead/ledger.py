"""The ledger: what the notes of all redrives say about letters. Fed note by note; no I/O, no clock.

Notes of one partition come in their order, those of different partitions in any.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from tools.dead.notes import Note

LetterId = tuple[int, int]
"""Partition and offset in the dead-letter topic."""
Status = Literal["waiting", "redriven", "perhaps"]


@dataclass(frozen=True, slots=True)
class SentBatch:
    """Letters that a run set out to send: offsets in `partition` of the dead-letter topic; see `Note.positions`."""

    partition: int
    offsets: tuple[int, ...]
    positions: dict[tuple[str, int], int]
    time_ms: int

    @property
    def letters(self) -> list[LetterId]:
        return [(self.partition, offset) for offset in self.offsets]


@dataclass(slots=True)
class Run:
    """One redrive, as far as its notes tell. `begun_at`: offset of its first note in partition 0, None before that."""

    id: str
    begun_at: int | None = None
    ended: bool = False
    notes: int = 0
    last_ms: int = 0
    resumes: tuple[str, ...] = ()
    batches: dict[int, SentBatch] = field(default_factory=dict)
    settled: dict[int, frozenset[LetterId]] = field(default_factory=dict)
    """batch → letters of it that were not sent."""

    @property
    def doubtful(self) -> int | None:
        """Number of the batch that nobody knows to be sent: the last one of a run that did not end."""
        last = max(self.batches, default=None)
        return None if self.ended or last in self.settled else last


class Ledger:
    """Every run by its ID, and which letters they sent."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}

    def __repr__(self) -> str:
        open_runs = [run.id for run in self.runs.values() if not run.ended]
        return f"<Ledger {len(self.runs)} runs, open: {', '.join(open_runs) or 'none'}>"

    def read(self, note: Note, partition: int, offset: int, time_ms: int) -> None:
        """Take in the note that stands at `offset` of `partition`; reading one twice changes nothing."""
        run = self.runs.setdefault(note.run, Run(note.run))
        run.notes += 1
        run.last_ms = max(run.last_ms, time_ms)
        match note.kind:
            case "begin":
                run.begun_at, run.resumes = offset, note.resumes
            case "end":
                run.ended = True
            case "sending":
                run.batches[note.batch] = SentBatch(partition, note.offsets, _places(note), time_ms)
            case "settled":
                run.settled[note.batch] = frozenset((partition, unsent) for unsent in note.offsets)

    def open_before(self, run: str) -> list[Run]:
        """Runs that began before `run` and have not ended; all of them if `run` has not begun."""
        begun_at = self.runs[run].begun_at if run in self.runs else None
        return [
            other
            for other in self.runs.values()
            if other.id != run
            and not other.ended
            and other.begun_at is not None
            and (begun_at is None or other.begun_at < begun_at)
        ]

    def sent_by(self, runs: Collection[str]) -> dict[LetterId, int]:
        """Letters that these runs sent, or may have sent, and when (Unix ms, the latest)."""
        sent: dict[LetterId, int] = {}
        for run in filter(None, map(self.runs.get, runs)):
            for number, batch in run.batches.items():
                for letter in set(batch.letters) - run.settled.get(number, frozenset()):
                    sent[letter] = max(batch.time_ms, sent.get(letter, 0))
        return sent

    def sent(self) -> dict[LetterId, int]:
        """Letters that any run sent, or may have sent, and when (Unix ms)."""
        return self.sent_by(self.runs)

    def perhaps(self) -> set[LetterId]:
        """Letters of which only the next redrive will find out whether they were sent."""
        doubtful = [(run, run.doubtful) for run in self.runs.values()]
        return {letter for run, number in doubtful if number is not None for letter in run.batches[number].letters}

    def chain(self, run: str) -> set[str]:
        """The runs whose work `run` goes on with, through all that were cut off in turn."""
        found: set[str] = set()
        ahead = [run]
        while ahead:
            one = self.runs.get(ahead.pop())
            earlier = set(one.resumes if one else ()) - found
            found |= earlier
            ahead += earlier
        return found


def _places(note: Note) -> dict[tuple[str, int], int]:
    places = {}
    for place, offset in note.positions.items():
        topic, _, number = place.rpartition(":")
        places[topic, int(number) if number.isdecimal() and len(number) < 10 else -1] = offset
    return places
