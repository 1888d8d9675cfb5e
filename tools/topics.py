"""`fleet topics plan|apply|check|acls`: what the fleet's topics should be, against what is on the cluster.

Exit codes: 0 in order (or made so), 1 something differs and stays, 2 settings, 3 no cluster.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tools.acls import acls
from tools.options import Config, Fleet, Servers, Shadow, ask_cluster, fleet_settings
from topics.drift import Difference
from topics.first_offsets import commit_first_offsets
from topics.provision import ensure_topics, find_differences
from topics.settings import FleetSettings

app = typer.Typer(no_args_is_help=True, help="Create and check the fleet's topics. Nothing is ever deleted.")
app.command()(acls)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
AllowRemap = Annotated[
    bool, typer.Option("--allow-remap", help="Grow live lanes too, although agents move to other partitions.")
]

DONE = {"create": "created", "alter": "altered", "grow": "grown", "remap": "grown, agents moved"}
LEFT = {"remap": "needs --allow-remap"}


@app.command()
def plan(
    config: Config = None, fleet: Fleet = None, servers: Servers = None, shadow: Shadow = False, as_json: AsJson = False
) -> None:
    """Show what `apply` would do. Changes nothing, exits 0."""
    settings = fleet_settings(config, fleet, servers, shadow=shadow)
    _report(settings, done=(), left=ask_cluster(find_differences(settings)), as_json=as_json)


@app.command()
def check(
    config: Config = None, fleet: Fleet = None, servers: Servers = None, shadow: Shadow = False, as_json: AsJson = False
) -> None:
    """Compare with the cluster. Exits 1 if anything differs."""
    settings = fleet_settings(config, fleet, servers, shadow=shadow)
    left = ask_cluster(find_differences(settings))
    _report(settings, done=(), left=left, as_json=as_json)
    raise typer.Exit(1 if left else 0)


@app.command()
def apply(
    config: Config = None,
    fleet: Fleet = None,
    servers: Servers = None,
    allow_remap: AllowRemap = False,
    shadow: Shadow = False,
    commit_offsets: Annotated[
        bool,
        typer.Option("--commit-offsets", help="Give the lanes' groups their first offsets, for scaling on lag."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create what is missing and set what differs. Exits 1 if something is left for a person."""
    settings = fleet_settings(config, fleet, servers, shadow=shadow)
    done, left = ask_cluster(ensure_topics(settings, allow_remap=allow_remap))
    _report(settings, done=done, left=left, as_json=as_json)
    if commit_offsets:
        committed = ask_cluster(commit_first_offsets(settings))
        if not as_json:
            for lane, number in committed.items():
                Console().print(f"group {settings.names.group(lane)}: first offsets of {number} partitions")
    raise typer.Exit(1 if left else 0)


def _report(settings: FleetSettings, *, done: Sequence[Difference], left: Sequence[Difference], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(_as_dict(settings, done, left), indent=2) + "\n")
        return
    console = Console()
    where = f"fleet {settings.name} on {settings.kafka.bootstrap_servers}"
    if not done and not left:
        console.print(f"[green]topics of {where} are in order[/green]")
        return
    console.print(_table(f"topics of {where}", done, left))
    for reason in dict.fromkeys(item.why for item in left if item.why):
        console.print(f"[yellow]left to you:[/yellow] {reason}", soft_wrap=True)


def _table(title: str, done: Sequence[Difference], left: Sequence[Difference]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("topic", "what", "found", "wanted", ""):
        table.add_column(column, overflow="fold")
    for item in done:
        table.add_row(*_row(item), f"[green]{DONE[item.fix]}[/green]")
    for item in left:
        table.add_row(*_row(item), f"[yellow]{LEFT.get(item.fix, item.fix)}[/yellow]")
    return table


def _row(item: Difference) -> tuple[str, str, str, str]:
    return item.topic, item.what, item.found or "–", item.wanted


def _as_dict(settings: FleetSettings, done: Sequence[Difference], left: Sequence[Difference]) -> dict[str, Any]:
    return {
        "fleet": settings.name,
        "bootstrap_servers": settings.kafka.bootstrap_servers,
        "in_order": not left,
        "done": [_difference(item) for item in done],
        "left": [_difference(item) for item in left],
    }


def _difference(item: Difference) -> dict[str, str | None]:
    fields = ("topic", "what", "found", "wanted", "fix", "why")
    return {field: getattr(item, field) for field in fields}
