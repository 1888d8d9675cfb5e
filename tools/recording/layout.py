"""MCAP as it lies on disk, as much of it as reading a recording needs: whole records by their lengths, chunks opened.

The `mcap` package reads summaries and knows the rare records; messages are packed and unpacked here, which is several
times faster.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO, Final, Literal

import lz4.frame
import msgpack
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.records import Chunk

from tools.recording.recorded import Kind, Recorded, RecordingError
from topics.names import Lane

MAGIC: Final = b"\x89MCAP0\r\n"
FOOTER_BYTES: Final = 9 + 20 + len(MAGIC)
HEAD: Final = struct.Struct("<BQ")
"""Of each record: opcode and length of what follows."""
MESSAGE_HEAD: Final = struct.Struct("<BQHIQQ")
"""Opcode, length, channel, sequence, log time, publish time (ns); then the data."""
CHUNK_HEAD: Final = struct.Struct("<QQQII")
"""Earliest and latest time (ns), bytes uncompressed, their CRC-32, length of the compression's name; then that name."""
MS: Final = 1_000_000
"""ns."""
MAX_LOG_MS: Final = (2**64 - 1) // MS
"""MCAP's times are unsigned. Kafka has -1 for "none", and what a client wrote that took µs for ms."""
ZSTD_LEVEL: Final = 1
"""Of 3, the default, the chunks are some 5 % smaller and take twice the time."""
MAX_CHUNK_BYTES: Final = 256 << 20
"""Uncompressed; ours have 1 MiB and one record. More is damage, or a bomb."""

Compression = Literal["zstd", "lz4", "none"]
COMPRESSION_NAMES: Final[dict[Compression, str]] = {"zstd": "zstd", "lz4": "lz4", "none": ""}
"""As MCAP has them."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One partition of one topic."""

    id: int
    topic: str
    partition: int
    kind: Kind
    lane: Lane | None


def found_in(stream: BinaryIO, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Opcode, offset of the content and its length of each record in [begin, end), up to one that is not whole."""
    at = begin
    while at + HEAD.size <= end:
        stream.seek(at)
        opcode, length = HEAD.unpack(stream.read(HEAD.size))
        at += HEAD.size
        if at + length > end or opcode == 0:  # 0: a disk that lost power may give zeros
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
            raise RecordingError(f"claims {chunk.uncompressed_size} bytes, at most {MAX_CHUNK_BYTES} are read")
        records = _uncompressed(chunk)
    except RecordingError as error:
        raise RecordingError(f"{where} {error}") from error
    except Exception as error:  # what three libraries raise on damaged bytes, each in its way
        raise RecordingError(f"{where} is damaged: {error!r:.80}") from error
    if len(records) != chunk.uncompressed_size or zlib.crc32(records) != chunk.uncompressed_crc:
        raise RecordingError(f"{where} is damaged: its checksum does not match")
    return records


def _uncompressed(chunk: Chunk) -> bytes:
    if chunk.compression == "zstd":
        # The frame says its own size, which zstandard believes more than any limit.
        if zstandard.get_frame_parameters(chunk.data).content_size != chunk.uncompressed_size:
            raise RecordingError("is damaged: its sizes contradict each other")
        return zstandard.ZstdDecompressor().decompress(chunk.data)
    if chunk.compression == "lz4":
        reader = lz4.frame.LZ4FrameDecompressor()
        return bytes(reader.decompress(chunk.data, max_length=chunk.uncompressed_size + 1))
    if chunk.compression:
        raise RecordingError(f"has compression {chunk.compression!r:.20}, this decision-fleet reads zstd and lz4")
    return chunk.data


def compressor(compression: Compression) -> Callable[[bytes], bytes]:
    """For the content of chunks."""
    if compression == "zstd":
        return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress
    return lz4.frame.compress if compression == "lz4" else bytes


def log_ms(timestamp_ms: int) -> int:
    """A Kafka timestamp as MCAP can say it: the nearest time that it can where it cannot."""
    return min(max(timestamp_ms, 0), MAX_LOG_MS)


def packed(record: Recorded) -> bytes:
    """The data of a record's message."""
    _, _, offset, timestamp_ms, timestamp_type, key, value, headers = record
    fields = {"offset": offset, "timestamp_type": timestamp_type, "key": key, "value": value, "headers": headers}
    if not 0 <= timestamp_ms <= MAX_LOG_MS:
        fields["timestamp_ms"] = timestamp_ms
    return bytes(_pack(fields))


_pack = msgpack.Packer().pack
