"""What came out of a demo: for people a table, for programs JSON, for the shell whether it went well."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tools.broker.paths import KAFKA_VERSION
from tools.demo.live import episodes, ms
from tools.demo.options import WARM_UP_S, Options
from tools.demo.proof import Proof
from topics.names import LANES

LIBRARIES: Final = ("decision-fleet", "aiokafka", "numpy", "torch", "gymnasium")


@dataclass(slots=True)
class Result:
    """Everything a demo found. `play` is what the agents' process told at the end."""

    options: Options
    fleet: str
    bootstrap_servers: str
    kafka: str
    model: str
    play: dict[str, Any]
    workers: list[dict[str, Any]]
    max_batch: int | None
    """None where the workers are not ours."""
    proof: Proof
    seconds: dict[str, float] = field(default_factory=dict)
    """Stage → how long it took."""

    @property
    def problems(self) -> list[str]:
        """Why the demo did not go well, one line each; empty if it did."""
        found = []
        if self.play["failure"]:
            found.append(f"play ended early: {self.play['failure']}")
        if self.play["unanswered"]:
            found.append(f"{self.play['unanswered']} states stayed without an action")
        if not self.proof.equal:
            found.append(f"not what the same seeds play locally: {self.proof.mismatch}")
        return found

    @property
    def warnings(self) -> list[str]:
        """What went wrong although the play went well."""
        return [f"worker {one['name']} is {one['state']}, see {one['log']}" for one in self.workers if one["log"]]

    @property
    def decisions_per_s(self) -> float:
        return float(self.play["decisions"] / self.play["seconds"]) if self.play["seconds"] else 0.0

    @property
    def batch(self) -> float | None:
        """Mean requests in a batch; None if no batch was seen."""
        if self.max_batch is None:
            sizes = list(self.play["workers"].values())
            return sum(sizes) / len(sizes) if sizes else None
        batches = sum(one["batches"] for one in self.workers)
        return sum(one["rows"] for one in self.workers) / batches if batches else None

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `--json`."""
        play, proof, batch = self.play, self.proof, self.batch
        return {
            "decisions_per_s": round(self.decisions_per_s, 1),
            "decisions": play["decisions"],
            "seconds": round(play["seconds"], 3),
            "lanes": play["lanes"],
            "unanswered": play["unanswered"],
            "asked_again": play["asked_again"],
            "outcomes": play["outcomes"],
            "returns_equal": proof.equal,
            "mismatch": proof.mismatch or None,
            "episodes": play["episodes"],
            "mean_return": play["mean_return"],
            "batch_size_mean": batch and round(batch, 2),
            "batch_fill": batch and self.max_batch and round(batch / self.max_batch, 4),
            "agents_cpu_s": round(play["cpu_s"], 3),
            "workers": self.workers or [{"name": name} for name in play["workers"]],
            "problems": self.problems,
            "warnings": self.warnings,
            "stages_s": {name: round(value, 3) for name, value in self.seconds.items()},
            "config": self._config(),
            "environment": environment(),
        }

    def _config(self) -> dict[str, Any]:
        options = self.options
        return {
            "env": options.environment,
            "agents": options.agents,
            "seconds": options.seconds,
            "warm_up_s": WARM_UP_S,
            "workers": options.workers,
            "seed": options.seed,
            "attach": options.attach,
            "fleet": self.fleet,
            "model": self.model,
            "kafka": self.kafka,
            "bootstrap_servers": self.bootstrap_servers,
        }

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_dict(), indent=2) + "\n", encoding="utf-8")

    def show(self, console: Console) -> None:
        """The final table, what else is worth knowing, and the proof."""
        console.print(_title(self), style="bold", soft_wrap=True, highlight=False)
        console.print(lanes_table(self))
        console.print(
            f" ms from send to reply, as the agents measure, after {WARM_UP_S:g} s of warm-up",
            style="dim",
            highlight=False,
        )
        for text in (self._answers(), self._batches(), self._proof()):
            console.print(text, soft_wrap=True)

    def _answers(self) -> Text:
        play = self.play
        unanswered = (f"unanswered {play['unanswered']}", "bold red" if play["unanswered"] else "green")
        return Text.assemble(" states     ", unanswered, f", asked again {play['asked_again']:,}; {episodes(play)}")

    def _batches(self) -> Text:
        batch = self.batch
        if batch is None:
            return Text(" batches    none seen")
        if self.max_batch is None:
            return Text(f" batches    {batch:.1f} requests on average; answered by {', '.join(self.play['workers'])}")
        count = sum(one["batches"] for one in self.workers)
        states = ", ".join(f"{one['name']} {one['decisions']:,} ({one['state']})" for one in self.workers)
        fill = f"{batch:.1f} of {self.max_batch} requests on average ({batch / self.max_batch:.0%} full)"
        return Text(f" batches    {count:,}, {fill}\n workers    {states}")

    def _proof(self) -> Text:
        proof = self.proof
        if not proof.equal:
            return Text.assemble(" proof      ", ("FAILED", "bold red"), f": {proof.mismatch}")
        finished = f"{proof.episodes:,} finished and " if proof.episodes else ""
        what = f"{finished}{proof.agents:,} unfinished episodes"
        text = f"{what} equal those played locally without Kafka, action by action"
        return Text.assemble(
            " proof      ", (text, "green"), f" ({proof.decisions:,} decisions in {proof.seconds:.1f} s)"
        )


def lanes_table(result: Result) -> Table:
    """A row per lane and one for all."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("lane")
    for column in ("answered", "decisions/s", "p50 ms", "p95 ms", "p99 ms"):
        table.add_column(column, justify="right", min_width=9)
    lanes, seconds = result.play["lanes"], result.play["seconds"] or 1.0
    for lane in LANES:
        found = lanes[lane]
        numbers = (ms(found[f"p{percent}_ms"]) for percent in (50, 95, 99))
        table.add_row(lane, f"{found['answered']:,}", f"{found['answered'] / seconds:,.0f}", *numbers)
    answered = sum(found["answered"] for found in lanes.values())
    table.add_section()
    table.add_row("all", f"{answered:,}", Text(f"{answered / seconds:,.0f}", "bold green"), "", "", "")
    return table


def _title(result: Result) -> str:
    options = result.options
    by = f"{options.workers} worker{'s' * (options.workers != 1)}" if not options.attach else "a running fleet"
    who = f"{options.agents:,} agents of {options.environment} for {result.play['seconds']:.1f} s"
    return f" {who}, decided by {by} ({result.model})"


def environment() -> dict[str, Any]:
    """The machine and the versions, for whoever compares two results."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "kafka": KAFKA_VERSION,
        **{name: _version(name) for name in LIBRARIES},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
