"""`fleet doctor`: looks over cluster, groups, model and machine; changes nothing.

Exit codes: 0 no problem, 1 a problem, 2 something could not be looked at (or a setting is wrong).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from tools.doctor.findings import WORST_FIRST, Finding, exit_code
from tools.options import Config, Fleet, Servers
from topics.errors import FleetError
from topics.settings import load_settings
from workers.settings import Settings

CLUSTER_WITHIN_S: Final = 45.0
"""A cluster that hangs is a finding too."""
STYLES: Final = {"ok": "green", "note": "dim", "warning": "yellow", "problem": "red", "unknown": "magenta"}


def command(
    model: Annotated[Path | None, typer.Option("--model", help="A model package to load and check as well.")] = None,
    cluster: Annotated[bool, typer.Option("--cluster/--no-cluster", help="Look at Kafka too.")] = True,
    config: Config = None,
    fleet: Fleet = None,
    servers: Servers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Look over the cluster, the groups, the model and this machine, and say for each fault what to do.

    Changes nothing and joins no group. Example: fleet doctor --fleet cartpole --model tools/demo/models/cartpole
    """
    flags = {"name": fleet, "kafka": {"bootstrap_servers": servers}, "model": {"path": model}}
    settings = load_settings(Settings, config=config, overrides=flags)
    console = Console(stderr=True)
    with console.status("looking at this machine …") as status:
        found = [*_looked(_machine(settings, with_model=model is not None))]
        if cluster:
            status.update(f"asking {settings.kafka.bootstrap_servers} …")
            found += _cluster(settings)
    found.sort(key=lambda one: WORST_FIRST.index(one.level))
    if as_json:
        sys.stdout.write(json.dumps([asdict(one) for one in found], indent=2) + "\n")
    else:
        _show(found)
    raise typer.Exit(exit_code(found))


def _machine(settings: Settings, *, with_model: bool) -> Iterator[tuple[str, Iterator[Finding]]]:
    from tools.doctor.machine import of_machine  # imports torch

    yield from of_machine(settings, with_model=with_model)


def _cluster(settings: Settings) -> list[Finding]:
    from tools.doctor.cluster import of_cluster, read
    from topics.kafka import quiet_library_logs

    quiet_library_logs()
    try:
        seen = asyncio.run(asyncio.wait_for(read(settings), CLUSTER_WITHIN_S))
    except TimeoutError:
        text = f"{settings.kafka.bootstrap_servers} did not say everything within {CLUSTER_WITHIN_S:g} s"
        return [Finding("unknown", "brokers", text, "look at the brokers' logs")]
    except FleetError as error:
        return [Finding("problem", "brokers", str(error))]
    return [*_looked(of_cluster(seen, settings))]


def _looked(checks: Iterator[tuple[str, Iterator[Finding]]]) -> Iterator[Finding]:
    """One check that fails hides no other."""
    for name, findings in checks:
        try:
            yield from findings
        except Exception as error:
            yield Finding("unknown", name, f"this check failed: {type(error).__name__}: {error}", "please report it")


def _show(found: list[Finding]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("", "check", "found", "do"):
        table.add_column(column, overflow="fold")
    for one in found:
        style = STYLES[one.level]
        table.add_row(f"[{style}]{one.level}[/{style}]", one.check, one.found, one.do)
    console = Console()
    console.print(table)
    problems = sum(one.level == "problem" for one in found)
    console.print(f"\n{problems} problems" if problems else "\n[green]no problem[/green]")
