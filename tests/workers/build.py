"""Requests and records for tests, with as little written down as possible."""

from __future__ import annotations

from typing import Any

import numpy as np
from aiokafka.structs import ConsumerRecord

from topics.names import Lane
from topics.records import State
from topics.wire import encode_state
from workers.offsets import PartitionOffsets
from workers.requests import NEVER, Request

TOPIC = "f.states.normal"


def record(offset: int = 0, agent: str = "a", value: bytes | None = None, headers: Any = None, **state: Any) -> Any:
    """A Kafka record of one state (observation of four zeros unless given)."""
    if value is None:
        value = encode_state(State(state.pop("observation", np.zeros(4, np.float32)), **state))
    headers = (("kafka_correlationId", b"c%d" % offset),) if headers is None else headers
    return ConsumerRecord(
        TOPIC, 0, offset, 1_000, 0, agent.encode(), value, None, len(agent), len(value or b""), tuple(headers)
    )


def request(
    agent: str = "a",
    *,
    lane: Lane = "normal",
    received_us: int = 0,
    deadline_us: int = NEVER,
    seq: int = 0,
    offsets: PartitionOffsets | None = None,
    offset: int = 0,
) -> Request:
    """An admitted request."""
    return Request(
        record=record(offset, agent),
        offsets=offsets or PartitionOffsets(TOPIC, 0),
        lane=lane,
        agent=agent.encode(),
        received_us=received_us,
        sent_us=received_us,
        reply_topic="f.actions",
        reply_partition=0,
        headers=[("kafka_correlationId", b"c")],
        correlated=True,
        seq=seq,
        deadline_us=deadline_us,
        rows=(memoryview(bytes(16)),),
    )
