"""The times in recorded states, moved in place: `sent_us` and `deadline_us`, 8 bytes each. Pure: bytes in, bytes out.

Nothing else of a state is read, and no other byte of it changes. Values that are no states are given back as they are.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Final

import msgpack
import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

# How our own encoder begins a state. What it writes behind is searched for the names only.
_BEGIN: Final = b"\xa1v\x01"
_SENT: Final = b"\xa7sent_us\xcf"
_DEADLINE: Final = b"\xabdeadline_us\xcf"
_OURS: Final = re.compile(rb"[\x81-\x8f]\xa1v\x01(\xa7sent_us\xcf.{8})?(\xabdeadline_us\xcf.{8})?", re.DOTALL)
_FIRST_AT: Final = 1 + len(_BEGIN)
_SECOND_AT: Final = _FIRST_AT + len(_SENT) + 8
_HEAD_BYTES: Final = _SECOND_AT + len(_DEADLINE) + 8
_FAR_US: Final = 1 << 62
"""No sum of two smaller numbers leaves the range of 64 bits."""

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
_FORMATS: Final = {0xCF: struct.Struct(">Q"), 0xD3: struct.Struct(">q")}
"""By MessagePack's type byte."""


def shifted_all(values: Sequence[bytes | None], deltas_us: Integers) -> list[bytes | None]:
    """`shifted` for many at once: `deltas_us` [n].

    Most states are our own encoder's, with their times at the same places: one look at all heads finds them, and if
    the names occur nowhere else, one addition moves them all. Otherwise each state is looked at on its own.
    """
    joined = b"".join([value or b"" for value in values])
    lengths = np.array([len(value or b"") for value in values], np.int64)
    ends = np.cumsum(lengths)
    moved = _moved(joined, ends - lengths, lengths, deltas_us)
    if moved is None:
        pairs = zip(values, deltas_us.tolist(), strict=True)
        return [None if value is None else shifted(value, delta_us) for value, delta_us in pairs]
    cuts = zip(values, (ends - lengths).tolist(), ends.tolist(), strict=True)
    return [None if value is None else moved[start:end] for value, start, end in cuts]


def _moved(joined: bytes, starts: Integers, lengths: Integers, deltas_us: Integers) -> bytes | None:
    """The joined states with their times moved; None where one look is not enough."""
    buffer = np.frombuffer(joined + bytes(_HEAD_BYTES), np.uint8).copy()
    heads = buffer[starts[:, None] + np.arange(_HEAD_BYTES)]
    fields = np.where(heads[:, 0] >> 4 == 8, heads[:, 0] & 15, 0) * _is(heads, 1, _BEGIN)
    sent = (fields > 1) & _is(heads, _FIRST_AT, _SENT) & (lengths >= _SECOND_AT)
    second = (fields > 2) & sent & _is(heads, _SECOND_AT, _DEADLINE) & (lengths >= _HEAD_BYTES)
    first = (fields > 1) & _is(heads, _FIRST_AT, _DEADLINE) & (lengths >= _FIRST_AT + len(_DEADLINE) + 8)
    deadlines = int(np.count_nonzero(first) + np.count_nonzero(second))
    if joined.count(b"sent_us") != np.count_nonzero(sent) or joined.count(b"deadline_us") != deadlines:
        return None
    for which, at in (
        (sent, _FIRST_AT + len(_SENT)),
        (second, _SECOND_AT + len(_DEADLINE)),
        (first, _FIRST_AT + len(_DEADLINE)),
    ):
        places = (starts[which] + at)[:, None] + np.arange(8)
        times_us = buffer[places].view(">u8")[:, 0]
        if (times_us > _FAR_US).any():
            return None
        new_us = times_us.astype(np.int64) + deltas_us[which]
        if (new_us < 0).any():
            return None
        buffer[places] = new_us.astype(">u8").view(np.uint8).reshape(-1, 8)
    return buffer[: len(joined)].tobytes()


def _is(heads: npt.NDArray[np.uint8], at: int, text: bytes) -> npt.NDArray[np.bool_]:
    """Whether each head has `text` there."""
    found: npt.NDArray[np.bool_] = (heads[:, at : at + len(text)] == np.frombuffer(text, np.uint8)).all(axis=1)
    return found


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
