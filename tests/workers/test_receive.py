"""Receive: asks for as much as there is room, never cancels a poll, and gives partitions up whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from tests.workers.build import record, request
from topics.names import Lane
from workers.errors import ReceiveFailed
from workers.lanes import LaneQueue
from workers.metrics import Metrics
from workers.offsets import LaneOffsets
from workers.receive import NOTHING, Receive

PARTITION = TopicPartition("f.states.normal", 0)


class FakeConsumer:
    """Answers each poll as told: with records, an error, or nothing until the time-out."""

    def __init__(self, *polls: Any) -> None:
        self.polls = list(polls)
        self.asked: list[tuple[tuple[Any, ...], int | None]] = []
        self.cancelled = 0
        self.commits = {PARTITION: OffsetAndMetadata(5, "")}
        self._client = SimpleNamespace(cluster=SimpleNamespace(unauthorized_topics=set()))
        self._coordinator = SimpleNamespace(fetch_committed_offsets=self._committed)

    async def getmany(self, *partitions: Any, timeout_ms: int, max_records: int | None = None) -> Any:
        self.asked.append((partitions, max_records))
        answer = self.polls.pop(0) if self.polls else {}
        try:
            await asyncio.sleep(0 if answer else timeout_ms / 1000)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _committed(self, _partitions: Any) -> Any:
        return self.commits


class Bench:
    def __init__(self, *polls: Any, max_depth: int = 8, on_revoked: Callable[[], None] = lambda: None) -> None:
        self.consumer = FakeConsumer(*polls)
        self.queue = LaneQueue("normal", max_depth)
        self.offsets = LaneOffsets("f.states.normal")
        self.progress, self.stopping = asyncio.Event(), asyncio.Event()
        self.polled: list[Any] = []

        async def revoked(_lane: Lane) -> None:
            on_revoked()

        consumer: Any = self.consumer
        self.receive = Receive(
            consumer, self.queue, self.offsets, 1024, self._take, revoked, self.progress, Metrics(max_batch=8)
        )

    def _take(self, _lane: Lane, polled: Any) -> None:
        self.polled.append(polled)

    async def run(self, until: Callable[[], bool]) -> None:
        """Poll until that holds, then until the loop has ended by itself."""
        running = asyncio.ensure_future(self.receive.run(self.stopping))
        give_up_s = asyncio.get_running_loop().time() + 5.0
        while not until() and not running.done():
            assert asyncio.get_running_loop().time() < give_up_s, self.consumer.asked
            await asyncio.sleep(0.01)
        self.stopping.set()
        async with asyncio.timeout(5.0):
            await running


async def test_it_asks_for_as_much_as_the_lane_has_room() -> None:
    """From all partitions at once; what is queued or in flight counts."""
    bench = Bench({PARTITION: [record()]}, max_depth=8)
    bench.queue.hold(5)
    await bench.run(lambda: len(bench.polled) > 0)
    assert bench.consumer.asked[0] == ((), 3)
    assert bench.polled == [{PARTITION: [record()]}]


async def test_a_full_lane_fetches_nothing_and_keeps_its_membership() -> None:
    """It still polls, for a partition that does not exist: `pause` would throw away what was fetched."""
    bench = Bench(max_depth=4)
    bench.queue.hold(4)
    await bench.run(lambda: len(bench.consumer.asked) > 1)
    assert {partitions for partitions, _ in bench.consumer.asked} == {(NOTHING,)}
    assert bench.polled == []


async def test_room_ends_the_wait_of_a_full_lane_at_once() -> None:
    """`progress` says that answers were acknowledged."""
    bench = Bench(max_depth=4)
    bench.queue.hold(4)

    def makes_room() -> bool:
        if bench.consumer.asked and bench.queue.room == 0:
            bench.queue.answered(4)
            bench.progress.set()
        return any(partitions == () for partitions, _ in bench.consumer.asked)

    await bench.run(makes_room)
    assert bench.consumer.asked[-1] == ((), 4)


async def test_a_poll_is_never_cancelled() -> None:
    """A cancelled `getmany` would switch the poll-interval check off for good: the loop ends between two polls."""
    bench = Bench()
    await bench.run(lambda: len(bench.consumer.asked) > 0)
    assert bench.consumer.asked and bench.consumer.cancelled == 0


async def test_a_failed_poll_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers restart and leaders move; after a short back-off, as aiokafka has none for some of its errors."""
    monkeypatch.setattr("workers.receive.BACK_OFF_S", 0.01)
    bench = Bench(KafkaError("not now"), {PARTITION: [record()]})
    await bench.run(lambda: len(bench.polled) > 0)
    assert len(bench.polled) == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TopicAuthorizationFailedError("f.states.normal"), "not allowed to read f.states.normal: `fleet topics acls`"),
        (GroupAuthorizationFailedError("f.normal"), "not allowed to read as group f.normal: `fleet topics acls`"),
    ],
)
async def test_a_right_that_is_missing_ends_the_process(error: KafkaError, told: str) -> None:
    """Asking again would not help; the line names what is missing and the command that lists it."""
    with pytest.raises(ReceiveFailed, match=told):
        await Bench(error).run(lambda: False)


