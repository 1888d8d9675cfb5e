"""A progress bar for what takes longer than two seconds: on stderr, and gone when it is done."""

from __future__ import annotations

import time
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SHOWN_AFTER_S: Final = 2.0


class LateBar:
    """Call it with what is done and what there is in all; `with` ends it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown_at = time.monotonic() + SHOWN_AFTER_S
        self._bar: Progress | None = None

    def __enter__(self) -> LateBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, of: int) -> None:
        if self._bar is None:
            if time.monotonic() < self._shown_at:
                return
            columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task(self._what)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=of)
