"""Reads a recording: its summaries first, then its records in the order of their times, a stretch at a time.

Nothing here knows Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tools.recording.about import About
from tools.recording.content import Content
from tools.recording.layout import MS
from tools.recording.order import Stretch, ToLoad, in_time_order
from tools.recording.read_file import MEND, ChunkSpan, Progress, RecordingFile, Span, no_progress, open_file
from tools.recording.recorded import Place, Recorded, RecordingError
from tools.recording.selection import Selection

EVERYTHING: Final = Selection()


class Recording:
    """Files that belong together, in the order in which they were written."""

    def __init__(self, path: Path, files: Sequence[RecordingFile]) -> None:
        self.path = path
        self.files = files

    @classmethod
    def open(cls, path: Path, progress: Progress = no_progress) -> Recording:
        """Read the summaries of a file, or of all files in a folder. `progress`: bytes, of a file without a summary.

        Raises:
            RecordingError: there is nothing, or something that is not a recording, or a damaged one.
        """
        if not path.exists():
            raise RecordingError(f"{path} does not exist: expected a .mcap file or a folder of them")
        paths = sorted(path.glob("*.mcap")) if path.is_dir() else [path]
        if not paths:
            raise RecordingError(f"{path} has no .mcap file in it: is it a recording?")
        files = [open_file(one, progress) for one in paths]
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

    @property
    def damage(self) -> list[str]:
        """Chunks of files without a summary that cannot be read, though others behind them can; a line each."""
        return [line for file in self.files for line in file.damage]

    def records(self, selection: Selection = EVERYTHING) -> Iterator[list[Recorded]]:
        """The records that are meant in the order of their times, over all channels and files.

        Holds the chunks whose times overlap, packed, and one stretch of records. Raises RecordingError where one is
        damaged.
        """
        keep = selection.filter()
        for stretch in self.stretches(selection):
            if records := keep(stretch.records()):
                yield records

    def stretches(self, selection: Selection = EVERYTHING) -> Iterator[Stretch]:
        """The same as messages that are not unpacked yet; agents are not looked at."""
        if self.damage:
            raise RecordingError(f"{self.damage[0]}; {MEND}")
        return in_time_order(list(self._chunks(selection)))

    def _chunks(self, selection: Selection) -> Iterator[ToLoad]:
        """Those that may hold something that is meant."""
        since_ms, until_ms = selection.span_ms
        for file in self.files:
            wanted = {
                number for number, channel in file.channels.items() if selection.takes_topic(channel.kind, channel.lane)
            }
            for chunk in file.chunks:
                inside = chunk.begin_ms < until_ms and chunk.end_ms >= since_ms
                if inside and not wanted.isdisjoint(chunk.counts):
                    yield ToLoad(chunk.begin_ms * MS, partial(_load, file, chunk, wanted, since_ms, until_ms))


def _load(file: RecordingFile, chunk: ChunkSpan, wanted: set[int], since_ms: int, until_ms: int) -> Content:
    try:
        return file.load(chunk).only(wanted, since_ms, until_ms)
    except RecordingError as error:
        raise RecordingError(f"{error}; {MEND}") from error