async def test_a_topic_that_the_cluster_hides_ends_the_process() -> None:
    """Whether the next fetch or the next look at the cluster comes first: hidden, it has no leader, and aiokafka would
    fetch nothing and say nothing."""
    bench = Bench()
    bench.consumer._client.cluster.unauthorized_topics = {"f.states.normal"}
    with pytest.raises(ReceiveFailed, match=r"not allowed to read f\.states\.normal"):
        await bench.run(lambda: False)


async def test_a_lost_assignment_is_lost_also_when_handing_it_over_fails() -> None:
    """aiokafka swallows what a listener raises; the books are closed all the same."""

    def fails() -> None:
        raise RuntimeError("boom")

    bench = Bench(on_revoked=fails)
    await bench.receive.on_partitions_assigned([PARTITION])
    old = bench.offsets.get(0)
    assert old is not None and bench.receive.joined.is_set()
    old.received([5])
    await bench.receive.on_partitions_revoked([PARTITION])
    old.finished(5)
    assert old.revoked and old.committable() is None and bench.offsets.get(0) is None
    assert not bench.receive.joined.is_set()


async def test_a_fault_while_partitions_are_taken_over_ends_the_process() -> None:
    """aiokafka swallows it; what the partitions' last owner had answered would run again, or have nowhere to go."""
    bench = Bench({PARTITION: [record()]})
    bench.consumer.commits = {PARTITION: OffsetAndMetadata("5", "")}  # type: ignore[arg-type]
    await bench.receive.on_partitions_assigned([PARTITION])
    assert not bench.receive.joined.is_set()
    with pytest.raises(ReceiveFailed, match=r"could not take over partitions of .*, a fault of ours: Type"):
        await bench.run(lambda: False)
    assert bench.polled == []


async def test_records_wait_until_the_last_owners_map_is_read() -> None:
    """They may come before the listener has ended, and would run twice."""
    bench = Bench({PARTITION: [record()]})
    answers = asyncio.Event()

    async def slow(_partitions: Any) -> Any:
        await answers.wait()
        return bench.consumer.commits

    bench.consumer._coordinator.fetch_committed_offsets = slow
    assigning = asyncio.ensure_future(bench.receive.on_partitions_assigned([PARTITION]))
    running = asyncio.ensure_future(bench.receive.run(bench.stopping))
    await asyncio.sleep(0.05)
    assert bench.consumer.asked == []
    answers.set()
    await assigning
    bench.stopping.set()
    async with asyncio.timeout(5.0):
        await running
    assert bench.consumer.asked


async def test_a_new_epoch_finds_an_empty_lane() -> None:
    """A commit that the group refused ends an epoch without a word: its requests must not run in the next one."""
    bench = Bench()
    await bench.receive.on_partitions_assigned([PARTITION])
    bench.queue.put([request("stale")])
    bench.offsets.revoke()  # as the commit step does
    await bench.receive.on_partitions_revoked([PARTITION])
    await bench.receive.on_partitions_assigned([PARTITION])
    assert len(bench.queue) == 0 and bench.offsets.get(0) is not None
