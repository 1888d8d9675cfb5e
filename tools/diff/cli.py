"""`fleet diff A B`: do two recordings give the same answers to the same states?

Exit codes: 0 done, and as good as `--fail-below` wants; 1 worse, or a recording is damaged; 2 a wrong call.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tools.dead.filters import WrongCall
from tools.dead.progress import LateBar
from tools.diff.distance import Tolerance
from tools.diff.recordings import compare
from tools.diff.show import figures, sheet
from tools.recording.cli import Agents, AsJson, Lanes, Sample, Since, Until, parse_selection
from tools.recording.read import Recording

Reference = Annotated[Path, typer.Argument(metavar="REFERENCE", help="A recording: its answers are what is wanted.")]
Other = Annotated[Path, typer.Argument(metavar="OTHER", help="Another one, or the replay of the first.")]
Atol = Annotated[float, typer.Option(min=0, help="Floats may differ by so much, and …")]
Rtol = Annotated[float, typer.Option(min=0, help="… by so much of the reference's number.")]
Argmax = Annotated[bool, typer.Option("--argmax", help="Agree if the largest entries are at the same place.")]
Outputs = Annotated[list[str] | None, typer.Option("--output", help="Outputs that decide (default: action; repeat).")]
FailBelow = Annotated[float | None, typer.Option(help="Exit 1 if less than this share agrees, such as 0.999.")]


def command(
    reference: Reference,
    other: Other,
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
    as_json: AsJson = False,
) -> None:
    """Compare the answers of two recordings, state by state: by agent and seq.

    Example: fleet diff incident.mcap replayed.mcap --fail-below 0.999
    """
    if fail_below is not None and not 0 <= fail_below <= 1:
        raise WrongCall(f"--fail-below is {fail_below:g}, expected a share from 0 to 1, such as 0.999")
    tolerance = Tolerance(atol, rtol, argmax, frozenset(output or ("action",)))
    selection = parse_selection(None, lane, agent, since, until, sample)
    with LateBar("comparing") as bar:
        found = compare(Recording.open(reference), Recording.open(other), selection, tolerance, bar)
    shown = figures(found, (str(reference), str(other)))
    if as_json:
        sys.stdout.write(json.dumps(shown, indent=2) + "\n")
    else:
        Console().print(sheet(shown))
    if fail_below is not None and (found.agreement or 0.0) < fail_below:
        raise typer.Exit(1)
