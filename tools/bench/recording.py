"""recording: a day's traffic made up, written, planned and read, each in a process of its own whose memory is told."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from tools.bench.results import Goal, Result
from tools.bench.show import Show
from tools.recording.about import About
from tools.recording.plan import plan
from tools.recording.read import Recording
from tools.recording.recorded import Recorded
from tools.recording.selection import Selection
from tools.recording.write import RecordingWriter
from topics.errors import FleetError
from topics.names import LANES
from topics.records import Action, State
from topics.wire import encode_action, encode_state

DAY_S: Final = 86_400
AGENTS: Final = 1000
PARTITIONS: Final = 12
BEGIN_MS: Final = 1_700_000_000_000
POLL: Final = 2000
RATES: Final = {"write": 30_000, "read": 60_000}
PLAN_WITHIN_S: Final = 10.0
MEMORY_MB: Final = 300


async def recording(records: int, show: Show) -> Result:
    """`records` states and answers of a day: written, planned with and without filters, then the last hour read."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
        path = Path(folder) / "day"
        for number, step in enumerate(STEPS):
            with show.bar(f"{step} {records:,} records", len(STEPS)) as bar:
                bar(number)
                found[step] = await _in_process(step, path, records)
                bar(number + 1)
    rows = [
        {"step": step, "seconds": one["seconds"], "records": one["records"], "rss_mb": one["rss_mb"]}
        for step, one in found.items()
    ]
    more: dict[str, Any] = {
        "write_per_s": found["write"]["records"] / found["write"]["seconds"],
        "read_per_s": found["read"]["records"] / found["read"]["seconds"],
        "plan_s": max(found[step]["seconds"] for step in PLANS),
        "plan_rss_mb": max(found[step]["rss_mb"] for step in PLANS),
        "bytes_per_record": found["write"]["bytes"] / records,
        "tables": {"steps": rows},
    }
    goals = (
        Goal("write_per_s", "at least", RATES["write"]),
        Goal("read_per_s", "at least", RATES["read"]),
        Goal("plan_s", "at most", PLAN_WITHIN_S),
        Goal("plan_rss_mb", "at most", MEMORY_MB),
    )
    return Result("recording", {"records": records, "agents": AGENTS}, [], [], goals, more)


async def _in_process(step: str, path: Path, records: int) -> dict[str, Any]:
    words = (sys.executable, "-m", "tools.bench.recording", step, str(path), str(records))
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    if process.returncode != 0:
        raise FleetError(f"the step {step!r} of the benchmark ended with code {process.returncode}")
    found: dict[str, Any] = json.loads(said)
    return found


def write(path: Path, records: int) -> dict[str, Any]:
    """States in three lanes and their answers, evenly over a day, in polls as a recorder gets them."""
    value = encode_state(State(np.arange(4, dtype=np.float32), seq=1, sent_us=BEGIN_MS * 1000))
    answer = encode_action(Action("action", 1, action=np.array([1.0], np.float32), model="m v1", worker="w"))
    topics = [*((f"day.states.{lane}", value) for lane in LANES), ("day.actions", answer)]
    keys = [b"agent-%d" % number for number in range(AGENTS)]
    partitions = {topic: PARTITIONS for topic, _ in topics}
    writer = RecordingWriter(path, About("day", "bench", partitions), rotate_bytes=256 << 20)
    step_ms = DAY_S * 1000 / records
    begun_s = time.perf_counter()
    for first in range(0, records, POLL):
        polled = []
        for number in range(first, min(first + POLL, records)):
            topic, bytes_ = topics[number % 4]
            agent, offset = number // 4 % AGENTS, number // 4 // PARTITIONS
            headers = (("kafka_correlationId", b"%016d" % number),)
            at_ms = BEGIN_MS + int(number * step_ms)
            polled.append(Recorded(topic, agent % PARTITIONS, offset, at_ms, 0, keys[agent], bytes_, headers))
        writer.add(polled)
    writer.finish()
    seconds = time.perf_counter() - begun_s
    return {"seconds": seconds, "records": records, "bytes": sum(file.stat().st_size for file in path.glob("*.mcap"))}


def planned(selection: Selection) -> Callable[[Path, int], dict[str, Any]]:
    """Opens the recording and plans `selection`."""

    def step(path: Path, _records: int) -> dict[str, Any]:
        begun_s = time.perf_counter()
        found = plan(Recording.open(path), selection)
        return {"seconds": time.perf_counter() - begun_s, "records": found.total}

    return step


def read(path: Path, _records: int) -> dict[str, Any]:
    """The states of the last hour, or of everything where that is little."""
    begun_s, n = time.perf_counter(), 0
    for part in Recording.open(path).records(Selection(since_us=(BEGIN_MS + (DAY_S - 3600) * 1000) * 1000)):
        n += len(part)
    return {"seconds": time.perf_counter() - begun_s, "records": n}


MORNING: Final = Selection(since_us=(BEGIN_MS + 7_200_123) * 1000, until_us=(BEGIN_MS + 10_800_456) * 1000)
PLANS: Final = {
    "plan everything": planned(Selection()),
    "plan a lane, an hour": planned(Selection(("states",), ("high",), (), MORNING.since_us, MORNING.until_us)),
    "plan agents by glob": planned(Selection(agents=("agent-7*",))),
    "plan a tenth of the agents": planned(Selection(sample=0.1)),
}
STEPS: Final[dict[str, Callable[[Path, int], dict[str, Any]]]] = {"write": write, **PLANS, "read": read}


def main() -> None:
    """One step; what it found as JSON on standard output."""
    parser = argparse.ArgumentParser(description="One step of `fleet bench recording`.")
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("path", type=Path)
    parser.add_argument("records", type=int)
    asked = parser.parse_args()
    found = STEPS[asked.step](asked.path, asked.records)
    rss_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.stdout.write(json.dumps(found | {"rss_mb": rss_kb / 1000}))


if __name__ == "__main__":
    main()
