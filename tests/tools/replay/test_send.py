"""The sender against a producer like aiokafka: one batch of a partition waits, the next waits for that to leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import MessageSizeTooLargeError

import tools.replay.send as send
from tools.replay.send import Piece, Sender
from topics.outbox import SendFailed

PLACES = [("t", 0), ("t", 1)]


class Batch:
    """Takes `limit` records, and none once the producer has packed it."""

    def __init__(self, limit: int) -> None:
        self.records: list[int] = []
        self.packed = False
        self._limit = limit

    def append(self, *, timestamp: int, key: bytes, value: bytes, headers: Any) -> Any:
        assert not self.packed, "filled after the producer had counted it"
        if len(self.records) == self._limit:
            return None
        self.records.append(int(value))
        return object()


class Producer:
    """`run` drains and acknowledges every `every_s`; what arrived is in `logs`."""

    def __init__(self, every_s: float = 0.002, limit: int = 4) -> None:
        self.logs: dict[int, list[int]] = {0: [], 1: []}
        self.refuse: set[int] = set()
        self.away = False
        self._every_s = every_s
        self._limit = limit
        self._drained: dict[int, asyncio.Event] = {0: asyncio.Event(), 1: asyncio.Event()}
        self._slots: dict[int, tuple[Batch, asyncio.Future[Any]]] = {}

    def create_batch(self) -> Batch:
        return Batch(self._limit)

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[Any]:
        while partition in self._slots:
            self._drained[partition].clear()
            await self._drained[partition].wait()
        future = asyncio.get_running_loop().create_future()
        self._slots[partition] = batch, future
        return future

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            slots = {} if self.away else dict(self._slots)
            for partition, (batch, _) in slots.items():
                batch.packed = True
                del self._slots[partition]
                self._drained[partition].set()
            await asyncio.sleep(self._every_s)
            for partition, (batch, future) in slots.items():
                if self.refuse & {*batch.records}:
                    future.set_exception(MessageSizeTooLargeError())
                    continue
                offset = len(self.logs[partition])
                self.logs[partition] += batch.records
                future.set_result(SimpleNamespace(offset=offset))


def pieces(dues_us: Sequence[int], size: int = 7) -> AsyncIterator[Piece]:
    async def made() -> AsyncIterator[Piece]:
        for at in range(0, len(dues_us), size):
            numbers = [*range(at, min(at + size, len(dues_us)))]
            texts: list[Any] = [b"%d" % number for number in numbers]
            places = [number % 3 % 2 for number in numbers]
            yield Piece(numbers, [*dues_us[at : at + size]], places, texts, texts, [[] for _ in numbers])

    return made()


async def run(sender: Sender, producer: Producer, dues_us: Sequence[int]) -> None:
    sender.begin_s = time.monotonic()
    around = asyncio.create_task(producer.run())
    try:
        async with asyncio.timeout(20):
            await sender.run(pieces(dues_us))
    finally:
        around.cancel()


@pytest.mark.parametrize("gap_us", [0, 150])
async def test_every_state_arrives_once_in_the_order_of_its_partition(gap_us: int) -> None:
    """At full speed and on a schedule; batches are filled while they wait, never after the producer packed them."""
    producer = Producer()
    sender = Sender(producer, PLACES)
    await run(sender, producer, [gap_us * number for number in range(500)])
    assert sorted(producer.logs[0] + producer.logs[1]) == [*range(500)]
    assert all(log == sorted(log) for log in producer.logs.values())
    assert (sender.acknowledged, sender.taken, sender.done_below) == (500, 500, 500)
    assert sender.offsets() == {("t", 0): len(producer.logs[0]), ("t", 1): len(producer.logs[1])}


async def test_nothing_leaves_early_and_a_stall_delays_no_later_state() -> None:
    """Lateness counts from the schedule, not from the state before: the stall is seen and then over."""
    producer = Producer(limit=100)
    sender = Sender(producer, PLACES)
    dues_us = [number * 1000 for number in range(400)]

    async def stall() -> None:
        await asyncio.sleep(0.1)
        time.sleep(0.08)  # noqa: ASYNC251 – the whole loop hangs

    stalled = asyncio.create_task(stall())
    await run(sender, producer, dues_us)
    await stalled
    assert sender.handed_over.read().max_ms >= 60
    assert sender.ended_us - dues_us[-1] >= 0
    assert sender.handed_over.read().p50_ms < 60


async def test_a_refusal_ends_the_run_and_says_which_numbers_are_not_done() -> None:
    """Nothing is retried or skipped in silence."""
    producer = Producer()
    producer.refuse = {100}
    sender = Sender(producer, PLACES)
    with pytest.raises(SendFailed, match="refused states to t/1"):
        await run(sender, producer, [0] * 500)
    assert sender.done_below <= 100 and sender.acknowledged < 500


async def test_a_silent_broker_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit, and without any acknowledgement."""
    monkeypatch.setattr(send, "SILENT_AFTER_S", 0.2)
    monkeypatch.setattr(send, "LOOK_EVERY_S", 0.05)
    producer = Producer()
    producer.away = True
    with pytest.raises(SendFailed, match="no acknowledgement"):
        await run(Sender(producer, PLACES), producer, [0] * 10)


async def test_the_sender_holds_a_bounded_number_of_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """At full speed it waits for acknowledgements."""
    monkeypatch.setattr(send, "MAX_UNACKNOWLEDGED", 50)
    producer = Producer()
    sender = Sender(producer, PLACES)
    most = 0

    async def look() -> None:
        nonlocal most
        while True:
            await asyncio.sleep(0)
            most = max(most, sender.taken - sender.acknowledged)

    looking = asyncio.create_task(look())
    await run(sender, producer, [0] * 1000)
    looking.cancel()
    assert 50 <= most < 50 + 8 and sender.acknowledged == 1000


async def test_who_stops_early_knows_what_is_sent() -> None:
    """Also in the middle of a pause of an hour."""
    producer = Producer()
    sender = Sender(producer, PLACES)
    asyncio.get_running_loop().call_later(0.1, sender.stop)
    await run(sender, producer, [0, 0, 0, 3_600_000_000])
    assert (sender.acknowledged, sender.next_number, sender.done_below) == (3, 3, 3)
