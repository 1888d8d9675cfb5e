"""Reads topics from a place to their present end, without a group: nothing is committed and nobody is disturbed.

Takes places, gives records in the order of each partition. A broker that stops delivering is an error, not a wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

from tools.dead.ledger import Ledger
from tools.dead.notes import decode_note, is_note
from topics.closing import network_of
from topics.errors import BrokerUnavailable
from topics.kafka import log_ends, make_consumer, require_topics
from topics.letters import DeadLetter, read_letter
from topics.settings import KafkaSettings

CLIENT_ID: Final = "fleet-dead"
POLL_MS: Final = 200
RECORDS_PER_POLL: Final = 2000
STALLED_AFTER_S: Final = 15.0
"""Several times what a leader's move takes."""
PARTITION_FETCH_BYTES: Final = 2 << 20
"""Nothing here is urgent: few large fetches."""

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all."""


def no_progress(_done: int, _of: int) -> None:
    """For who does not look."""


def make_reader(kafka: KafkaSettings) -> AIOKafkaConsumer:
    """A consumer for `assign()`; not started."""
    return make_consumer(
        kafka,
        client_id=CLIENT_ID,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
    )


async def ends_of(consumer: AIOKafkaConsumer, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The offsets that the next records will get: reading that far waits for transactions that are still open."""
    return await _bounded(consumer, log_ends(consumer, places))


async def begins_of(consumer: AIOKafkaConsumer, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The offsets of the oldest records that are still there."""
    found: dict[TopicPartition, int] = await _bounded(consumer, consumer.beginning_offsets(list(places)))
    return found


async def span_of(consumer: AIOKafkaConsumer, place: TopicPartition) -> tuple[int, int]:
    """The oldest offset that is still there, and the next one."""
    return (await begins_of(consumer, [place]))[place], (await ends_of(consumer, [place]))[place]


async def _bounded(consumer: AIOKafkaConsumer, asking: object) -> dict[TopicPartition, int]:
    try:
        async with asyncio.timeout(STALLED_AFTER_S):
            return await asking  # type: ignore[misc, no-any-return]
    except (TimeoutError, KafkaError) as error:
        raise _stalled(consumer, "does not tell its offsets") from error


async def read_through(
    consumer: AIOKafkaConsumer, spans: Mapping[TopicPartition, tuple[int, int]]
) -> AsyncIterator[Sequence[ConsumerRecord]]:
    """The records at [begin, end) of each partition, a list of one partition at a time.

    Raises:
        BrokerUnavailable: nothing came for `STALLED_AFTER_S`.
    """
    left = {place: end for place, (begin, end) in spans.items() if begin < end}
    if not left:
        return
    consumer.assign(list(left))
    for place in left:
        consumer.seek(place, spans[place][0])
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + STALLED_AFTER_S
    while left:
        polled = await consumer.getmany(*left, timeout_ms=POLL_MS, max_records=RECORDS_PER_POLL)
        for place, records in polled.items():
            yield [record for record in records if record.offset < left[place]]
            give_up_at = loop.time() + STALLED_AFTER_S
        for place in [*left]:
            if await consumer.position(place) >= left[place]:
                del left[place]
        if loop.time() > give_up_at:
            place = next(iter(left))
            raise _stalled(consumer, f"delivers nothing of {place.topic} partition {place.partition}")


def _stalled(consumer: AIOKafkaConsumer, what: str) -> BrokerUnavailable:
    servers = consumer._client._bootstrap_servers
    return BrokerUnavailable(f"the cluster at {servers} {what} within {STALLED_AFTER_S:g} s: look at its brokers")


class DeadTopic:
    """The dead-letter topic as read so far: notes go into the ledger, letters to whoever looks."""

    def __init__(self, consumer: AIOKafkaConsumer, topic: str, partitions: int) -> None:
        self._consumer = consumer
        self._read_to = {TopicPartition(topic, number): 0 for number in range(partitions)}
        self.topic = topic
        self.ledger = Ledger()

    async def catch_up(
        self, on_letter: Callable[[DeadLetter], None] | None = None, progress: Progress = no_progress
    ) -> None:
        """Read on to the present end of every partition."""
        ends = await ends_of(self._consumer, [*self._read_to])
        begins = await begins_of(self._consumer, [*self._read_to])
        spans = {place: (max(begins[place], read_to), ends[place]) for place, read_to in self._read_to.items()}
        done, total = 0, sum(max(0, end - begin) for begin, end in spans.values())
        async for records in read_through(self._consumer, spans):
            for record in records:
                self._take(record, on_letter)
            done += len(records)
            progress(done, total)
        self._read_to = {place: max(read_to, ends[place]) for place, read_to in self._read_to.items()}

    def _take(self, record: ConsumerRecord, on_letter: Callable[[DeadLetter], None] | None) -> None:
        if not is_note(record):
            if on_letter is not None:
                on_letter(read_letter(record))
        elif note := decode_note(record.value):
            self.ledger.read(note, record.partition, record.offset, record.timestamp)


async def read_letters(
    consumer: AIOKafkaConsumer, topic: str, wanted: Mapping[int, Sequence[int]]
) -> AsyncIterator[list[DeadLetter]]:
    """The letters at these offsets by partition (ascending), in lists of one partition."""
    spans = {TopicPartition(topic, number): (at[0], at[-1] + 1) for number, at in wanted.items() if at}
    begins = await begins_of(consumer, [*spans])
    spans = {place: (max(begin, begins[place]), end) for place, (begin, end) in spans.items()}
    sought = {number: frozenset(offsets) for number, offsets in wanted.items()}
    async for records in read_through(consumer, spans):
        found = [record for record in records if record.offset in sought[record.partition] and not is_note(record)]
        yield [read_letter(record) for record in found]


async def partition_counts(consumer: AIOKafkaConsumer, topics: Sequence[str]) -> dict[str, int]:
    """How many partitions each topic has on the cluster. Raises `TopicMissing`."""
    await require_topics(consumer, topics)
    cluster = await network_of(consumer).fetch_all_metadata()
    return {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
