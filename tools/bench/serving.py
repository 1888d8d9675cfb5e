"""The two sides of a live benchmark, and the stretch of time in which what they do counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal, Protocol

from tools.bench.children import Child
from tools.bench.offsets import skip_to_end
from tools.bench.results import Run
from tools.bench.rig import Rig
from topics.client import AgentClient

Side = Literal["bare", "fleet"]
SIDES: Final[Sequence[Side]] = ("bare", "fleet")
NAMES: Final[dict[Side, str]] = {"bare": "bare loop", "fleet": "worker"}
WARM_S: Final = 3.0
"""Before the window opens: first fetches, the client's first look at its partitions, the broker's JIT."""
TIMEOUT_S: Final = 5.0
"""A state without an answer by then counts as unanswered."""
TICK_S: Final = 0.25


@asynccontextmanager
async def serving(rig: Rig, side: Side) -> AsyncIterator[Child]:
    """The process that answers what is asked from now on."""
    if side == "bare":
        async with rig.bare() as child:
            yield child
    else:
        await skip_to_end(rig.settings)
        async with rig.worker() as child:
            yield child


@asynccontextmanager
async def asking(rig: Rig, timeout_s: float = TIMEOUT_S) -> AsyncIterator[AgentClient]:
    """The client of both sides, in this process."""
    async with AgentClient(settings=rig.settings, timeout_s=timeout_s) as client:
        yield client


class Process(Protocol):
    """What a window measures: a child, or this process."""

    def cpu_s(self) -> float:
        """CPU seconds used so far."""

    def require_alive(self) -> None:
        """Raises ChildFailed if it has ended."""


class Window:
    """Closed, then open for the measurement, then over. Knows the CPU that the processes used while it was open."""

    def __init__(self, children: Sequence[Process], seconds: float) -> None:
        self.is_open = False
        self.is_over = False
        self.cpu_s = 0.0
        self.seconds = seconds
        """Wanted, then as measured."""
        self._children = children

    async def run(self, warm_s: float, on_second: Callable[[float], None]) -> None:
        """Warm up, open, close."""
        await asyncio.sleep(warm_s)
        opened_s, cpu_s, self.is_open = time.monotonic(), self._cpu_s(), True
        while (past_s := time.monotonic() - opened_s) < self.seconds:
            for child in self._children:
                child.require_alive()
            on_second(past_s)
            await asyncio.sleep(min(TICK_S, self.seconds - past_s))
        self.is_open, self.is_over = False, True
        self.cpu_s = self._cpu_s() - cpu_s
        self.seconds = time.monotonic() - opened_s
        on_second(self.seconds)

    def _cpu_s(self) -> float:
        return sum(child.cpu_s() for child in self._children)

    def finish(self, run: Run) -> Run:
        """`run` with the rate and CPU of the answers that came while the window was open."""
        answered = sum(part.answered for part in run.lanes.values())
        run.decisions_per_s = answered / self.seconds
        run.cpu_us = self.cpu_s / max(answered, 1) * 1e6
        return run
