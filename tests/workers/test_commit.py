"""Commit: one at a time, and never longer than its bound."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.structs import TopicPartition

from workers.commit import Commit
from workers.metrics import Metrics
from workers.offsets import LaneOffsets


class SilentBroker:
    """A consumer whose commits are never answered, as with the coordinator away."""

    def __init__(self) -> None:
        self.asked = 0

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
    return Commit("normal", consumer, offsets, timeout_s, Metrics(max_batch=8)), offsets


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
