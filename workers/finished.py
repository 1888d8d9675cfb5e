"""The finished map: which offsets behind the committed one are answered already, as commit metadata.

A commit stops at the first unfinished state; states behind it may be answered. When a worker dies or hands a partition
over, this map lets the next owner skip what is answered instead of running it again. It travels in the metadata string
of the commit, is bounded, and is only ever an optimisation: where it is cut, missing, from another version or damaged,
states run again and the agent drops the second answer.

Form: `F1:` and base64 (no padding) of varints: the length of the first run that is *not* finished, counted from the
committed offset, then of the next finished run, and so on in turns.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

PREFIX: Final = "F1:"
MAX_CHARACTERS: Final = 2048
"""Half of what Kafka keeps with an offset (`offset.metadata.max.bytes`, 4096), so no commit is refused for its map."""
MAX_OFFSETS: Final = 1 << 20
"""Offsets that a map may speak of; far more than a lane holds, and a bound on what a damaged map makes us remember."""


def runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The runs (first, behind the last) that `offsets` are made of, ascending."""
    for _, run in groupby(enumerate(sorted(offsets)), key=lambda numbered: numbered[1] - numbered[0]):
        found = [offset for _, offset in run]
        yield found[0], found[-1] + 1


def encode(committed: int, runs: Iterable[tuple[int, int]]) -> str:
    """The map of finished `runs` (first, behind the last), ascending and behind `committed`; "" if there are none.

    Where it would be too long its end is left out: those states run again.
    """
    return _encode(committed, runs)[0]


def encode_whole(committed: int, runs: Iterable[tuple[int, int]]) -> str | None:
    """The same map where all `runs` fit into it, else None."""
    text, whole = _encode(committed, runs)
    return text if whole else None


def _encode(committed: int, runs: Iterable[tuple[int, int]]) -> tuple[str, bool]:
    packed = bytearray()
    limit = (MAX_CHARACTERS - len(PREFIX)) * 3 // 4
    position = committed
    for first, behind in runs:
        pair = _varint(first - position) + _varint(behind - first)
        if behind - committed > MAX_OFFSETS or len(packed) + len(pair) > limit:
            return _text(packed), False
        packed += pair
        position = behind
    return _text(packed), True


def _text(packed: bytearray) -> str:
    return PREFIX + base64.b64encode(packed).decode().rstrip("=") if packed else ""


def decode(committed: int, metadata: str) -> frozenset[int]:
    """The finished offsets in `metadata`; empty for anything that is not a well-formed map of this version."""
    if not metadata.startswith(PREFIX) or len(metadata) > MAX_CHARACTERS:
        return frozenset()
    text = metadata.removeprefix(PREFIX)
    try:
        lengths = list(_varints(base64.b64decode(text + "=" * (-len(text) % 4), validate=True)))
    except (ValueError, binascii.Error):
        return frozenset()
    if len(lengths) % 2 or sum(lengths) > MAX_OFFSETS:
        return frozenset()
    return frozenset(_offsets(committed, lengths))


def _offsets(position: int, lengths: Sequence[int]) -> Iterator[int]:
    for gap, run in zip(lengths[::2], lengths[1::2], strict=True):
        yield from range(position + gap, position + gap + run)
        position += gap + run


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varints(data: bytes) -> Iterator[int]:
    """`ValueError` for a number that is cut off or larger than any map may hold."""
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if value > MAX_OFFSETS:
            raise ValueError("a run longer than a map may speak of")
        if byte < 0x80:
            yield value
            value = shift = 0
        else:
            shift += 7
            if shift > 28:
                raise ValueError("a number that never ends")
    if shift:
        raise ValueError("a number that is cut off")
