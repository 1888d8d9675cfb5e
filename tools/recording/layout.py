"""MCAP as it lies on disk, as much of it as reading a recording needs: whole records by their lengths, chunks opened.

The `mcap` package writes files and reads their summaries; messages are unpacked here, a chunk at a time, which is
several times faster than its reader.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO, Final, Literal

import lz4.frame
import msgpack
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Chunk

from tools.recording.recorded import Kind, Recorded, RecordingError
from topics.names import Lane

MAGIC: Final = b"\x89MCAP0\r\n"
FOOTER_BYTES: Final = 9 + 20 + len(MAGIC)
HEAD: Final = struct.Struct("<BQ")
"""Of each record: opcode and length of what follows."""
MESSAGE: Final = struct.Struct("<HIQQ")
"""Channel, sequence, log time, publish time (ns); then the data."""
MS: Final = 1_000_000
"""ns."""
MAX_CHUNK_BYTES: Final = 256 << 20
"""Uncompressed; ours have 1 MiB and one record. More is damage, or a bomb."""

Compression = Literal["zstd", "lz4", "none"]


@dataclass(frozen=True, slots=True)
class Channel:
    """One partition of one topic."""

    id: int
    topic: str
    partition: int
    kind: Kind
    lane: Lane | None


def found_in(stream: BinaryIO, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Opcode, offset of the content and its length of each whole record in [begin, end); ends where one is cut off."""
    at = begin
    while at + HEAD.size <= end:
        stream.seek(at)
        opcode, length = HEAD.unpack(stream.read(HEAD.size))
        at += HEAD.size
        if at + length > end:
            return
        yield opcode, at, length
        at += length


def content(stream: BinaryIO, at: int, length: int) -> bytes:
    """The content of a record."""
    stream.seek(at)
    return stream.read(length)


def parsed(kind: Any, data: bytes) -> Any:
    """A record of the `mcap` package from its content."""
    return kind.read(ReadDataStream(BytesIO(data)))


def opened(data: bytes, where: str) -> bytes:
    """The records in the content of a chunk, uncompressed, once their checksum is right.

    Raises:
        RecordingError: they are damaged.
    """
    try:
        chunk: Chunk = parsed(Chunk, data)
        if chunk.uncompressed_size > MAX_CHUNK_BYTES:
            raise RecordingError(f"{where} claims {chunk.uncompressed_size} bytes, at most {MAX_CHUNK_BYTES} are read")
        records = _uncompressed(chunk)
    except RecordingError:
        raise
    except Exception as error:  # what three libraries raise on damaged bytes, each in its way
        raise RecordingError(f"{where} is damaged: {error!r:.80}") from error
    if len(records) != chunk.uncompressed_size or zlib.crc32(records) != chunk.uncompressed_crc:
        raise RecordingError(f"{where} is damaged: its checksum does not match")
    return records


def _uncompressed(chunk: Chunk) -> bytes:
    if chunk.compression == "zstd":
        return zstandard.ZstdDecompressor().decompress(chunk.data, chunk.uncompressed_size or 1)
    if chunk.compression == "lz4":
        reader = lz4.frame.LZ4FrameDecompressor()
        return bytes(reader.decompress(chunk.data, max_length=chunk.uncompressed_size + 1))
    if chunk.compression:
        raise RecordingError(f"compression {chunk.compression!r:.20}, this decision-fleet reads zstd and lz4")
    return chunk.data


def packed(record: Recorded) -> bytes:
    """The data of a record's message."""
    _, _, offset, timestamp_ms, timestamp_type, key, value, headers = record
    fields = {"offset": offset, "timestamp_type": timestamp_type, "key": key, "value": value, "headers": headers}
    if timestamp_ms < 0:  # Kafka's "none", which MCAP's unsigned times cannot say
        fields["timestamp_ms"] = timestamp_ms
    return bytes(msgpack.packb(fields))


def unpacked(records: bytes, wanted: Mapping[int, Channel], where: str) -> list[Recorded]:
    """The records of the `wanted` channels in an opened chunk, in its order. Raises RecordingError."""
    found: list[Recorded] = []
    at, end, unpack = 0, len(records), msgpack.unpackb
    head, message, is_message = HEAD.unpack_from, MESSAGE.unpack_from, Opcode.MESSAGE.value
    try:
        while at < end:
            opcode, length = head(records, at)
            at += 9
            if opcode == is_message:
                number, _, log_ns, _ = message(records, at)
                if (channel := wanted.get(number)) is not None:
                    body = unpack(records[at + 22 : at + length])
                    found.append(
                        Recorded(
                            channel.topic,
                            channel.partition,
                            body["offset"],
                            body.get("timestamp_ms", log_ns // MS),
                            body["timestamp_type"],
                            body["key"],
                            body["value"],
                            tuple([(name, bytes_) for name, bytes_ in body["headers"]]),
                        )
                    )
            at += length
    except Exception as error:  # MessagePack that is none, of a writer that is not ours
        raise RecordingError(f"{where} holds a message that is not a record: {error!r:.80}") from error
    return found
