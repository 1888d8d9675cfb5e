"""The stages of a demo, and the processes that it holds meanwhile."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tools.broker.paths import KAFKA_VERSION
from tools.demo.child import Child, ProcessEnded, stop
from tools.demo.cluster import Place
from tools.demo.live import LiveView
from tools.demo.options import Options
from tools.demo.played import Played
from tools.demo.proof import prove
from tools.demo.result import Result
from tools.demo.workers import Workers, start_workers
from topics.errors import FleetError
from topics.settings import load_settings
from workers.models.package import Manifest
from workers.settings import Settings

POLL_S: Final = 0.05
AGENTS_READY_WITHIN_S: Final = 120.0
DRAIN_WITHIN_S: Final = 10.0
"""When play is over nothing is left to answer; a worker that still hangs is killed."""
LEAVE_WITHIN_S: Final = 2.0
"""After Ctrl-C or a failure."""


class Demo:
    """`start`, `play`, `prove`, and in any case `stop`."""

    def __init__(
        self, options: Options, console: Console, place: Place, model: Path, manifest: Manifest, folder: Path
    ) -> None:
        self._options = options
        self._console = console
        self._place = place
        self._model = model
        self._manifest = manifest
        self._folder = folder
        self._workers = Workers()
        self._agents: Child | None = None
        self._taking_down: threading.Thread | None = None
        self._seconds: dict[str, float] = {}

    def start(self) -> None:
        """Everything at once: the others import and load while the broker starts, then get their turn."""
        options, place = self._options, self._place
        self._agents = Child(
            "agents", ["-m", "tools.demo.agents", json.dumps(self._plan())], self._folder / "agents.log"
        )
        if not options.attach:
            self._workers = start_workers(options.workers, place.settings.name, self._model, self._folder)
            with self._stage("kafka", self._cluster, spinner=False):
                place.start()
                place.make_topics()
            self._workers.give_turn(place.servers)
            with self._stage("workers", lambda: f"{options.workers} × {self._manifest}, warm and joined"):
                self._workers.wait_ready()
        with self._stage("agents", lambda: f"{options.agents:,} agents of {options.environment}"):
            self._wait_agents(self._agents)

    def _cluster(self) -> str:
        place = self._place
        what = f"Apache Kafka {KAFKA_VERSION}" if place.is_ours else place.kind
        return f"{what} at {place.servers}, topics of fleet {place.settings.name}"

    def play(self) -> dict[str, Any]:
        """What the agents' process tells at the end of play."""
        agents = self._agents
        assert agents is not None, "start comes first"
        agents.give_turn(self._place.servers)
        began_s = time.monotonic()
        with LiveView(self._console, self._options, self._workers) as view:
            while True:
                has_ended = agents.exit_code is not None  # looked at before listening: its last words count
                for told in agents.heard():
                    if "error" in told:
                        raise FleetError(told["error"])
                    if "done" in told:
                        self._workers.look()
                        self._seconds["play"] = time.monotonic() - began_s
                        return dict(told["done"])
                    if "window" in told:
                        self._workers.look()
                        view.show(told["window"])
                if has_ended:
                    raise ProcessEnded(agents)
                self._workers.require_one()
                time.sleep(POLL_S)

    def prove(self, play: dict[str, Any]) -> Result:
        """Play locally with all cores free, while workers and broker leave; then put the result together."""
        self._take_down(DRAIN_WITHIN_S)
        played = [Played.of_dict(one) for group in play.pop("groups") for one in group]
        decisions = sum(one.steps for one in played)
        plan = {name: self._plan()[name] for name in ("environment", "model", "seed")}
        columns = (
            TextColumn(" playing the same seeds without Kafka"),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %"),
        )
        with Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal) as bar:
            shown = bar.add_task("", total=None)  # moves to and fro until the model is loaded

            def progress(n: int) -> None:
                bar.update(shown, completed=n, total=decisions if n else None)

            proof = prove(plan, played, self._folder, progress)
        self._seconds["proof"] = proof.seconds
        with self._console.status(" stopping workers and broker"):
            self._taken_down()
        place = self._place
        return Result(
            options=self._options,
            fleet=place.settings.name,
            bootstrap_servers=place.servers,
            kafka=place.kind,
            model=str(self._manifest),
            play=play,
            workers=self._workers.figures(),
            max_batch=None if self._options.attach else load_settings(Settings).batch.max_batch,
            proof=proof,
            seconds=self._seconds,
        )

    def stop(self) -> None:
        """End every process that is left, by pid, in a few seconds. Never raises."""
        if self._agents is not None:
            stop([self._agents], within_s=0.0)  # nothing of its own to tidy up
        self._take_down(LEAVE_WITHIN_S)
        with contextlib.suppress(FleetError):
            self._taken_down()

    def _take_down(self, within_s: float) -> None:
        """Begin to drain the workers, then to leave the cluster, beside whatever goes on."""
        if self._taking_down is None:
            self._taking_down = threading.Thread(target=self._leave, args=(within_s,), name="take-down", daemon=True)
            self._taking_down.start()

    def _leave(self, within_s: float) -> None:
        stop((process.child for process in self._workers.processes), within_s)
        with contextlib.suppress(FleetError, TimeoutError):  # what stays behind harms nobody
            self._place.leave()

    def _taken_down(self) -> None:
        assert self._taking_down is not None
        self._taking_down.join()

    def _plan(self) -> dict[str, Any]:
        """What the agents' process is told."""
        options = self._options
        return {
            "environment": options.environment,
            "model": str(self._model),
            "agents": options.agents,
            "seed": options.seed,
            "seconds": options.seconds,
            "fleet": self._place.settings.name,
        }

    def _wait_agents(self, agents: Child) -> None:
        give_up_at = time.monotonic() + AGENTS_READY_WITHIN_S
        while time.monotonic() < give_up_at:
            has_ended = agents.exit_code is not None
            for told in agents.heard():
                if "error" in told:
                    raise FleetError(told["error"])
                if "ready" in told:
                    return
            if has_ended:
                raise ProcessEnded(agents)
            time.sleep(POLL_S)
        raise FleetError(f"the environments are not made after {AGENTS_READY_WITHIN_S:.0f} s")

    @contextlib.contextmanager
    def _stage(self, name: str, what: Callable[[], str], *, spinner: bool = True) -> Iterator[None]:
        began_s = time.monotonic()
        with self._console.status(f" {what()}") if spinner else contextlib.nullcontext():
            yield
        self._seconds[name] = time.monotonic() - began_s
        self._console.print(
            f" {what():<70} {self._seconds[name]:5.1f} s", highlight=False, markup=False, soft_wrap=True
        )
