"""Three brokers: killed −9 in turn, restarted in turn, their leaders moved, while states flow; nothing is lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from tests.chaos.report import Report
from tests.chaos.rig import Rig, rig
from tests.chaos.sizes import Sizes
from tests.chaos.watch import watching
from tests.stories.fleet import WorkerProcess
from tests.stories.models import write_package
from tools.broker import Cluster, Node

RATE = 300
WORKERS = 2
BACK_WITHIN_S = 60.0
IN_SYNC_WITHIN_S = 60.0
VARIABLES = {"FLEET_KAFKA__METADATA_MAX_AGE_MS": "5000"}


async def brokers(cluster: Cluster, folder: Path, sizes: Sizes, report: Report) -> None:
    """One fleet and the same two workers through all of it; each kind of fault is judged by itself."""
    leaders = Leaders(cluster)
    async with rig(cluster, folder) as ours:
        workers = await ours.workers(write_package(folder / "probe"), WORKERS, **VARIABLES)
        async with ours.reading(), watching(ours.settings) as watch:
            for title, each in (
                (f"brokers are killed −9 in turn, and started {sizes.away_s:g} s later", _killed),
                ("brokers are restarted in turn", _restarted),
            ):
                report.title(title)
                await _through(ours, workers, report, lambda each=each: _in_turn(cluster, leaders, sizes, each))
            report.title("leaders move to their preferred brokers, all at once")
            await _through(ours, workers, report, leaders.prefer)
            report.figure("leaders that moved over all", leaders.moved)
            report.check("leaders moved", leaders.moved > 0, leaders.moved)
        report.check("committed offsets never go back", not watch.backwards, watch.backwards[:3] or watch.samples)
        past = await ours.committed_past_unanswered()
        report.check("no offset is committed past an unanswered state", not past, past[:5] or "none")


def _killed(node: Node, away_s: float) -> None:
    node.kill()
    time.sleep(away_s)
    node.start()


def _restarted(node: Node, _away_s: float) -> None:
    node.stop()
    node.start()


def _in_turn(cluster: Cluster, leaders: Leaders, sizes: Sizes, each: Callable[[Node, float], None]) -> None:
    """As an operator does it: the next broker when the last one has caught up."""
    for node in cluster.nodes if sizes.thorough else cluster.nodes[:1]:
        before = leaders.now()
        each(node, sizes.away_s)
        cluster.wait_ready()
        leaders.wait_in_sync()
        leaders.count(before)


async def _through(ours: Rig, workers: list[WorkerProcess], report: Report, disturb: Callable[[], object]) -> None:
    """States are asked all the while and a little longer; all are answered, by the same processes."""
    clock, stop, doubled = asyncio.get_running_loop().time, asyncio.Event(), ours.ledger.doubled
    asked = len(ours.ledger)
    asking = asyncio.ensure_future(_ask(ours, stop))
    await asyncio.sleep(1.0)
    began_s = clock()
    await asyncio.to_thread(disturb)
    took_s = clock() - began_s
    await asyncio.sleep(1.0)
    stop.set()
    await asking
    stopped_s = clock()
    everyone = await ours.all_answered(BACK_WITHIN_S)
    report.figure("it took", f"{took_s:.1f} s; {len(ours.ledger) - asked} states meanwhile")
    report.check("unanswered 0", everyone, len(ours.ledger.unanswered))
    report.figure("last answer after the last state", f"{clock() - stopped_s:.1f} s")
    alive = [worker.process.poll() is None for worker in workers]
    report.check("the workers are the same processes", all(alive), alive)
    reds = [reason.strip() for status, reason in (worker.probe("/livez") for worker in workers) if status != 200]
    report.check("/livez is green", not reds, reds or "")
    report.check("wrong-agent answers 0", not ours.ledger.wrong, ours.ledger.wrong[:3] or 0)
    report.check("order kept", not ours.ledger.disordered, ours.ledger.disordered[:3] or 0)
    report.figure("duplicates", ours.ledger.doubled - doubled)


async def _ask(ours: Rig, stop: asyncio.Event) -> None:
    chance = random.Random(1)
    while not stop.is_set():
        await ours.ask(RATE, 1.0, chance, 128)


class Leaders:
    """Who leads what, seen from outside with another library."""

    def __init__(self, cluster: Cluster) -> None:
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        self.moved = 0

    def now(self) -> dict[tuple[str, int], int]:
        """(topic, partition) → leader's node."""
        topics = self._admin.list_topics(timeout=20).topics.values()
        return {(topic.topic, part.id): part.leader for topic in topics for part in topic.partitions.values()}

    def count(self, before: dict[tuple[str, int], int]) -> None:
        """Leaders that are others than `before`."""
        now = self.now()
        self.moved += sum(now.get(place, leader) != leader for place, leader in before.items())

    def prefer(self) -> None:
        """Each partition's first replica leads again: many leaders move at once, and no broker goes away."""
        before = self.now()
        self._admin.elect_leaders(ElectionType.PREFERRED).result(30)
        self.count(before)

    def wait_in_sync(self) -> None:
        """Until every replica has caught up."""
        give_up_s = time.monotonic() + IN_SYNC_WITHIN_S
        while behind := [
            f"{topic.topic}[{part.id}]"
            for topic in self._admin.list_topics(timeout=20).topics.values()
            for part in topic.partitions.values()
            if len(part.isrs) < len(part.replicas)
        ]:
            assert time.monotonic() < give_up_s, f"not in sync after {IN_SYNC_WITHIN_S:g} s: {behind[:5]}"
            time.sleep(0.2)
