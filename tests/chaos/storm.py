"""Kill storm: a random worker is killed −9 again and again and started anew, a broker is restarted; nothing is lost."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Literal

from tests.chaos.report import Report
from tests.chaos.rig import Rig, rig
from tests.chaos.sizes import Sizes
from tests.chaos.watch import OffsetsWatch, watching
from tests.stories.fleet import WorkerProcess
from tests.stories.models import write_package
from tools.broker import Cluster

Delivery = Literal["at_least_once", "exactly_once"]

SESSION_MS = 3_000
"""Of the storm's workers, so that the partitions of a killed one move while the storm goes on."""
ANSWERED_WITHIN_S = 120.0
"""After the last kill: session time-out, joins and the backlog, on two busy cores."""


class Storm:
    """The workers of a storm."""

    def __init__(self, rig: Rig, model: Path, chance: random.Random, delivery: Delivery) -> None:
        self._rig = rig
        self._model = model
        self._chance = chance
        self._delivery = delivery
        self._workers: list[WorkerProcess] = []
        self.kills = 0
        self.ended: list[str] = []
        """What workers said that ended by themselves."""

    async def start(self, n: int) -> None:
        """`n` workers that serve."""
        self._workers = await self._rig.workers(self._model, n, **self._variables)

    @property
    def _variables(self) -> dict[str, str]:
        return {
            "FLEET_DELIVERY": self._delivery,
            "FLEET_KAFKA__SESSION_TIMEOUT_MS": str(SESSION_MS),
            "FLEET_KAFKA__HEARTBEAT_INTERVAL_MS": "500",
            "FLEET_KAFKA__METADATA_MAX_AGE_MS": "5000",
        }

    async def rage(self, every_s: float) -> None:
        """Kill until cancelled."""
        while True:
            await asyncio.sleep(every_s * self._chance.uniform(0.5, 1.5))
            at = self._chance.randrange(len(self._workers))
            if self._workers[at].process.poll() is None:
                await asyncio.to_thread(self._workers[at].kill)
                self.kills += 1
                self._workers[at] = self._rig.fleet.worker(self._model, **self._variables)

    async def watch_over(self) -> None:
        """What a supervisor does: start what has ended by itself."""
        while True:
            await asyncio.sleep(0.5)
            for at, worker in enumerate(self._workers):
                if worker.process.poll() not in (None, -9):
                    self.ended.append(f"exit {worker.process.returncode}: {worker.log.read_text()[-300:]}")
                    self._workers[at] = self._rig.fleet.worker(self._model, **self._variables)


async def storm_once(cluster: Cluster, folder: Path, sizes: Sizes, report: Report) -> None:
    """The same with `delivery = "exactly_once"`: no state may have two committed answers."""
    await storm(cluster, folder, sizes, report, "exactly_once")


async def storm(
    cluster: Cluster, folder: Path, sizes: Sizes, report: Report, delivery: Delivery = "at_least_once"
) -> None:
    """Ask `sizes.states` states while workers die; then check the ledger."""
    report.title(
        f"kill storm ({delivery}): {sizes.states} states, {sizes.agents} agents, {len(cluster.nodes)} broker(s)"
    )
    chance = random.Random(sizes.seed)
    async with rig(cluster, folder) as ours:
        storm = Storm(ours, write_package(folder / "probe"), random.Random(sizes.seed + 1), delivery)
        await storm.start(sizes.workers)
        async with ours.reading(), watching(ours.settings) as watch:
            report.figure("workers serve", sizes.workers)
            raging = [asyncio.ensure_future(storm.rage(sizes.kill_every_s))]
            raging.append(asyncio.ensure_future(storm.watch_over()))
            restarts = asyncio.ensure_future(_restart_one(cluster, sizes, chance.randrange(len(cluster.nodes))))
            await ours.ask(sizes.states, sizes.storm_s, chance, sizes.agents)
            raging[0].cancel()
            restarted = await restarts
            report.figure("kills", storm.kills)
            report.figure("broker restarted", restarted)
            began_s = asyncio.get_running_loop().time()
            await ours.all_answered(ANSWERED_WITHIN_S)
            report.figure("last answer after the last state", f"{asyncio.get_running_loop().time() - began_s:.1f} s")
            await asyncio.sleep(1.0)  # a commit, and answers that come twice
            raging[1].cancel()
        _check(ours, storm, watch, report)
        if delivery == "exactly_once":
            report.check("no second committed answer", not ours.ledger.doubled, ours.ledger.doubled)
        past = await ours.committed_past_unanswered()
        report.check("no offset is committed past an unanswered state", not past, past[:5] or "none")


def _check(ours: Rig, storm: Storm, watch: OffsetsWatch, report: Report) -> None:
    ledger = ours.ledger
    report.check("unanswered 0", not ledger.unanswered, len(ledger.unanswered))
    report.check("wrong-agent answers 0", not ledger.wrong, ledger.wrong[:3] or 0)
    report.check("order kept per agent and lane", not ledger.disordered, ledger.disordered[:3] or 0)
    report.check("every outcome is an action", set(ledger.outcomes) <= {"action"}, dict(ledger.outcomes))
    report.check("committed offsets never go back", not watch.backwards, watch.backwards[:3] or watch.samples)
    report.figure("duplicates", f"{ledger.doubled} ({ledger.doubled / max(1, len(ledger)):.2%})")
    report.figure("samples of offsets, failed ones", f"{watch.samples}, {watch.failed}")
    report.figure("workers that ended by themselves", storm.ended or 0)


async def _restart_one(cluster: Cluster, sizes: Sizes, which: int) -> str:
    """With three nodes: one is stopped in the middle of the storm and started again."""
    if len(cluster.nodes) < 3:
        return "none (one node)"
    await asyncio.sleep(sizes.storm_s / 3)
    node = cluster.nodes[which]
    await asyncio.to_thread(node.stop)
    await asyncio.sleep(sizes.away_s)
    await asyncio.to_thread(node.start)
    await asyncio.to_thread(cluster.wait_ready)
    return f"node {node.id}"
