"""What a person sees while a benchmark runs: on standard error, a few times a second, so that it costs little."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

REFRESH_PER_S = 3.0


class Show:
    """One progress bar after the other."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def bar(self, what: str, total: float) -> Iterator[Callable[[float], None]]:
        """A bar for `what`; call what you get with how much is done."""
        columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, refresh_per_second=REFRESH_PER_S) as progress:
            row = progress.add_task(what, total=round(total))
            yield lambda done: progress.update(row, completed=round(done))
