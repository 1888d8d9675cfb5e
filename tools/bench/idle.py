"""idle: what a worker costs that nobody asks anything: three long polls, heartbeats, its own beat."""

from __future__ import annotations

from typing import Final

from tools.bench.results import Goal, Result, Run
from tools.bench.rig import Rig
from tools.bench.serving import Window
from tools.bench.show import Show

SETTLE_S: Final = 3.0


async def idle(rig: Rig, seconds: float, show: Show) -> Result:
    """CPU of one worker that has joined, as a share of one core.

    Raises:
        ChildFailed: it ended.
    """
    async with rig.worker() as child:
        window = Window([child], seconds)
        with show.bar("idle worker", seconds) as on_second:
            await window.run(SETTLE_S, on_second)
    share = window.cpu_s / window.seconds
    goals = (Goal("idle_cpu_share", "at most", 0.05),)
    return Result("idle", {"seconds": seconds}, [Run()], [], goals, {"idle_cpu_share": share})
