"""`fleet record`: the states, actions and dead letters of a fleet, into a recording.

Exit codes: 0 recorded; 1 recorded, but the cluster had deleted some of it before it could be read, or the recording
cannot be written or continued; 2 a wrong call, setting or redaction function; 3 no cluster or topic.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tools.options import Config, Fleet, Servers, ask_cluster, fleet_settings
from tools.record.keep import Keep
from tools.record.progress import Reporter
from tools.record.record import Report, record
from tools.record.redact import load_redaction
from tools.record.summary import line_of, table_of
from tools.record.target import Target
from tools.record.wanted import Wanted, parse_since, parse_size, parse_slices, parse_span, parse_until, topics_of
from tools.recording.cli import parse_selection, words
from tools.recording.layout import Compression
from tools.recording.read import Recording
from tools.recording.recover import recover
from tools.recording.selection import Selection

Many = list[str] | None


def command(
    path: Annotated[Path, typer.Argument(help="A folder, which can be continued; or one file, NAME.mcap.")],
    since: Annotated[str | None, typer.Option(help="beginning, now (default), an age such as 2h, or a date.")] = None,
    until: Annotated[str | None, typer.Option(help="now, an age or a date (default: until stopped).")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds.", min=0.1)] = None,
    offsets: Annotated[Many, typer.Option(help="STREAM:PARTITION:BEGIN-END, such as high:3:100-199.")] = None,
    kind: Annotated[Many, typer.Option(help="Only states, actions or dead (may be repeated).")] = None,
    lane: Annotated[Many, typer.Option(help="Only states of these lanes: high, normal, low.")] = None,
    agent: Annotated[Many, typer.Option(help="Only these agents (globs; may be repeated).")] = None,
    sample: Annotated[float, typer.Option(help="Share of the agents, above 0 up to 1, by a hash of their IDs.")] = 1.0,
    redact: Annotated[
        str | None, typer.Option(help="MODULE:FUNCTION or FILE.py:FUNCTION that sees each record.")
    ] = None,
    rotate_size: Annotated[str | None, typer.Option(help="A new file after so much, such as 500MB.")] = None,
    rotate_every: Annotated[str | None, typer.Option(help="A new file after so long, such as 1h.")] = None,
    compression: Annotated[Compression, typer.Option(help="Of the chunks.")] = "zstd",
    mend: Annotated[bool, typer.Option("--recover", help="Mend what a killed recorder left, and exit.")] = False,
    config: Config = None,
    fleet: Fleet = None,
    servers: Servers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Record a fleet's traffic until stopped (Ctrl-C). The same command again goes on where the recording ends.

    Example: fleet record monday --since 2h --rotate-size 1GB
    """
    if mend:
        _mend(path)
        return
    now = time.time()
    settings = fleet_settings(config, fleet, servers)
    selection = parse_selection(kind, lane, agent, None, None, sample)
    topics = topics_of(settings.names, selection)
    since_us = parse_since(since, now)
    wanted = Wanted(topics, parse_slices(offsets or (), topics), since_us, parse_until(until, since_us, now))
    keep = Keep(selection, load_redaction(redact) if redact is not None else None)
    target = Target(
        path,
        _filters(selection, offsets, redact),
        compression,
        parse_size("--rotate-size", rotate_size) if rotate_size is not None else None,
        parse_span("--rotate-every", rotate_every) if rotate_every is not None else None,
    )
    with Reporter(f"recording {settings.name}") as reporter:
        report = ask_cluster(record(settings, wanted, keep, target, reporter, seconds))
    _print(report, Recording.open(path), as_json=as_json)
    if report.deleted:
        raise typer.Exit(1)


def _filters(selection: Selection, offsets: Many, redact: str | None) -> str:
    """What the recording leaves out, in words: a recording is continued with the same only."""
    parts = [words(selection)]
    parts += [f"offsets {', '.join(offsets)}"] if offsets else []
    parts += [f"redacted by {redact}"] if redact is not None else []
    return "; ".join(filter(None, parts))


def _mend(path: Path) -> None:
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    for mended in recover(path, damaged=True):
        console.print(f"mended {mended}", markup=False)
    recording = Recording.open(path)
    console.print(f"{path}: {sum(recording.counts.values()):,} records, whole", markup=False)


def _print(report: Report, recording: Recording, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(line_of(report, recording)) + "\n")
    else:
        Console().print(table_of(report, recording))
