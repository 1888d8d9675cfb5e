"""closed: agents that wait for their answer before they ask again, in groups like vector environments.

Client, broker and worker share the machine, so this shows what a fleet gives on it, and the waiting that it costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tools.bench.arrivals import Mix, split
from tools.bench.results import Goal, Result, Run
from tools.bench.rig import Rig
from tools.bench.serving import NAMES, SIDES, WARM_S, Side, Window, asking, serving
from tools.bench.show import Show
from tools.bench.states import agent_ids, observations
from topics.names import Lane
from topics.tensors import Array

GOALS: Final = (Goal("ratio", "at least", 0.8), Goal("unanswered", "at most", 0))


@dataclass(frozen=True, slots=True)
class Plan:
    """Who plays: so many agents, `group` of them in one call, each group in the lane that `mix` gives it."""

    agents: int
    group: int
    seconds: float
    rounds: int
    mix: Mix

    def groups(self) -> list[tuple[Lane, list[str]]]:
        """The agents of each call, and its lane."""
        ids, groups, first = agent_ids(self.agents), [], 0
        for lane, count in split(self.agents, self.mix).items():
            for at in range(first, first + count, self.group):
                groups.append((lane, ids[at : min(at + self.group, first + count)]))
            first += count
        return groups


class Answers(Protocol):
    """What is looked at of a call's answers."""

    @property
    def latency_s(self) -> Array:
        """Of each state, NaN without an answer."""


class Client(Protocol):
    """Who asks."""

    async def decide_many(self, ids: Sequence[str], observations: Array, /, *, lane: Lane) -> Answers:
        """One call for many agents."""


async def closed(rig: Rig, plan: Plan, show: Show) -> Result:
    """Bare loop and worker in turns, the same client before each.

    Raises:
        ChildFailed: one of them ended.
    """
    runs: dict[Side, list[Run]] = {side: [] for side in SIDES}
    for number in range(plan.rounds):
        for side in SIDES:
            title = f"round {number + 1}/{plan.rounds}: {NAMES[side]}"
            async with serving(rig, side) as child, asking(rig) as client:
                window = Window([child], plan.seconds)
                with show.bar(title, plan.seconds) as on_second:
                    runs[side].append(await play(rig, plan, client, window, on_second))
    options = {"agents": plan.agents, "group": plan.group, "seconds": plan.seconds, "mix": dict(plan.mix)}
    return Result("closed", options, runs["fleet"], runs["bare"], GOALS)


async def play(rig: Rig, plan: Plan, client: Client, window: Window, on_second: Callable[[float], None]) -> Run:
    """One run of `plan` against whatever serves."""
    run = Run()
    async with asyncio.TaskGroup() as group:
        for number, (lane, ids) in enumerate(plan.groups()):
            seen = observations(rig.observation, len(ids), number)
            group.create_task(_ask_again_and_again(client, lane, ids, seen, window, run))
        await window.run(WARM_S, on_second)
    return window.finish(run)


async def _ask_again_and_again(
    client: Client, lane: Lane, ids: list[str], seen: Array, window: Window, run: Run
) -> None:
    while not window.is_over:
        replies = await client.decide_many(ids, seen, lane=lane)
        if window.is_open:
            run.lane(lane).add(replies.latency_s)
