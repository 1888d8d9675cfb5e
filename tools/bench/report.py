"""Results for people: one table each, the goals below it. The numbers are those of the JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

TITLES: Final = {
    "drain": "drain: a backlog through one worker",
    "closed": "closed: agents that wait for their answers, one worker",
    "client": "client: decide_many beside a bare client, the bare loop answers both",
    "open": "open: arrivals at a rate, latency from the moment they were due, one worker",
    "echo": "echo: one agent alone on the high lane, beside a raw aiokafka echo",
    "idle": "idle: a worker that nobody asks",
    "lanes": "lanes: the high lane while low is flooded; simulated device, one worker",
    "arrivals": "arrivals: Poisson beside uniform, then a burst; simulated device, one worker",
    "fill": "fill: twice max_batch outstanding; simulated device, one worker",
    "record": "record: a backlog through fleet record on one core",
    "long": "long: a steady load, the last tenth of the time beside the first; simulated device, one worker",
    "recording": "recording: a day's traffic written, planned and read, without Kafka",
    "scale": "scale: more workers on simulated devices, and one that joins and leaves",
}
SIDES: Final = {"echo": ("worker", "raw echo"), "client": ("decide_many", "bare client")}


def show_result(console: Console, found: Mapping[str, Any]) -> None:
    """Print what one benchmark found."""
    sides = SIDES.get(found["benchmark"], ("worker", "bare loop"))
    parts: list[RenderableType] = []
    if "decisions_per_s" in found:
        parts.append(_throughput(found, sides))
    if "lanes" in found:
        parts.append(_lanes(found, sides))
    parts += [_rows(title, rows) for title, rows in found.get("tables", {}).items()]
    console.print(f"\n[bold]{TITLES[found['benchmark']]}[/bold]")
    console.print(Group(*parts, *(goal_line(goal) for goal in found["goals"])))


def _rows(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows whose keys are the columns, units included."""
    table = new_table(*(key.replace("_", " ") for key in rows[0]))
    table.title, table.title_justify = title, "left"
    for row in rows:
        table.add_row(*(value if isinstance(value, str) else number(value) for value in row.values()))
    return table


def new_table(*columns: str) -> Table:
    """A plain table, names on the left, numbers on the right."""
    table = Table(box=None, pad_edge=False)
    for at, column in enumerate(columns):
        table.add_column(column, justify="right" if at else "left")
    return table


def _throughput(found: Mapping[str, Any], sides: tuple[str, str]) -> Table:
    table = new_table("", *sides, "ratio (lowest–highest)")
    for title, key, ratio in (
        ("decisions/s", "decisions_per_s", "ratio"),
        ("CPU µs per decision", "cpu_us_per_decision", "cpu_ratio"),
    ):
        spread = f"{found[ratio]:.2f} ({found[f'{ratio}_min']:.2f}–{found[f'{ratio}_max']:.2f})"
        table.add_row(title, number(found[key]), number(found[f"bare_{key}"]), spread)
    return table


def _lanes(found: Mapping[str, Any], sides: tuple[str, str]) -> Table:
    table = new_table("", "lane", "p50 ms", "p95 ms", "p99 ms", "offered", "answered", "unanswered")
    for side, key in zip(sides, ("lanes", "bare_lanes"), strict=True):
        for lane, values in found.get(key, {}).items():
            ms = [number(values[percentile]) for percentile in ("p50_ms", "p95_ms", "p99_ms")]
            counts = [f"{values[count]:,}" for count in ("offered", "answered", "unanswered")]
            table.add_row(side, lane, *ms, *counts)
    return table


def number(value: float | None) -> str:
    """Three digits, or all before the point."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def goal_line(goal: Mapping[str, Any]) -> Text:
    """A goal, and whether it is met."""
    mark, style = ("✓", "green") if goal["met"] else ("✗", "yellow")
    name = goal["key"].replace("/", " ")
    return Text(f"{mark} {name} {number(goal['found'])}, goal {goal['bound']} {goal['value']:g}", style)
