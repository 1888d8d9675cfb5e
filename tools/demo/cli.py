"""`fleet demo`: real agents play through Kafka, then a result table and its proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tools.demo.options import Options
from topics.errors import FleetError


class DemoFailed(FleetError):
    """The demo was played, and did not go well."""


def command(
    agents: Annotated[int, typer.Option(min=1, max=10_000, help="How many agents play.")] = 512,
    seconds: Annotated[float, typer.Option(min=0.5, help="How long they play.")] = 30.0,
    workers: Annotated[int, typer.Option(min=1, max=64, help="How many workers decide.")] = 2,
    env: Annotated[
        str, typer.Option(help="A Gymnasium id with a model package: CartPole-v1, LunarLander-v3.")
    ] = "CartPole-v1",
    attach: Annotated[bool, typer.Option("--attach", help="Use a cluster and workers that already run.")] = False,
    fleet: Annotated[
        str | None, typer.Option(help="Name of the fleet; default demo, with --attach as in the settings.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model package that plays the environment; default the shipped one.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same episodes.")] = 0,
) -> None:
    """Real Gymnasium agents play through Kafka: a live view, a result table, and the proof that Kafka changed nothing.

    Example: fleet demo --seconds 10 --agents 64
    """
    from tools.demo.run import run  # not for `fleet demo --help`

    options = Options(agents, seconds, workers, env, seed, attach, fleet, model, json_file)
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise FleetError(f"--json {json_file}: there is no folder {json_file.absolute().parent}")
    console = Console()
    result = run(options, console)
    result.show(console)
    if json_file is not None:
        result.write(json_file)
    for warning in result.warnings:
        Console(stderr=True, soft_wrap=True).print("[yellow]warning:[/yellow]", warning, highlight=False)
    if result.problems:
        raise DemoFailed("; ".join(result.problems))
