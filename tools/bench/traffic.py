"""arrivals: what irregular arrivals cost, and how soon a burst is forgotten; a simulated device of known capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tools.bench.arrivals import Kind, Stream, merged
from tools.bench.device import QUICK
from tools.bench.open_loop import Load
from tools.bench.results import Goal, Result, named
from tools.bench.rig import Rig
from tools.bench.serving import WARM_S, Window, asking, serving
from tools.bench.show import Show
from tools.bench.stats import Seconds, latency, ratios

KINDS: Final[tuple[Kind, Kind]] = ("uniform", "poisson")
AGENTS: Final = 256
BURST_LOAD: Final = 0.2
"""Share of the capacity before and after the burst. Ten times that is twice the capacity: a second of it leaves one
second's capacity waiting, worked off in 1.25 s by the 80 % that are free. Above 0.25 no worker could be done in 2 s."""
BURST: Final = 10.0
BURST_S: Final = 1.0
BEFORE_S: Final = 4.0
AFTER_S: Final = 5.0
BIN_S: Final = 0.25
TURN_S: Final = 0.002
"""Or the sender would need a core of its own in the burst."""
PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Runs of `seconds` at `load` (share of the capacity), `rounds` pairs; then the burst."""

    seconds: float
    rounds: int
    load: float


async def traffic(rig: Rig, plan: Plan, show: Show) -> Result:
    """Uniform and Poisson arrivals in turns, then a burst.

    Raises:
        ChildFailed: a worker ended.
    """
    rows: list[dict[str, Any]] = []
    p99_ms: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    for number in range(plan.rounds):
        for kind in KINDS:
            title = f"round {number + 1}/{plan.rounds}: {kind}"
            stream = Stream("normal", kind, plan.load * QUICK.capacity_per_s, 0, WARM_S + plan.seconds)
            load = await _run(rig, [stream], show, title)
            rows.append({"arrivals": kind, **summary(load.latencies_s[load.counted()])})
            p99_ms[kind].append(rows[-1]["p99_ms"])
    begin_s = WARM_S + BEFORE_S
    burst = await _run(rig, burst_streams(begin_s), show, "burst")
    bins = in_bins(burst.arrivals.at_s, burst.latencies_s, begin_s)
    latencies_s = burst.latencies_s[burst.counted()]
    more: dict[str, Any] = {
        **named("p99_ratio", ratios(p99_ms["poisson"], p99_ms["uniform"])),
        "recovered_s": recovered_s(bins),
        "unanswered": sum(row["unanswered"] for row in rows) + int(np.isnan(latencies_s).sum()),
        "tables": {"arrivals": rows, "burst, from its begin": bins},
    }
    options = {"seconds": plan.seconds, "rounds": plan.rounds, "load": plan.load, "burst_load": BURST_LOAD}
    goals = (Goal("p99_ratio", "at most", 1.5), Goal("recovered_s", "at most", 2), Goal("unanswered", "at most", 0))
    return Result("arrivals", options | {"capacity_per_s": QUICK.capacity_per_s}, [], [], goals, more)


async def _run(rig: Rig, streams: Sequence[Stream], show: Show, title: str) -> Load:
    seconds = streams[-1].to_s - WARM_S
    async with serving(rig, "fleet") as child, asking(rig, PATIENCE_S) as client:
        load = Load(client, rig, merged(streams, AGENTS, seed=1), TURN_S)
        with show.bar(title, seconds) as on_second:
            await load.run(Window([child], seconds), on_second)
    return load


def burst_streams(begin_s: float) -> list[Stream]:
    """A steady load, ten times that for a second from `begin_s` on, and the steady load again."""
    base_per_s, end_s = BURST_LOAD * QUICK.capacity_per_s, begin_s + BURST_S
    return [
        Stream("normal", "poisson", base_per_s, 0, begin_s),
        Stream("normal", "poisson", BURST * base_per_s, begin_s, end_s),
        Stream("normal", "poisson", base_per_s, end_s, end_s + AFTER_S),
    ]


def summary(latencies_s: Seconds) -> dict[str, Any]:
    """Percentiles of states and the worst of them, and how many have no answer (NaN)."""
    found, answered = latency([latencies_s]), latencies_s[~np.isnan(latencies_s)]
    return {
        "p50_ms": found.p50_ms,
        "p99_ms": found.p99_ms,
        "worst_ms": float(answered.max()) * 1e3 if len(answered) else None,
        "offered": len(latencies_s),
        "unanswered": len(latencies_s) - len(answered),
    }


def in_bins(at_s: Seconds, latencies_s: Seconds, begin_s: float) -> list[dict[str, Any]]:
    """The latencies by when states were due, in bins of 250 ms from the end of the warm-up; times from `begin_s`."""
    bins = []
    for first_s in np.arange(WARM_S, at_s[-1] + BIN_S, BIN_S):
        inside = (at_s >= first_s) & (at_s < first_s + BIN_S)
        if inside.any():
            bins.append({"from_s": float(first_s - begin_s), **summary(latencies_s[inside])})
    return bins


def recovered_s(bins: Sequence[dict[str, Any]]) -> float | None:
    """Seconds from the burst's end to the first bin whose p99 is no higher than the highest before it; None: never."""
    level_ms = max(row["p99_ms"] or float("inf") for row in bins if row["from_s"] < 0)
    for row in bins:
        if row["from_s"] >= BURST_S and row["p99_ms"] is not None and row["p99_ms"] <= level_ms:
            return float(row["from_s"] - BURST_S)
    return None
