"""The log as a witness: how many answers there are, seen from the ends of the reply topic; and groups set back."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from tools.bench.children import Child, ChildFailed, last_words
from tools.bench.stats import Sample
from topics.kafka import make_consumer, started
from topics.names import LANES
from topics.settings import FleetSettings

SAMPLE_S: Final = 0.02
"""One small request each, the same for both sides; a drain of 3 s is then timed to within 1 %."""
STALLED_S: Final = 30.0
"""Without a single answer; longer than any start."""


class Ends:
    """The ends of one topic's partitions."""

    def __init__(self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> None:
        self._consumer = consumer
        self._partitions = partitions

    async def count(self) -> int:
        """Records that were ever written there."""
        return sum((await self._consumer.end_offsets(self._partitions)).values())

    async def follow(
        self, child: Child, already: int, total: int, on_count: Callable[[int], None], limit_s: float = math.inf
    ) -> list[Sample]:
        """A sample every 20 ms until `total` records more than `already` are there, or `limit_s` after the first.

        Raises:
            ChildFailed: the process ended, or nothing came for 30 s.
        """
        samples: list[Sample] = []
        done, progress_s, until_s = 0, time.monotonic(), math.inf
        while done < total and progress_s < until_s:
            await asyncio.sleep(SAMPLE_S)
            before, done = done, await self.count() - already
            now_s = time.monotonic()
            samples.append(Sample(now_s, done, child.cpu_s()))
            on_count(done)
            if done > before:
                progress_s, until_s = now_s, until_s if before else now_s + limit_s
            elif now_s - progress_s > STALLED_S:
                said = last_words(child.log)
                raise ChildFailed(f"the {child.name} stopped at {done} of {total}: {said} (log: {child.log})")
        return samples


@asynccontextmanager
async def open_ends(settings: FleetSettings, topic: str) -> AsyncIterator[Ends]:
    """The ends of `topic`."""
    consumer = make_consumer(settings.kafka, client_id=f"{settings.name}-ends")
    async with started(consumer, settings.kafka):
        yield Ends(consumer, partitions_of(settings, topic))


def partitions_of(settings: FleetSettings, topic: str) -> list[TopicPartition]:
    """All partitions of a lane or of the actions; the bench has just created them."""
    return [TopicPartition(topic, number) for number in range(settings.topics.partitions)]


async def rewind(settings: FleetSettings) -> None:
    """Every group of the fleet starts at the first state again. Its workers have left."""
    await _place(settings, at_end=False)


async def skip_to_end(settings: FleetSettings) -> None:
    """Every group of the fleet starts at the next state: what others were asked before is not its business."""
    await _place(settings, at_end=True)


async def _place(settings: FleetSettings, *, at_end: bool) -> None:
    for lane in LANES:
        partitions = partitions_of(settings, settings.names.states(lane))
        group = settings.names.group(lane)
        consumer = make_consumer(settings.kafka, client_id=f"{settings.name}-place", group_id=group)
        async with started(consumer, settings.kafka):
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            await consumer.commit(ends if at_end else dict.fromkeys(partitions, 0))
