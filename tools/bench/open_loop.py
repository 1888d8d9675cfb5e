"""open: states arrive at a rate, whether or not answers come; latency counts from the moment a state was due.

A stall then shows in every state that it made wait, not only in the one that met it (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tools.bench.arrivals import Arrivals, Kind, Mix, arrivals
from tools.bench.results import Goal, Result, Run
from tools.bench.rig import Rig
from tools.bench.serving import NAMES, SIDES, WARM_S, Side, Window, asking, serving
from tools.bench.show import Show
from tools.bench.states import agent_ids, observations
from tools.bench.stats import Seconds, latency
from topics.client import AgentClient
from topics.names import LANES, Lane

P99_GOALS_MS: Final[dict[Lane, float]] = {"high": 20, "normal": 50}


@dataclass(frozen=True, slots=True)
class Plan:
    """What arrives."""

    kind: Kind
    rate_per_s: float
    seconds: float
    rounds: int
    agents: int
    mix: Mix
    seed: int = 1

    def arrivals(self) -> Arrivals:
        """The warm-up's and the window's, the same for both sides."""
        return arrivals(self.kind, self.rate_per_s, WARM_S + self.seconds, self.agents, self.mix, self.seed)

    def goals(self) -> tuple[Goal, ...]:
        """Of the lanes that are used."""
        p99 = [Goal(f"lanes/{lane}/p99_ms", "at most", ms) for lane, ms in P99_GOALS_MS.items() if self.mix.get(lane)]
        return (*p99, Goal("unanswered", "at most", 0))


async def open_loop(rig: Rig, plan: Plan, show: Show) -> Result:
    """Bare loop and worker in turns, the same arrivals for each.

    Raises:
        ChildFailed: one of them ended.
    """
    runs: dict[Side, list[Run]] = {side: [] for side in SIDES}
    late_s: list[Seconds] = []
    for number in range(plan.rounds):
        for side in SIDES:
            title = f"round {number + 1}/{plan.rounds}: {NAMES[side]}"
            async with serving(rig, side) as child, asking(rig) as client:
                load = Load(client, rig, plan.arrivals())
                with show.bar(title, plan.seconds) as on_second:
                    runs[side].append(await load.run(Window([child], plan.seconds), on_second))
                late_s.append(load.late_s[load.counted()])
    options = {
        "arrivals": plan.kind,
        "rate_per_s": plan.rate_per_s,
        "seconds": plan.seconds,
        "agents": plan.agents,
        "mix": dict(plan.mix),
        "seed": plan.seed,
    }
    more = {"rate_per_s": plan.rate_per_s, "sent_late_p99_ms": latency(late_s).p99_ms}
    return Result("open", options, runs["fleet"], runs["bare"], plan.goals(), more)


class Load:
    """Sends the arrivals of one run, each when it is due, and keeps what became of each.

    `turn_s`: at high rates, what falls due within that time travels in one call; the waiting counts as latency.
    """

    def __init__(self, client: AgentClient, rig: Rig, arrivals: Arrivals, turn_s: float = 0.0) -> None:
        self.arrivals = arrivals
        self._turn_s = turn_s
        self.latencies_s = np.full(len(arrivals), np.nan)
        """Of each state, from the moment it was due; NaN: no answer."""
        self.late_s = np.zeros(len(arrivals))
        """How long each state had been due when it was sent."""
        self.started_s = 0.0
        """Monotonic; the arrivals' 0."""
        agents = int(arrivals.agents.max()) + 1
        self._client = client
        self._ids = agent_ids(agents)
        self._seen = observations(rig.observation, agents, 1)

    async def run(self, window: Window, on_second: Callable[[float], None]) -> Run:
        """Send everything and wait for every answer or its time-out."""
        await self.meet()
        async with asyncio.TaskGroup() as group:
            group.create_task(window.run(WARM_S, on_second))
            group.create_task(self.send())
        return self._found(window)

    async def meet(self) -> None:
        """The client learns of its agents before the clock starts."""
        await self._client.decide_many(self._ids, self._seen)

    async def send(self) -> None:
        """From the arrivals' 0 to the last answer or time-out."""
        async with asyncio.TaskGroup() as group:
            await self._send(group)

    def counted(self) -> npt.NDArray[np.bool_]:
        """Which states were due after the warm-up."""
        return self.arrivals.at_s >= WARM_S

    def _found(self, window: Window) -> Run:
        run, lanes = Run(), np.array(self.arrivals.lanes)
        for lane in LANES:
            ours = self.counted() & (lanes == lane)
            if ours.any():
                run.lane(lane).add(self.latencies_s[ours])
        return window.finish(run)

    async def _send(self, group: asyncio.TaskGroup) -> None:
        at_s, sent, self.started_s = self.arrivals.at_s, 0, time.monotonic()
        while sent < len(at_s):
            now_s = time.monotonic() - self.started_s
            due = int(np.searchsorted(at_s, now_s, "right"))
            if due > sent:
                group.create_task(self._ask(slice(sent, due)))
                sent = due
            else:
                await asyncio.sleep(max(float(at_s[sent]) - now_s, self._turn_s))

    async def _ask(self, rows: slice) -> None:
        """One call for what was due in this turn."""
        agents, lanes = self.arrivals.agents[rows], self.arrivals.lanes[rows]
        late_s = time.monotonic() - self.started_s - self.arrivals.at_s[rows]
        replies = await self._client.decide_many([self._ids[agent] for agent in agents], self._seen[agents], lane=lanes)
        self.late_s[rows] = late_s
        self.latencies_s[rows] = late_s + replies.latency_s
