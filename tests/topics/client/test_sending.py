"""States leave in order, one batch per partition at a time, and no partition waits for another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from aiokafka.producer.message_accumulator import BatchBuilder

from topics.client import sending
from topics.client.calls import Call
from topics.client.errors import NotSent
from topics.client.sending import Columns, StateSender


class FakeProducer:
    """Takes batches of at most `batch_bytes` and acknowledges when told to."""

    def __init__(self, batch_bytes: int = 1000) -> None:
        self.batch_bytes = batch_bytes
        self.sent: list[tuple[str, int, int]] = []
        self.unacknowledged: dict[tuple[str, int], list[asyncio.Future[Any]]] = {}
        self.error: BaseException | None = None

    def create_batch(self) -> BatchBuilder:
        return BatchBuilder(self.batch_bytes, 0)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> asyncio.Future[Any]:
        if self.error is not None:
            raise self.error
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent.append((topic, partition, batch.record_count()))
        self.unacknowledged.setdefault((topic, partition), []).append(done)
        return done

    def acknowledge(self, topic: str, partition: int, error: KafkaError | None = None) -> None:
        done = self.unacknowledged[topic, partition].pop(0)
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


class Refusals:
    def __init__(self) -> None:
        self.heard: list[tuple[Call, list[int], str]] = []

    def __call__(self, call: Call, rows: Sequence[int], error: NotSent) -> None:
        self.heard.append((call, list(rows), str(error)))


@contextlib.asynccontextmanager
async def sending_to(producer: FakeProducer, refusals: Refusals | None = None) -> AsyncIterator[StateSender]:
    sender = StateSender(producer, refusals or Refusals())  # type: ignore[arg-type]
    task = asyncio.create_task(sender.run())
    yield sender
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def call(size: int = 1) -> Call:
    return Call(b"client!!\0\0\0\0", size, 0.0, lambda rows: None)


def put(sender: StateSender, topic: str, partition: int, ours: Call, rows: list[int], size: int = 10) -> None:
    count = max(rows) + 1
    columns = Columns([b"key"] * count, [bytes(size)] * count, [[] for _ in range(count)])
    sender.put(topic, partition, ours, rows, columns)


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_is_put_in_one_turn_leaves_together() -> None:
    """Of several calls, one batch per partition."""
    producer = FakeProducer()
    async with sending_to(producer) as sender:
        put(sender, "high", 0, call(2), [0, 1])
        put(sender, "high", 0, call(1), [0])
        put(sender, "high", 1, call(1), [0])
        assert not producer.sent
        await turns()
        assert sorted(producer.sent) == [("high", 0, 3), ("high", 1, 1)]


async def test_one_batch_per_partition_is_in_flight() -> None:
    """What comes meanwhile gathers and leaves when it has been acknowledged; other partitions do not wait."""
    producer = FakeProducer()
    async with sending_to(producer) as sender:
        put(sender, "high", 0, call(), [0])
        await turns()
        for _ in range(3):
            put(sender, "high", 0, call(), [0])
            await turns()
        put(sender, "low", 0, call(), [0])
        await turns()
        assert producer.sent == [("high", 0, 1), ("low", 0, 1)]
        producer.acknowledge("high", 0)
        await turns()
        assert producer.sent == [("high", 0, 1), ("low", 0, 1), ("high", 0, 3)]


async def test_states_that_do_not_fit_one_batch_fill_several() -> None:
    """In order, one after the other."""
    producer = FakeProducer(batch_bytes=300)
    async with sending_to(producer) as sender:
        put(sender, "high", 0, call(10), list(range(10)), size=40)
        for _ in range(5):
            await turns()
            if producer.unacknowledged["high", 0]:
                producer.acknowledge("high", 0)
        counts = [count for _, _, count in producer.sent]
        assert sum(counts) == 10
        assert len(counts) > 1
        assert repr(sender) == "<StateSender 1 routes, 0 bytes wait>"


async def test_a_refusal_reaches_the_rows_it_hit() -> None:
    """And only those: the call learns topic, partition and reason, and the next batch leaves."""
    producer, refusals = FakeProducer(batch_bytes=150), Refusals()
    ours = call(3)
    async with sending_to(producer, refusals) as sender:
        put(sender, "high", 4, ours, [0, 2, 1], size=60)
        await turns()
        producer.acknowledge("high", 4, TopicAuthorizationFailedError("high"))
        await turns()
        ((found, rows, text),) = refusals.heard
        assert found is ours
        assert rows == [0]
        assert text.startswith("the broker refused states to high/4: TopicAuthorizationFailedError")
        assert len(producer.sent) == 2


async def test_a_batch_that_cannot_even_be_handed_over_is_refused() -> None:
    """The sender goes on with the next."""
    producer, refusals = FakeProducer(), Refusals()
    async with sending_to(producer, refusals) as sender:
        producer.error = KafkaError("closed")
        put(sender, "high", 0, call(), [0])
        await turns()
        assert [rows for _, rows, _ in refusals.heard] == [[0]]
        producer.error = None
        put(sender, "high", 0, call(), [0])
        await turns()
        assert producer.sent == [("high", 0, 1)]


async def test_what_waits_for_a_silent_broker_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the bound a call is told at once, with the topic; what was acknowledged makes room."""
    monkeypatch.setattr(sending, "MAX_WAITING_BYTES", 500)
    producer = FakeProducer()
    async with sending_to(producer) as sender:
        put(sender, "high", 0, call(), [0])
        await turns()
        put(sender, "high", 0, call(1), [0], size=600)
        with pytest.raises(NotSent, match="wait for the broker of high/0"):
            put(sender, "high", 0, call(), [0])
        producer.acknowledge("high", 0)
        await turns()
        put(sender, "high", 0, call(), [0])


async def test_it_knows_whose_states_are_not_acknowledged() -> None:
    """That is what the text of a time-out needs."""
    producer = FakeProducer()
    first, second = call(), call()
    async with sending_to(producer) as sender:
        put(sender, "high", 0, first, [0])
        await turns()
        put(sender, "high", 0, second, [0])
        assert sender.unacknowledged(first) == sender.unacknowledged(second) == ["high"]
        producer.acknowledge("high", 0)
        await turns()
        assert sender.unacknowledged(first) == []
        assert sender.unacknowledged(second) == ["high"]
