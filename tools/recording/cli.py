"""`fleet recording info|check|cut|merge|to-parquet`: look at recordings, and make others of them.

Exit codes: 0 done; 1 a recording is damaged, cut off or missing; 2 a wrong call.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, TypeVar, get_args

import typer
from rich.console import Console

from tools.dead.filters import WrongCall, parse_time
from tools.dead.progress import LateBar
from tools.recording.copy import cut as cut_
from tools.recording.copy import merge as merge_
from tools.recording.info import figures, sheet
from tools.recording.layout import Compression
from tools.recording.plan import plan
from tools.recording.read import Recording
from tools.recording.recorded import Kind
from tools.recording.selection import Selection
from topics.names import LANES

T = TypeVar("T")
SHOWN_HOLES = 20

app = typer.Typer(no_args_is_help=True, help="Look at recordings of traffic, cut, merge and convert them.")

Path_ = Annotated[Path, typer.Argument(metavar="RECORDING", help="A .mcap file, or a folder of them.")]
Target = Annotated[Path, typer.Argument(metavar="TARGET", help="A new .mcap file, or a new folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Kinds = Annotated[list[str] | None, typer.Option("--kind", help="Only states, actions or dead (may be repeated).")]
Lanes = Annotated[list[str] | None, typer.Option("--lane", help="Only states of these lanes: high, normal, low.")]
Agents = Annotated[list[str] | None, typer.Option("--agent", help="Only these agents (globs; may be repeated).")]
Since = Annotated[str | None, typer.Option("--since", help="At or after: 30m, 2h, 7d ago, or an ISO date.")]
Until = Annotated[str | None, typer.Option("--until", help="Before: 30m, 2h, 7d ago, or an ISO date.")]
Sample = Annotated[float, typer.Option("--sample", help="Share of the agents, above 0 up to 1.")]
Packed = Annotated[Compression, typer.Option("--compression", help="Of the new file's chunks.")]


@app.command()
def info(path: Path_, as_json: AsJson = False) -> None:
    """What is in a recording: topics, rates, agents, gaps, and how states arrive.

    Example: fleet recording info monday/
    """
    found = figures(Recording.open(path))
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        Console().print(sheet(found))


@app.command()
def check(path: Path_, as_json: AsJson = False) -> None:
    """Read every byte: checksums, the form of each record, missing and repeated offsets.

    Example: fleet recording check monday/
    """
    from tools.recording.check import check as check_

    with LateBar("reading") as bar:
        found = check_(Recording.open(path), bar)
    if as_json:
        holes = [
            {"topic": one.topic, "partition": one.partition, "begin": one.begin, "end": one.end, "why": one.why}
            for one in found.holes
        ]
        whole = {"sound": found.sound, "records": found.records, "damage": found.damage, "not_ended": found.not_ended}
        sys.stdout.write(json.dumps({**whole, "holes": holes, "repeated": found.repeated}, indent=2) + "\n")
    else:
        console = Console(highlight=False, soft_wrap=True)
        for line in found.damage:
            console.print(f"damaged: {line}", style="red", markup=False)
        for name in found.not_ended:
            console.print(f"not ended: {name}: `fleet record --recover` completes it", style="yellow", markup=False)
        for one in found.holes[:SHOWN_HOLES]:
            why = (
                one.why or "no records there: transaction markers, compaction, or what the recorder's filters left out"
            )
            where = f"{one.topic} partition {one.partition}, offsets {one.begin}–{one.end - 1}"
            console.print(f"missing: {where}: {why}", markup=False)
        if len(found.holes) > SHOWN_HOLES:
            console.print(f"… and {len(found.holes) - SHOWN_HOLES} more stretches (all with --json)")
        if found.repeated:
            console.print(f"{found.repeated} records are there more than once, or out of their order")
        console.print(f"{found.records:,} records read: {'sound' if found.sound else 'NOT sound'}")
    if not found.sound:
        raise typer.Exit(1)


@app.command()
def cut(
    path: Path_,
    target: Target,
    kind: Kinds = None,
    lane: Lanes = None,
    agent: Agents = None,
    since: Since = None,
    until: Until = None,
    sample: Sample = 1.0,
    compression: Packed = "zstd",
) -> None:
    """Part of a recording as a recording of its own; records untouched.

    Example: fleet recording cut monday/ incident.mcap --since 2030-01-31T08:30 --until 2030-01-31T08:45 --lane high
    """
    selection = parse_selection(kind, lane, agent, since, until, sample)
    recording = Recording.open(path)
    of = plan(recording, selection).total
    with LateBar("cutting") as bar:
        n = cut_(recording, selection, words(selection), target, compression, lambda done: bar(done, of))
    Console(soft_wrap=True).print(f"{n:,} records in {target}", markup=False)


@app.command()
def merge(
    paths: Annotated[list[Path], typer.Argument(metavar="RECORDING…", help="Recordings of one fleet.")],
    into: Annotated[Path, typer.Option("--into", help="A new .mcap file, or a new folder.")],
    compression: Packed = "zstd",
) -> None:
    """Several recordings of one fleet as one; what is in two of them comes once.

    Example: fleet recording merge high.mcap low.mcap --into both.mcap
    """
    recordings = [Recording.open(path) for path in paths]
    of = sum(sum(recording.counts.values()) for recording in recordings)
    with LateBar("merging") as bar:
        n = merge_(recordings, into, compression, lambda done: bar(done, of))
    Console(soft_wrap=True).print(f"{n:,} records in {into}", markup=False)


@app.command("to-parquet")
def to_parquet(
    path: Path_,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Gets states.parquet, actions.parquet, dead.parquet.")
    ],
    kind: Kinds = None,
    lane: Lanes = None,
    agent: Agents = None,
    since: Since = None,
    until: Until = None,
    sample: Sample = 1.0,
) -> None:
    """Columns for notebooks: a Parquet file per kind, decoded fields beside the original bytes (extra: parquet).

    Example: fleet recording to-parquet monday/ columns/ --kind actions
    """
    from tools.recording.parquet import to_parquet as to_parquet_

    selection = parse_selection(kind, lane, agent, since, until, sample)
    recording = Recording.open(path)
    of = plan(recording, selection).total
    with LateBar("converting") as bar:
        counts = to_parquet_(recording, selection, folder, lambda done: bar(done, of))
    for name, n in counts.items():
        Console(soft_wrap=True).print(f"{n:,} records in {folder / name}.parquet", markup=False)
    if not counts:
        Console().print("nothing matches")


def parse_selection(
    kinds: list[str] | None,
    lanes: list[str] | None,
    agents: list[str] | None,
    since: str | None,
    until: str | None,
    sample: float,
) -> Selection:
    """The flags of the command line as a selection. Raises WrongCall."""
    now = time.time()
    since_us = parse_time("--since", since, now) if since is not None else None
    until_us = parse_time("--until", until, now) if until is not None else None
    if since_us is not None and until_us is not None and since_us >= until_us:
        raise WrongCall(f"--since {since} must be before --until {until}")
    if not 0 < sample <= 1:
        raise WrongCall(f"--sample is {sample:g}, expected a share above 0 up to 1, such as 0.1")
    return Selection(
        tuple(_one_of("--kind", text, get_args(Kind)) for text in kinds or ()),
        tuple(_one_of("--lane", text, LANES) for text in lanes or ()),
        tuple(agents or ()),
        since_us,
        until_us,
        sample,
    )


def words(selection: Selection) -> str:
    """A selection as people read it; empty: everything."""
    from tools.recording.about import utc

    parts = [", ".join(selection.kinds)] if selection.kinds else []
    parts += [f"lanes {', '.join(selection.lanes)}"] if selection.lanes else []
    parts += [f"agents {', '.join(selection.agents)}"] if selection.agents else []
    parts += [f"from {utc(selection.since_us)}"] if selection.since_us is not None else []
    parts += [f"before {utc(selection.until_us)}"] if selection.until_us is not None else []
    parts += [f"{selection.sample:g} of the agents"] if selection.sample < 1 else []
    return "; ".join(parts)


def _one_of(option: str, text: str, allowed: tuple[T, ...]) -> T:
    for one in allowed:
        if one == text:
            return one
    raise WrongCall(f"{option} is {text!r:.60}, expected one of {', '.join(map(str, allowed))}")
