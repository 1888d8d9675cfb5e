"""The stages of a demo, and the processes that it holds meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from tools.broker.paths import KAFKA_VERSION
from tools.demo.agents_process import AgentsProcess
from tools.demo.child import stop, uninterrupted
from tools.demo.cluster import Place
from tools.demo.live import LiveView, progress_bar
from tools.demo.options import Options
from tools.demo.played import Played
from tools.demo.proof import prove
from tools.demo.result import Result
from tools.demo.workers import Workers, start_workers
from workers.models.package import Manifest

POLL_S: Final = 0.05
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
        self._agents: AgentsProcess | None = None
        self._taken_down = threading.Thread(target=self._leave, name="take-down", daemon=True)
        self._drain_within_s = DRAIN_WITHIN_S
        self._seconds: dict[str, float] = {}

    def start(self) -> None:
        """Everything at once: the others import and load while the broker starts, then get their turn."""
        options, place = self._options, self._place
        with uninterrupted():
            self._agents = AgentsProcess(self._plan(), self._folder)
        if not options.attach:
            self._say(f"starting Kafka, {options.workers} workers and {options.agents:,} agents …")
            with uninterrupted():
                self._workers = start_workers(options.workers, place.settings.name, self._model, self._folder)
            with self._stage("kafka", self._cluster, spinner=False):  # it shows its own when it has to be fetched
                place.start()
                place.make_topics()
            self._workers.give_turn(place.servers)
        with self._stage("agents", lambda: f"{options.agents:,} agents of {options.environment}"):
            self._agents.wait_ready()
        if not options.attach:
            with self._stage("workers", lambda: f"{options.workers} × {self._manifest}, warm and joined"):
                self._workers.wait_ready()

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
                for told in agents.listen():
                    self._workers.look()
                    if "done" in told:
                        self._seconds["play"] = time.monotonic() - began_s
                        return dict(told["done"])
                    if "window" in told:
                        view.show(told["window"])
                self._workers.require_one()
                time.sleep(POLL_S)

    def prove(self, play: dict[str, Any]) -> Result:
        """Play locally with all cores free, while workers and broker leave; then put the result together."""
        self._take_down(DRAIN_WITHIN_S)
        played = [Played.of_dict(one) for group in play.pop("groups") for one in group]
        plan = {name: self._plan()[name] for name in ("environment", "model", "seed")}
        with progress_bar(self._console, sum(one.steps for one in played)) as on_progress:
            proof = prove(plan, played, self._folder, on_progress)
        self._seconds["proof"] = proof.seconds
        with self._console.status(" stopping workers and broker"):
            self._taken_down.join()
        return Result(
            options=self._options,
            fleet=self._place.settings.name,
            bootstrap_servers=self._place.servers,
            kafka=self._place.kind,
            model=str(self._manifest),
            play=play,
            workers=self._workers.figures(),
            max_batch=self._workers.max_batch,
            proof=proof,
            seconds=self._seconds,
        )

    def stop(self) -> None:
        """End every process that is left, by pid, in a few seconds. Never raises."""
        if self._agents is not None:
            self._agents.stop()
        self._take_down(LEAVE_WITHIN_S)
        self._taken_down.join(LEAVE_WITHIN_S)  # it may have begun with more time
        stop((process.child for process in self._workers.processes), within_s=0.0)
        self._taken_down.join()

    def _take_down(self, within_s: float) -> None:
        """Begin to drain the workers, then to leave the cluster, beside whatever goes on."""
        if self._taken_down.ident is None:  # not started before
            self._drain_within_s = within_s
            self._taken_down.start()

    def _leave(self) -> None:
        stop((process.child for process in self._workers.processes), self._drain_within_s)
        self._place.leave()

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

    @contextlib.contextmanager
    def _stage(self, name: str, what: Callable[[], str], *, spinner: bool = True) -> Iterator[None]:
        began_s = time.monotonic()
        with self._console.status(f" {what()}") if spinner else contextlib.nullcontext():
            yield
        self._seconds[name] = time.monotonic() - began_s
        self._say(f"{what():<70} {self._seconds[name]:5.1f} s")

    def _say(self, text: str) -> None:
        self._console.print(f" {text}", highlight=False, markup=False, soft_wrap=True)
