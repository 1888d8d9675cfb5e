"""A worker of two dozen lines: reads every lane from its end and answers what a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import numpy as np
from aiokafka import TopicPartition

from topics import headers, kafka
from topics.names import LANES
from topics.partitions import Partitioner
from topics.records import Action, State, Timing
from topics.settings import FleetSettings
from topics.wire import decode_state, encode_action


@dataclass(slots=True)
class Arrived:
    """A state as a worker sees it."""

    agent: str
    lane: str
    state: State
    routing: headers.Routing
    partition: int

    def action(self, action: object = None, **fields: object) -> bytes:
        """The bytes of an `action` reply; by default the sum of the observation and `seq`, int64."""
        if action is None:
            action = np.array(int(np.sum(self.state.observation)) + self.state.seq)
        return encode_action(
            Action("action", self.state.seq, action, model="echo-1", lane=self.lane, worker="w1", **fields)  # type: ignore[arg-type]
        )

    def refused(self, outcome: str, reason: str) -> bytes:
        """The bytes of a reply with another outcome."""
        return encode_action(Action(outcome, self.state.seq, reason=reason, lane=self.lane, timing=Timing()))  # type: ignore[arg-type]


Policy = Callable[[Arrived], list[bytes]]


def echo(arrived: Arrived) -> list[bytes]:
    """Answers every state once."""
    return [arrived.action()]


class EchoWorker:
    """`seen` holds every state in the order of its arrival."""

    def __init__(self, settings: FleetSettings, policy: Policy = echo) -> None:
        self.policy = policy
        self.seen: list[Arrived] = []
        self._names = settings.names
        self._producer = kafka.make_producer(settings.kafka, client_id="echo")
        self._consumer = kafka.make_consumer(settings.kafka, client_id="echo", fetch_max_wait_ms=10)
        self._kafka = settings.kafka

    async def start(self) -> None:
        kafka.quiet_library_logs()
        await kafka.start(self._producer, self._kafka)
        await kafka.start(self._consumer, self._kafka)
        count = len(await self._producer.partitions_for(self._names.actions))
        self._partition_of = Partitioner(count)
        partitions = [TopicPartition(self._names.states(lane), p) for lane in LANES for p in range(count)]
        self._consumer.assign(partitions)
        await self._consumer.seek_to_end(*partitions)

    async def run(self) -> None:
        while True:
            polled = await self._consumer.getmany(timeout_ms=100)
            for partition, records in polled.items():
                for record in records:
                    await self._answer(partition, record)

    async def _answer(self, partition: TopicPartition, record: object) -> None:
        routing = headers.read(record.headers)  # type: ignore[attr-defined]
        key: bytes = record.key  # type: ignore[attr-defined]
        lane = self._names.lane_of(partition.topic)
        arrived = Arrived(key.decode(), lane, decode_state(record.value), routing, partition.partition)  # type: ignore[attr-defined]
        self.seen.append(arrived)
        topic = routing.reply_topic or self._names.actions
        to = routing.reply_partition if routing.reply_partition is not None else self._partition_of(key)
        for value in self.policy(arrived):
            await self._producer.send(topic, value, key=key, partition=to, headers=list(routing.echoed))

    async def stop(self) -> None:
        await kafka.stop(self._consumer, 2)
        await kafka.stop(self._producer, 2)


@contextlib.asynccontextmanager
async def running(settings: FleetSettings, policy: Policy = echo) -> AsyncIterator[EchoWorker]:
    """A worker that answers as long as the block lasts."""
    worker = EchoWorker(settings, policy)
    await worker.start()
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await worker.stop()
