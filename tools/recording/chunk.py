"""A chunk while it is filled: messages by channel, then the content of one chunk, or of several that lie apart in time.

Each chunk begins with the channels that it uses, so it can be read whatever became of the rest of its file.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from mcap.opcode import Opcode

from tools.recording.layout import HEAD, MESSAGE_HEAD, MS, log_ms, packed
from tools.recording.recorded import Recorded

NEAR_NS: Final = 1_000_000_000
"""A chunk that spans less than a second is not worth splitting."""
INDEX_HEAD: Final = struct.Struct("<BQHI")
"""Of a message index: opcode, length, channel, bytes of its entries."""
_MESSAGE: Final = Opcode.MESSAGE.value
_FIELDS_BYTES: Final = MESSAGE_HEAD.size - HEAD.size


@dataclass(slots=True)
class OpenChannel:
    """One partition of one topic in one file: what the chunk at hand holds of it, and what the file's index will say.

    `record`: the channel as MCAP has it. `span`: lowest and highest offset, earliest and latest time (ms).
    """

    id: int
    record: bytes
    messages: list[bytes] = field(default_factory=list)
    times_ns: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    agents: Counter[bytes | None] = field(default_factory=Counter)
    span: list[int] = field(default_factory=list)

    def add(self, record: Recorded) -> int:
        """Append a record's message; its bytes."""
        data, offset, ms = packed(record), record.offset, log_ms(record.timestamp_ms)
        ns = ms * MS
        length = _FIELDS_BYTES + len(data)
        self.messages.append(MESSAGE_HEAD.pack(_MESSAGE, length, self.id, offset & 0xFFFFFFFF, ns, ns) + data)
        self.times_ns.append(ns)
        self.keys.append(record.key)
        if not self.span:
            self.span = [offset, offset, ms, ms]
        elif offset > self.span[1]:
            self.span[1] = offset
        elif offset < self.span[0]:
            self.span[0] = offset
        return HEAD.size + length

    def take(self) -> Part:
        """What was added since the last time."""
        times_ns = np.array(self.times_ns, np.uint64)
        begin_ns, end_ns = int(times_ns.min()), int(times_ns.max())
        part = Part(self.id, self.record, self.messages, times_ns, begin_ns, end_ns)
        self.span[2:] = min(self.span[2], begin_ns // MS), max(self.span[3], end_ns // MS)
        self.agents.update(self.keys)
        self.messages, self.times_ns, self.keys = [], [], []
        return part


@dataclass(frozen=True, slots=True)
class Part:
    """The messages of one channel in one chunk."""

    id: int
    record: bytes
    messages: Sequence[bytes]
    times_ns: npt.NDArray[np.uint64]
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class EndedChunk:
    """To be written: its content, its times, and the message index record of each channel."""

    content: bytes
    begin_ns: int
    end_ns: int
    indexes: Mapping[int, bytes]


def end_chunk(channels: Iterable[OpenChannel]) -> list[EndedChunk]:
    """Take what the channels hold. One chunk where they are at about the same time, else one for each: a backlog is
    read partition by partition, and chunks that span hours could not be read in the order of time without holding
    them all."""
    parts = [channel.take() for channel in channels if channel.messages]
    if not parts:
        return []
    whole_ns = max(part.end_ns for part in parts) - min(part.begin_ns for part in parts)
    longest_ns = max(part.end_ns - part.begin_ns for part in parts)
    if whole_ns <= max(2 * longest_ns, NEAR_NS):
        return [_ended(parts)]
    return [_ended([part]) for part in parts]


def _ended(parts: Sequence[Part]) -> EndedChunk:
    pieces = [part.record for part in parts]
    place = sum(map(len, pieces))
    indexes = {}
    for part in parts:
        lengths = np.fromiter(map(len, part.messages), np.uint64, len(part.messages))
        ends = np.cumsum(lengths) + np.uint64(place)
        entries = np.stack((part.times_ns, ends - lengths), axis=1).astype("<u8").tobytes()
        head = INDEX_HEAD.pack(Opcode.MESSAGE_INDEX.value, 6 + len(entries), part.id, len(entries))
        indexes[part.id] = head + entries
        pieces.extend(part.messages)
        place = int(ends[-1])
    return EndedChunk(
        b"".join(pieces), min(part.begin_ns for part in parts), max(part.end_ns for part in parts), indexes
    )
