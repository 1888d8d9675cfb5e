"""Broker faults and drains: the broker hangs, goes away and comes back, workers are told to go meanwhile."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from pathlib import Path

from tests.chaos.report import Report
from tests.chaos.rig import Rig, rig
from tests.chaos.sizes import Sizes
from tests.stories.fleet import WorkerProcess
from tests.stories.models import write_package
from tools.broker import Cluster, Node

RATE = 300
BACK_WITHIN_S = 60.0
SLOW_S = 0.5
"""One batch of the slow probe: a worker holds unanswered states whenever it is told to go."""
HELD = 2_000
GRACE_S = 5.0
"""What a drain may take beyond `drain.timeout_s`."""
DOCUMENTED = {0, 1}
"""0: drained; 1: answers were not acknowledged within `reply.timeout_s`, and the worker gave up its place."""


async def faults(cluster: Cluster, folder: Path, sizes: Sizes, report: Report) -> None:
    """One after the other, on one broker."""
    (node,) = cluster.nodes
    async with rig(cluster, folder / "away") as ours:
        (worker,) = await ours.workers(write_package(folder / "probe"), 1)
        async with ours.reading():
            report.title(f"the broker is paused (SIGSTOP) for {sizes.pause_s:g} s")
            await _away(ours, worker, sizes, report, node.pause, node.resume, sizes.pause_s)
            report.title(f"the broker is stopped, and started after {sizes.away_s:g} s")
            await _away(ours, worker, sizes, report, node.stop, lambda: _start(cluster, node), sizes.away_s)
        worker.kill()
    await _drains(cluster, folder, sizes, report)


def _start(cluster: Cluster, node: Node) -> None:
    node.start()
    cluster.wait_ready()


async def _away(
    ours: Rig,
    worker: WorkerProcess,
    sizes: Sizes,
    report: Report,
    take: Callable[[], object],
    bring_back: Callable[[], object],
    away_s: float,
) -> None:
    """States are asked before, during and after; the worker must answer all of them without help."""
    chance = random.Random(sizes.seed + 3)
    over_s = away_s + 4.0
    asking = asyncio.ensure_future(ours.ask(round(RATE * over_s), over_s, chance, sizes.agents))
    await asyncio.sleep(1.5)
    answered = len(ours.ledger) - len(ours.ledger.unanswered)
    report.figure("answered before", answered)
    await asyncio.to_thread(take)
    await asyncio.sleep(away_s)
    await asyncio.to_thread(bring_back)
    clock = asyncio.get_running_loop().time
    back_s = clock()
    await asking
    everyone = await ours.all_answered(BACK_WITHIN_S)
    report.check("unanswered 0", everyone, len(ours.ledger.unanswered))
    report.figure("everything answered after the broker's return", f"{clock() - back_s:.1f} s")
    report.check("the worker is the same process", worker.process.poll() is None, worker.process.pid)
    status, reason = worker.probe("/livez")
    report.check("/livez is green", status == 200, reason.strip())
    report.check("order kept", not ours.ledger.disordered, ours.ledger.disordered[:3] or 0)
    report.figure("duplicates so far", ours.ledger.doubled)


async def _drains(cluster: Cluster, folder: Path, sizes: Sizes, report: Report) -> None:
    (node,) = cluster.nodes
    slow = write_package(folder / "slow", seconds=SLOW_S)
    well = write_package(folder / "well")
    ways: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        ("gone", node.stop, lambda: _start(cluster, node)),
        ("paused", node.pause, node.resume),
    ]
    for name, take, bring_back in ways if sizes.thorough else ways[:1]:
        report.title(f"SIGTERM while the broker is {name}")
        async with _Drain(cluster, folder / f"drain-{name}", sizes, report) as drain:
            worker = await drain.begin(slow)
            await asyncio.to_thread(take)
            await asyncio.sleep(0.5)
            worker.signal(signal.SIGTERM)
            await drain.ends(worker, sizes.drain_s + GRACE_S, may_answer_none=True)
            await asyncio.to_thread(bring_back)
            await drain.nothing_is_lost(well)
    report.title("SIGTERM twice")
    async with _Drain(cluster, folder / "twice", sizes, report) as drain:
        worker = await drain.begin(slow)
        worker.signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        worker.signal(signal.SIGTERM)
        await drain.ends(worker, GRACE_S)
        await drain.nothing_is_lost(well)
    report.title("SIGINT")
    async with _Drain(cluster, folder / "sigint", sizes, report) as drain:
        worker = await drain.begin(slow)
        worker.signal(signal.SIGINT)
        await drain.ends(worker, sizes.drain_s + GRACE_S)
        await drain.nothing_is_lost(well)


class _Drain:
    """A fleet whose only worker holds unanswered states when it is told to go."""

    def __init__(self, cluster: Cluster, folder: Path, sizes: Sizes, report: Report) -> None:
        self._rig = rig(cluster, folder)
        self._sizes = sizes
        self._report = report
        self.ours: Rig

    async def __aenter__(self) -> _Drain:
        self.ours = await self._rig.__aenter__()
        return self

    async def __aexit__(self, *found: object) -> None:
        await self._rig.__aexit__(None, None, None)

    async def begin(self, slow: Path) -> WorkerProcess:
        """A worker in the middle of its work."""
        drain_s = self._sizes.drain_s
        bounds = {"FLEET_DRAIN__TIMEOUT_S": str(drain_s), "FLEET_DRAIN__REVOKE_TIMEOUT_S": "2"}
        (worker,) = await self.ours.workers(slow, 1, **bounds)
        await self.ours.ask(HELD, 0.0, random.Random(self._sizes.seed + 4), self._sizes.agents)
        await asyncio.sleep(2 * SLOW_S)
        return worker

    async def ends(self, worker: WorkerProcess, within_s: float, *, may_answer_none: bool = False) -> None:
        """It ends in time, with a documented exit code, and says how many states it leaves unanswered."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        try:
            code: int | None = await worker.ended(within_s + 20.0)
        except TimeoutError:
            code = None
        took_s = clock() - began_s
        self._report.check(f"ended within {within_s:g} s", code is not None and took_s <= within_s, f"{took_s:.1f} s")
        self._report.check("exit code 0 or a documented one", code in DOCUMENTED, code)
        said = [event["unanswered"] for event in worker.events("drained")]
        self._report.check("the log has the number of unanswered states", bool(said) and said[0] > 0, said)

    async def nothing_is_lost(self, well: Path) -> None:
        """Committed only what is answered; the next worker answers the rest."""
        ours, report = self.ours, self._report
        async with ours.reading():
            await asyncio.sleep(2.0)
            left = len(ours.ledger.unanswered)
            past = await ours.committed_past_unanswered()
            report.check("nothing is committed for the unanswered", not past, f"{left} unanswered, {len(past)} past")
            await ours.workers(well, 1)
            everyone = await ours.all_answered(BACK_WITHIN_S)
            report.check("the next worker answers the rest", everyone, len(ours.ledger.unanswered))
            report.figure("duplicates", ours.ledger.doubled)
