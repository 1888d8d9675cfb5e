"""`fleet report RECORDING`: one HTML file that opens without a network.

Exit codes: 0 done; 1 a recording is damaged, or the page cannot be written; 2 a wrong call.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tools.dead.progress import LateBar
from tools.diff.distance import Tolerance
from tools.diff.recordings import compare
from tools.diff.show import figures as diff_figures
from tools.recording.cli import Agents, Path_, Sample, Since, Until, parse_selection
from tools.recording.info import figures
from tools.recording.read import Recording
from tools.recording.recorded import RecordingError
from tools.report.gather import gather
from tools.report.page import page

Out = Annotated[Path, typer.Option("--out", help="The page; what is there is replaced.")]
Other = Annotated[Path | None, typer.Option("--compare", help="Another recording, such as a replay of this one.")]


def command(
    path: Path_,
    out: Out = Path("report.html"),
    other: Other = None,
    agent: Agents = None,
    since: Since = None,
    until: Until = None,
    sample: Sample = 1.0,
) -> None:
    """A recording as one HTML page: traffic, latencies, batches, outcomes, agents, settings (extra: plots).

    Example: fleet report incident.mcap --compare replayed.mcap --out incident.html
    """
    selection = parse_selection(None, None, agent, since, until, sample)
    recording = Recording.open(path)
    with LateBar("reading") as bar:
        found = gather(recording, selection, bar)
    diff = None
    if other is not None:
        with LateBar("comparing") as bar:
            compared = compare(recording, Recording.open(other), selection, Tolerance(), bar)
        diff = diff_figures(compared, (str(path), str(other)))
    text = page(figures(recording), found, diff)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordingError(f"--out {out} cannot be written: {error.strerror}") from error
    Console(soft_wrap=True, highlight=False).print(f"{out}: {len(text) / 1000:,.0f} kB", markup=False)
