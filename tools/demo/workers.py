"""The demo's workers: `fleet worker` processes, started early, watched through their probes, drained at the end."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.broker.ports import LOOPBACK, free_ports
from tools.demo.child import Child, ProcessEnded
from topics.errors import FleetError
from topics.names import LANES
from topics.settings import load_settings
from workers.settings import Settings

PROBE_WITHIN_S: Final = 0.5
READY_WITHIN_S: Final = 90.0
POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Seen:
    """What a worker said of itself at one moment. Counts since its start."""

    at_s: float
    phase: str
    decisions: int = 0
    batches: int = 0
    rows: float = 0.0
    """Of all batches together, without padding."""
    busy: float = 0.0
    depth: dict[str, int] = field(default_factory=dict)
    """Requests that wait, by lane."""


def seen_in(page: dict[str, Any], at_s: float) -> Seen:
    """From the JSON of /readyz?verbose."""
    metrics = page.get("metrics", {})
    predictors = metrics.get("predictors", {}).values()
    return Seen(
        at_s,
        page["phase"],
        metrics.get("decisions", 0),
        sum(one["batches"] for one in predictors),
        sum(one["batches"] * (one["mean_size"] or 0.0) for one in predictors),
        max((one["busy"] or 0.0 for one in predictors), default=0.0),
        {lane: int(metrics.get("lanes", {}).get(lane, {}).get("depth") or 0) for lane in LANES},
    )


class WorkerProcess:
    """One worker: its process, and what its probes said last."""

    def __init__(self, name: str, flags: Sequence[str], port: int, folder: Path) -> None:
        words = ["-m", "tools.demo.warm_worker", "worker", "--name", name, "--http-port", str(port), *flags]
        self.child = Child(name, words, folder / f"{name}.log")
        self.name = name
        self._port = port
        self.before: Seen | None = None
        self.now: Seen | None = None

    @property
    def state(self) -> str:
        """For people: its phase, or how it ended."""
        code = self.child.exit_code
        if code is not None:
            return "drained" if code == 0 else f"dead: {self.child.last_words()}"
        return self.now.phase if self.now else "starting"

    @property
    def is_dead(self) -> bool:
        """It ended, and not because it was asked to."""
        return self.child.exit_code not in (None, 0)

    def look(self) -> None:
        """Ask its probes once; what it says no longer stays as it was."""
        if self.child.exit_code is None and (page := _probe(self._port)) is not None:
            self.before, self.now = self.now, seen_in(page, time.monotonic())

    def figures(self) -> dict[str, Any]:
        """What it did until it was last looked at."""
        seen = self.now
        return {
            "name": self.name,
            "state": self.state,
            "decisions": seen.decisions if seen else 0,
            "batches": seen.batches if seen else 0,
            "rows": round(seen.rows) if seen else 0,
            "log": str(self.child.log) if self.is_dead else None,
        }

    def __repr__(self) -> str:
        return f"<WorkerProcess {self.name} {self.state}>"


class Workers:
    """All workers that the demo has started; none of those that it is attached to."""

    def __init__(self, processes: Sequence[WorkerProcess] = (), max_batch: int | None = None) -> None:
        self.processes = tuple(processes)
        self.max_batch = max_batch
        """Requests at which a batch of theirs is full; None where we started none."""

    def give_turn(self, servers: str) -> None:
        """Broker and topics are there."""
        for process in self.processes:
            process.child.give_turn(servers)

    def wait_ready(self) -> None:
        """Until every worker is warm and owns its partitions.

        Raises:
            FleetError: one has ended, or is not ready in time.
        """
        give_up_at = time.monotonic() + READY_WITHIN_S
        while True:
            self.look()
            for process in self.processes:
                if process.child.exit_code is not None:
                    raise ProcessEnded(process.child)
            late = [process for process in self.processes if process.state != "ready"]
            if not late:
                return
            if time.monotonic() > give_up_at:
                found = f"worker {late[0].name} is still {late[0].state} after {READY_WITHIN_S:.0f} s"
                raise FleetError(f"{found}, see {late[0].child.log}")
            time.sleep(POLL_S)

    def look(self) -> None:
        """Ask everybody's probes."""
        for process in self.processes:
            process.look()

    def require_one(self) -> None:
        """Raises ProcessEnded when we started workers and all of them have ended."""
        if self.processes and all(process.child.exit_code is not None for process in self.processes):
            raise ProcessEnded(self.processes[0].child)

    def figures(self) -> list[dict[str, Any]]:
        """What each did, for the result."""
        return [process.figures() for process in self.processes]


def start_workers(count: int, fleet: str, model: Path, folder: Path) -> Workers:
    """Started, but waiting for their turn."""
    flags = ["--fleet", fleet, "--model", str(model), "--log-format", "json"]
    ports, max_batch = free_ports(count), load_settings(Settings).batch.max_batch
    processes = [WorkerProcess(f"{fleet}-{n + 1}", flags, port, folder) for n, port in enumerate(ports)]
    return Workers(processes, max_batch)


def _probe(port: int) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PROBE_WITHIN_S)
    try:
        connection.request("GET", "/readyz?verbose")
        found: dict[str, Any] = json.loads(connection.getresponse().read())
        return found
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
