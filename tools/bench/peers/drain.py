"""drain.<system>: the backlog of `fleet bench drain` through a system and through a worker, in turns."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from tools.bench.drain import AGENTS, drain_worker, measured
from tools.bench.offsets import Ends
from tools.bench.peers.job import Place
from tools.bench.peers.process import running
from tools.bench.peers.results import Pairs
from tools.bench.peers.systems import System
from tools.bench.results import Run
from tools.bench.rig import Rig
from tools.bench.show import Show
from tools.bench.states import Backlog

CALL = 64
"""Agents per call that sent the backlog, as in `fleet bench drain`."""


async def fill(rig: Rig, records: int, show: Show) -> None:
    """The backlog, once for all."""
    with show.bar("filling the backlog", records) as on_count:
        await Backlog("normal", records, AGENTS, CALL).fill(rig.settings, rig.observation, on_count)


async def drain_pair(
    rig: Rig, ends: Ends, system: System, python: Path, records: int, seconds: float, show: Show, pairs: Pairs
) -> None:
    """One run of the system and one of the worker, added to `pairs`.

    Raises:
        ChildFailed: one of them ended or stalled.
    """
    with show.bar(system.name, records) as on_count:
        theirs = await _theirs(rig, ends, system, python, records, seconds, on_count)
    with show.bar(f"worker, beside {system.name}", records) as on_count:
        pairs.add(theirs, await drain_worker(rig, ends, records, on_count))


async def _theirs(
    rig: Rig,
    ends: Ends,
    system: System,
    python: Path,
    records: int,
    seconds: float,
    on_count: Callable[[int], None],
) -> Run:
    settings = rig.settings
    place = Place(
        settings.model.path,
        servers=settings.kafka.bootstrap_servers,
        states=settings.names.states("normal"),
        actions=settings.names.actions,
        group=f"{settings.name}.{system.name}.{secrets.token_hex(3)}",  # a new one begins at the first state
    )
    already = await ends.count()
    with running(system, python, place) as peer:
        return await measured(peer, ends, already, records, on_count, seconds)
