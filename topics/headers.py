"""Kafka headers of states and actions: Spring's ReplyingKafkaTemplate names and bytes, and W3C's trace context.

The usual state has one header, its correlation ID: `only_correlated` tells, and `read` is for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from topics.errors import DecodeError

Headers = Sequence[tuple[str, bytes | None]]
Echoed = list[tuple[str, bytes]]  # aiokafka's batches take nothing but a list

CORRELATION_ID: Final = "kafka_correlationId"
"""Opaque bytes; the reply carries them untouched."""
REPLY_TOPIC: Final = "kafka_replyTopic"
"""UTF-8 name of the topic that the reply goes to; absent: `{fleet}.actions`."""
REPLY_PARTITION: Final = "kafka_replyPartition"
"""4 bytes, big endian; absent: the partition of the agent's key."""
TRACEPARENT: Final = "traceparent"
"""W3C trace context; echoed, so that the agent's trace goes on."""
CONTENT_TYPE: Final = "content-type"
"""`application/msgpack`, assumed where absent."""

MSGPACK: Final = b"application/msgpack"


@dataclass(slots=True)
class Routing:
    """Where a reply goes and what it echoes. None: the fleet's default."""

    reply_topic: str | None = None
    reply_partition: int | None = None
    echoed: Echoed = field(default_factory=list)
    correlated: bool = False
    """Whether a correlation ID is among the echoed headers."""


def only_correlated(headers: Headers) -> bool:
    """Whether these are the headers of the usual state: a correlation ID and nothing else. They can be echoed as they
    are, and `read` would add nothing."""
    return len(headers) == 1 and headers[0][0] == CORRELATION_ID and headers[0][1] is not None


def read(headers: Headers) -> Routing:
    """The routing in a state's headers; `DecodeError` where one of ours is malformed. Unknown headers are ignored."""
    routing = Routing()
    echoed: Echoed = []
    for name, value in headers:
        if value is None:
            continue
        if name in (CORRELATION_ID, TRACEPARENT):
            echoed.append((name, value))
        elif name == REPLY_TOPIC:
            routing.reply_topic = _topic(value)
        elif name == REPLY_PARTITION:
            routing.reply_partition = partition(value)
        elif name == CONTENT_TYPE and value != MSGPACK:
            raise DecodeError(f"content-type is {value[:40]!r}, this fleet reads {MSGPACK.decode()}")
    routing.echoed = echoed
    routing.correlated = any(name == CORRELATION_ID for name, _ in echoed)
    return routing


def _topic(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"{REPLY_TOPIC} is {value[:40]!r}, expected a topic name in UTF-8") from error


def partition(value: bytes) -> int:
    """The number in a `kafka_replyPartition` header; `DecodeError` unless it is 4 bytes, big endian, ≥ 0."""
    number = int.from_bytes(value, "big", signed=True)
    if len(value) != 4 or number < 0:
        raise DecodeError(f"{REPLY_PARTITION} is {value[:16]!r}, expected 4 bytes, big endian, not negative")
    return number
