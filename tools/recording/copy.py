"""Makes one recording out of parts of others: cut and merge. The records are untouched, in the order of their times."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path

from tools.recording.about import About
from tools.recording.layout import Compression, log_ms
from tools.recording.read import Recording
from tools.recording.recorded import Recorded, RecordingError
from tools.recording.selection import Selection
from tools.recording.write import RecordingWriter

WRITTEN_AT_ONCE = 1000


def cut(
    recording: Recording,
    selection: Selection,
    filters: str,
    target: Path,
    compression: Compression = "zstd",
    on_written: Callable[[int], None] = lambda _n: None,
) -> int:
    """What is meant, as a recording of its own; `filters` says so in words. Gives the number of records."""
    about = recording.about
    words = "; ".join(filter(None, (about.filters, filters)))
    kept = About(about.fleet, about.cluster_id, about.partitions, words, about.settings, about.versions)
    return _write(recording.records(selection), kept, _gaps([recording], selection), target, compression, on_written)


def merge(
    recordings: Sequence[Recording],
    target: Path,
    compression: Compression = "zstd",
    on_written: Callable[[int], None] = lambda _n: None,
) -> int:
    """All records of several recordings of one fleet; what is in two of them comes once. Gives their number.

    Raises:
        RecordingError: they are of different fleets or clusters, so that offsets mean different records.
    """
    for what in ("fleet", "cluster_id"):
        if len(names := {getattr(recording.about, what) for recording in recordings}) > 1:
            raise RecordingError(
                f"recordings of {what.replace('_id', '')}s {', '.join(sorted(names))}: offsets mean different records "
                "there; merge those of one"
            )
    newest = recordings[-1].about
    partitions = {topic: n for recording in recordings for topic, n in recording.about.partitions.items()}
    words = "; ".join(dict.fromkeys(filter(None, (recording.about.filters for recording in recordings))))
    about = About(newest.fleet, newest.cluster_id, partitions, words, newest.settings, newest.versions)
    streams = [_one_by_one(recording) for recording in recordings]
    parts = _without_repeats(heapq.merge(*streams, key=_log_ms))
    return _write(parts, about, _gaps(recordings, Selection()), target, compression, on_written)


Gaps = Sequence[tuple[str, int, int, int, str]]


def _write(
    parts: Iterable[list[Recorded]],
    about: About,
    gaps: Gaps,
    target: Path,
    compression: Compression,
    on_written: Callable[[int], None],
) -> int:
    if target.exists():
        raise RecordingError(f"{target} is there already: a recording is never overwritten; name another")
    writer, written = RecordingWriter(target, about, compression=compression), 0
    try:
        for part in parts:
            writer.add(part)
            written += len(part)
            on_written(written)
        for gap in gaps:
            writer.gap(*gap)
        writer.finish()
    except BaseException:  # half of it would look like all of it
        for path in writer.files:
            path.unlink(missing_ok=True)
        if not writer.single:
            target.rmdir()
        raise
    return written


def _gaps(recordings: Sequence[Recording], selection: Selection) -> Gaps:
    return [
        (gap.topic, gap.partition, gap.begin, gap.end, gap.why)
        for recording in recordings
        for file in recording.files
        for gap in file.gaps
        if any(
            channel.topic == gap.topic and selection.takes_topic(channel.kind, channel.lane)
            for channel in file.channels.values()
        )
    ]


def _one_by_one(recording: Recording) -> Iterator[Recorded]:
    for part in recording.records():
        yield from part


def _log_ms(record: Recorded) -> int:
    return log_ms(record.timestamp_ms)


def _without_repeats(records: Iterable[Recorded]) -> Iterator[list[Recorded]]:
    """The same record has the same time in every recording: looking through one ms is enough."""
    part: list[Recorded] = []
    now_ms, seen = None, set[tuple[str, int, int]]()
    place = itemgetter(0, 1, 2)
    for record in records:
        if _log_ms(record) != now_ms:
            now_ms = _log_ms(record)
            seen.clear()
        if (where := place(record)) in seen:
            continue
        seen.add(where)
        part.append(record)
        if len(part) >= WRITTEN_AT_ONCE:
            yield part
            part = []
    yield part
