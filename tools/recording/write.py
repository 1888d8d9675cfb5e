"""Writes a recording: chunks into a file, file after file. No Kafka, no waiting.

What is flushed is on disk as a whole chunk: a writer that is killed leaves a file that is readable up to there. The
summary and the index come at the end of a file, with `finish`.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import msgpack
from mcap.writer import CompressionType, Writer

from tools.recording.about import NAME, About
from tools.recording.layout import MS, Compression, packed
from tools.recording.recorded import Recorded, RecordingError, kind_and_lane

CHUNK_BYTES: Final = 1 << 20
MAX_INDEXED_AGENTS: Final = 100_000
"""Per file, counted anew for each partition. With more, the index names none: a plan by agent then reads the file."""
INDEX: Final = "decision_fleet.index"
"""The attachment at the end of a file."""
COMPRESSIONS: Final = {"zstd": CompressionType.ZSTD, "lz4": CompressionType.LZ4, "none": CompressionType.NONE}
SCHEMA: Final = json.dumps(
    {
        "title": "A record of Kafka as a MessagePack map; the channel names topic and partition, the message the time",
        "type": "object",
        "properties": {
            "offset": {"type": "integer"},
            "timestamp_type": {"enum": [0, 1], "description": "0: set by the sender, 1: by the broker"},
            "key": {"contentEncoding": "binary", "description": "agent ID in UTF-8"},
            "value": {
                "contentEncoding": "binary",
                "description": "a state or an action of wire version 1, MessagePack",
            },
            "headers": {"type": "array", "items": {"type": "array", "description": "name, bytes"}},
        },
    }
).encode()

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""


class FileWriter:
    """One file, from its first byte to its summary."""

    def __init__(
        self, path: Path, about: About, number: int, compression: Compression = "zstd", begun_us: int | None = None
    ) -> None:
        self.path = path
        self.counts: dict[Place, int] = {}
        """Records by topic and partition."""
        self._about = about
        self._channels: dict[Place, int] = {}
        self._agents: dict[Place, dict[bytes | None, int]] = {}
        self._spans: dict[Place, list[int]] = {}
        """First and last offset, earliest and latest time (ms)."""
        self._gaps: list[tuple[str, int, int, int, str]] = []
        try:
            self._file = path.open("xb")
            fcntl.flock(self._file, fcntl.LOCK_EX)  # for as long as this process lives: nobody may complete the file
        except FileExistsError:
            raise RecordingError(f"{path} is there already: a recording is never overwritten; name another") from None
        except OSError as error:
            raise RecordingError(f"{path} cannot be written: {error.strerror}") from error
        self._writer = Writer(self._file, chunk_size=CHUNK_BYTES, compression=COMPRESSIONS[compression])
        begun_us = time.time_ns() // 1000 if begun_us is None else begun_us
        with self._translated():
            self._writer.start("", "decision-fleet")
            self._writer.add_metadata(NAME, about.to_metadata(number, begun_us))
            self._schema = self._writer.register_schema("decision_fleet.KafkaRecord", "jsonschema", SCHEMA)
            self._file.flush()

    def add(self, records: Sequence[Recorded]) -> None:
        """Take records, in the order in which each partition has them."""
        with self._translated():
            for record in records:
                self._add(record)

    def _add(self, record: Recorded) -> None:
        place, offset, time_ms, key = (record.topic, record.partition), record.offset, record.timestamp_ms, record.key
        channel = self._channels.get(place)
        if channel is None:
            channel = self._new_channel(place)
            self._spans[place] = [offset, offset, time_ms, time_ms]
        log_ns = max(time_ms, 0) * MS
        self._writer.add_message(channel, log_ns, packed(record), log_ns, offset & 0xFFFFFFFF)
        agents, span = self._agents[place], self._spans[place]
        agents[key] = agents.get(key, 0) + 1
        self.counts[place] += 1
        span[1] = offset
        if time_ms > span[3]:
            span[3] = time_ms
        elif time_ms < span[2]:
            span[2] = time_ms

    def gap(self, topic: str, partition: int, begin: int, end: int, why: str) -> None:
        """Offsets [begin, end) are missing, and why."""
        self._gaps.append((topic, partition, begin, end, why))

    def flush(self) -> None:
        """End the chunk; what was added is on disk then."""
        with self._translated():
            self._writer.flush()
            os.fsync(self._file.fileno())

    def finish(self) -> None:
        """Write the index and the summary, and close."""
        with self._translated():
            self._writer.flush()
            now_ns = time.time_ns()
            self._writer.add_attachment(now_ns, now_ns, INDEX, "application/msgpack", self._index())
            self._writer.finish()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    @property
    def size_bytes(self) -> int:
        """On disk; the chunk at hand is not."""
        return self.path.stat().st_size

    def _new_channel(self, place: Place) -> int:
        topic, partition = place
        kind, lane = kind_and_lane(topic, self._about.fleet)
        metadata = {"partition": str(partition), "kind": kind, "lane": lane or "", "fleet": self._about.fleet}
        self._channels[place] = number = self._writer.register_channel(topic, "msgpack", self._schema, metadata)
        self._agents[place], self.counts[place] = {}, 0
        return number

    def _index(self) -> bytes:
        named = sum(map(len, self._agents.values())) <= MAX_INDEXED_AGENTS
        places = [
            {
                "topic": topic,
                "partition": partition,
                "span": self._spans[topic, partition],
                "agents": self._agents[topic, partition] if named else None,
            }
            for topic, partition in self._channels
        ]
        return bytes(msgpack.packb({"places": places, "gaps": self._gaps}))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RecordingError(
                f"{self.path} cannot be written on: {error.strerror}; its whole chunks stay readable"
            ) from error


class RecordingWriter:
    """A recording at `path`: one file if that ends in .mcap, else a folder of files, continued where it has some.

    A new file begins after `rotate_bytes`, and after `rotate_s` seconds. Nothing is written before the first record.

    Raises:
        RecordingError: the file exists, or cannot be written.
    """

    def __init__(
        self,
        path: Path,
        about: About,
        *,
        compression: Compression = "zstd",
        rotate_bytes: int | None = None,
        rotate_s: float | None = None,
    ) -> None:
        self.path = path
        self.single = path.suffix == ".mcap"
        if self.single and (rotate_bytes or rotate_s):
            raise RecordingError(f"{path} is one file: several need a folder, a name without .mcap")
        self.files: list[Path] = []
        """Begun by this writer."""
        self.counts: dict[tuple[str, int], int] = {}
        """Records in finished files, by topic and partition."""
        self.finished_bytes = 0
        self._about = about
        self._compression: Compression = compression
        self._rotate_bytes = rotate_bytes
        self._rotate_s = rotate_s
        self._file: FileWriter | None = None
        self._begun_s = 0.0
        self._number = 0 if self.single else next_number(path)

    def add(self, records: Sequence[Recorded]) -> None:
        """Write the records of one poll, each partition's in its order."""
        if records:
            self._current().add(records)

    def gap(self, topic: str, partition: int, begin: int, end: int, why: str) -> None:
        """Note that offsets [begin, end) are missing, and why."""
        self._current().gap(topic, partition, begin, end, why)

    def flush(self) -> None:
        """What was added is on disk, and stays readable whatever happens to this process."""
        if self._file is not None:
            self._file.flush()

    def finish(self) -> None:
        """End the recording; one without records is an empty recording, not a missing one."""
        self._current()
        self._end_file()

    @property
    def size_bytes(self) -> int:
        """On disk."""
        return self.finished_bytes + (self._file.size_bytes if self._file else 0)

    def _current(self) -> FileWriter:
        if self._file is not None and self._is_due(self._file):
            self._end_file()
        if self._file is None:
            self._file, self._begun_s = self._begin(), time.monotonic()
            self.files.append(self._file.path)
        return self._file

    def _is_due(self, file: FileWriter) -> bool:
        too_large = self._rotate_bytes is not None and file.size_bytes >= self._rotate_bytes
        return too_large or (self._rotate_s is not None and time.monotonic() - self._begun_s >= self._rotate_s)

    def _begin(self) -> FileWriter:
        path = self.path
        if not self.single:
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RecordingError(f"folder {path} cannot be made: {error.strerror}") from error
            path = path / f"{self._number:06d}.mcap"
        file = FileWriter(path, self._about, self._number, self._compression)
        self._number += 1
        return file

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.finish()
            self.finished_bytes += self._file.size_bytes
            for place, n in self._file.counts.items():
                self.counts[place] = self.counts.get(place, 0) + n
            self._file = None


def next_number(folder: Path) -> int:
    """Of the next file in a recording's folder."""
    return max((int(path.stem) for path in folder.glob("*.mcap") if path.stem.isdecimal()), default=-1) + 1
