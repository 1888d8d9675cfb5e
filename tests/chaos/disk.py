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

RATE = 300
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
        subprocess.run(["umount", str(folder)], check=True)


async def disk(cluster: Cluster, folder: Path, sizes: Sizes, report: Report) -> None:
    """Space comes back before the worker has given up; then (in the full form) only after it has."""
    folder.mkdir(parents=True, exist_ok=True)
    model = write_package(folder / "probe")
    report.title("the broker's disk is full; it has space again when /livez has said so")
    async with rig(cluster, folder / "patient") as ours, ours.reading():
        worker = await _begin(ours, model)
        await _fill(cluster, report)
        red = await _red(worker)
        report.check("/livez names the layer that is stuck", "reply" in red, red)
        report.check("the worker waits", worker.process.poll() is None, worker.process.pid)
        await _check_commits_later(cluster, ours, report)
        report.check("the worker is the same process", worker.process.poll() is None, worker.process.pid)
        status, reason = worker.probe("/livez")
        report.check("/livez is green again", status == 200, reason.strip())
    if not sizes.thorough:
        return
    report.title("the disk stays full for longer than reply.timeout_s")
    async with rig(cluster, folder / "ends") as ours, ours.reading():
        worker = await _begin(ours, model)
        await _fill(cluster, report)
        code = await worker.ended(4 * REPLY_S)
        report.check("the worker ends with 1 and one line", code == 1, worker.log.read_text().splitlines()[-1])
        _make_space(cluster)
        await ours.workers(model, 1)
        everyone = await ours.all_answered(BACK_WITHIN_S)
        report.check("the next worker answers everything", everyone, len(ours.ledger.unanswered))
        report.figure("states, duplicates", f"{len(ours.ledger)}, {ours.ledger.doubled}")


async def _begin(ours: Rig, model: Path) -> WorkerProcess:
    (worker,) = await ours.workers(model, 1, FLEET_REPLY__TIMEOUT_S=str(REPLY_S))
    await ours.ask(RATE, 1.0, random.Random(1), 128)
    assert await ours.all_answered(BACK_WITHIN_S)
    return worker


async def _fill(cluster: Cluster, report: Report) -> None:
    """Write until nothing fits any more, and ask on until the broker has ended."""
    raise NotImplementedError


async def _red(worker: WorkerProcess) -> str:
    raise NotImplementedError


async def _check_commits_later(cluster: Cluster, ours: Rig, report: Report) -> None:
    raise NotImplementedError


def _make_space(cluster: Cluster) -> None:
    """The file that filled the disk goes, and the broker is started again."""
    _ballast(cluster).unlink()
    for node in cluster.nodes:
        node.start()
    cluster.wait_ready()


def _ballast(cluster: Cluster) -> Path:
    return cluster.folder.parent / "ballast"
