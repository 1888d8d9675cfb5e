"""Compares two streams as they come: what the fleet answers, and what a shadow would.

Reads both topics from now on, without a group. Two answers belong together by agent and correlation ID, by `seq`
where there is none. One that stays alone for `ALONE_S` is missing, or extra.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from aiokafka.structs import TopicPartition

from tools.diff.answers import Answer, Step, read_answer
from tools.diff.compare import Comparison
from tools.offsets import partition_counts
from tools.recording.recorded import Recorded
from topics.headers import CORRELATION_ID
from topics.kafka import make_consumer, started
from topics.names import FleetNames, ShadowNames
from topics.settings import FleetSettings

CLIENT_ID: Final = "fleet-diff"
ALONE_S: Final = 30.0
MAX_ALONE: Final = 200_000
"""Answers of one side that wait for the other's, some 0.5 KB each; above, the oldest count as alone."""
POLL_MS: Final = 200

Key = tuple[bytes, bytes | int | None]
Alone = OrderedDict[Key, tuple[float, Step, Answer]]


class Pairing:
    """Two streams become pairs. Synchronous; told the time (s)."""

    def __init__(self, comparison: Comparison, begun_s: float) -> None:
        self.comparison = comparison
        self._begun_s = begun_s
        self._alone: tuple[Alone, Alone] = (OrderedDict(), OrderedDict())

    def add(self, side: int, records: Iterable[Recorded], now_s: float) -> None:
        """Answers of the fleet (side 0) or of the shadow (1)."""
        for record in records:
            seq, answer = read_answer(record)
            step = Step(record.key or b"", seq, 0)
            correlation = next((value for name, value in record.headers if name == CORRELATION_ID and value), None)
            key: Key = (step.agent, correlation if correlation is not None else seq)
            self.comparison.look(side, answer)
            other = self._alone[1 - side].pop(key, None)
            if other is None:
                self._alone[side][key] = (now_s, step, answer)
            else:
                pair = (answer, other[2]) if side == 0 else (other[2], answer)
                self.comparison.pair(step, *pair)
        self.expire(now_s)

    def expire(self, now_s: float) -> None:
        """Who has been alone for too long stays alone. What came first of all may have had its other half before."""
        for side, count in ((0, self.comparison.miss), (1, self.comparison.surplus)):
            alone = self._alone[side]
            while alone:
                since_s, step, _ = next(iter(alone.values()))
                if now_s - since_s < ALONE_S and len(alone) <= MAX_ALONE:
                    break
                alone.popitem(last=False)
                if since_s - self._begun_s >= ALONE_S:
                    count(step)

    @property
    def waiting(self) -> tuple[int, int]:
        """Answers of each side whose other half has not come yet."""
        return len(self._alone[0]), len(self._alone[1])


async def follow(
    settings: FleetSettings, comparison: Comparison, stop: Awaitable[Any], show: Callable[[Pairing], None]
) -> None:
    """Compare until `stop` is done; `show` is called a few times a second.

    Raises:
        TopicMissing: there is no shadow's topic, or no fleet.
        BrokerUnavailable: there is no cluster.
    """
    topics = (FleetNames(settings.name).actions, ShadowNames(settings.name).actions)
    consumer = make_consumer(settings.kafka, client_id=CLIENT_ID)
    async with started(consumer, settings.kafka):
        counts = await partition_counts(consumer, topics)
        places = [TopicPartition(topic, number) for topic in topics for number in range(counts[topic])]
        consumer.assign(places)
        await consumer.seek_to_end(*places)
        loop = asyncio.get_running_loop()
        pairing, ended = Pairing(comparison, loop.time()), asyncio.ensure_future(stop)
        try:
            while not ended.done():
                for place, records in (await consumer.getmany(timeout_ms=POLL_MS)).items():
                    pairing.add(topics.index(place.topic), map(_recorded, records), loop.time())
                pairing.expire(loop.time())
                show(pairing)
        finally:
            ended.cancel()


def _recorded(record: Any) -> Recorded:
    return Recorded(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
    )
