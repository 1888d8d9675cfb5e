"""The real thing: workers of one fleet on a real broker, the traffic sent to them as it is due, and what agents got.

Twice: with a device that takes no time, for what client, broker and worker add by themselves; and with the recommended
settings, to check them.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tools.bench.arrivals import Arrivals
from tools.bench.offsets import skip_to_end
from tools.bench.open_loop import Load
from tools.bench.rig import open_rig
from tools.bench.serving import WARM_S, Window, asking
from tools.bench.show import Show
from tools.tune.fleet import Candidate
from tools.tune.round_trip import RoundTrip
from tools.tune.traffic import Traffic
from topics.errors import FleetError
from topics.names import LANES, Lane
from workers.settings import BatchSettings, PredictorSettings, Settings, SimulatedSettings

SENT_PER_S: Final = 4000.0
"""States at most sent for a round trip: the client shares this machine, and takes some 100 µs for each."""
PATIENCE_S: Final = 10.0
"""Or states that are not answered by then count as unanswered."""
DENSE_PER_S: Final = 1000.0
"""From here on what falls due within `TURN_S` travels in one call, or the sender would need a core of its own."""
TURN_S: Final = 0.002
NO_TIME: Final = PredictorSettings(device="simulated", simulated=SimulatedSettings(batch_us=0, row_us=0, jitter=0))


@dataclass(frozen=True, slots=True)
class Measured:
    """What agents got: ms of each answered state by lane, those without an answer, and the workers' CPU per answer."""

    ms: Mapping[Lane, npt.NDArray[np.float64]]
    unanswered: int
    cpu_us: float
    sent_late_p99_ms: float
    """By the client, which is part of every latency."""

    def p99_ms(self, lane: Lane) -> float:
        """Of the answered ones; without any, infinite."""
        return _percentile(self.ms[lane], 99)

    def p50_ms(self, lane: Lane) -> float:
        """Of the answered ones; without any, infinite."""
        return _percentile(self.ms[lane], 50)


def _percentile(ms: npt.NDArray[np.float64], percent: float) -> float:
    return float(np.percentile(ms, percent)) if len(ms) else math.inf


def round_trip(settings: Settings, traffic: Traffic, seconds: float, show: Show) -> RoundTrip:
    """Round trips through one worker whose device takes no time, at the traffic's rate or `SENT_PER_S`.

    Raises:
        ChildFailed: the worker ended.
        FleetError: a lane got no answers.
    """
    total = sum(traffic.rate_per_s.values())
    if total > SENT_PER_S:
        traffic = traffic.times(SENT_PER_S / total)
    idle = settings.model_copy(
        update={"name": f"{settings.name}-path", "predictors": (NO_TIME,), "batch": BatchSettings()}
    )
    found = _run(idle, 1, traffic.until(WARM_S + seconds), seconds, show, "round trip, no model")
    for lane in traffic.rate_per_s:
        if not len(found.ms.get(lane, ())):
            raise FleetError(f"no state of {lane} was answered in {seconds:g} s: expected some, try more --seconds")
    return RoundTrip(found.ms, found.cpu_us, min(total, SENT_PER_S), measured=True)


def check(settings: Settings, candidate: Candidate, traffic: Traffic, seconds: float, show: Show) -> Measured:
    """The recommended fleet, for real.

    Raises:
        ChildFailed: a worker ended.
    """
    arrivals = traffic.until(WARM_S + seconds)
    return _run(settings, candidate.workers, arrivals, seconds, show, f"{candidate.workers} workers, for real")


def _run(settings: Settings, workers: int, arrivals: Arrivals, seconds: float, show: Show, title: str) -> Measured:
    gc.collect()
    gc.freeze()  # what is loaded stays: the measurer's own pauses would look like the fleet's
    return asyncio.run(_served(settings, workers, arrivals, seconds, show, title))


async def _served(
    settings: Settings, workers: int, arrivals: Arrivals, seconds: float, show: Show, title: str
) -> Measured:
    async with open_rig(settings) as rig:
        await skip_to_end(rig.settings)
        async with rig.workers(workers) as children, asking(rig, PATIENCE_S) as client:
            turn_s = TURN_S if len(arrivals) > DENSE_PER_S * (WARM_S + seconds) else 0.0
            load, window = Load(client, rig, arrivals, turn_s), Window(children, seconds)
            with show.bar(title, seconds) as on_second:
                # Agents are not met before, as in `Load.run`: all at once, they would keep a slow model busy for long.
                async with asyncio.TaskGroup() as group:
                    group.create_task(window.run(WARM_S, on_second))
                    group.create_task(load.send())
    return _measured(load, window.cpu_s)


def _measured(load: Load, cpu_s: float) -> Measured:
    counted, lanes, ms = load.counted(), np.array(load.arrivals.lanes), load.latencies_s * 1e3
    answered = counted & ~np.isnan(ms)
    found = {lane: ms[answered & (lanes == lane)] for lane in LANES if (counted & (lanes == lane)).any()}
    cpu_us = cpu_s / max(int(answered.sum()), 1) * 1e6
    late_ms = float(np.percentile(load.late_s[counted], 99)) * 1e3
    return Measured(found, int((counted & np.isnan(ms)).sum()), cpu_us, late_ms)
