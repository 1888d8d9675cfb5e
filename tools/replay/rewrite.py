"""What must change in a recorded state before it is sent again, and nothing else. Pure: bytes in, bytes out.

`sent_us` and `deadline_us` move by one and the same time; the correlation ID is fresh, and the reply headers go, so
that the answer comes to the target fleet's own actions; a copy of an agent has an ID of its own. Everything else, the
order of fields and headers included, keeps its bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

import msgpack

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

# How our own encoder begins a state. What it writes behind is searched for the names only.
_OURS: Final = re.compile(rb"[\x81-\x8f]\xa1v\x01(\xa7sent_us\xcf.{8})?(\xabdeadline_us\xcf.{8})?", re.DOTALL)
_NAMES: Final = frozenset(
    head + name
    for name in (b"sent_us", b"deadline_us")
    for head in (
        bytes([0xA0 | len(name)]),
        bytes([0xD9, len(name)]),
        bytes([0xDA, 0, len(name)]),
        bytes([0xDB, 0, 0, 0, len(name)]),
    )
)
_UINT64, _INT64 = 0xCF, 0xD3
_FORMATS: Final = {_UINT64: struct.Struct(">Q"), _INT64: struct.Struct(">q")}


def shifted(value: bytes, delta_us: int) -> bytes:
    """The state with its times moved by `delta_us`.

    Only whole numbers of 8 bytes move: every Unix time in µs after 1970-01-01 01:12 is one. A time that would leave the
    range of its 8 bytes stays.
    """
    places = times_at(value)
    if not places:
        return value
    changed = bytearray(value)
    for at in places:
        form = _FORMATS[changed[at]]
        (time_us,) = form.unpack_from(changed, at + 1)
        try:
            changed[at + 1 : at + 9] = form.pack(time_us + delta_us)  # pack_into leaves zeros where it raises
        except struct.error:
            continue
    return bytes(changed)


def times_at(value: bytes) -> list[int]:
    """Where the 8-byte numbers of `sent_us` and `deadline_us` begin (at their type byte), in the outermost map."""
    if (found := _OURS.match(value)) is not None:
        starts = [found.end(group) - 9 for group in (1, 2) if found.start(group) >= 0]
        end = found.end()
        is_whole = len(starts) < value[0] & 0x0F  # else the map ends before them
        if is_whole and value.find(b"sent_us", end) < 0 and value.find(b"deadline_us", end) < 0:
            return starts
    elif value.find(b"sent_us") < 0 and value.find(b"deadline_us") < 0:
        return []
    return list(_walk(value))


def _walk(value: bytes) -> Iterator[int]:
    """As `times_at`, entry by entry, up to the first that is not MessagePack."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(value), 1))
    unpacker.feed(value)
    try:
        for _ in range(unpacker.read_map_header()):
            start = unpacker.tell()
            unpacker.skip()
            at = unpacker.tell()
            unpacker.skip()
            if value[start:at] in _NAMES and value[at] in _FORMATS:
                yield at
    except (ValueError, msgpack.OutOfData):
        return


def headers_again(headers: tuple[tuple[str, bytes | None], ...], correlation_id: bytes) -> Headers:
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
