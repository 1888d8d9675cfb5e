"""Opens one file of a recording: what its summary says, and its chunks when they are asked for.

A file whose writer was killed has no summary; its whole chunks are found one by one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgpack
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.reader import make_reader
from mcap.records import Channel as McapChannel
from mcap.records import Metadata

from tools.recording.about import NAME, About
from tools.recording.content import Content, channel_records, taken_apart
from tools.recording.layout import (
    FOOTER_BYTES,
    HEAD,
    MAGIC,
    MAX_CHUNK_BYTES,
    MS,
    Channel,
    content,
    found_in,
    log_ms,
    opened,
    parsed,
)
from tools.recording.recorded import Place, Recorded, RecordingError, kind_and_lane
from tools.recording.write_file import INDEX

Progress: TypeAlias = Callable[[int, int], None]
"""Called with what is done and what there is in all."""
MEND: Final = "`fleet record --recover` keeps what can be read"


def no_progress(_done: int, _of: int) -> None:
    """Nobody looks."""


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """Where a chunk's content lies in its file, the times in it (ms), and how many records of each channel."""

    at: int
    length: int
    begin_ms: int
    end_ms: int
    counts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [begin, end) that the recorder could not get, and why."""

    topic: str
    partition: int
    begin: int
    end: int
    why: str


@dataclass(slots=True)
class Span:
    """Lowest and highest offset of a partition, and its earliest and latest time (ms)."""

    first: int
    last: int
    begin_ms: int
    end_ms: int


@dataclass(slots=True)
class RecordingFile:
    """What the summary of one file says. `complete`: it has one."""

    path: Path
    about: About
    metadata: Mapping[str, str]
    channels: Mapping[int, Channel]
    chunks: Sequence[ChunkSpan]
    complete: bool
    spans: dict[Place, Span] = field(default_factory=dict)
    agents: dict[Place, dict[bytes | None, int]] | None = None
    """Records of each key; None: the file does not say."""
    gaps: list[Gap] = field(default_factory=list)

    damage: list[str] = field(default_factory=list)
    """Without a summary: chunks that cannot be read though others behind them can, a line each."""

    def load(self, chunk: ChunkSpan) -> Content:
        """The messages of one chunk. Raises RecordingError."""
        where = f"{self.path} (chunk at byte {chunk.at})"
        if chunk.length > MAX_CHUNK_BYTES:
            raise RecordingError(f"{where} claims {chunk.length} bytes, at most {MAX_CHUNK_BYTES} are read")
        try:
            with self.path.open("rb") as stream:
                data = content(stream, chunk.at, chunk.length)
        except OSError as error:
            raise RecordingError(f"{self.path} cannot be read: {error.strerror}") from error
        return taken_apart(opened(data, where), self.channels, where)

    def read(self, chunk: ChunkSpan) -> list[Recorded]:
        """The records of one chunk, as they were written. Raises RecordingError."""
        return self.load(chunk).records()


def open_file(path: Path, progress: Progress = no_progress) -> RecordingFile:
    """What one file says of itself. `progress`: bytes, where it has no summary. Raises RecordingError."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            if size == 0:
                raise RecordingError(f"{path} is empty: its recorder was killed before it wrote anything; delete it")
            if content(stream, 0, len(MAGIC)) != MAGIC[:size]:
                raise RecordingError(f"{path} is not an MCAP file: expected a file that `fleet record` wrote")
            about, metadata = _about(stream, size, path)
            stream.seek(size - len(MAGIC))
            ended = size > 2 * len(MAGIC) and stream.read() == MAGIC
            file = _from_summary(stream, path, about, metadata) if ended else None
            return file or _from_chunks(stream, size, path, about, metadata, progress)
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror}") from error


def _about(stream: Any, size: int, path: Path) -> tuple[About, dict[str, str]]:
    for opcode, at, length in found_in(stream, len(MAGIC), size):
        if opcode == Opcode.METADATA and length < 1 << 20:
            found = _parsed(Metadata, content(stream, at, length), path)
            if found.name == NAME:
                return About.from_metadata(found.metadata, str(path)), dict(found.metadata)
        if opcode == Opcode.CHUNK:
            break
    raise RecordingError(f"{path} has no metadata {NAME!r}: it is cut off, or not a recording of a fleet")


def _from_summary(stream: Any, path: Path, about: About, metadata: Mapping[str, str]) -> RecordingFile | None:
    """None: the summary is damaged, the chunks may still be good."""
    if not _summary_is_whole(stream):
        return None
    stream.seek(0)
    try:
        summary = make_reader(stream).get_summary()
        if summary is None:
            return None
        channels = {number: _channel(channel, about) for number, channel in summary.channels.items()}
        chunks = [
            ChunkSpan(
                one.chunk_start_offset + HEAD.size,
                one.chunk_length - HEAD.size,
                one.message_start_time // MS,
                one.message_end_time // MS,
                _counts(
                    one.message_index_offsets, one.chunk_start_offset + one.chunk_length + one.message_index_length
                ),
            )
            for one in summary.chunk_indexes
        ]
        file = RecordingFile(path, about, metadata, channels, chunks, complete=True)
        for index in summary.attachment_indexes:
            if index.name == INDEX:
                attachment = content(stream, index.offset + HEAD.size, index.length - HEAD.size)
                if not _is_whole(attachment[:-4], attachment[-4:]):
                    return None
                _add_index(file, attachment[-4 - index.data_size : -4])
    except (McapError, ValueError, KeyError, TypeError, IndexError, RecordingError, EOFError, struct.error):
        return None
    return file


