"""Step 7, commit: tell Kafka how far each partition is finished. Off the path of records.

Only offsets of owned partitions, only the contiguous finished prefix (`workers.offsets`), every few hundred ms, once
more on revoke and on drain, one commit at a time per lane and never longer than its time-out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from topics.kafka import is_member, positions
from topics.names import Lane
from workers.lanes import LaneQueue
from workers.logs import get_logger
from workers.metrics import Metrics
from workers.offsets import LaneOffsets

log = get_logger(__name__)


ASK_ENDS_S: Final = 5.0
"""How often the partitions' ends are asked for: one small request, well within the bound of a stuck lane."""


class Commit:
    """The commits of one lane."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        queue: LaneQueue,
        offsets: LaneOffsets,
        timeout_s: float,
        metrics: Metrics,
    ) -> None:
        self._lane: Lane = queue.lane
        self._queue = queue
        self._consumer = consumer
        self._offsets = offsets
        self._timeout_s = timeout_s
        self._metrics = metrics
        self._ends: dict[int, int] = {}
        self._one_at_a_time = asyncio.Lock()

    async def run(self, interval_s: float) -> None:
        """Commit every `interval_s` until cancelled."""
        asked_s = 0.0
        while True:
            await asyncio.sleep(interval_s)
            await self.commit()
            now_s = asyncio.get_running_loop().time()
            if now_s - asked_s > ASK_ENDS_S:
                asked_s = now_s
                await self._ask_ends()
            self._measure_lag()

    async def commit(self, within_s: float | None = None) -> bool:
        """Commit what is finished now; False if that failed, in which case the same offsets are tried again or,
        where the group has moved on, never. Takes `within_s` (else the time-out) at most, whatever the brokers do:
        the wait for a commit that is on its way already counts."""
        try:
            async with asyncio.timeout(self._timeout_s if within_s is None else within_s), self._one_at_a_time:
                if finished := self._offsets.committable():
                    await self._send(finished)
        except (CommitFailedError, IllegalStateError) as error:
            self._offsets.revoke()  # the group has moved on; what we hold belongs to an old assignment
            self._queue.hand_back()
            self._failed(error)
            return False
        except (KafkaError, TimeoutError) as error:
            self._failed(error)
            return False
        return True

    async def _send(self, finished: dict[int, tuple[int, str]]) -> None:
        if not is_member(self._consumer):  # Kafka would take it while the group is empty, and put the offset back
            raise CommitFailedError("fenced: this consumer is no member of its group any more")
        started_s = asyncio.get_running_loop().time()
        await self._consumer.commit(self._positions(finished))
        self._offsets.committed(finished)
        seconds = asyncio.get_running_loop().time() - started_s
        self._metrics.committed(self._lane, seconds)
        self._metrics.stage("commit", seconds, 0)

    async def _ask_ends(self) -> None:
        """Fetches tell the ends too, but a consumer that has silently stopped to fetch would never learn of a lag."""
        owned = self._consumer.assignment()
        try:
            async with asyncio.timeout(self._timeout_s):
                self._ends = {tp.partition: end for tp, end in (await self._consumer.end_offsets(owned)).items()}
        except (KafkaError, TimeoutError) as error:
            log.debug("ends_unknown", lane=self._lane, error=repr(error))

    def _measure_lag(self) -> None:
        """Lag against the newest end that is known of each owned partition."""
        ends = {tp.partition: self._consumer.highwater(tp) or 0 for tp in self._consumer.assignment()}
        self._offsets.measure_lag(
            {partition: max(end, self._ends.get(partition, 0)) for partition, end in ends.items()},
            {tp.partition: at for tp, at in positions(self._consumer).items()},
        )

    def _positions(self, finished: dict[int, tuple[int, str]]) -> dict[TopicPartition, OffsetAndMetadata]:
        topic = self._offsets.topic
        return {TopicPartition(topic, partition): OffsetAndMetadata(*found) for partition, found in finished.items()}

    def _failed(self, error: BaseException) -> None:
        self._metrics.commit_failed(self._lane)
        log.warning("commit_failed", lane=self._lane, error=repr(error))


class CommitWithAnswers(Commit):
    """With `delivery = "exactly_once"` the transactions move the offsets: what moved without an answer (records that
    were skipped) is left to them as well. Such a move is never urgent: the commit before it names those records."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        queue: LaneQueue,
        offsets: LaneOffsets,
        timeout_s: float,
        metrics: Metrics,
        nudge: Callable[[Lane], None],
    ) -> None:
        super().__init__(consumer, queue, offsets, timeout_s, metrics)
        self._nudge = nudge

    async def _send(self, finished: dict[int, tuple[int, str]]) -> None:
        self._nudge(self._lane)
