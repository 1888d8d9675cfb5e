"""Reading starts at the end of a partition, before its first state leaves, and goes on where it was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaError

from topics.client import reading
from topics.client.reading import ReplyReader
from topics.client.stats import ClientStats
from topics.errors import BrokerUnavailable


@dataclass
class Record:
    offset: int


class FakeConsumer:
    """Remembers what was assigned and sought; gives polls that a test puts into `polls`."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.ends = ends
        self.asked: list[set[int]] = []
        self.positions: dict[int, int] = {}
        self.polls: asyncio.Queue[Any] = asyncio.Queue()
        self.answers_ends = asyncio.Event()
        self.answers_ends.set()

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        await self.answers_ends.wait()
        self.asked.append({p.partition for p in partitions})
        return {p: self.ends[p.partition] for p in partitions}

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.positions = {p.partition: -1 for p in partitions}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition.partition] = offset

    async def getmany(self, *, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
        found = await self.polls.get()
        if isinstance(found, Exception):
            raise found
        return {TopicPartition("actions", p): [Record(o) for o in offsets] for p, offsets in found.items()}


@contextlib.asynccontextmanager
async def reading_from(consumer: FakeConsumer) -> AsyncIterator[tuple[ReplyReader, list[int]]]:
    seen: list[int] = []
    reader = ReplyReader(consumer, "actions", lambda records: seen.extend(r.offset for r in records), ClientStats())  # type: ignore[arg-type]
    task = asyncio.create_task(reader.run())
    yield reader, seen
    consumer.polls.put_nowait(ConsumerStoppedError())
    if not consumer.positions:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait_for(task, 2)


def stats_of(reader: ReplyReader) -> ClientStats:
    return reader._stats


async def test_a_new_partition_is_read_from_its_end() -> None:
    """The end at the time of the first state, whatever others wrote before."""
    consumer = FakeConsumer({3: 70, 5: 0})
    async with reading_from(consumer) as (reader, _):
        assert not reader.reads(3)
        await reader.watch([3, 5], 1)
        assert consumer.positions == {3: 70, 5: 0}
        assert reader.reads(3)


async def test_partitions_that_are_read_go_on_where_they_were() -> None:
    """`assign` forgets positions; nothing is skipped and nothing is read twice."""
    consumer = FakeConsumer({3: 70, 5: 9})
    async with reading_from(consumer) as (reader, seen):
        await reader.watch([3], 1)
        consumer.polls.put_nowait({3: [70, 71, 75]})
        await asyncio.sleep(0.01)
        await reader.watch([5, 3], 1)
        assert consumer.positions == {3: 76, 5: 9}
        assert consumer.asked == [{3}, {5}]
        assert seen == [70, 71, 75]


async def test_known_partitions_cost_nothing() -> None:
    """No request and no new assignment."""
    consumer = FakeConsumer({3: 70})
    async with reading_from(consumer) as (reader, _):
        await reader.watch([3], 1)
        consumer.positions[3] = 99
        await reader.watch([3], 1)
        assert consumer.asked == [{3}]
        assert consumer.positions == {3: 99}


async def test_two_calls_that_add_the_same_partition_do_not_set_it_back() -> None:
    """The second one finds it read already."""
    consumer = FakeConsumer({3: 70})
    consumer.answers_ends.clear()
    async with reading_from(consumer) as (reader, _):
        both = asyncio.gather(reader.watch([3], 1), reader.watch([3], 1))
        await asyncio.sleep(0)
        consumer.answers_ends.set()
        await both
        assert consumer.asked == [{3}]


async def test_a_broker_that_does_not_say_where_the_end_is_is_named() -> None:
    """In bounded time, and the next attempt is not blocked by it."""
    consumer = FakeConsumer({3: 70})
    consumer.answers_ends.clear()
    async with reading_from(consumer) as (reader, _):
        with pytest.raises(BrokerUnavailable, match=r"within 0.01 s where the reply topic actions ends"):
            await reader.watch([3], 0.01)
        consumer.answers_ends.set()
        await reader.watch([3], 1)
        assert reader.reads(3)


async def test_a_failed_poll_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted and remembered for the text of a time-out; reading goes on."""
    monkeypatch.setattr(reading, "RETRY_S", 0)
    consumer = FakeConsumer({3: 70})
    async with reading_from(consumer) as (reader, seen):
        await reader.watch([3], 1)
        consumer.polls.put_nowait(KafkaError("no"))
        consumer.polls.put_nowait({3: [70]})
        await asyncio.sleep(0.01)
        assert seen == [70]
        assert stats_of(reader).read_errors == 1
        assert reader.last_error is None