def data_is_whole(path: Path) -> bool:
    """Whether the checksum of all that lies before the summary is right, of a file that has a summary. 0, says MCAP,
    is none."""
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        (start,) = struct.unpack_from("<Q", content(stream, size - FOOTER_BYTES, FOOTER_BYTES), HEAD.size)
        end = start - HEAD.size - 4
        stream.seek(0)
        crc, left = 0, end
        while left > 0 and (block := stream.read(min(left, 1 << 20))):
            crc = zlib.crc32(block, crc)
            left -= len(block)
        head = HEAD.pack(Opcode.DATA_END, 4)
        return stream.read(HEAD.size + 4) in (head + struct.pack("<I", crc), head + bytes(4))


def _summary_is_whole(stream: Any) -> bool:
    """Whether the summary's checksum, which the footer holds, is right."""
    size = stream.seek(0, 2)
    footer = content(stream, size - FOOTER_BYTES, FOOTER_BYTES)
    (start,) = struct.unpack_from("<Q", footer, HEAD.size)
    if not len(MAGIC) < start < size:
        return False
    return _is_whole(content(stream, start, size - start - 4 - len(MAGIC)), footer[-4 - len(MAGIC) : -len(MAGIC)])


def _is_whole(data: bytes, checksum: bytes) -> bool:
    return zlib.crc32(data).to_bytes(4, "little") == checksum


def _counts(offsets: Mapping[int, int], end: int) -> dict[int, int]:
    """Records of each channel in a chunk, from how long its message indexes are: 15 bytes, and 16 for each record."""
    ordered = sorted(offsets.items(), key=itemgetter(1))
    ends = [at for _, at in ordered[1:]] + [end]
    return {number: (till - at - 15) // 16 for (number, at), till in zip(ordered, ends, strict=True)}


def _add_index(file: RecordingFile, data: bytes) -> None:
    index = msgpack.unpackb(data, strict_map_key=False)
    agents: dict[Place, dict[bytes | None, int]] = {}
    for one in index["places"]:
        place = (one["topic"], one["partition"])
        file.spans[place] = Span(*one["span"])
        if one["agents"] is not None:
            agents[place] = one["agents"]
    file.agents = agents if len(agents) == len(index["places"]) else None
    file.gaps = [Gap(*gap) for gap in index["gaps"]]


def _from_chunks(
    stream: Any, size: int, path: Path, about: About, metadata: Mapping[str, str], progress: Progress
) -> RecordingFile:
    """Without a summary: every whole chunk is read. One that is damaged at the end is what the writer was at."""
    channels: dict[int, Channel] = {}
    chunks: list[ChunkSpan] = []
    file = RecordingFile(path, about, metadata, channels, chunks, complete=False, agents={})
    unreadable: list[str] = []
    for opcode, at, length in found_in(stream, len(MAGIC), size):
        if opcode in (Opcode.DATA_END, Opcode.FOOTER):
            break
        if opcode != Opcode.CHUNK:
            continue
        where = f"{path} (chunk at byte {at})"
        try:
            data = opened(content(stream, at, length), where)
            for described in channel_records(data):
                channel = _channel(_parsed(McapChannel, described, path), about)
                channels[channel.id] = channel
            records = taken_apart(data, channels, where).records()
        except RecordingError as error:
            unreadable.append(str(error))
            continue
        file.damage += unreadable
        unreadable = []
        if records:
            chunks.append(_noted(file, records, at, length))
        progress(at + length, size)
    return file


def _noted(file: RecordingFile, records: Sequence[Recorded], at: int, length: int) -> ChunkSpan:
    numbers = {(channel.topic, channel.partition): number for number, channel in file.channels.items()}
    counts: dict[int, int] = {}
    for record in records:
        place, ms = (record.topic, record.partition), log_ms(record.timestamp_ms)
        counts[numbers[place]] = counts.get(numbers[place], 0) + 1
        span = file.spans.setdefault(place, Span(record.offset, record.offset, ms, ms))
        span.first, span.last = min(span.first, record.offset), max(span.last, record.offset)
        span.begin_ms, span.end_ms = min(span.begin_ms, ms), max(span.end_ms, ms)
        assert file.agents is not None
        agents = file.agents.setdefault(place, {})
        agents[record.key] = agents.get(record.key, 0) + 1
    times = [log_ms(record.timestamp_ms) for record in records]
    return ChunkSpan(at, length, min(times), max(times), counts)


def _channel(found: McapChannel, about: About) -> Channel:
    kind, lane = kind_and_lane(found.topic, about.fleet)
    return Channel(found.id, found.topic, int(found.metadata["partition"]), kind, lane)


def _parsed(kind: Any, data: bytes, path: Path) -> Any:
    try:
        return parsed(kind, data)
    except Exception as error:  # the library raises what its parts raise
        raise RecordingError(f"{path} is damaged: {error!r:.80}") from error
