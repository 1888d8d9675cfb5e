"""How much of a recording a selection means, from its indexes: 10 million records in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.recording.layout import Channel
from tools.recording.read import Recording
from tools.recording.read_file import ChunkSpan, RecordingFile
from tools.recording.recorded import Kind
from tools.recording.selection import Selection
from topics.names import Lane


@dataclass(slots=True)
class Plan:
    """Records by kind and lane, agents (None: the indexes do not say), times in ms.

    `exact` is False where agents were chosen within a stretch of time, or are not in the indexes: then each chunk is
    taken to hold them in the same share as its file.
    """

    counts: dict[tuple[Kind, Lane | None], int] = field(default_factory=dict)
    agents: int | None = 0
    begin_ms: int | None = None
    end_ms: int | None = None
    exact: bool = True

    @property
    def total(self) -> int:
        """Of all kinds and lanes."""
        return sum(self.counts.values())

    @property
    def seconds(self) -> float:
        """From the first to the last record."""
        return (self.end_ms - self.begin_ms) / 1000 if self.begin_ms is not None and self.end_ms is not None else 0.0


def plan(recording: Recording, selection: Selection) -> Plan:
    """What `recording.records(selection)` would give, without reading it all.

    Raises:
        RecordingError: a chunk at the edge of the selected time is damaged.
    """
    found, agents = Plan(), set[bytes | None]()
    for file in recording.files:
        _add_file(found, file, selection)
        if file.agents is None:
            found.agents = None
        else:
            chosen = (
                channel for channel in file.channels.values() if selection.takes_topic(channel.kind, channel.lane)
            )
            keys = (file.agents.get((channel.topic, channel.partition), {}) for channel in chosen)
            agents.update(key for part in keys for key in part if not selection.by_key or selection.takes_key(key))
    if found.agents is not None:
        found.agents = len(agents)
    return found


def _add_file(found: Plan, file: RecordingFile, selection: Selection) -> None:
    shares = _shares(file, selection)
    since_ms, until_ms = selection.span_ms
    for chunk in file.chunks:
        if chunk.begin_ms >= until_ms or chunk.end_ms < since_ms:
            continue
        inside = since_ms <= chunk.begin_ms and chunk.end_ms < until_ms
        if selection.by_key and not (selection.since_us is None and selection.until_us is None):
            found.exact = False
        if not inside and not selection.by_key:
            counted = _at_the_edge(file, chunk, selection)
        else:
            counted = ((file.channels[number], n * shares.get(number, 0.0)) for number, n in chunk.counts.items())
        _add_chunk(found, counted, chunk, since_ms, until_ms)
    if selection.by_key and file.agents is None:
        found.exact = False
    found.counts = {place: round(n) for place, n in found.counts.items() if round(n)}


def _add_chunk(
    found: Plan, counted: Iterator[tuple[Channel, float]], chunk: ChunkSpan, since_ms: int, until_ms: int
) -> None:
    any_here = False
    for channel, n in counted:
        if n:
            any_here = True
            place = (channel.kind, channel.lane)
            found.counts[place] = found.counts.get(place, 0) + n  # type: ignore[assignment]  # whole at the file's end
    if any_here:
        begin_ms, end_ms = max(chunk.begin_ms, since_ms), min(chunk.end_ms, until_ms - 1)
        found.begin_ms = begin_ms if found.begin_ms is None else min(found.begin_ms, begin_ms)
        found.end_ms = end_ms if found.end_ms is None else max(found.end_ms, end_ms)


def _shares(file: RecordingFile, selection: Selection) -> dict[int, float]:
    """Of each channel that is meant: the share of its records whose agent is."""
    found = {}
    for number, channel in file.channels.items():
        if not selection.takes_topic(channel.kind, channel.lane):
            continue
        agents = (file.agents or {}).get((channel.topic, channel.partition), {})
        total = sum(agents.values())
        if not selection.by_key or not total:
            found[number] = 1.0
        else:
            found[number] = sum(n for key, n in agents.items() if selection.takes_key(key)) / total
    return found


def _at_the_edge(file: RecordingFile, chunk: ChunkSpan, selection: Selection) -> Iterator[tuple[Channel, float]]:
    """Counted one by one: the chunk reaches over an end of the selected time."""
    by_place: dict[tuple[str, int], int] = {}
    for record in selection.filter()(file.read(chunk)):
        by_place[record[:2]] = by_place.get(record[:2], 0) + 1
    for channel in file.channels.values():
        if selection.takes_topic(channel.kind, channel.lane):
            yield channel, by_place.get((channel.topic, channel.partition), 0)
