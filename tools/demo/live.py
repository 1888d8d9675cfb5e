"""What a person sees while the agents play: tables that stay in place on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tools.demo.options import Options
from tools.demo.workers import Seen, Workers
from topics.names import LANES

LINE_EVERY_S: Final = 5.0
BAR_CHARACTERS: Final = 40
Window = Mapping[str, Any]
"""What the agents' process tells twice a second."""


class LiveView:
    """Shown from `with` to its end; `show` draws, nothing moves in between."""

    def __init__(self, console: Console, options: Options, workers: Workers) -> None:
        self._console = console
        self._options = options
        self._workers = workers
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._last_s = 0.0
        self._last_line_s = 0.0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, window: Window) -> None:
        """Draw what the agents tell, and what the workers' probes said last."""
        seconds = max(window["at_s"] - self._last_s, 1e-3)
        self._last_s = window["at_s"]
        if self._live:
            self._live.update(self._picture(window, seconds), refresh=True)
        elif window["at_s"] - self._last_line_s >= LINE_EVERY_S:
            self._last_line_s = window["at_s"]
            self._console.print(line(window, seconds), markup=False, highlight=False, soft_wrap=True)

    def _picture(self, window: Window, seconds: float) -> RenderableType:
        parts = [self._head(window, seconds), lanes_table(window, seconds, depths(self._workers))]
        parts.append(workers_table(self._workers) if self._workers.processes else seen_table(window))
        return Group(*parts)

    def _head(self, window: Window, seconds: float) -> RenderableType:
        rate = sum(lane["answered"] for lane in window["lanes"].values()) / seconds
        text = Text.assemble(
            (f" {rate:>7,.0f}", "bold green"),
            f" decisions/s   {window['decisions']:,} so far   ",
            episodes(window),
            f"   asked again {window['asked_again']:,}",
        )
        bar = ProgressBar(total=self._options.seconds, completed=window["at_s"], width=BAR_CHARACTERS)
        clock = Text(f" {min(window['at_s'], self._options.seconds):4.0f} of {self._options.seconds:g} s", "dim")
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text(""), bar, clock)
        return Group(text, grid)


@contextlib.contextmanager
def progress_bar(console: Console, total: int) -> Iterator[Callable[[int], None]]:
    """Of local play; gives what to call with the decisions so far. Nothing is drawn where there is no terminal."""
    columns = TextColumn(" playing the same seeds without Kafka"), BarColumn(), TextColumn("{task.percentage:.0f} %")
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        shown = bar.add_task("", total=None)  # moves to and fro until the model is loaded
        yield lambda played: bar.update(shown, completed=played, total=total if played else None)


def line(window: Window, seconds: float) -> str:
    """One line for logs and pipes."""
    rate = sum(lane["answered"] for lane in window["lanes"].values()) / seconds
    lanes = "  ".join(f"{name} p99 {ms(lane['p99_ms'])} ms" for name, lane in window["lanes"].items())
    return f"  {window['at_s']:5.1f} s  {rate:>7,.0f} decisions/s  {lanes}  asked again {window['asked_again']}"


def episodes(numbers: Window) -> str:
    """Finished episodes and their mean return."""
    mean = numbers["mean_return"]
    return f"{numbers['episodes']:,} episodes" + ("" if mean is None else f", mean return {mean:.1f}")


def lanes_table(window: Window, seconds: float, depth: Mapping[str, int]) -> Table:
    """A row per lane: what was answered in this window, and how long it took from send to reply."""
    table = _table("lane", "decisions/s", "p50 ms", "p95 ms", "p99 ms", "waiting")
    for lane in LANES:
        found = window["lanes"][lane]
        waiting = f"{depth[lane]:,}" if lane in depth else "–"
        numbers = (ms(found[f"p{percent}_ms"]) for percent in (50, 95, 99))
        table.add_row(lane, f"{found['answered'] / seconds:,.0f}", *numbers, waiting)
    return table


def depths(workers: Workers) -> dict[str, int]:
    """Requests that wait in a lane of any worker; empty where we started none."""
    seen = [process.now for process in workers.processes if process.now]
    return {lane: sum(one.depth.get(lane, 0) for one in seen) for lane in LANES} if workers.processes else {}


def workers_table(workers: Workers) -> Table:
    """A row per worker that we started."""
    table = _table("worker", "decisions/s", "batch", "fill", "busy", "state")
    for process in workers.processes:
        rate, batch = pace(process.before, process.now)
        busy = f"{process.now.busy:.0%}" if process.now else "–"
        state = Text(process.state, "bold red" if process.is_dead else "", no_wrap=True, overflow="ellipsis")
        fill = f"{batch / workers.max_batch:.0%}" if batch and workers.max_batch else "–"
        mean = f"{batch:.1f}" if batch else "–"
        table.add_row(process.name, "–" if rate is None else f"{rate:,.0f}", mean, fill, busy, state)
    return table


def pace(before: Seen | None, now: Seen | None) -> tuple[float | None, float | None]:
    """Decisions a second and mean batch size between two looks; None where there is nothing to say."""
    if before is None or now is None or now.at_s <= before.at_s:
        return None, None
    batches = now.batches - before.batches
    rate = (now.decisions - before.decisions) / (now.at_s - before.at_s)
    return rate, (now.rows - before.rows) / batches if batches > 0 else None


def seen_table(window: Window) -> Table:
    """A row per worker that answered us, where they are not ours to ask."""
    table = _table("worker", "batch")
    for name, batch in window["workers"].items():
        table.add_row(name, f"{batch:.1f}")
    return table


def ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=True)
    for column in columns:
        left = column in ("lane", "worker", "state")
        table.add_column(column, justify="left" if left else "right", min_width=11)
    return table
