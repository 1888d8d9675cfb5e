"""`fleet worker`: one worker process, until SIGTERM."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from topics.settings import load_settings
from workers.logs import configure
from workers.settings import Settings


def command(
    config: Annotated[
        Path | None, typer.Option(help="Settings file; default $FLEET_CONFIG, else ./fleet.toml.")
    ] = None,
    fleet: Annotated[str | None, typer.Option(help="Name of the fleet, the prefix of its topics.")] = None,
    model: Annotated[Path | None, typer.Option(help="Directory of the model package to serve.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of this worker; default host name and process ID.")] = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="host:port of the Kafka cluster.")] = None,
    max_batch: Annotated[int | None, typer.Option(help="Largest batch.")] = None,
    max_wait_ms: Annotated[float | None, typer.Option(help="Longest wait for a batch to fill, ms.")] = None,
    http_port: Annotated[int | None, typer.Option(help="Port of /livez, /readyz, /metrics; 0: any free one.")] = None,
    log_format: Annotated[str | None, typer.Option(help="auto, text or json.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what it would choose here and why, without Kafka, and exit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --explain: JSON for programs.")] = False,
) -> None:
    """Serve decisions until SIGTERM, then drain and exit 0.

    Example: fleet worker --fleet cartpole --model tools/demo/models/cartpole
    """
    overrides = {
        "name": fleet,
        "worker": name,
        "model": {"path": model},
        "kafka": {"bootstrap_servers": bootstrap_servers},
        "batch": {"max_batch": max_batch, "max_wait_ms": max_wait_ms},
        "http": {"port": http_port},
        "log": {"format": log_format, "level": log_level},
    }
    serve(load_settings(Settings, config=config, overrides=overrides), explain=explain, as_json=as_json)


def serve(settings: Settings, *, explain: bool, as_json: bool) -> None:
    """Run one worker in this process, or tell what it would choose."""
    if explain:
        from tools.explain import explain as explain_worker

        explain_worker(settings, as_json=as_json)
        return
    configure(settings.log.format, settings.log.level, fields={"worker": settings.worker, "fleet": settings.name})
    run(settings)


def run(settings: Settings) -> None:
    """Run one worker in this process; the `FleetError` that ends it may come inside an exception group."""
    from workers.lifecycle import run_worker  # numpy and aiokafka take a while: not before the settings are right

    asyncio.run(run_worker(settings))
