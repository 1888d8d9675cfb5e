"""KEDA scales workers on lag: load rises and falls, and agents notice as little as possible."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import psutil
from aiokafka.structs import TopicPartition

from tests.kube.parts import Found
from tests.kube.traffic import Traffic
from tests.kube.world import CAPACITY_PER_S, World
from tools.offsets import ends_of
from tools.plots import line_chart
from topics.kafka import make_consumer, started
from topics.names import LANES

LOOK_S = 1.0
QUIET: dict[Any, float] = {"high": 5.0, "normal": 60.0}
LOADED: dict[Any, float] = {"high": 5.0, "normal": 2.6 * CAPACITY_PER_S, "low": 60.0}
LOADED_S = 45.0
BACK_WITHIN_S = 240.0
MOST = 4


def values(world: World) -> dict[str, Any]:
    """Two pools: high and normal, never below one worker; low, down to none. Times short enough to watch."""
    base = world.values()
    main = base["workers"]["pools"]["main"]
    quick = {"type": "keda", "pollingInterval": 2, "cooldownPeriod": 12, "lagThreshold": 150, "fallbackReplicas": 1}
    quick |= {"scaleUpPods": 1, "scaleUpSeconds": 10, "scaleDownAfter": 15, "scaleDownSeconds": 10, "maxReplicas": MOST}
    base["workers"]["pools"] = {
        "main": {**main, "lanes": ["high", "normal"], "autoscaling": {**quick, "minReplicas": 1}},
        "low": {**main, "lanes": ["low"], "autoscaling": {**quick, "minReplicas": 0, "maxReplicas": 2}},
    }
    return base


@dataclass(slots=True)
class Watched:
    """The cluster second by second: (monotonic s, workers of main, of low, lag of normal, share of the machine)."""

    rows: list[tuple[float, int, int, int, float]] = field(default_factory=list)

    def column(self, number: int, from_s: float) -> list[tuple[float, float]]:
        return [(row[0] - from_s, float(row[number])) for row in self.rows]


async def watch(world: World, watched: Watched) -> None:
    """Until cancelled."""
    names = world.settings.names
    topic, group = names.states("normal"), names.group("normal")
    places = [TopicPartition(topic, number) for number in range(world.settings.topics.partitions)]
    async with started(
        make_consumer(world.settings.kafka, client_id="watch", group_id=group), world.settings.kafka
    ) as one:
        one.assign(places)
        while True:
            ends = await ends_of(one, places)
            done = [await one.committed(place) or 0 for place in places]
            lag = sum(ends.values()) - sum(done)
            main, low = await asyncio.to_thread(lambda: (len(world.ready("main")), len(world.ready("low"))))
            watched.rows.append((time.monotonic(), main, low, lag, psutil.cpu_percent() / 100))
            await asyncio.sleep(LOOK_S)


async def keda(world: World) -> Found:
    """Load rises → lag → more workers → lag falls → they drain one by one, to one and for low to none."""
    found = Found()
    await rounds(world, found, 1)
    return found


async def storm(world: World) -> Found:
    """Three times up and down: each change of one worker is a few rebalances and no more."""
    found = Found()
    await rounds(world, found, 3)
    return found


async def rounds(world: World, found: Found, number: int) -> None:
    """So many times from quiet to loaded and back, watched."""
    await world.install(values(world))
    begun_s, stops, watched = time.monotonic(), world.stops().keys(), Watched()
    watching = asyncio.create_task(watch(world, watched))
    try:
        await world.until("low sleeps", lambda: not world.pods("low"), BACK_WITHIN_S)
        rebalances = world.rebalances()
        async with Traffic(world.settings, QUIET) as traffic:
            for turn in range(number):
                await asyncio.sleep(8)
                traffic.rate(LOADED)
                await asyncio.sleep(LOADED_S)
                traffic.rate(QUIET)
                world.say(f"round {turn + 1}: load is gone, {len(world.ready('main'))} workers are there")
                await world.until("one worker is left", lambda: len(world.pods("main")) == 1, BACK_WITHIN_S)
                await world.until("none for low", lambda: not world.pods("low"), BACK_WITHIN_S)
        steps = changes(watched)
        found.answered(traffic)
        found.drained(world, stops)
        counts = [row[1] for row in watched.rows]
        found.figures |= {
            "most_workers": max(counts),
            "fewest_workers": min(counts[5:]),
            "scale_steps": steps,
            "assignments_of_high": world.rebalances() - rebalances,
            "worst_lag": max(row[3] for row in watched.rows),
        }
        found.check("more workers came", max(counts) > 1)
        found.check("and never more than allowed", max(counts) <= MOST)
        found.check("they left one by one", all(after - before >= -1 for before, after in pairwise(counts)))
        # Each change of one worker is one rebalance, in which each worker that stays or comes is assigned once.
        allowed = sum(max(before, after) for before, after in steps) * 2
        found.check("no storm of rebalances", found.figures["assignments_of_high"] <= allowed)
        found.figures["assignments_allowed"] = allowed
        plot(world, watched, traffic, begun_s, f"kube-scaling-{number}")
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await world.uninstall()


def changes(watched: Watched) -> list[tuple[int, int]]:
    """(workers before, after) of each change of the main pool."""
    counts = [row[1] for row in watched.rows]
    return [(before, after) for before, after in pairwise(counts) if before != after]


def plot(world: World, watched: Watched, traffic: Traffic, begun_s: float, name: str) -> None:
    """Workers, lag, and what agents of high noticed, over time."""
    world.plots.mkdir(parents=True, exist_ok=True)
    workers = {"main": watched.column(1, begun_s), "low": watched.column(2, begun_s)}
    pictures = {
        "workers": line_chart(workers, title="ready workers", x_label="s", y_label="workers"),
        "lag": line_chart(
            {"normal": watched.column(3, begun_s)}, title="lag of normal", x_label="s", y_label="records"
        ),
        "p99": line_chart(
            {lane: traffic.sent[lane].over_time(begun_s, 2.0) for lane in LANES if lane in traffic.sent},
            title="p99 of states sent at that time", x_label="s", y_label="ms", log_y=True,
        ),
    }  # fmt: skip
    for what, svg in pictures.items():
        (world.plots / f"{name}-{what}.svg").write_text(svg)
