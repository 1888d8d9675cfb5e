"""States to be decided on: what the agents of a benchmark observe, and a backlog of them in a lane's topic."""

from __future__ import annotations

import time
from collections.abc import Callable
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


async def fill_backlog(
    settings: FleetSettings,
    spec: TensorSpec,
    lane: Lane,
    count: int,
    agents: int,
    on_sent: Callable[[int], None],
) -> None:
    """Put `count` states of `agents` agents into the lane's topic, as an AgentClient would have sent them.

    Raises:
        SendFailed: the broker does not take them.
    """
    topic, keys = settings.names.states(lane), [agent.encode() for agent in agent_ids(agents)]
    partition_of = Partitioner(settings.topics.partitions)
    producer = make_producer(settings.kafka, client_id=f"{settings.name}-backlog")
    async with started(producer, settings.kafka):
        outbox = Outbox(producer)
        for first in range(0, count, CHUNK):
            rows = range(first, min(first + CHUNK, count))
            shared = State(None, sent_us=time.time_ns() // 1000)
            seqs = [row // agents for row in rows]
            values = encode_states(observations(spec, len(rows), first), seqs, shared)
            for row, value in zip(rows, values, strict=True):
                key = keys[row % agents]
                outbox.add(topic, partition_of(key), key, value, correlation(row))
            await outbox.flush(SENT_WITHIN_S)
            on_sent(rows[-1] + 1)


def correlation(number: int) -> list[tuple[str, bytes]]:
    """The header of state `number`: 16 bytes, like an AgentClient's."""
    return [(CORRELATION_ID, number.to_bytes(16, "big"))]
