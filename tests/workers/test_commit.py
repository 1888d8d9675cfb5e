"""Commit: one at a time, and never longer than its bound."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from aiokafka.errors import CommitFailedError
from aiokafka.structs import TopicPartition

from tests.workers.build import request
from workers.commit import Commit, CommitWithAnswers
from workers.lanes import LaneQueue
from workers.metrics import Metrics
from workers.offsets import LaneOffsets


class SilentBroker:
    """A consumer whose commits are never answered, as with the coordinator away."""

    def __init__(self) -> None:
        self.asked = 0
        self._coordinator = SimpleNamespace(generation=3)

    async def commit(self, _offsets: Any) -> None:
        self.asked += 1
        await asyncio.Event().wait()

    def assignment(self) -> set[TopicPartition]:
        return set()


def _commit(consumer: Any, timeout_s: float) -> tuple[Commit, LaneOffsets]:
    offsets = LaneOffsets("f.states.normal")
    offsets.assign([0])
    partition = offsets.get(0)
    assert partition is not None
    partition.received([0])
    partition.finished(0)
    queue = LaneQueue("normal", 8)
    queue.put([request(offsets=partition)])
    return Commit(consumer, queue, offsets, timeout_s, Metrics(max_batch=8)), offsets


async def test_a_commit_ends_within_its_bound_although_another_one_hangs() -> None:
    """The last commit of a drain must not wait for the periodic one that the broker never answers."""
    consumer = SilentBroker()
    commit, offsets = _commit(consumer, timeout_s=60.0)
    hanging = asyncio.ensure_future(commit.commit())
    await asyncio.sleep(0)
    async with asyncio.timeout(5.0):
        assert not await commit.commit(0.02)
    assert consumer.asked == 1
    assert offsets.committable()  # nothing is taken for committed
    hanging.cancel()


class MovedOn(SilentBroker):
    """The group has rebalanced without us."""

    async def commit(self, _offsets: Any) -> None:
        self.asked += 1
        raise CommitFailedError


async def test_a_commit_that_the_group_refuses_is_never_tried_again() -> None:
    """Somebody else owns the partitions by now: whatever still finishes belongs to an old assignment."""
    consumer = MovedOn()
    commit, offsets = _commit(consumer, timeout_s=1.0)
    assert not await commit.commit()
    assert not offsets.committable() and offsets.get(0) is None
    assert await commit.commit() and consumer.asked == 1
    assert len(commit._queue) == 0, "what is queued would run for nobody"
    assert not offsets.assigned


async def test_nobody_who_is_no_member_commits() -> None:
    """After a fence aiokafka's generation is -1, and Kafka takes a commit of that from anybody while the group is
    empty: it would put the offset back behind what others have answered since."""
    consumer = SilentBroker()
    consumer._coordinator.generation = -1
    commit, offsets = _commit(consumer, timeout_s=1.0)
    assert not await commit.commit()
    assert consumer.asked == 0 and not offsets.committable()


async def test_asking_the_transactions_to_commit_is_no_commit() -> None:
    """Else /livez would take a worker whose transactions never end for one that moves."""
    nudged: list[str] = []
    plain, offsets = _commit(SilentBroker(), timeout_s=1.0)
    commit = CommitWithAnswers(SilentBroker(), plain._queue, offsets, 1.0, Metrics(max_batch=8), nudged.append)  # type: ignore[arg-type]
    assert await commit.commit() and nudged == ["normal"]
    assert offsets.waits_for_commit and offsets.commits == 0
    offsets.committed({0: (1, "")})
    assert offsets.commits == 1 and not offsets.waits_for_commit
