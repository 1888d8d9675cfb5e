"""Flood: three times what the model can do, half of it with deadlines; memory stays bounded and work goes on."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import psutil

from tests.chaos.report import Report
from tests.chaos.rig import Rig, counter, rig
from tests.chaos.sizes import Sizes
from tests.stories.fleet import WorkerProcess
from tests.stories.models import write_package
from tools.broker import Cluster

BATCH_S = 0.1
MAX_BATCH = 64
CAPACITY = MAX_BATCH / BATCH_S
"""States/s of one worker with the slow probe: full batches, one after the other."""
TIMES = 3
DEADLINE_MS = 1_000.0
GOODPUT = 0.8
RSS_GROWTH_MIB = 150.0
"""Lanes of 4096, 2048 and 4096 small states, three fetch buffers of 8 MiB, and what the allocator keeps."""
WARM_S = 2.0


async def flood(cluster: Cluster, folder: Path, sizes: Sizes, report: Report) -> None:
    """First only states with deadlines, then half of them: both ways of drowning."""
    for lane_share, name in ((1, "every state has a deadline"), (2, "every second state has a deadline")):
        report.title(f"flood: {TIMES} × {CAPACITY:.0f} states/s for {sizes.flood_s:g} s, {name}")
        async with rig(cluster, folder / f"half-{lane_share}") as ours:
            model = write_package(folder / f"slow-{lane_share}", seconds=BATCH_S)
            (worker,) = await ours.workers(model, 1)
            await _flood(ours, worker, sizes, report, every=lane_share)


async def _flood(ours: Rig, worker: WorkerProcess, sizes: Sizes, report: Report, every: int) -> None:
    n = round(TIMES * CAPACITY * sizes.flood_s)
    before_mib = _rss_mib(worker)
    peak: list[float] = [before_mib]
    async with ours.reading():
        sampling = asyncio.ensure_future(_sample(worker, peak))
        began_ms = _unix_ms()
        chance = random.Random(sizes.seed + 5)
        await ours.ask(n, sizes.flood_s, chance, sizes.agents, lanes=("normal",), deadline_ms=DEADLINE_MS, every=every)
        ended_ms = _unix_ms()
        sampling.cancel()
        await asyncio.sleep(1.0)
        capacity = _capacity(worker, report)
        _check_goodput(ours, report, capacity, began_ms + WARM_S * 1000, ended_ms)
        report.figure("worker RSS before, highest", f"{before_mib:.0f} MiB, {max(peak):.0f} MiB")
        grown = max(peak) - before_mib
        report.check(f"RSS grows by less than {RSS_GROWTH_MIB:g} MiB", grown < RSS_GROWTH_MIB, f"{grown:.0f} MiB")
        await _check_expired(ours, worker, report)


def _capacity(worker: WorkerProcess, report: Report) -> float:
    """States/s that the model could do in this very run: full batches, each as long as they were on average."""
    busy_s, batches = [counter(worker, f'fleet_batch_seconds_{what}{{predictor="cpu"}}') for what in ("sum", "count")]
    rows = counter(worker, 'fleet_stage_records_total{stage="predict"}')
    capacity = MAX_BATCH * batches / busy_s
    report.figure("batches", f"{batches:.0f} of {rows / batches:.0f} states and {busy_s / batches * 1000:.0f} ms")
    report.figure("capacity", f"{capacity:.0f} states/s (asked of the model: {CAPACITY:.0f})")
    return capacity


def _check_goodput(ours: Rig, report: Report, capacity: float, from_ms: float, to_ms: float) -> None:
    """Actions in time per second, while the flood lasts."""
    ledger = ours.ledger
    within = [number for number, at_ms in ledger.actions_ms.items() if from_ms <= at_ms <= to_ms]
    late = sum(number in ledger.late for number in within)
    seconds = (to_ms - from_ms) / 1000
    share = (len(within) - late) / seconds / capacity
    report.figure("actions, late ones", f"{len(within) / seconds:.0f}/s, {late / seconds:.0f}/s")
    report.check(f"goodput (in time) ≥ {GOODPUT:.0%} of capacity", share >= GOODPUT, f"{share:.0%}")


async def _check_expired(ours: Rig, worker: WorkerProcess, report: Report) -> None:
    """What expired never met the model: the rows it ran are the actions that it gave."""
    ledger = ours.ledger
    await ours.all_answered(len(ledger.unanswered) / CAPACITY * 1.5 + 20.0)
    report.check("unanswered 0", not ledger.unanswered, len(ledger.unanswered))
    rows = counter(worker, 'fleet_stage_records_total{stage="predict"}')
    actions, expired = ledger.outcomes["action"], ledger.outcomes["expired"]
    report.check("expired states took no model time", rows == actions + ledger.doubled, f"{rows:.0f} rows")
    report.check("some expired", expired > 0, f"{expired} expired, {actions} actions")
    report.check("order kept", not ledger.disordered, ledger.disordered[:3] or 0)


async def _sample(worker: WorkerProcess, peak: list[float]) -> None:
    while True:
        peak.append(_rss_mib(worker))
        await asyncio.sleep(0.25)


def _rss_mib(worker: WorkerProcess) -> float:
    info: Any = psutil.Process(worker.process.pid).memory_info()
    return float(info.rss) / (1 << 20)


def _unix_ms() -> float:
    return time.time() * 1000
