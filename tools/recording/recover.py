"""Completes files whose recorder was killed: their whole chunks are written anew, with index and summary."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tools.recording.read import Recording, RecordingFile
from tools.recording.recorded import RecordingError
from tools.recording.write import FileWriter


def recover(path: Path, progress: Callable[[int, int], None] = lambda _done, _of: None) -> list[Path]:
    """Complete every file of the recording that has no summary; the files that were completed.

    Raises:
        RecordingError: it cannot be read or written, or its recorder is alive.
    """
    cut_off = [file for file in Recording.open(path).files if not file.complete]
    for file in cut_off:
        _require_left(file.path)
        _complete(file, progress)
    return [file.path for file in cut_off]


def _require_left(path: Path) -> None:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecordingError(f"{path} is being written: stop its recorder first") from None


def _complete(file: RecordingFile, progress: Callable[[int, int], None]) -> None:
    number, begun = int(file.metadata["file"]), datetime.fromisoformat(file.metadata["begun"])
    whole = file.path.with_suffix(".mcap.recovering")
    whole.unlink(missing_ok=True)
    writer = FileWriter(whole, file.about, number, begun_us=round(begun.timestamp() * 1e6))
    for at, chunk in enumerate(file.chunks):
        writer.add(file.read(chunk))
        progress(at + 1, len(file.chunks))
    writer.finish()
    os.replace(whole, file.path)
