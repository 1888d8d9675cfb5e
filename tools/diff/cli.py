"""`fleet diff A B`: do two recordings give the same answers to the same states?

Exit codes: 0 done, and as good as `--fail-below` wants; 1 worse, or a recording is damaged; 2 a wrong call.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from tools.dead.filters import WrongCall
from tools.dead.progress import LateBar
from tools.diff.compare import Comparison
from tools.diff.distance import Tolerance
from tools.diff.live import Pairing, follow
from tools.diff.recordings import compare
from tools.diff.show import figures, sheet
from tools.options import Config, Fleet, Servers, ask_cluster, fleet_settings
from tools.recording.cli import Agents, AsJson, Lanes, Sample, Since, Until, parse_selection
from tools.recording.read import Recording
from topics.settings import FleetSettings

Reference = Annotated[
    Path | None, typer.Argument(metavar="REFERENCE", help="A recording: its answers are what is wanted.")
]
Other = Annotated[Path | None, typer.Argument(metavar="OTHER", help="Another one, or the replay of the first.")]
Live_ = Annotated[
    bool, typer.Option("--live", help="No recordings: the fleet's answers and its shadow's, as they come.")
]
Seconds = Annotated[float | None, typer.Option(min=1, help="With --live: end after so long (default: Ctrl-C).")]
Atol = Annotated[float, typer.Option(min=0, help="Floats may differ by so much, and …")]
Rtol = Annotated[float, typer.Option(min=0, help="… by so much of the reference's number.")]
Argmax = Annotated[bool, typer.Option("--argmax", help="Agree if the largest entries are at the same place.")]
Outputs = Annotated[list[str] | None, typer.Option("--output", help="Outputs that decide (default: action; repeat).")]
FailBelow = Annotated[float | None, typer.Option(help="Exit 1 if less than this share agrees, such as 0.999.")]


def command(
    reference: Reference = None,
    other: Other = None,
    live: Live_ = False,
    seconds: Seconds = None,
    atol: Atol = 1e-5,
    rtol: Rtol = 1e-4,
    argmax: Argmax = False,
    output: Outputs = None,
    fail_below: FailBelow = None,
    lane: Lanes = None,
    agent: Agents = None,
    since: Since = None,
    until: Until = None,
    sample: Sample = 1.0,
    config: Config = None,
    fleet: Fleet = None,
    servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Compare the answers of two recordings, state by state: by agent and seq. Or with --live a fleet with its shadow.

    Example: fleet diff incident.mcap replayed.mcap --fail-below 0.999
    """
    if fail_below is not None and not 0 <= fail_below <= 1:
        raise WrongCall(f"--fail-below is {fail_below:g}, expected a share from 0 to 1, such as 0.999")
    tolerance = Tolerance(atol, rtol, argmax, frozenset(output or ("action",)))
    if live:
        if reference or other or lane or agent or since or until or sample < 1:
            raise WrongCall("--live compares all that comes: without recordings and filters")
        settings = fleet_settings(config, fleet, servers)
        found = _watched(settings, tolerance, seconds)
        shown = figures(found, (f"fleet {settings.name}", "its shadow"))
    elif reference is None or other is None:
        raise WrongCall("fleet diff needs two recordings, or --live; see fleet diff --help")
    else:
        selection = parse_selection(None, lane, agent, since, until, sample)
        recordings = {path: Recording.open(path) for path in (reference, other)}
        with LateBar("comparing") as bar:
            found = compare(recordings[reference], recordings[other], selection, tolerance, bar)
        shown = figures(found, (str(reference), str(other)))
        shown["incomplete"] = [str(path) for path, recording in recordings.items() if not recording.complete]
        for path in shown["incomplete"]:
            text = f"{path} is not whole, its recorder was killed: complete it with `fleet record --recover`"
            Console(stderr=True, soft_wrap=True, highlight=False).print(text, style="yellow", markup=False)
    if as_json:
        sys.stdout.write(json.dumps(shown, indent=2) + "\n")
    else:
        Console().print(sheet(shown))
    if fail_below is not None and (found.agreement or 0.0) < fail_below:
        raise typer.Exit(1)


def _watched(settings: FleetSettings, tolerance: Tolerance, seconds: float | None) -> Comparison:
    """Compare the two streams until the time is up, or Ctrl-C; a line on a terminal says how it goes."""
    comparison = Comparison(tolerance)
    with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as screen:

        def show(pairing: Pairing) -> None:
            share = "–" if comparison.agreement is None else f"{comparison.agreement:.4%}"
            alone = ", ".join(f"{n:,}" for n in pairing.waiting)
            screen.update(
                f"{comparison.all.pairs:,} pairs, {share} agree, missing {comparison.missing_count:,}, "
                f"extra {comparison.extra_count:,}; waiting for the other half: {alone}"
            )

        async def watch() -> None:
            stop = asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            if seconds is not None:
                asyncio.get_running_loop().call_later(seconds, stop.set)
            await follow(settings, comparison, stop.wait(), show)

        ask_cluster(watch())
    return comparison
