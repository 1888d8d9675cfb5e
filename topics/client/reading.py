"""Reads the reply partitions of this client's agents: `assign()`, never a group, from the end of each.

A partition is added before the first state of an agent whose answers go there, so none of its answers can lie before
the place where reading starts; the others go on exactly where they were. Whole polls are handed over, nothing is
decoded here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaError

from topics.client.stats import ClientStats
from topics.errors import BrokerUnavailable

POLL_MS = 1000
"""A poll returns as soon as anything has come; this only bounds how long it lasts when nothing does."""
RETRY_S = 0.1
"""Between polls that fail, as long as aiokafka waits before it tries a broker again."""

OnReplies = Callable[[Iterable[Any]], None]


class ReplyReader:
    """Gives each poll's records to `on_replies` while `run` runs."""

    def __init__(self, consumer: AIOKafkaConsumer, topic: str, on_replies: OnReplies, stats: ClientStats) -> None:
        self._consumer = consumer
        self._topic = topic
        self._on_replies = on_replies
        self._stats = stats
        self._next_offset: dict[TopicPartition, int] = {}
        self._adding = asyncio.Lock()
        self._reading = asyncio.Event()
        self.last_error: KafkaError | None = None

    async def prepare(self, within_s: float) -> None:
        """Learn where the reply topic's partitions live, which takes aiokafka 100 ms the first time.

        Raises:
            BrokerUnavailable: the broker did not say within `within_s`.
        """
        await self._bounded(self._ends({TopicPartition(self._topic, 0)}), within_s)

    def reads(self, partition: int) -> bool:
        """Whether answers in this partition are seen."""
        return TopicPartition(self._topic, partition) in self._next_offset

    async def watch(self, partitions: Iterable[int], within_s: float) -> None:
        """Read these partitions too, from what is their end now.

        Raises:
            BrokerUnavailable: the broker did not say where they end within `within_s`.
        """
        wanted = {TopicPartition(self._topic, partition) for partition in partitions}
        if wanted <= self._next_offset.keys():
            return
        await self._bounded(self._add(wanted), within_s)

    async def _bounded(self, asking: Coroutine[Any, Any, Any], within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await asking
        except (KafkaError, TimeoutError) as error:
            raise BrokerUnavailable(
                f"the broker did not say within {within_s:.3g} s where the reply topic {self._topic} ends: "
                f"{str(error) or type(error).__name__}; look at the brokers"
            ) from error

    async def _add(self, wanted: set[TopicPartition]) -> None:
        async with self._adding:
            added = wanted - self._next_offset.keys()
            if added:
                self._assign(await self._ends(added))

    async def _ends(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        return dict(await self._consumer.end_offsets(partitions))

    def _assign(self, ends: dict[TopicPartition, int]) -> None:
        """In one step of the loop: no poll can run between `assign`, which forgets all positions, and `seek`."""
        self._next_offset |= ends
        self._consumer.assign(list(self._next_offset))
        for partition, offset in self._next_offset.items():
            self._consumer.seek(partition, offset)
        self._reading.set()

    def silence_s(self, now_s: float) -> float:
        """Seconds since the broker last answered a poll, at Unix time `now_s`; 0 before the first answer.

        It answers every `fetch_max_wait_ms`, with or without records.
        """
        answered_ms = [self._consumer.last_poll_timestamp(partition) for partition in self._next_offset]
        return max(0.0, now_s - max((ms for ms in answered_ms if ms), default=now_s * 1000) / 1000)

    async def run(self) -> None:
        """Poll until the consumer is stopped. A poll that fails is repeated; nothing is skipped."""
        await self._reading.wait()  # aiokafka waits without a bound as long as nothing is assigned
        while True:
            try:
                polled = await self._consumer.getmany(timeout_ms=POLL_MS)
            except ConsumerStoppedError:
                return
            except KafkaError as error:
                self.last_error = error
                self._stats.read_errors += 1
                await asyncio.sleep(RETRY_S)
                continue
            self.last_error = None
            if polled:
                self._hand_over(polled)

    def _hand_over(self, polled: dict[TopicPartition, list[Any]]) -> None:
        for partition, records in polled.items():
            self._next_offset[partition] = records[-1].offset + 1
        self._on_replies([record for records in polled.values() for record in records])

    def __repr__(self) -> str:
        return f"<ReplyReader {self._topic} {sorted(partition.partition for partition in self._next_offset)}>"
