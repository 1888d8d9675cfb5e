"""`fleet shadow`: a candidate decides beside the live fleet, and no agent notices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tools.worker import serve
from topics.settings import load_settings
from workers.settings import Settings


def command(
    config: Annotated[
        Path | None, typer.Option(help="Settings file; default $FLEET_CONFIG, else ./fleet.toml.")
    ] = None,
    fleet: Annotated[str | None, typer.Option(help="Name of the live fleet.")] = None,
    model: Annotated[Path | None, typer.Option(help="Directory of the candidate's model package.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of this worker; default host name and process ID.")] = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="host:port of the Kafka cluster.")] = None,
    http_port: Annotated[int | None, typer.Option(help="Port of /livez, /readyz, /metrics; 0: any free one.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what it would choose here and why, and exit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --explain: JSON for programs.")] = False,
) -> None:
    """Read the live states as a group of its own, from now on, and write what it would answer to FLEET.actions.shadow.

    Needs that topic: fleet topics apply --shadow. Example: fleet shadow --fleet arena --model candidate/ --http-port 0
    """
    overrides = {
        "name": fleet,
        "shadow": True,
        "worker": name,
        "model": {"path": model},
        "kafka": {"bootstrap_servers": bootstrap_servers},
        "http": {"port": http_port},
    }
    serve(load_settings(Settings, config=config, overrides=overrides), explain=explain, as_json=as_json)
