"""What is in a recording, as figures and for people: topics, rates, agents, gaps, and how records arrive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tools.recording.about import utc
from tools.recording.layout import MS
from tools.recording.read import Recording
from tools.recording.recorded import kind_and_lane

LOOKED_AT: Final = 32
"""Chunks whose arrivals are counted one by one, spread over the recording."""
ARRIVAL_MS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)
BINS: Final = 40
BAR_CHARACTERS: Final = 40
SPARKS: Final = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic's part of a recording; times in ms."""

    name: str
    kind: str
    lane: str
    partitions: int
    records: int
    begin_ms: int
    end_ms: int
    agents: int | None

    @property
    def rate_per_s(self) -> float | None:
        """Mean over its own stretch of time; None: it has none."""
        return self.records / (self.end_ms - self.begin_ms) * 1000 if self.end_ms > self.begin_ms else None


def topics(recording: Recording) -> list[Topic]:
    """By name."""
    counts, spans = recording.counts, recording.spans
    known = all(file.agents is not None for file in recording.files)
    found = []
    for name in sorted({topic for topic, _ in counts}):
        places = [place for place in counts if place[0] == name]
        kind, lane = kind_and_lane(name, recording.about.fleet)
        agents = {
            key
            for file in recording.files
            for place, keys in (file.agents or {}).items()
            if place[0] == name
            for key in keys
        }
        found.append(
            Topic(
                name,
                kind,
                lane or "",
                len(places),
                sum(counts[place] for place in places),
                min(spans[place].begin_ms for place in places),
                max(spans[place].end_ms for place in places),
                len(agents) if known else None,
            )
        )
    return found


def states_over_time(recording: Recording) -> list[float]:
    """States per second in `BINS` equal stretches, chunk by chunk; empty without states or time."""
    chunks = [
        (chunk.begin_ms, chunk.end_ms, sum(n for number, n in chunk.counts.items() if number in states))
        for file in recording.files
        for states in ({number for number, channel in file.channels.items() if channel.kind == "states"},)
        for chunk in file.chunks
    ]
    chunks = [chunk for chunk in chunks if chunk[2]]
    if not chunks:
        return []
    begin_ms, end_ms = min(chunk[0] for chunk in chunks), max(chunk[1] for chunk in chunks)
    width_ms = (end_ms - begin_ms) / BINS
    if width_ms <= 0:
        return []
    found = [0.0] * BINS
    for first_ms, last_ms, n in chunks:
        begin, end = (first_ms - begin_ms) / width_ms, min((last_ms - begin_ms) / width_ms + 1e-6, BINS)
        for at in range(int(begin), math.ceil(end)):
            found[at] += n * (min(end, at + 1) - max(begin, at)) / (end - begin)
    return [n / width_ms * 1000 for n in found]


def arrivals(recording: Recording) -> list[tuple[str, int]]:
    """How often the next state came after so many ms, from chunks spread over the recording."""
    chunks = [(file, chunk) for file in recording.files for chunk in file.chunks]
    looked_at = chunks[:: max(1, len(chunks) // LOOKED_AT)]
    counts = [0] * len(ARRIVAL_MS)
    for file, chunk in looked_at:
        states = [number for number, channel in file.channels.items() if channel.kind == "states"]
        content = file.load(chunk)
        times = np.sort(content.times_ns[np.isin(content.numbers, states)] // np.uint64(MS)).tolist()
        for before, after in pairwise(times):
            counts[max(at for at, ms in enumerate(ARRIVAL_MS) if after - before >= ms)] += 1
    labels = [*(f"{low}–{high}" if high - low > 1 else f"{low}" for low, high in pairwise(ARRIVAL_MS)), "≥ 5000"]
    return list(zip(labels, counts, strict=True)) if any(counts) else []


def figures(recording: Recording) -> dict[str, Any]:
    """Everything, for programs. Times in ISO 8601, UTC."""
    span = recording.span_us
    about = recording.about
    return {
        "path": str(recording.path),
        "fleet": about.fleet,
        "cluster_id": about.cluster_id,
        "filters": about.filters,
        "settings": dict(about.settings),
        "versions": dict(about.versions),
        "files": len(recording.files),
        "complete": recording.complete,
        "bytes": sum(file.path.stat().st_size for file in recording.files),
        "records": sum(recording.counts.values()),
        "begin": utc(span[0]) if span else None,
        "end": utc(span[1]) if span else None,
        "seconds": (span[1] - span[0]) / 1e6 if span else 0.0,
        "topics": [
            {
                "topic": one.name,
                "kind": one.kind,
                "lane": one.lane,
                "partitions": one.partitions,
                "records": one.records,
                "rate_per_s": one.rate_per_s,
                "agents": one.agents,
                "begin": utc(one.begin_ms * 1000),
                "end": utc(one.end_ms * 1000),
            }
            for one in topics(recording)
        ],
        "gaps": [
            {"topic": gap.topic, "partition": gap.partition, "begin": gap.begin, "end": gap.end, "why": gap.why}
            for file in recording.files
            for gap in file.gaps
        ],
        "states_per_s": states_over_time(recording),
        "arrivals_ms": dict(arrivals(recording)),
    }


def sheet(found: dict[str, Any]) -> RenderableType:
    """`figures`, for people."""
    head = Text(
        f"{found['path']}: fleet {found['fleet']}, {found['records']:,} records in {found['files']} files, "
        f"{found['bytes'] / 1e6:,.1f} MB"
    )
    parts: list[RenderableType] = [head]
    if found["begin"]:
        parts.append(Text(f"{found['begin']} to {found['end']}, {found['seconds']:,.1f} s"))
    if found["filters"]:
        parts.append(Text(f"only {found['filters']}"))
    if not found["complete"]:
        parts.append(Text("its recorder was killed: complete it with `fleet record --recover`", style="yellow"))
    parts += [_topic_table(found["topics"])] if found["topics"] else []
    for gap in found["gaps"]:
        where = f"{gap['topic']} partition {gap['partition']}"
        parts.append(Text(f"gap: {where}, offsets {gap['begin']}–{gap['end'] - 1}: {gap['why']}", style="yellow"))
    if found["states_per_s"]:
        top = max(found["states_per_s"])
        sparks = "".join(SPARKS[round(rate / top * (len(SPARKS) - 1))] for rate in found["states_per_s"])
        parts.append(Text(f"\nstates/s  {sparks}  up to {top:,.0f}"))
    if found["arrivals_ms"]:
        parts.append(_bars(list(found["arrivals_ms"].items())))
    return Group(*parts)


def _topic_table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("topic", "records", "per s", "agents", "partitions"):
        table.add_column(title, justify="left" if title == "topic" else "right", overflow="fold")
    for row in rows:
        rate = "" if row["rate_per_s"] is None else f"{row['rate_per_s']:,.1f}"
        agents = "" if row["agents"] is None else f"{row['agents']:,}"
        table.add_row(Text(row["topic"]), f"{row['records']:,}", rate, agents, str(row["partitions"]))
    return table


def _bars(counted: Sequence[tuple[str, int]]) -> Table:
    table = Table(box=None, pad_edge=False, title="ms from one state to the next", title_justify="left")
    table.add_column("ms", justify="right")
    table.add_column("")
    table.add_column("share", justify="right")
    total, top = sum(n for _, n in counted), max(n for _, n in counted)
    for label, n in counted:
        if n:
            table.add_row(label, "█" * max(1, round(n / top * BAR_CHARACTERS)), f"{n / total:.1%}")
    return table
