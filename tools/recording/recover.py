"""Completes files whose recorder was killed, and mends damaged ones: their whole chunks are written anew."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tools.recording.check import by_place
from tools.recording.read import Recording
from tools.recording.read_file import Progress, RecordingFile, data_is_whole, no_progress
from tools.recording.recorded import Place, Recorded, RecordingError
from tools.recording.write_file import FileWriter

LEFT_OUT = "not in the whole chunks of a damaged file"


@dataclass(frozen=True, slots=True)
class Mended:
    """A file, and how many of its chunks could not be kept."""

    path: Path
    left_out: int

    def __str__(self) -> str:
        if not self.left_out:
            return str(self.path)
        return f"{self.path}, without {self.left_out} damaged chunks (their offsets are noted as gaps)"


def recover(path: Path, progress: Progress = no_progress, *, damaged: bool = False) -> list[Mended]:
    """Complete every file of the recording that has no summary; with `damaged`, also mend those that have one and a
    wrong checksum. What was mended.

    Raises:
        RecordingError: it cannot be read or written, or its recorder is alive.
    """
    files = [one for one in Recording.open(path).files if not one.complete or (damaged and not data_is_whole(one.path))]
    for file in files:
        _require_left(file.path)
    return [Mended(file.path, _complete(file, progress)) for file in files]


def _require_left(path: Path) -> None:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecordingError(f"{path} is being written: stop its recorder first") from None


def _complete(file: RecordingFile, progress: Progress) -> int:
    """How many chunks were left out."""
    number, begun = int(file.metadata["file"]), datetime.fromisoformat(file.metadata["begun"])
    whole = file.path.with_suffix(".mcap.recovering")
    whole.unlink(missing_ok=True)
    writer = FileWriter(whole, file.about, number, begun_us=round(begun.timestamp() * 1e6))
    left_out, ends = list(file.damage), dict[Place, int]()
    for gap in file.gaps:
        writer.gap(gap.topic, gap.partition, gap.begin, gap.end, gap.why)
    for records in _chunks(file, left_out, progress):
        for place, offsets in by_place(records).items():
            begin, end = ends.get(place, min(offsets)), min(offsets)
            if left_out and begin < end:
                writer.gap(*place, begin, end, LEFT_OUT)
            ends[place] = max(begin, max(offsets) + 1)
        writer.add(records)
    writer.finish()
    os.replace(whole, file.path)
    return len(left_out)


def _chunks(file: RecordingFile, left_out: list[str], progress: Progress) -> Iterator[Sequence[Recorded]]:
    for at, chunk in enumerate(file.chunks):
        try:
            yield file.read(chunk)
        except RecordingError as error:
            left_out.append(str(error))
        progress(at + 1, len(file.chunks))
