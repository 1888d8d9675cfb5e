"""Step 7, commit: tell Kafka how far each partition is finished. Off the path of records.

Only offsets of owned partitions, only the contiguous finished prefix (`workers.offsets`), every few hundred ms, once
more on revoke and on drain, one commit at a time per lane and never longer than its time-out.
"""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from topics.names import Lane
from workers.logs import get_logger
from workers.metrics import Metrics
from workers.offsets import LaneOffsets

log = get_logger(__name__)


class Commit:
    """The commits of one lane."""

    def __init__(
        self, lane: Lane, consumer: AIOKafkaConsumer, offsets: LaneOffsets, timeout_s: float, metrics: Metrics
    ) -> None:
        self._lane: Lane = lane
        self._consumer = consumer
        self._offsets = offsets
        self._timeout_s = timeout_s
        self._metrics = metrics
        self._one_at_a_time = asyncio.Lock()

    async def run(self, interval_s: float) -> None:
        """Commit every `interval_s` until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await self.commit()
            self._measure_lag()

    async def commit(self) -> bool:
        """Commit what is finished now; False if that failed, in which case the same offsets are tried again or,
        where the group has moved on, never."""
        async with self._one_at_a_time:
            finished = self._offsets.committable()
            if not finished:
                return True
            started_s = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._consumer.commit(self._positions(finished))
            except (CommitFailedError, IllegalStateError) as error:
                self._offsets.revoke()  # the group has moved on; what we hold belongs to an old assignment
                self._failed(error)
                return False
            except (KafkaError, TimeoutError) as error:
                self._failed(error)
                return False
            self._offsets.committed(finished)
            seconds = asyncio.get_running_loop().time() - started_s
            self._metrics.committed(self._lane, seconds)
            self._metrics.stage("commit", seconds, 0)
            return True

    def _measure_lag(self) -> None:
        """The ends came with the last fetch; where nothing was fetched yet nothing is known."""
        topic = self._offsets.topic
        ends = {tp.partition: self._consumer.highwater(tp) for tp in self._consumer.assignment() if tp.topic == topic}
        self._offsets.measure_lag({partition: end for partition, end in ends.items() if end is not None})

    def _positions(self, finished: dict[int, tuple[int, str]]) -> dict[TopicPartition, OffsetAndMetadata]:
        topic = self._offsets.topic
        return {TopicPartition(topic, partition): OffsetAndMetadata(*found) for partition, found in finished.items()}

    def _failed(self, error: BaseException) -> None:
        self._metrics.commit_failed(self._lane)
        log.warning("commit_failed", lane=self._lane, error=repr(error))
