"""A redrive: letters go back to their lanes, batch by batch, and every step leaves a note behind.

    begin → (settle what earlier runs left in doubt) → [note "sending" → letters → acknowledged] … → end

Whatever instant a crash picks, the next redrive knows of every letter whether it was sent (`ledger`, `settle`). One
redrive runs at a time: `claim` waits until an open one is seen to be silent, and a run that was taken for dead stops
before its next batch. Reasons: docs/decisions/0007-redrive.md.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from tools.dead.ledger import LetterId, Run
from tools.dead.notes import VERSION, Note, encode_note
from tools.dead.read import DeadTopic
from tools.dead.resend import Resend, Resender, Unsendable
from tools.dead.settle import settle
from tools.offsets import ends_of
from topics.errors import FleetError
from topics.letters import NOTE, DeadLetter
from topics.outbox import Outbox

BATCH_LETTERS: Final = 500
BATCH_BYTES: Final = 4 << 20
BATCH_S: Final = 0.5
"""With a rate, a batch holds what may be sent in this time."""
SEND_WITHIN_S: Final = 5.0
ALIVE_EVERY_S: Final = 1.0
SILENT_AFTER_S: Final = 8.0
"""A run that lives is never silent this long: `ALIVE_EVERY_S` and `SEND_WITHIN_S`, then it has failed."""
LONG_AGO_S: Final = 120.0
"""A run whose last note is this old needs no watching; more than clocks of two machines differ by."""


class RedriveRuns(FleetError):
    """Another redrive of this fleet is at work."""


class TakenOver(FleetError):
    """Another redrive took this one for dead and went on with its work."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Letters per second; None for as fast as the brokers take them."""

    rate: float | None

    @property
    def batch_letters(self) -> int:
        """The most letters of one batch."""
        return BATCH_LETTERS if self.rate is None else max(1, min(BATCH_LETTERS, int(self.rate * BATCH_S)))

    def wait_s(self, sent: int, elapsed_s: float) -> float:
        """How long to wait after `sent` letters in `elapsed_s`."""
        return 0.0 if self.rate is None else max(0.0, sent / self.rate - elapsed_s)


