"""`fleet ask`: does the fleet answer? States that the model package itself knows the answers of, through Kafka.

Exit codes: 0 every answer is an action and the right one, 1 one is not, 3 no cluster.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from tools.options import Config, Fleet, Servers, ask_cluster, fleet_settings
from topics.client import AgentClient, Reply, ReplyTimeout
from topics.errors import FleetError
from topics.names import LANES, Lane
from topics.settings import FleetSettings
from topics.tensors import Array
from workers.models.golden import read_golden
from workers.models.package import ACTION, GoldenFile, read_manifest


def command(
    model: Annotated[Path, typer.Option("--model", help="Package of the model that the fleet serves.")],
    lane: Annotated[list[str] | None, typer.Option("--lane", help="Only these lanes (default: each).")] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.")] = 10.0,
    config: Config = None,
    fleet: Fleet = None,
    servers: Servers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Ask for one decision on each lane, and compare it with what the model package says.

    Example: fleet ask --fleet cartpole --model tools/demo/models/cartpole
    """
    settings = fleet_settings(config, fleet, servers)
    lanes = tuple(one for one in LANES if one in (lane or LANES))
    if unknown := set(lane or ()) - set(LANES):
        raise FleetError(f"--lane is {min(unknown)!r}, expected one of {', '.join(LANES)}")
    answers = ask_cluster(_ask(settings, _pair(model), lanes, timeout_s))
    if as_json:
        sys.stdout.write(json.dumps(answers, indent=2) + "\n")
    else:
        Console().print(_table(settings, answers))
    raise typer.Exit(0 if all(answer["right"] for answer in answers) else 1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A state and the action that the package says belongs to it."""

    observation: Any
    action: Array
    tolerance: GoldenFile


def _pair(model: Path) -> Pair:
    """The first golden pair of the package. Raises `FleetError` where it has none."""
    manifest = read_manifest(model)
    if manifest.golden is None:
        raise FleetError(f"{manifest} has no golden pairs to ask for: run `fleet model pack {model}`")
    file = manifest.golden.file
    golden = read_golden(model, manifest, file, manifest.files[file])
    rows = {name: column[0] for name, column in golden.inputs.items()}
    observation = rows if len(rows) > 1 else next(iter(rows.values()))
    return Pair(observation, golden.outputs[ACTION][0], manifest.golden)


async def _ask(settings: FleetSettings, pair: Pair, lanes: Sequence[Lane], timeout_s: float) -> list[dict[str, Any]]:
    agent = f"fleet-ask-{uuid.uuid4().hex[:8]}"
    answers: list[dict[str, Any]] = []
    async with AgentClient(settings=settings, timeout_s=timeout_s) as agents:
        for lane in lanes:
            try:
                answers.append({"lane": lane, **_seen(await agents.decide(agent, pair.observation, lane=lane), pair)})
            except ReplyTimeout:
                answers.append({"lane": lane, "right": False, "reason": f"no answer within {timeout_s:g} s"})
    return answers


def _seen(reply: Reply, pair: Pair) -> dict[str, Any]:
    wanted, tolerance = pair.action, pair.tolerance
    if wanted.dtype.kind == "f":
        same = reply.ok and np.allclose(reply.action, wanted, rtol=tolerance.rtol, atol=tolerance.atol)
    else:
        same = reply.ok and np.array_equal(reply.action, wanted)
    wrong = f"action {reply.action_or(None)}, the package says {wanted}: another model serves" if reply.ok else ""
    return {
        "outcome": reply.outcome,
        "right": bool(same),
        "reason": "" if same else reply.reason or wrong,
        "ms": round(reply.latency_s * 1e3, 3),
        "model": reply.model,
        "worker": reply.worker,
    }


def _table(settings: FleetSettings, answers: Sequence[Mapping[str, Any]]) -> Table:
    where = f"fleet {settings.name} on {settings.kafka.bootstrap_servers}"
    table = Table(title=where, title_justify="left")
    for column in ("lane", "outcome", "ms", "model", "worker", ""):
        table.add_column(column, overflow="fold")
    for answer in answers:
        said = "[green]right[/green]" if answer["right"] else f"[red]{answer['reason']}[/red]"
        cells = (str(answer.get(key) or "–") for key in ("lane", "outcome", "ms", "model", "worker"))
        table.add_row(*cells, said)
    return table
