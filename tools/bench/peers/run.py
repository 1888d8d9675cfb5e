"""One comparison from start to end: environments, then each system and the worker in turns. A failure is noted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tools.bench.offsets import open_ends
from tools.bench.peers.closed import closed_pair
from tools.bench.peers.drain import drain_pair, fill
from tools.bench.peers.environment import python_of
from tools.bench.peers.results import Pairs
from tools.bench.peers.systems import System
from tools.bench.rig import Rig
from tools.bench.show import Show
from topics.errors import FleetError

Pair = Callable[[Pairs, Path], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it: `records` in the backlog, `seconds` of each run at most, so many pairs, so many agents."""

    records: int
    seconds: float
    rounds: int
    agents: int


def install(systems: Sequence[System], console: Console) -> list[tuple[Pairs, Path | None]]:
    """Each system with its environment's Python, None where it cannot be installed."""
    found: list[tuple[Pairs, Path | None]] = []
    for system in systems:
        pairs = Pairs(system)
        try:
            found.append((pairs, python_of(system, console)))
        except FleetError as error:
            pairs.failed = str(error)
            found.append((pairs, None))
    return found


async def compare(rig: Rig, systems: Sequence[tuple[Pairs, Path | None]], plan: Plan, show: Show) -> None:
    """Every system that is installed, one after the other."""
    if any(pairs.system.benchmark == "drain" for pairs, python in systems if python):
        await fill(rig, plan.records, show)
    async with open_ends(rig.settings, rig.settings.names.actions) as ends:

        async def drain(pairs: Pairs, python: Path) -> None:
            await drain_pair(rig, ends, pairs.system, python, plan.records, plan.seconds, show, pairs)

        async def closed(pairs: Pairs, python: Path) -> None:
            await closed_pair(rig, pairs.system, python, plan.agents, plan.seconds, show, pairs)

        for pairs, python in systems:
            if python:
                await _rounds(pairs, python, drain if pairs.system.benchmark == "drain" else closed, plan.rounds)


async def _rounds(pairs: Pairs, python: Path, pair: Pair, rounds: int) -> None:
    for _ in range(rounds):
        try:
            await pair(pairs, python)
        except FleetError as error:
            pairs.failed = str(error)
            return
