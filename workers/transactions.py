"""Steps 6 and 7 with `delivery = "exactly_once"`: answers, dead letters and offsets go out in one Kafka transaction.

Takes the place of `Replies`; docs/decisions/0008 has the reasons. Each owned partition of a lane has a `Source`, with a
transactional ID of its own. The ID is initialised before the committed offset is read: that ends whatever the
partition's last owner had begun and fences it, so the offset stays what it is and only we can move it. Decides where
answers go and what becomes of a fenced partition; the transactions themselves are the sources'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from topics.errors import FleetError
from topics.kafka import make_producer, read_commits, start
from topics.names import Lane
from topics.outbox import Outbox
from workers.dead_letters import DeadLetters
from workers.errors import PartitionTaken, TakeOverFailed
from workers.finished import decode
from workers.lanes import Lanes
from workers.logs import get_logger
from workers.metrics import Metrics
from workers.offsets import LaneOffsets, PartitionOffsets
from workers.reply import Encoder, OnAnswered
from workers.requests import Predicted, Refusal, Request
from workers.room import Room
from workers.settings import Settings
from workers.source import Answer, Source

log = get_logger(__name__)

REJOIN_WITHIN_SESSIONS: Final = 1.5
"""Who is fenced is usually no member any more, and hears that at its next heartbeat; who cannot be reached is none
after a session. A member that then still keeps a partition which it cannot answer leaves it to others by ending."""


class Transactions:
    """The way out of a worker's answers. Bounded by the lanes: what waits here still counts as in flight there."""

    def __init__(
        self,
        settings: Settings,
        make_letters: Callable[[Outbox], DeadLetters],
        encoder: Encoder,
        lanes: Lanes,
        on_answered: OnAnswered,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._make_letters = make_letters
        self._encoder = encoder
        self._room = Room(settings.topics.max_message_bytes)
        self._lanes = lanes
        self._on_answered = on_answered
        self._metrics = metrics
        self._sources: dict[PartitionOffsets, Source] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._running = asyncio.Event()
        self.flushes = 0
        """Transactions that were committed, and partitions that were given up."""

    @property
    def waiting(self) -> bool:
        """Whether answers wait for a transaction or for its end."""
        return any(source.waiting for source in self._sources.values())

    def predicted(self, predicted: Predicted) -> None:
        """A batch ran; its rows at fault become refusals."""
        requests, faults = predicted.batch.requests, predicted.faults
        for request, value in self._encoder.actions(predicted):
            if self._room.has(request, value):
                self._put(Answer(request, value, predicted))
            else:
                self.refused([self._room.refuse(request)])
        self.refused([Refusal(requests[row], at.outcome, at.reason, dead=at.label) for row, at in faults.items()])
        if lost := [one for row, one in enumerate(requests) if one.offsets.revoked and row not in faults]:
            self._on_answered([_part(predicted, lost)], [])

    def refused(self, refusals: Sequence[Refusal]) -> None:
        """Requests ended without a model."""
        for refusal in refusals:
            if refusal.request.offsets.revoked:
                self._on_answered([], [refusal])
            else:
                if not self._room.has(refusal.request, self._encoder.refusal(refusal)):
                    refusal.fallback = False
                if not self._room.has(refusal.request, self._encoder.refusal(refusal)):
                    self._room.shorten(refusal.request)
                self._put(Answer(refusal.request, self._encoder.refusal(refusal), refusal))

    def _put(self, answer: Answer) -> None:
        self._sources[answer.request.offsets].put(answer)

    async def run(self) -> None:
        """Send until cancelled. Raises `SendFailed` or `PartitionTaken` where another worker has to take over."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._running.set()
                await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.shield(asyncio.gather(*(source.close() for source in self._sources.values())))

    async def finish(self, within_s: float) -> None:
        """Nothing to wait for: each transaction commits what it answers."""

    async def take(self, lane: Lane, consumer: AIOKafkaConsumer, offsets: LaneOffsets, numbers: Iterable[int]) -> None:
        """Fence the last owners of these partitions, then go on where they have committed; books appear at the end.

        What a poll brings before that has no books and is ignored: aiokafka may have read an older position.
        Raises `TakeOverFailed`.
        """
        places = [TopicPartition(offsets.topic, number) for number in numbers]
        starting = [asyncio.ensure_future(self._producer(lane, place.partition)) for place in places]
        try:
            async with asyncio.timeout(self._settings.kafka.rebalance_timeout_ms / 1000):
                producers = await asyncio.gather(*starting)
                starts = await _positions(consumer, places)
                await self._running.wait()
        except (KafkaError, FleetError, TimeoutError) as error:
            for started in starting:
                started.cancel()
            why = str(error) if isinstance(error, FleetError) else repr(error)
            raise TakeOverFailed(f"could not take over partitions of {offsets.topic}: {why}") from error
        offsets.assign(place.partition for place in places)
        for place, producer in zip(places, producers, strict=True):
            consumer.seek(place, starts[place].offset)
            self._open(lane, offsets, place, starts[place], producer)

    async def _producer(self, lane: Lane, partition: int) -> AIOKafkaProducer:
        """Connected, its transactional ID initialised. The broker gives up on a transaction when we do, not before."""
        settings = self._settings
        producer = make_producer(
            settings.kafka,
            client_id=f"{settings.worker}.{lane}.{partition}",
            transactional_id=settings.names.transactional_id(lane, partition),
            transaction_timeout_ms=round(settings.reply.timeout_s * 1000),
        )
        await start(producer, settings.kafka)
        return producer

    def _open(
        self, lane: Lane, owned: LaneOffsets, place: TopicPartition, at: OffsetAndMetadata, producer: AIOKafkaProducer
    ) -> None:
        books = owned.get(place.partition)
        assert books is not None and self._tasks is not None
        books.resume(at.offset, at.metadata)
        letters = self._make_letters(Outbox(producer))
        source = Source(lane, books, producer, letters, self._room, self._report, self._settings, self._metrics)
        self._sources[books] = source
        source.task = self._tasks.create_task(self._serve(source, owned))

    async def _serve(self, source: Source, owned: LaneOffsets) -> None:
        try:
            await source.run()
        except ProducerFenced:
            self._metrics.fenced(source.lane)
            log.warning("fenced", lane=source.lane, partition=source.books.partition)
            owned.lose(source.books.partition)
            self._lanes[source.lane].drop(source.books)
            source.drop()
            within_s = REJOIN_WITHIN_SESSIONS * self._settings.kafka.session_timeout_ms / 1000
            await asyncio.sleep(within_s)  # cancelled when the group takes the lane's partitions
            text = f"partition {source.books.partition} of {owned.topic} was taken by another worker"
            raise PartitionTaken(f"{text}, and the group did not say so within {within_s:g} s") from None

    def nudge(self, lane: Lane) -> None:
        """Offsets of the lane moved without an answer (records that were skipped): commit them, too."""
        for source in self._sources.values():
            if source.lane == lane:
                source.wake.set()

    async def release(self, lane: Lane) -> None:
        """The lane's partitions are not ours any more: nothing more is sent for them."""
        gone = [source for source in self._sources.values() if source.lane == lane]
        for source in gone:
            source.books.revoke()
            del self._sources[source.books]
        await asyncio.gather(*(source.close() for source in gone))

    def _report(self, answers: Sequence[Answer]) -> None:
        rows: dict[Predicted, list[Request]] = {}
        for answer in answers:
            if isinstance(answer.origin, Predicted):
                rows.setdefault(answer.origin, []).append(answer.request)
        refusals = [answer.origin for answer in answers if isinstance(answer.origin, Refusal)]
        self.flushes += 1
        self._on_answered([_part(ran, requests) for ran, requests in rows.items()], refusals)

    def __repr__(self) -> str:
        return f"<Transactions {list(self._sources.values())}>"


async def _positions(
    consumer: AIOKafkaConsumer, places: Sequence[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Where to go on: at the commit and its map, or at the partition's beginning. Raises `TakeOverFailed`."""
    commits = await read_commits(consumer, places)
    begins = await consumer.beginning_offsets([place for place in places if place not in commits])
    for place, commit in commits.items():
        if commit.metadata and not decode(commit.offset, commit.metadata):
            text = f"the commit of {place} has metadata that no worker of this version wrote: {commit.metadata!r:.60}"
            raise TakeOverFailed(f"{text}; run the worker that wrote it, or commit its offset {commit.offset} anew")
    return {place: commits.get(place) or OffsetAndMetadata(begins[place], "") for place in places}


def _part(ran: Predicted, requests: list[Request]) -> Predicted:
    """The rows of a batch that belong to `requests`, for counting: without outputs and faults."""
    return replace(ran, batch=replace(ran.batch, requests=requests), outputs={}, faults={})
