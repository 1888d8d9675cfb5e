"""Plots of what benchmarks found, from their JSON: the pictures of docs/performance.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tools.plots import bar_chart, line_chart
from topics.errors import FleetError

Found = Mapping[str, Any]
Pictures = Iterator[tuple[str, str]]
"""Name of a picture, and its SVG."""

RATIOS: Final = {
    "drain": ("ratio", "a backlog: decisions/s ÷ bare loop"),
    "closed": ("ratio", "512 agents that wait: decisions/s ÷ bare loop"),
    "open": ("cpu_ratio", "1,000 arrivals/s: CPU per decision ÷ bare loop"),
    "echo": ("p50_ratio", "one agent alone: p50 ÷ raw echo"),
    "client": ("cpu_ratio", "decide_many: CPU per decision ÷ bare client"),
}
"""Key of each benchmark's ratio, and what it says."""


def plot(files: Sequence[Path], folder: Path) -> list[Path]:
    """Write the pictures of each file into `folder`; what was written.

    Raises:
        FleetError: a file is not what `fleet bench --json` writes, or a picture cannot be written.
    """
    results = [result for file in files for result in read(file)]
    pictures = [*_ratios(results)]
    for result in results:
        if (draw := DRAWN.get(result["benchmark"])) is not None:
            pictures += draw(result)
    written = []
    for name, svg in pictures:
        path = folder / f"{name}.svg"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(svg)
        except OSError as error:
            raise FleetError(f"{path} cannot be written: {error.strerror}") from error
        written.append(path)
    return written


def read(path: Path) -> list[dict[str, Any]]:
    """The results in a file: one, or those of `fleet bench run`. Raises FleetError."""
    try:
        found = json.loads(path.read_text())
        results = [found] if "benchmark" in found else list(found.values())
        if all(isinstance(result["benchmark"], str) for result in results):
            return results
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FleetError(f"{path} is not what `fleet bench … --json` writes: {error!r:.80}") from error
    raise FleetError(f"{path} is not what `fleet bench … --json` writes")


def _ratios(results: Sequence[Found]) -> Pictures:
    """Worker ÷ floor, pair by pair."""
    bars: dict[str, float] = {}
    spread: dict[str, tuple[float, float]] = {}
    for result in results:
        key, title = RATIOS.get(result["benchmark"], ("", ""))
        if key in result:
            bars[title] = float(result[key])
            spread[title] = (float(result[f"{key}_min"]), float(result[f"{key}_max"]))
    if bars:
        yield (
            "floors",
            bar_chart(
                bars, title="beside the floor", x_label="ratio, 1 is the floor", y_label="", goal=1.0, spread=spread
            ),
        )


def _open(found: Found) -> Pictures:
    """p99 of each lane, of the worker and of the bare loop."""
    bars = {
        f"{lane}, {side}": float(found[lanes][lane]["p99_ms"])
        for lane in found["lanes"]
        for side, lanes in (("worker", "lanes"), ("bare loop", "bare_lanes"))
    }
    yield "open", bar_chart(bars, title="1,000 arrivals/s: p99", x_label="ms", y_label="")


def _lanes(found: Found) -> Pictures:
    rows = [row for row in found["tables"]["latency"] if row["lane"] == "high"]
    shares = sorted({row["low"] for row in rows})
    series = {
        what: [(share * 100, max(row[key] for row in rows if row["low"] == share)) for share in shares]
        for what, key in (("p50", "p50_ms"), ("p99", "p99_ms"))
    }
    yield (
        "lanes",
        line_chart(series, title="high, while low is flooded", x_label="offered to low, % of capacity", y_label="ms"),
    )


def _arrivals(found: Found) -> Pictures:
    rows = [row for row in found["tables"]["burst, from its begin"] if row["p99_ms"] is not None]
    series = {what: [(row["from_s"], row[key]) for row in rows] for what, key in (("p50", "p50_ms"), ("p99", "p99_ms"))}
    yield (
        "burst",
        line_chart(series, title="ten times the load for a second", x_label="s since the burst began", y_label="ms"),
    )


def _scale(found: Found) -> Pictures:
    rows = found["tables"]["workers"]
    series = {
        "measured": [(row["workers"], row["decisions_per_s"]) for row in rows],
        "linear": [(row["workers"], rows[0]["decisions_per_s"] / rows[0]["workers"] * row["workers"]) for row in rows],
    }
    yield "scale", line_chart(series, title="more workers", x_label="workers", y_label="decisions/s")
    bars = {
        f"{row['change']}, {what}": float(row[key])
        for row in found["tables"]["changes"]
        for what, key in (("p99", "p99_ms"), ("longest gap", "gap_ms"))
        if row[key] is not None
    }
    title = "high, while a worker joins and one leaves"
    yield "join-leave", bar_chart(bars, title=title, x_label="ms", y_label="", goal=1000)


def _long(found: Found) -> Pictures:
    series = {
        lane: [(at_s / 60, ms) for at_s, ms in points if ms is not None] for lane, points in found["over_time"].items()
    }
    yield "long-p99", line_chart(series, title="p99 over time, 60 % load", x_label="minutes", y_label="ms")
    looks = found["looks"]
    memory = {"RSS": [(at_s / 60, rss_mb) for at_s, rss_mb, _ in looks]}
    yield "long-memory", line_chart(memory, title="memory of the worker", x_label="minutes", y_label="MB")


def _peers(found: Found) -> Pictures:
    for what, title in (("drain", "a backlog through one process"), ("closed", "512 agents that wait")):
        rows = {name: row for name, row in found.get(what, {}).items() if row.get("decisions_per_s")}
        bars = {name: float(row["decisions_per_s"]) for name, row in rows.items()}
        if bars:
            bars["decision-fleet"] = median(float(row["fleet_decisions_per_s"]) for row in rows.values())
            ordered = dict(sorted(bars.items(), key=lambda bar: -bar[1]))
            yield f"peers-{what}", bar_chart(ordered, title=title, x_label="decisions/s", y_label="")


DRAWN: Final[Mapping[str, Callable[[Found], Pictures]]] = {
    "open": _open,
    "lanes": _lanes,
    "arrivals": _arrivals,
    "scale": _scale,
    "long": _long,
    "peers": _peers,
}
