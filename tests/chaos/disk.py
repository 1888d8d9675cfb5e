"""A full disk: the broker's data lie on a small file system that another file fills up while states flow."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.report import Report
from tests.chaos.rig import Rig, rig
from tests.chaos.sizes import Sizes
from tests.stories.fleet import WorkerProcess
from tests.stories.models import write_package
from tools.broker import Cluster, start_broker
from tools.broker.diagnose import why_it_died

RATE = 300
ASK_S = 6.0
SIZE_MB = 1_000
"""`fleet broker` wants half of it free before it starts."""
REPLY_S = 20.0
"""`reply.timeout_s`: `/livez` turns red at half of it, and the worker exits behind it."""
BROKER_ENDS_WITHIN_S = 30.0
BACK_WITHIN_S = 60.0
BLOCK = bytes(1 << 20)


def can_mount() -> bool:
    """A small file system takes root (or another who may mount)."""
    return os.geteuid() == 0


@contextlib.contextmanager
def broker_on_small_disk(folder: Path) -> Iterator[Cluster]:
    """One broker whose data have a tmpfs of `SIZE_MB` for themselves."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(folder)], check=True)
    try:
        cluster = start_broker(data_dir=folder / "kafka")
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        # Lazy: gone when the last of Kafka's files is closed, which a process that was killed may take a moment for.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def disk(cluster: Cluster, folder: Path, sizes: Sizes, report: Report) -> None:
    """Space comes back before the worker has given up; then (in the full form) only after it has."""
    model = write_package(folder / "probe")
    report.title("the broker's disk is full; it has space again when /livez has said so")
    async with rig(cluster, folder / "patient") as ours, ours.reading():
        worker, asking = await _until_full(cluster, ours, model, report)
        status, reason = await _livez(worker, 503)
        report.check("/livez names the layer that is stuck", status == 503 and reason.startswith("reply"), reason)
        await _make_space(cluster, report)
        await _all_answered(ours, asking, report)
        report.check("the worker is the same process", worker.process.poll() is None, worker.process.pid)
        status, reason = await _livez(worker, 200)
        report.check("/livez is green again", status == 200, reason)
    if not sizes.thorough:
        return
    report.title("the disk stays full for longer than reply.timeout_s")
    async with rig(cluster, folder / "ends") as ours, ours.reading():
        worker, asking = await _until_full(cluster, ours, model, report)
        code = await worker.ended(4 * REPLY_S)
        report.check("the worker ends with 1 and one line", code == 1, worker.log.read_text().splitlines()[-1])
        await _make_space(cluster, report)
        await asking
        past = await ours.committed_past_unanswered()
        report.check("nothing is committed for the unanswered", not past, f"{len(ours.ledger.unanswered)} unanswered")
        await ours.workers(model, 1)
        await _all_answered(ours, asking, report)


async def _until_full(
    cluster: Cluster, ours: Rig, model: Path, report: Report
) -> tuple[WorkerProcess, asyncio.Future[None]]:
    """A worker that serves, states that are asked on and on, and then no byte left: Kafka ends by itself."""
    (worker,) = await ours.workers(model, 1, FLEET_REPLY__TIMEOUT_S=str(REPLY_S))
    asking = asyncio.ensure_future(ours.ask(round(RATE * ASK_S), ASK_S, random.Random(1), 128))
    await asyncio.sleep(1.5)
    report.figure("answered before", len(ours.ledger) - len(ours.ledger.unanswered))
    await asyncio.to_thread(_fill, _ballast(cluster))
    (node,) = cluster.nodes
    ended = await asyncio.to_thread(node.process.wait, BROKER_ENDS_WITHIN_S)
    report.check("Kafka has ended by itself", ended, why_it_died(node.log) if ended else "it runs on")
    return worker, asking


async def _livez(worker: WorkerProcess, wanted: int) -> tuple[int, str]:
    """What `/livez` says once its status is as wanted, or at last."""
    clock = asyncio.get_running_loop().time
    give_up_s = clock() + REPLY_S
    while True:
        status, reason = worker.probe("/livez")
        if status == wanted or clock() > give_up_s:
            return status, reason.strip()
        await asyncio.sleep(0.2)


async def _make_space(cluster: Cluster, report: Report) -> None:
    """The file that filled the disk goes, and the broker is started again with what it had."""
    _ballast(cluster).unlink()
    await asyncio.to_thread(cluster.start)
    await asyncio.to_thread(cluster.wait_ready)
    report.figure("the broker", "is back, with space")


async def _all_answered(ours: Rig, asking: asyncio.Future[None], report: Report) -> None:
    clock = asyncio.get_running_loop().time
    back_s = clock()
    await asking
    everyone = await ours.all_answered(BACK_WITHIN_S)
    report.check("unanswered 0", everyone, len(ours.ledger.unanswered))
    report.figure("everything answered after that", f"{clock() - back_s:.1f} s")
    report.check("order kept", not ours.ledger.disordered, ours.ledger.disordered[:3] or 0)
    report.figure("states, duplicates", f"{len(ours.ledger)}, {ours.ledger.doubled}")


def _fill(ballast: Path) -> None:
    """Until not one byte more fits."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        for block in (BLOCK, BLOCK[:4096]):
            with contextlib.suppress(OSError):
                while file.write(block) == len(block):
                    pass


def _ballast(cluster: Cluster) -> Path:
    return cluster.folder.parent / "ballast"
