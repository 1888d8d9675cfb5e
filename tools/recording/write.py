"""Writes a recording: file after file. No Kafka, no waiting."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tools.recording.about import About
from tools.recording.layout import Compression
from tools.recording.recorded import Recorded, RecordingError
from tools.recording.write_file import FileWriter


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
