"""Reads topics from a place to their present end, without a group: nothing is committed and nobody is disturbed.

Takes places, gives records in the order of each partition. A broker that stops delivering is an error, not a wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition

from tools.dead.ledger import Ledger
from tools.dead.notes import decode_note, is_note
from tools.offsets import STALLED_AFTER_S, begins_of, ends_of, stalled
from topics.kafka import make_consumer
from topics.letters import DeadLetter, read_letter
from topics.settings import KafkaSettings

CLIENT_ID: Final = "fleet-dead"
POLL_MS: Final = 200
RECORDS_PER_POLL: Final = 2000
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
            raise stalled(consumer, f"delivers nothing of {place.topic} partition {place.partition}")


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
