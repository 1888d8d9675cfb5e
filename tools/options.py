"""What the commands that look at a fleet share: flags that say which one, and how to ask its cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from topics.settings import FleetSettings, load_settings

T = TypeVar("T")

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (default: ./fleet.toml).")]
Fleet = Annotated[str | None, typer.Option("--fleet", help="Name of the fleet, the topic prefix.")]
Servers = Annotated[str | None, typer.Option("--bootstrap-servers", help="Cluster, host:port.")]
Shadow = Annotated[bool, typer.Option("--shadow", help="What `fleet shadow` needs, beside what is there.")]


def fleet_settings(
    config: Path | None, fleet: str | None, servers: str | None, *, shadow: bool = False
) -> FleetSettings:
    """The settings that these flags and everything below them give; `SettingsError` in one line."""
    flags = {"name": fleet, "kafka": {"bootstrap_servers": servers}, "shadow": shadow or None}
    return load_settings(FleetSettings, config=config, overrides=flags)


def ask_cluster(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end, without aiokafka's own log lines."""
    from topics.kafka import quiet_library_logs  # aiokafka takes a while: `fleet settings` does without

    quiet_library_logs()
    return asyncio.run(coroutine)
