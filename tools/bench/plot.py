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

RATIO_TITLES: Final = {
    "drain": "a backlog: decisions/s ÷ bare loop",
    "closed": "512 agents that wait: decisions/s ÷ bare loop",
    "open": "1,000 arrivals/s: CPU per decision ÷ bare loop",
    "echo": "one agent alone: p50 ÷ raw echo",
}


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
    bars = {}
    for result in results:
        key = "cpu_ratio" if result["benchmark"] == "open" else "ratio"
        if result["benchmark"] in RATIO_TITLES and key in result:
            bars[RATIO_TITLES[result["benchmark"]]] = float(result[key])
    if bars:
        yield "floors", bar_chart(bars, title="beside the floor", x_label="ratio, 1 is the floor", y_label="", goal=1.0)


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
    "lanes": _lanes,
    "arrivals": _arrivals,
    "scale": _scale,
    "long": _long,
    "peers": _peers,
}
