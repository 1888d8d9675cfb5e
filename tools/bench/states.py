"""States to be decided on: what the agents of a benchmark observe, and a backlog of them in a lane's topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from topics.columns import encode_states
from topics.headers import CORRELATION_ID
from topics.kafka import make_producer, started
from topics.names import Lane
from topics.outbox import Outbox
from topics.partitions import Partitioner
from topics.records import State
from topics.settings import FleetSettings
from topics.tensors import Array, TensorSpec

CHUNK: Final = 10_000
"""States per flush of the backlog: about 2 MB in 12 partitions."""
SENT_WITHIN_S: Final = 30.0


def agent_ids(count: int) -> list[str]:
    """Names of the agents, the same in every benchmark: so are their partitions."""
    return [f"agent-{number}" for number in range(count)]


def observations(spec: TensorSpec, count: int, seed: int) -> Array:
    """`count` observations [n, *shape] as random as a model may meet: normal floats, any whole number."""
    random = np.random.default_rng(seed)
    shape = (count, *spec.shape)
    if spec.numpy.kind in "iu":
        limits = np.iinfo(spec.numpy)
        return random.integers(limits.min, limits.max, shape, spec.numpy, endpoint=True)
    return random.standard_normal(shape).astype(spec.numpy)


@dataclass(frozen=True, slots=True)
class Backlog:
    """`count` states of `agents` agents in one lane, sent in calls of `call` agents: those share their `sent_us`."""

    lane: Lane
    count: int
    agents: int
    call: int

    async def fill(self, settings: FleetSettings, spec: TensorSpec, on_sent: Callable[[int], None]) -> None:
        """Put them into the lane's topic, as AgentClients would have.

        Raises:
            SendFailed: the broker does not take them.
        """
        producer = make_producer(settings.kafka, client_id=f"{settings.name}-backlog")
        async with started(producer, settings.kafka):
            outbox = Outbox(producer)
            for first in range(0, self.count, CHUNK):
                last = min(first + CHUNK, self.count)
                self._add(outbox, settings, observations(spec, last - first, first), first)
                await outbox.flush(SENT_WITHIN_S)
                on_sent(last)

    def _add(self, outbox: Outbox, settings: FleetSettings, seen: Array, first: int) -> None:
        keys, partition_of = (
            [agent.encode() for agent in agent_ids(self.agents)],
            Partitioner(settings.topics.partitions),
        )
        topic, now_us = settings.names.states(self.lane), time.time_ns() // 1000
        for at in range(0, len(seen), self.call):
            rows = range(first + at, first + min(at + self.call, len(seen)))
            shared = State(None, sent_us=now_us + at)
            values = encode_states(seen[at : at + self.call], [row // self.agents for row in rows], shared)
            for row, value in zip(rows, values, strict=True):
                key = keys[row % self.agents]
                outbox.add(topic, partition_of(key), key, value, correlation(row))


def correlation(number: int) -> list[tuple[str, bytes]]:
    """The header of state `number`: 16 bytes, like an AgentClient's."""
    return [(CORRELATION_ID, number.to_bytes(16, "big"))]
