"""What must change in a recorded state before it is sent again, and nothing else. Pure.

Its times move (`times`); the correlation ID is fresh, and the reply headers go, so that the answer comes to the target
fleet's own actions; a copy of an agent has an ID of its own. Everything else, the order of headers included, stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from topics.headers import CORRELATION_ID, REPLY_PARTITION, REPLY_TOPIC

Headers = list[tuple[str, bytes | None]]

RUN_BYTES: Final = 8
"""A correlation ID is the run's 8 random bytes and the state's number in the run, 8 bytes, big endian."""

CHANGES: Final = (
    f"header {CORRELATION_ID}: fresh (added where there was none)",
    f"headers {REPLY_TOPIC}, {REPLY_PARTITION}: left out, answers come to the target's own actions",
    "fields sent_us, deadline_us: moved by the same time, in place",
    "key: only of copies (--agents), agent ID + ~1, ~2 …",
    "Kafka's timestamp: when it is sent again",
)
"""Everything in which a replayed record differs, for people."""


def headers_again(headers: Sequence[tuple[str, bytes | None]], correlation_id: bytes) -> Headers:
    """The record's own headers, in their order, with a fresh correlation ID and no reply address."""
    fresh = (CORRELATION_ID, correlation_id)
    if len(headers) == 1 and headers[0][0] == CORRELATION_ID:  # the usual state
        return [fresh]
    again: Headers = [
        fresh if name == CORRELATION_ID else (name, value)
        for name, value in headers
        if name not in (REPLY_TOPIC, REPLY_PARTITION)
    ]
    return again if fresh in again else [*again, fresh]


def copied_key(key: bytes | None, copy: int) -> bytes | None:
    """The agent ID of a copy; copy 0 is the agent itself, and no agent stays none."""
    return key if copy == 0 or key is None else b"%s~%d" % (key, copy)