@dataclass(slots=True)
class Report:
    """What a redrive did."""

    sent: int = 0
    unsendable: list[Unsendable] = field(default_factory=list)
    resumed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Run that was cut off → letters of its last batch that had been sent, and letters in that batch."""
    unknown: list[LetterId] = field(default_factory=list)
    """Letters of a run that was cut off; the lanes have deleted what would tell whether they were sent."""


class Redrive:
    """One run. `claim` first, then `send`, then `end`; `stay_alive` beside all of them."""

    def __init__(
        self, topic: DeadTopic, reader: AIOKafkaConsumer, producer: AIOKafkaProducer, resender: Resender, run: str
    ) -> None:
        self.run = run
        self.report = Report()
        self._topic = topic
        self._reader = reader
        self._producer = producer
        self._resender = resender
        self._outbox = Outbox(producer)
        self._batches = 0

    async def begin(self) -> list[Run]:
        """Write the first note. Gives the runs that began before and have not ended."""
        resumes = tuple(run.id for run in self._topic.ledger.open_before(self.run))
        await self._note(Note("begin", self.run, resumes=resumes))
        await self._topic.catch_up()
        return self._topic.ledger.open_before(self.run)

    async def claim(self, earlier: Sequence[Run], say: Callable[[str], None]) -> None:
        """Wait until the earlier runs are known to be dead, then settle what they left in doubt.

        Raises `RedriveRuns` if one of them lives.
        """
        if any(time.time() - run.last_ms / 1000 < LONG_AGO_S for run in earlier):
            say(f"an earlier redrive did not end; watching for {SILENT_AFTER_S:g} s whether it still runs")
            await self._watch(earlier)
        for run in earlier:
            await self._settle(run)

    async def send(
        self, letters: AsyncIterator[list[DeadLetter]], pace: Pace, on_sent: Callable[[Sequence[Resend]], None]
    ) -> None:
        """Send the letters in their order; `on_sent` is told of every acknowledged batch.

        Raises:
            SendFailed: the broker does not acknowledge; the next redrive goes on.
            TakenOver: another run settled this one.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        async for some in letters:
            for batch in batches(self._sendable(some), pace.batch_letters):
                await self._send(batch)
                on_sent(batch)
                self.report.sent += len(batch)
                await asyncio.sleep(pace.wait_s(self.report.sent, loop.time() - started))

    async def end(self) -> None:
        """The last note: nothing is in doubt."""
        await self._check_still_ours()
        await self._note(Note("end", self.run))

    async def stay_alive(self) -> None:
        """Notes for whoever would take over, until cancelled."""
        while True:
            await asyncio.sleep(ALIVE_EVERY_S)
            await self._note(Note("alive", self.run))

    async def _watch(self, earlier: Sequence[Run]) -> None:
        heard = {run.id: run.notes for run in earlier}
        loop = asyncio.get_running_loop()
        until = loop.time() + SILENT_AFTER_S
        while loop.time() < until:
            await asyncio.sleep(ALIVE_EVERY_S / 2)
            await self._topic.catch_up()
            alive = [run.id for run in earlier if run.notes > heard[run.id] and not run.ended]
            if alive:
                await self._note(Note("end", self.run))
                raise RedriveRuns(
                    f"redrive {alive[0]} is at work on {self._topic.topic}: wait for it, or stop it and try again"
                )

    async def _settle(self, run: Run) -> None:
        if run.ended:  # it ended while it was watched
            return
        number = run.doubtful
        if number is not None:
            batch = run.batches[number]
            found = await settle(self._reader, run.id, batch)
            offsets = tuple(offset for _, offset in found.unsent)
            await self._note(Note("settled", run.id, batch=number, offsets=offsets), batch.partition)
            self.report.resumed[run.id] = (len(found.sent), len(batch.offsets))
            self.report.unknown += found.sent if found.lost else ()
        await self._note(Note("end", run.id))
        await self._topic.catch_up()

    def _sendable(self, letters: Iterable[DeadLetter]) -> list[Resend]:
        found = [self._resender.resend(letter) for letter in letters]
        self.report.unsendable += [one for one in found if isinstance(one, Unsendable)]
        return [one for one in found if isinstance(one, Resend)]

    async def _send(self, batch: Sequence[Resend]) -> None:
        """One batch of one partition of the dead-letter topic: first the note, then the letters."""
        await self._check_still_ours()
        ends = await ends_of(self._reader, sorted({TopicPartition(one.topic, one.partition) for one in batch}))
        note = Note(
            "sending",
            self.run,
            batch=self._batches,
            offsets=tuple(one.letter.offset for one in batch),
            positions={f"{place.topic}:{place.partition}": offset for place, offset in ends.items()},
        )
        await self._note(note, batch[0].letter.partition)
        self._batches += 1
        for one in batch:
            self._outbox.add(one.topic, one.partition, one.letter.key, one.letter.value, one.headers)
        await self._outbox.flush(SEND_WITHIN_S)

    async def _check_still_ours(self) -> None:
        await self._topic.catch_up()
        run = self._topic.ledger.runs[self.run]
        if not run.ended:
            return
        twice = [f"{partition}:{offset}" for settled in run.settled.values() for partition, offset in sorted(settled)]
        more = f"; letters that may have been sent twice: {', '.join(twice)}" if twice else ""
        raise TakenOver(f"redrive {self.run} was silent for too long, another one took over its work{more}")

    async def _note(self, note: Note, partition: int = 0) -> None:
        outbox = Outbox(self._producer)
        outbox.add(self._topic.topic, partition, None, encode_note(note), [(NOTE, VERSION)])
        await outbox.flush(SEND_WITHIN_S)


def new_run() -> str:
    """An ID that no other run has and no agent can guess."""
    return uuid.uuid4().hex[:16]


def batches(resends: Iterable[Resend], most: int) -> list[list[Resend]]:
    """Cut into batches of at most `most` letters and `BATCH_BYTES` (or one letter)."""
    cut: list[list[Resend]] = []
    size = 0
    for one in resends:
        if not cut or len(cut[-1]) == most or size + one.size_bytes > BATCH_BYTES:
            cut.append([])
            size = 0
        cut[-1].append(one)
        size += one.size_bytes
    return cut


def due(
    matching: Iterable[LetterId], sent: Iterable[LetterId], *, limit: int | None
) -> tuple[dict[int, list[int]], int]:
    """What is to be sent, offsets by partition, ascending; and how many are left out because they were sent."""
    done = frozenset(sent)
    letters = sorted(matching)
    fresh = [letter for letter in letters if letter not in done]
    wanted: dict[int, list[int]] = {}
    for partition, offset in islice(fresh, limit):
        wanted.setdefault(partition, []).append(offset)
    return wanted, len(letters) - len(fresh)
