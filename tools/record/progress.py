"""How a recording goes, on stderr: a bar on a terminal, a line now and then elsewhere; lines about what happened."""

from __future__ import annotations

import time
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY_S: Final = 10.0
"""Where nobody watches a bar, in a log for example."""
RATE_OVER_S: Final = 5.0
"""A second alone jumps with every fetch."""


class Reporter:
    """`with` ends it. `total`: offsets that there are to read, None while nobody knows."""

    def __init__(self, what: str, *, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, soft_wrap=True, highlight=False)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[line]}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task(what, total=None, line="")
        self._what = what
        self._line_at = time.monotonic() + LINE_EVERY_S
        self._seen: list[tuple[float, int]] = []

    def __enter__(self) -> Reporter:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, line: str) -> None:
        """Something happened that a person should know."""
        self._console.print(line, markup=False)

    def show(self, records: int, lag: int, *, bounded: bool) -> None:
        """Where it stands; called about once a second. `lag` in offsets, which is what is left if it is `bounded`."""
        now = time.monotonic()
        line = line_of(records, self._rate(now, records), lag)
        self._bar.update(self._task, line=line, completed=records, total=records + lag if bounded else None)
        if self._bar.disable and now >= self._line_at:
            self._line_at = now + LINE_EVERY_S
            self.tell(f"{self._what}: {line}")

    def _rate(self, now: float, records: int) -> float:
        """Records per second over the last seconds."""
        self._seen = [(at, count) for at, count in self._seen if at >= now - RATE_OVER_S][-100:]
        self._seen.append((now, records))
        (first_at, first), (last_at, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else 0.0


def line_of(records: int, rate: float, lag: int) -> str:
    """As a person reads it."""
    return f"{records:,} records  {rate:,.0f}/s  lag {lag:,}"
