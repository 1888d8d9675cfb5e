"""Writes one file of a recording: metadata, chunks as they come, then index and summary. Written bytes never change.

What is flushed is on disk as whole chunks: a writer that is killed leaves a file that is readable up to there.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgpack
from mcap.data_stream import RecordBuilder
from mcap.opcode import Opcode
from mcap.records import (
    Attachment,
    AttachmentIndex,
    ChunkIndex,
    DataEnd,
    Header,
    McapRecord,
    Metadata,
    MetadataIndex,
    Schema,
    Statistics,
    SummaryOffset,
)
from mcap.records import Channel as McapChannel

from tools.recording.about import NAME, About
from tools.recording.chunk import EndedChunk, OpenChannel, end_chunk
from tools.recording.layout import CHUNK_HEAD, COMPRESSION_NAMES, FOOTER_BYTES, HEAD, MAGIC, Compression, compressor
from tools.recording.recorded import Place, Recorded, RecordingError, kind_and_lane

CHUNK_BYTES: Final = 1 << 20
"""Before compression. Larger ones are hardly smaller on disk; a reader holds some dozens of them."""
MAX_INDEXED_AGENTS: Final = 100_000
"""Per file, counted anew for each partition. With more, the index names none: a plan by agent then reads the file."""
INDEX: Final = "decision_fleet.index"
"""The attachment at the end of a file."""
MEDIA_TYPE: Final = "application/msgpack"
SCHEMA: Final = Schema(
    id=1,
    name="decision_fleet.KafkaRecord",
    encoding="jsonschema",
    data=json.dumps(
        {
            "title": "A record of Kafka as a MessagePack map; the channel names its topic and partition",
            "type": "object",
            "properties": {
                "offset": {"type": "integer"},
                "timestamp_type": {"enum": [0, 1], "description": "0: set by the sender, 1: by the broker"},
                "timestamp_ms": {"type": "integer", "description": "only where the message's time cannot say it"},
                "key": {"contentEncoding": "binary", "description": "agent ID in UTF-8"},
                "value": {
                    "contentEncoding": "binary",
                    "description": "a state or an action of wire version 1, MessagePack",
                },
                "headers": {"type": "array", "items": {"type": "array", "description": "name, bytes"}},
            },
        }
    ).encode(),
)


class FileWriter:
    """One file, from its first byte to its summary. `size_bytes`: on disk; the chunk at hand is not."""

    def __init__(
        self, path: Path, about: About, number: int, compression: Compression = "zstd", begun_us: int | None = None
    ) -> None:
        self.path = path
        self.size_bytes = 0
        self._about = about
        self._crc = 0
        self._compression = COMPRESSION_NAMES[compression]
        self._compress = compressor(compression)
        self._channels: dict[Place, OpenChannel] = {}
        self._open_bytes = 0
        self._counts: dict[int, int] = {}
        """Records by channel."""
        self._times_ns: list[int] = []
        """Of each chunk: earliest, latest."""
        self._chunks: list[bytes] = []
        """Their indexes for the summary."""
        self._gaps: list[tuple[str, int, int, int, str]] = []
        begun_us = time.time_ns() // 1000 if begun_us is None else begun_us
        metadata = _bytes_of(Metadata(NAME, about.to_metadata(number, begun_us)))
        begin = MAGIC + _bytes_of(Header("", "decision-fleet"))
        self._metadata = MetadataIndex(len(begin), len(metadata), NAME)
        try:
            self._file = path.open("xb", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)  # for as long as this process lives: nobody may complete the file
        except FileExistsError:
            raise RecordingError(f"{path} is there already: a recording is never overwritten; name another") from None
        except OSError as error:
            raise RecordingError(f"{path} cannot be written: {error.strerror}") from error
        self._write(begin + metadata + _bytes_of(SCHEMA))

    @property
    def counts(self) -> dict[Place, int]:
        """Records by topic and partition, those of the chunk at hand included."""
        return {place: self._counts[channel.id] + len(channel.messages) for place, channel in self._channels.items()}

    def add(self, records: Sequence[Recorded]) -> None:
        """Take records, in the order in which each partition has them."""
        channels, size = self._channels, self._open_bytes
        for record in records:
            channel = channels.get((record.topic, record.partition)) or self._new_channel(record)
            size += channel.add(record)
            if size >= CHUNK_BYTES:
                self._end_chunk()
                size = 0
        self._open_bytes = size

    def gap(self, topic: str, partition: int, begin: int, end: int, why: str) -> None:
        """Offsets [begin, end) are missing, and why."""
        self._gaps.append((topic, partition, begin, end, why))

    def flush(self) -> None:
        """End the chunk; what was added is on disk then."""
        self._end_chunk()
        with self._translated():
            os.fsync(self._file.fileno())

    def finish(self) -> None:
        """Write the index and the summary, and close."""
        self._end_chunk()
        now_ns, index = time.time_ns(), self._index()
        attachment = _bytes_of(Attachment(now_ns, now_ns, INDEX, MEDIA_TYPE, index))
        place = AttachmentIndex(self.size_bytes, len(attachment), now_ns, now_ns, len(index), INDEX, MEDIA_TYPE)
        self._write(attachment)
        self._write(_bytes_of(DataEnd(self._crc)))
        self._write(self._summary(place))
        with self._translated():
            os.fsync(self._file.fileno())
            self._file.close()

    def _new_channel(self, record: Recorded) -> OpenChannel:
        kind, lane = kind_and_lane(record.topic, self._about.fleet)
        fields = {"partition": str(record.partition), "kind": kind, "lane": lane or "", "fleet": self._about.fleet}
        number = len(self._channels) + 1
        described = _bytes_of(McapChannel(number, record.topic, "msgpack", fields, SCHEMA.id))
        channel = self._channels[record.topic, record.partition] = OpenChannel(number, described)
        self._counts[number] = 0
        return channel

    def _end_chunk(self) -> None:
        for channel in self._channels.values():
            self._counts[channel.id] += len(channel.messages)
        for chunk in end_chunk(self._channels.values()):
            self._write_chunk(chunk)
        self._open_bytes = 0

    def _write_chunk(self, chunk: EndedChunk) -> None:
        data, name, size = self._compress(chunk.content), self._compression.encode(), len(chunk.content)
        head = CHUNK_HEAD.pack(chunk.begin_ns, chunk.end_ns, size, zlib.crc32(chunk.content), len(name)) + name
        length = len(head) + 8 + len(data)
        record = b"".join((HEAD.pack(Opcode.CHUNK, length), head, struct.pack("<Q", len(data)), data))
        at = self.size_bytes
        places, place = {}, at + len(record)
        for number, entries in chunk.indexes.items():
            places[number] = place
            place += len(entries)
        self._write(b"".join((record, *chunk.indexes.values())))
        index = ChunkIndex(
            chunk_length=len(record),
            chunk_start_offset=at,
            compression=self._compression,
            compressed_size=len(data),
            message_end_time=chunk.end_ns,
            message_index_length=place - at - len(record),
            message_index_offsets=places,
            message_start_time=chunk.begin_ns,
            uncompressed_size=size,
        )
        self._chunks.append(_bytes_of(index))
        self._times_ns += chunk.begin_ns, chunk.end_ns

    def _index(self) -> bytes:
        named = sum(len(channel.agents) for channel in self._channels.values()) <= MAX_INDEXED_AGENTS
        places = [
            {
                "topic": topic,
                "partition": partition,
                "span": channel.span,
                "agents": dict(channel.agents) if named else None,
            }
            for (topic, partition), channel in self._channels.items()
        ]
        return bytes(msgpack.packb({"places": places, "gaps": self._gaps}))

    def _summary(self, index: AttachmentIndex) -> bytes:
        """Schema, channels, statistics and all indexes, then the footer with the checksum of it all."""
        groups: list[tuple[Opcode, list[bytes]]] = [
            (Opcode.SCHEMA, [_bytes_of(SCHEMA)]),
            (Opcode.CHANNEL, [channel.record for channel in self._channels.values()]),
            (Opcode.STATISTICS, [_bytes_of(self._statistics())]),
            (Opcode.CHUNK_INDEX, self._chunks),
            (Opcode.ATTACHMENT_INDEX, [_bytes_of(index)]),
            (Opcode.METADATA_INDEX, [_bytes_of(self._metadata)]),
        ]
        start = place = self.size_bytes
        records, offsets = [], []
        for opcode, group in groups:
            length = sum(map(len, group))
            if length:
                offsets.append(_bytes_of(SummaryOffset(opcode, place, length)))
            place += length
            records += group
        footer = HEAD.pack(Opcode.FOOTER, FOOTER_BYTES - HEAD.size - len(MAGIC)) + struct.pack("<QQ", start, place)
        summary = b"".join((*records, *offsets, footer))
        return summary + struct.pack("<I", zlib.crc32(summary)) + MAGIC

    def _statistics(self) -> Statistics:
        return Statistics(
            attachment_count=1,
            channel_count=len(self._channels),
            channel_message_counts=self._counts,
            chunk_count=len(self._chunks),
            message_count=sum(self._counts.values()),
            message_end_time=max(self._times_ns, default=0),
            message_start_time=min(self._times_ns, default=0),
            metadata_count=1,
            schema_count=1,
        )

    def _write(self, data: bytes) -> None:
        with self._translated():
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        self._crc = zlib.crc32(data, self._crc)
        self.size_bytes += len(data)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RecordingError(
                f"{self.path} cannot be written on: {error.strerror}; its whole chunks stay readable"
            ) from error


def _bytes_of(record: McapRecord) -> bytes:
    builder = RecordBuilder()
    record.write(builder)
    return bytes(builder.end())
