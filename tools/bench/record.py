"""record: a backlog in three lanes through `fleet record` in a process of its own, on one core."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

from tools.bench.results import Goal, Result
from tools.bench.rig import Rig
from tools.bench.show import Show
from tools.bench.states import Backlog
from topics.errors import FleetError
from topics.names import LANES

AGENTS: Final = 512
CALL: Final = 64
RECORDER: Final = (
    "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); from tools.cli import main; main()"
)
GOAL_PER_S: Final = 30_000


async def record(rig: Rig, records: int, rounds: int, show: Show) -> Result:
    """Records per second from the first poll to the finished file. Raises FleetError."""
    for lane in LANES:
        with show.bar(f"backlog in {lane}", records // len(LANES)) as on_sent:
            backlog = Backlog(lane, records // len(LANES), AGENTS, CALL)
            await backlog.fill(rig.settings, rig.observation, on_sent)
    runs = []
    with show.bar("recording", rounds) as on_round:
        for number in range(rounds):
            runs.append(await _recorded(rig))
            on_round(number + 1)
    rows = [
        {
            "run": str(number),
            "records": run["records"],
            "seconds": run["seconds"],
            "mb": run["recording"]["bytes"] / 1e6,
        }
        for number, run in enumerate(runs, 1)
    ]
    more = {"records_per_s": median(run["records_per_s"] for run in runs), "tables": {"runs": rows}}
    goals = (Goal("records_per_s", "at least", GOAL_PER_S),)
    return Result("record", {"records": records, "rounds": rounds}, [], [], goals, more)


async def _recorded(rig: Rig) -> dict[str, Any]:
    kafka = rig.settings.kafka.bootstrap_servers
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
        words = ["record", str(Path(folder) / "recording"), "--since", "beginning", "--until", "now", "--json"]
        words += ["--fleet", rig.settings.name, "--bootstrap-servers", kafka]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", RECORDER, *words, stdout=pipe, stderr=pipe)
        out, err = await process.communicate()
    if process.returncode != 0:
        raise FleetError(f"fleet record ended with code {process.returncode}: {err.decode()[-200:]}")
    found: dict[str, Any] = json.loads(out)
    return found
