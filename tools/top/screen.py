"""Rows as a picture for a terminal of any width from 80 columns on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tools.top.figures import Figures, LaneRow, WorkerRow

SORTS: Final[dict[str, Callable[[WorkerRow], float | str]]] = {
    "name": lambda row: row.name,
    "answers": lambda row: -row.answers_per_s,
    "busy": lambda row: -(row.busy or 0),
    "lag": lambda row: -row.lag,
}
SLOW_MS: Final = {"high": 20.0, "normal": 50.0}
"""The promises of the lanes; what is slower is shown in yellow."""
HELP: Final = "q quit · p pause · s sort · l lane · ↑↓ choose a worker, enter its details · ? help"


@dataclass(slots=True)
class View:
    """What the person at the keyboard has chosen."""

    sort: str = "name"
    lane: str | None = None
    chosen: int = 0
    details: bool = False
    paused: bool = False
    help: bool = False

    def press(self, key: str, workers: int) -> bool:
        """A key was pressed; False: they want to leave."""
        names = list(SORTS)
        match key:
            case "q" | "ctrl-c":
                return False
            case "p" | " ":
                self.paused = not self.paused
            case "s":
                self.sort = names[(names.index(self.sort) + 1) % len(names)]
            case "l":
                lanes = [None, "high", "normal", "low"]
                self.lane = lanes[(lanes.index(self.lane) + 1) % len(lanes)]
            case "up" | "k":
                self.chosen = max(0, self.chosen - 1)
            case "down" | "j" | "tab":
                self.chosen = min(max(0, workers - 1), self.chosen + 1)
            case "enter":
                self.details = not self.details
            case "?" | "h":
                self.help = not self.help
        return True


def picture(title: str, found: Figures, view: View, height: int = 24) -> RenderableType:
    """The whole screen."""
    rows = sorted(found.workers, key=lambda row: SORTS[view.sort](row))
    parts: list[RenderableType] = [_title(title, found, view), lanes_table(_chosen_lanes(found.lanes, view))]
    room = max(3, height - 10 - len(found.cluster) - (7 if view.details else 0))
    parts.append(workers_table(rows, view, room))
    if view.details and rows:
        parts.append(details(rows[min(view.chosen, len(rows) - 1)]))
    parts += [Text(line, style="yellow") for line in found.cluster]
    parts.append(Text(HELP if view.help else "q quit · ? keys", style="dim"))
    return Group(*parts)


def _title(title: str, found: Figures, view: View) -> Text:
    ready = sum(row.state == "ready" for row in found.workers)
    total = sum(row.answers_per_s for row in found.lanes)
    text = Text.assemble((title, "bold"), f"  {ready}/{len(found.workers)} workers ready  {total:,.0f} answers/s")
    if view.paused:
        text.append("  paused", "yellow")
    return text


def _chosen_lanes(rows: Sequence[LaneRow], view: View) -> list[LaneRow]:
    return [row for row in rows if view.lane in (None, row.lane)]


def lanes_table(rows: Sequence[LaneRow]) -> Table:
    """Each lane of the fleet."""
    table = Table(box=None, pad_edge=False, expand=False)
    for column in (
        "lane",
        "answers/s",
        "p50 ms",
        "p99 ms",
        "wait p99",
        "queued",
        "in flight",
        "lag",
        "behind",
        "other outcomes",
    ):
        table.add_column(column, justify="left" if column in ("lane", "other outcomes") else "right")
    for row in rows:
        slow = row.p99_ms is not None and row.p99_ms > SLOW_MS.get(row.lane, float("inf"))
        others = " ".join(f"{outcome} {rate:.1f}/s" for outcome, rate in sorted(row.other_outcomes.items()))
        table.add_row(
            row.lane, f"{row.answers_per_s:,.0f}",
            number(row.p50_ms), Text(number(row.p99_ms), "yellow" if slow else ""),
            number(row.wait_p99_ms), f"{row.depth:,}", f"{row.in_flight:,}", f"{row.lag:,}", f"{row.behind_s:.1f} s",
            Text(others, "red"),
        )  # fmt: skip
    return table


def workers_table(rows: Sequence[WorkerRow], view: View, room: int) -> Table:
    """Workers around the chosen one, as many as there is room for."""
    first = max(0, min(view.chosen - room // 2, len(rows) - room))
    table = Table(box=None, pad_edge=False, title=f"workers by {view.sort}", title_justify="left")
    for column in ("", "worker", "state", "model", "answers/s", "busy", "batch", "in flight", "lag", "parts", "reb."):
        text = column in ("", "worker", "state", "model")
        table.add_column(column, justify="left" if text else "right", no_wrap=True, overflow="ellipsis")
    for at, row in enumerate(rows[first : first + room], first):
        style = {"ready": "green", "not ready": "yellow"}.get(row.state, "red")
        state = row.standstill or row.state
        table.add_row(
            "▸" if at == view.chosen else " ", row.name, Text(state, "red" if row.standstill else style), row.model,
            f"{row.answers_per_s:,.0f}", share(row.busy), number(row.batch), f"{row.in_flight:,}", f"{row.lag:,}",
            str(row.partitions), str(row.rebalances),
        )  # fmt: skip
    if len(rows) > room:
        table.caption = f"{first + 1}–{min(first + room, len(rows))} of {len(rows)}"
    return table


def details(row: WorkerRow) -> Table:
    """The predictors of one worker."""
    table = Table(
        box=None, pad_edge=False, title=f"{row.name} at {row.address}, {row.memory_mb:,.0f} MB", title_justify="left"
    )
    for column in ("predictor", "serving", "busy", "batches", "p50 ms", "p99 ms", "batch", "failed"):
        table.add_column(column, justify="left" if column == "predictor" else "right")
    for one in row.predictors:
        serving = Text("yes", "green") if one["serving"] else Text("no", "red")
        table.add_row(
            one["name"], serving, share(one["busy"]), f"{one['batches']:,}",
            number(one["p50_ms"]), number(one["p99_ms"]),
            number(one["size"]), str(one["failed"]),
        )  # fmt: skip
    return table


def number(value: float | None) -> str:
    """Three figures at most, or a dash."""
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def share(value: float | None) -> str:
    """A share as per cent, or a dash."""
    return "–" if value is None else f"{value:.0%}"
