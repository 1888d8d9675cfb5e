"""long: a steady load for half an hour; does anything drift? The last tenth beside the first, on a simulated device."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import psutil

from tools.bench.arrivals import Stream, merged
from tools.bench.device import QUICK
from tools.bench.open_loop import Load
from tools.bench.results import Goal, Result
from tools.bench.rig import Rig
from tools.bench.scrape import scrape
from tools.bench.serving import WARM_S, Window, asking, serving
from tools.bench.show import Show
from tools.bench.stats import latency
from topics.names import LANES, Lane

LOAD: Final = 0.6
"""Share of the device's capacity."""
SHARES: Final[dict[Lane, float]] = {"high": 0.05, "normal": 0.7, "low": 0.25}
AGENTS: Final = 256
TURN_S: Final = 0.002
"""Or the sender would need a core of its own."""
PARTS: Final = 10
SAMPLES: Final = 200
"""Looks at the process, however long it takes."""
P99_DRIFT, MEMORY_DRIFT, HELD_DRIFT = 1.2, 1.05, 1.5


@dataclass(frozen=True, slots=True)
class Look:
    """The worker at one moment."""

    at_s: float
    rss_mb: float
    in_flight: float
    """Read and not answered yet, all lanes."""
    incomplete: float
    """Offsets read and not finished."""
    threads: int
    files: int


async def long(rig: Rig, seconds: float, show: Show) -> Result:
    """Poisson arrivals in all lanes at 60 % of the capacity for `seconds`.

    Raises:
        ChildFailed: the worker ended.
    """
    end_s = WARM_S + seconds
    streams = [Stream(lane, "poisson", share * LOAD * QUICK.capacity_per_s, 0, end_s) for lane, share in SHARES.items()]
    async with serving(rig, "fleet") as child, asking(rig) as client:
        load = Load(client, rig, merged(streams, AGENTS, seed=1), TURN_S)
        looks: list[Look] = []
        with show.bar("a steady load", seconds) as on_second:
            watched = asyncio.create_task(_watch(rig, psutil.Process(child.pid), seconds, looks.append))
            await load.run(Window([child], seconds), on_second)
        await watched
    parts = by_part(load, looks, seconds)
    first, last = parts[0], parts[-1]
    drift = {f"p99_drift_{lane}": _ratio(last, first, f"{lane}_p99_ms") for lane in LANES}
    more: dict[str, Any] = {
        **drift,
        "memory_drift": _ratio(last, first, "rss_mb"),
        "in_flight_drift": _ratio(last, first, "in_flight"),
        "incomplete_drift": _ratio(last, first, "incomplete"),
        "unanswered": int(np.isnan(load.latencies_s[load.counted()]).sum()),
        "states": int(load.counted().sum()),
        "tables": {"tenths": parts},
        "over_time": over_time(load, seconds),
        "looks": [[round(look.at_s, 1), look.rss_mb, look.in_flight] for look in looks],
    }
    goals = (
        *(Goal(key, "at most", P99_DRIFT) for key in drift),
        Goal("memory_drift", "at most", MEMORY_DRIFT),
        Goal("in_flight_drift", "at most", HELD_DRIFT),
        Goal("incomplete_drift", "at most", HELD_DRIFT),
        Goal("unanswered", "at most", 0),
    )
    options = {"seconds": seconds, "load": LOAD, "capacity_per_s": QUICK.capacity_per_s}
    return Result("long", options, [], [], goals, more)


async def _watch(rig: Rig, process: psutil.Process, seconds: float, looked: Callable[[Look], None]) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(WARM_S)
    begun_s = loop.time()
    for number in range(SAMPLES):
        await asyncio.sleep(max(0.0, begun_s + (number + 0.5) * seconds / SAMPLES - loop.time()))
        page = await scrape(rig.settings)
        with process.oneshot():
            looked(
                Look(
                    loop.time() - begun_s,
                    process.memory_info().rss / 1e6,
                    sum(value for (name, _), value in page.items() if name == "fleet_in_flight"),
                    sum(value for (name, _), value in page.items() if name == "fleet_incomplete_offsets"),
                    process.num_threads(),
                    process.num_fds(),
                )
            )


def by_part(load: Load, looks: Sequence[Look], seconds: float) -> list[dict[str, Any]]:
    """Each tenth of the time: p99 by lane of the states due in it, and means of the looks in it."""
    lanes, at_s = np.array(load.arrivals.lanes), load.arrivals.at_s - WARM_S
    rows = []
    for number in range(PARTS):
        begin_s, end_s = number * seconds / PARTS, (number + 1) * seconds / PARTS
        due, seen = (at_s >= begin_s) & (at_s < end_s), [look for look in looks if begin_s <= look.at_s < end_s]
        row: dict[str, Any] = {"from_s": begin_s}
        for lane in LANES:
            found = latency([load.latencies_s[due & (lanes == lane)]])
            row |= {f"{lane}_p50_ms": found.p50_ms, f"{lane}_p99_ms": found.p99_ms}
        for key in ("rss_mb", "in_flight", "incomplete", "threads", "files"):
            row[key] = float(np.mean([getattr(look, key) for look in seen])) if seen else None
        rows.append(row)
    return rows


def over_time(load: Load, seconds: float) -> dict[str, list[list[float | None]]]:
    """p99 by lane in `SAMPLES` equal stretches: seconds and ms."""
    lanes, at_s, width_s = np.array(load.arrivals.lanes), load.arrivals.at_s - WARM_S, seconds / SAMPLES
    found: dict[str, list[list[float | None]]] = {}
    for lane in LANES:
        of_lane = (lanes == lane) & (at_s >= 0)
        bins = (at_s[of_lane] // width_s).astype(int)
        latencies_s = load.latencies_s[of_lane]
        found[lane] = [[float(one * width_s), latency([latencies_s[bins == one]]).p99_ms] for one in np.unique(bins)]
    return found


def _ratio(last: dict[str, Any], first: dict[str, Any], key: str) -> float | None:
    """Never below nothing: what is 0 in both has not moved."""
    if last[key] is None or first[key] is None:
        return None
    return float((last[key] + 1e-9) / (first[key] + 1e-9))
