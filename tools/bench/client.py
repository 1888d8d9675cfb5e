"""client: what `decide_many` takes of the agents' own CPU, beside a bare client; the bare loop answers both."""

from __future__ import annotations

import time
from typing import Final

from tools.bench.bare_client import bare_client
from tools.bench.closed import Plan, play
from tools.bench.results import Goal, Result, Run
from tools.bench.rig import Rig
from tools.bench.serving import SIDES, Side, Window, asking
from tools.bench.show import Show

NAMES: Final[dict[Side, str]] = {"bare": "bare client", "fleet": "decide_many"}
GOALS: Final = (Goal("cpu_ratio", "at most", 1.0), Goal("unanswered", "at most", 0))


class Here:
    """This process, in place of one under test."""

    def cpu_s(self) -> float:
        """CPU seconds so far, of all its threads."""
        return time.process_time()

    def require_alive(self) -> None:
        """It is."""


async def client(rig: Rig, plan: Plan, show: Show) -> Result:
    """Bare client and `decide_many` in turns, the same agents and calls for each.

    Raises:
        ChildFailed: the bare loop ended.
    """
    runs: dict[Side, list[Run]] = {side: [] for side in SIDES}
    async with rig.bare() as child:
        for number in range(plan.rounds):
            for side in SIDES:
                bare = bare_client(rig.settings, rig.observation, rig.manifest.outputs[0])
                async with bare if side == "bare" else asking(rig) as asked:
                    window = Window([Here()], plan.seconds)
                    with show.bar(f"round {number + 1}/{plan.rounds}: {NAMES[side]}", plan.seconds) as on_second:
                        runs[side].append(await play(rig, plan, asked, window, on_second))
                child.require_alive()
    options = {"agents": plan.agents, "group": plan.group, "seconds": plan.seconds}
    return Result("client", options, runs["fleet"], runs["bare"], GOALS)
