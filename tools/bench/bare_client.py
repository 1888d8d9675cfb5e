"""The bare client: the floor that `decide_many` is set against. It writes and reads the very same bytes.

    pack ─▶ append ─▶ send_batch ─▶ poll ─▶ unpack ─▶ stack

Every field of a state, its correlation ID in the header. What all calls ask for while the last states travel gathers
in one record batch per partition. Each answer is unpacked, and the actions of a call become one array. It uses the
producer and consumer settings of an `AgentClient`. What it leaves out is what the client is for: priority rules,
deadlines, step counters that outlive the loop, time-outs, duplicates and strangers' answers, answers without an
action, refused or lost states, new agents, other shapes, limits, full batches, and what else an answer says. Whatever
goes wrong ends it or leaves it waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from topics.headers import CORRELATION_ID
from topics.kafka import make_consumer, make_producer, started
from topics.names import Lane
from topics.partitions import Partitioner
from topics.settings import FleetSettings
from topics.tensors import TENSOR_EXT, Array, TensorSpec

CLIENT_ID: Final = "bare-client"
HEAD_BYTES: Final = 12
"""Of a correlation ID: the call; the other 4 are the row."""


@dataclass(slots=True)
class Call:
    """The states of one call and what has come for them."""

    answered: asyncio.Future[None]
    values: list[bytes]
    arrived_s: Array
    left: int


@dataclass(frozen=True, slots=True)
class Answers:
    """Of one call: actions [n, *shape], seconds [n]."""

    actions: Array
    latency_s: Array


class BareClient:
    """Asks for many agents at once; `observation` and `action` are the model's."""

    def __init__(
        self,
        settings: FleetSettings,
        observation: TensorSpec,
        action: TensorSpec,
        producer: AIOKafkaProducer,
        consumer: AIOKafkaConsumer,
    ) -> None:
        self._names = settings.names
        self._partition_of = Partitioner(settings.topics.partitions)
        self._observation = observation
        self._action = action
        self._producer = producer
        self._consumer = consumer
        self._pack = msgpack.Packer().pack
        self._calls: dict[bytes, Call] = {}
        self._waiting: dict[tuple[str, int], Any] = {}
        self._asked = asyncio.Event()
        self._seqs: dict[str, int] = {}
        self._number = 0

    async def decide_many(self, ids: Sequence[str], seen: Array, *, lane: Lane) -> Answers:
        """The actions for `seen` [n, *shape]; waits for all of them."""
        head, self._number = self._number.to_bytes(HEAD_BYTES, "big"), self._number + 1
        answered = asyncio.get_running_loop().create_future()
        call = self._calls[head] = Call(answered, [b""] * len(ids), np.zeros(len(ids)), len(ids))
        sent_s = time.monotonic()
        self._append(head, ids, seen, self._names.states(lane))
        self._asked.set()
        await call.answered
        del self._calls[head]
        return Answers(self.stacked(call.values), call.arrived_s - sent_s)

    def _append(self, head: bytes, ids: Sequence[str], seen: Array, topic: str) -> None:
        sent_us, seqs, waiting = time.time_ns() // 1000, self._seqs, self._waiting
        for row, agent in enumerate(ids):
            seq = seqs[agent] = seqs.get(agent, -1) + 1
            key, value = agent.encode(), self.packed(seen[row], seq, sent_us)
            batch = waiting.get(place := (topic, self._partition_of(key)))
            if batch is None:
                batch = waiting[place] = self._producer.create_batch()
            headers = [(CORRELATION_ID, head + row.to_bytes(4, "big"))]
            batch.append(timestamp=sent_us // 1000, key=key, value=value, headers=headers)

    async def send(self) -> None:
        """Send what was asked for until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            batches, self._waiting = self._waiting, {}
            travelling = [
                await self._producer.send_batch(batch, topic, partition=partition)
                for (topic, partition), batch in batches.items()
            ]
            await asyncio.gather(*travelling)

    def packed(self, seen: Array, seq: int, sent_us: int) -> bytes:
        """A state's bytes."""
        observation = msgpack.ExtType(TENSOR_EXT, self._observation.header + seen.tobytes())
        value: bytes = self._pack({"v": 1, "sent_us": sent_us, "seq": seq, "observation": observation})
        return value

    def stacked(self, values: Sequence[bytes]) -> Array:
        """The actions in these answers, [n, *shape]."""
        start_at = len(self._action.header)

        def raw(_: int, data: bytes) -> bytes:
            return data[start_at:]

        joined = b"".join([msgpack.unpackb(value, ext_hook=raw)["action"] for value in values])
        return np.frombuffer(joined, self._action.numpy).reshape(len(values), *self._action.shape)

    async def read(self) -> None:
        """Take answers until cancelled."""
        while True:
            polled = await self._consumer.getmany(timeout_ms=1000)
            now_s = time.monotonic()
            for records in polled.values():
                for record in records:
                    correlation = record.headers[0][1]
                    call = self._calls[correlation[:HEAD_BYTES]]
                    row = int.from_bytes(correlation[HEAD_BYTES:], "big")
                    call.values[row], call.arrived_s[row] = record.value, now_s
                    call.left -= 1
                    if not call.left:
                        call.answered.set_result(None)


@asynccontextmanager
async def bare_client(
    settings: FleetSettings, observation: TensorSpec, action: TensorSpec
) -> AsyncIterator[BareClient]:
    """One that reads every partition of the actions from now on."""
    kafka = settings.kafka
    async with (
        started(make_producer(kafka, client_id=CLIENT_ID, acks="all", idempotent=False), kafka) as producer,
        started(make_consumer(kafka, client_id=CLIENT_ID), kafka) as consumer,
    ):
        partitions = [TopicPartition(settings.names.actions, at) for at in range(settings.topics.partitions)]
        consumer.assign(partitions)
        await consumer.seek_to_end(*partitions)
        for partition in partitions:
            await consumer.position(partition)
        client = BareClient(settings, observation, action, producer, consumer)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(client.send()), group.create_task(client.read())]
            yield client
            for task in running:
                task.cancel()
