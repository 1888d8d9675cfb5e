"""Reads a recording: its summaries first, then its records in the order of their times, a chunk's worth at a time.

A file whose writer was killed has no summary; its whole chunks are found one by one. Nothing here knows Kafka.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import msgpack
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.reader import make_reader
from mcap.records import Channel as McapChannel
from mcap.records import Metadata

from tools.recording.about import NAME, About
from tools.recording.layout import (
    FOOTER_BYTES,
    HEAD,
    MAGIC,
    MAX_CHUNK_BYTES,
    MS,
    Channel,
    content,
    found_in,
    opened,
    parsed,
    unpacked,
)
from tools.recording.recorded import Recorded, RecordingError, kind_and_lane
from tools.recording.selection import Selection
from tools.recording.write import INDEX, Place

EVERYTHING: Final = Selection()
BY_TIME: Final = itemgetter(3, 2)
"""Time, then offset: what came in the same ms keeps its order in each partition."""


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
    """First and last offset of a partition, and its earliest and latest time (ms)."""

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

    def read(self, chunk: ChunkSpan, wanted: Mapping[int, Channel] | None = None) -> list[Recorded]:
        """The records of one chunk. Raises RecordingError."""
        where = f"{self.path} (chunk at byte {chunk.at})"
        if chunk.length > MAX_CHUNK_BYTES:
            raise RecordingError(f"{where} claims {chunk.length} bytes, at most {MAX_CHUNK_BYTES} are read")
        try:
            with self.path.open("rb") as stream:
                data = content(stream, chunk.at, chunk.length)
        except OSError as error:
            raise RecordingError(f"{self.path} cannot be read: {error.strerror}") from error
        return unpacked(opened(data, where), self.channels if wanted is None else wanted, where)


class Recording:
    """Files that belong together, in the order in which they were written."""

    def __init__(self, path: Path, files: Sequence[RecordingFile]) -> None:
        self.path = path
        self.files = files

    @classmethod
    def open(cls, path: Path) -> Recording:
        """Read the summaries of a file, or of all files in a folder.

        Raises:
            RecordingError: there is nothing, or something that is not a recording, or a damaged one.
        """
        if not path.exists():
            raise RecordingError(f"{path} does not exist: expected a .mcap file or a folder of them")
        paths = sorted(path.glob("*.mcap")) if path.is_dir() else [path]
        if not paths:
            raise RecordingError(f"{path} has no .mcap file in it: is it a recording?")
        files = [open_file(one) for one in paths]
        if len(fleets := {file.about.fleet for file in files}) > 1:
            raise RecordingError(f"{path} has files of several fleets: {', '.join(sorted(fleets))}; keep them apart")
        return cls(path, files)

    @property
    def about(self) -> About:
        """What the newest file says of itself."""
        return self.files[-1].about

    @property
    def complete(self) -> bool:
        """Whether every file was ended by its writer."""
        return all(file.complete for file in self.files)

    @property
    def counts(self) -> dict[Place, int]:
        """Records by topic and partition."""
        found: dict[Place, int] = {}
        for file in self.files:
            for chunk in file.chunks:
                for number, n in chunk.counts.items():
                    place = (file.channels[number].topic, file.channels[number].partition)
                    found[place] = found.get(place, 0) + n
        return found

    @property
    def spans(self) -> dict[Place, Span]:
        """Offsets and times by topic and partition, over all files."""
        found: dict[Place, Span] = {}
        for file in self.files:
            for place, span in file.spans.items():
                if (known := found.get(place)) is None:
                    found[place] = Span(span.first, span.last, span.begin_ms, span.end_ms)
                else:
                    known.first, known.last = min(known.first, span.first), max(known.last, span.last)
                    known.begin_ms = min(known.begin_ms, span.begin_ms)
                    known.end_ms = max(known.end_ms, span.end_ms)
        return found

    @property
    def span_us(self) -> tuple[int, int] | None:
        """Times of the first and the last record, Unix µs; None: there are none."""
        chunks = [chunk for file in self.files for chunk in file.chunks]
        if not chunks:
            return None
        return min(one.begin_ms for one in chunks) * 1000, max(one.end_ms for one in chunks) * 1000

    def records(self, selection: Selection = EVERYTHING) -> Iterator[list[Recorded]]:
        """The records that are meant in the order of their times, over all channels and files.

        Holds the chunks whose times overlap and no more. Raises RecordingError where one is damaged.
        """
        keep, chunks, held = selection.filter(), self._chunks(selection), list[Recorded]()
        for at, (file, chunk, wanted) in enumerate(chunks):
            held += keep(file.read(chunk, wanted))
            held.sort(key=BY_TIME)
            next_ms = chunks[at + 1][1].begin_ms if at + 1 < len(chunks) else None
            cut = len(held) if next_ms is None else bisect_left(held, next_ms, key=itemgetter(3))
            if cut:
                yield held[:cut]
                del held[:cut]

    def _chunks(self, selection: Selection) -> list[tuple[RecordingFile, ChunkSpan, dict[int, Channel]]]:
        """Those that may hold something that is meant, by the time of their first record."""
        since_ms, until_ms = selection.span_ms
        found = []
        for file in self.files:
            wanted = {
                number: channel
                for number, channel in file.channels.items()
                if selection.takes_topic(channel.kind, channel.lane)
            }
            for chunk in file.chunks:
                if (
                    chunk.begin_ms < until_ms
                    and chunk.end_ms >= since_ms
                    and not wanted.keys().isdisjoint(chunk.counts)
                ):
                    found.append((file, chunk, wanted))
        return sorted(found, key=lambda entry: entry[1].begin_ms)


def open_file(path: Path) -> RecordingFile:
    """What one file says of itself. Raises RecordingError."""
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
            return file or _from_chunks(stream, size, path, about, metadata)
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


def _from_chunks(stream: Any, size: int, path: Path, about: About, metadata: Mapping[str, str]) -> RecordingFile:
    """Without a summary: every whole chunk is read, up to the first damaged one."""
    channels: dict[int, Channel] = {}
    chunks: list[ChunkSpan] = []
    file = RecordingFile(path, about, metadata, channels, chunks, complete=False, agents={})
    for opcode, at, length in found_in(stream, len(MAGIC), size):
        if opcode != Opcode.CHUNK:
            continue
        where = f"{path} (chunk at byte {at})"
        try:
            data = opened(content(stream, at, length), where)
            for number, channel in _channels_in(data, about, path).items():
                channels[number] = channel
            records = unpacked(data, channels, where)
        except RecordingError:
            break
        if records:
            chunks.append(_noted(file, records, at, length))
    return file


def _noted(file: RecordingFile, records: Sequence[Recorded], at: int, length: int) -> ChunkSpan:
    numbers = {(channel.topic, channel.partition): number for number, channel in file.channels.items()}
    counts: dict[int, int] = {}
    for record in records:
        place = (record.topic, record.partition)
        counts[numbers[place]] = counts.get(numbers[place], 0) + 1
        ms = record.timestamp_ms
        span = file.spans.setdefault(place, Span(record.offset, record.offset, ms, ms))
        span.last, span.begin_ms, span.end_ms = record.offset, min(span.begin_ms, ms), max(span.end_ms, ms)
        assert file.agents is not None
        agents = file.agents.setdefault(place, {})
        agents[record.key] = agents.get(record.key, 0) + 1
    times = [record.timestamp_ms for record in records]
    return ChunkSpan(at, length, min(times), max(times), counts)


def _channels_in(data: bytes, about: About, path: Path) -> dict[int, Channel]:
    found, at = {}, 0
    while at + HEAD.size <= len(data):
        opcode, length = HEAD.unpack_from(data, at)
        at += HEAD.size
        if opcode == Opcode.CHANNEL:
            channel = _parsed(McapChannel, data[at : at + length], path)
            found[channel.id] = _channel(channel, about)
        at += length
    return found


def _channel(found: McapChannel, about: About) -> Channel:
    kind, lane = kind_and_lane(found.topic, about.fleet)
    return Channel(found.id, found.topic, int(found.metadata["partition"]), kind, lane)


def _parsed(kind: Any, data: bytes, path: Path) -> Any:
    try:
        return parsed(kind, data)
    except Exception as error:  # the library raises what its parts raise
        raise RecordingError(f"{path} is damaged: {error!r:.80}") from error
