"""`fleet record`: the states, actions and dead letters of a fleet, into a recording.

Exit codes: 0 recorded; 1 recorded, but the cluster had deleted some of it before it could be read, or the recording cannot be
written or continued; 2 a wrong call, setting or redaction function; 3 no cluster or topic.
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
from tools.record.record import record
from tools.record.redact import load_redaction
from tools.record.summary import line_of, table_of
from tools.record.target import Target, recover
from tools.record.wanted import Wanted, parse_since, parse_slices, parse_until, streams_of
from tools.recording.read import Recording
from tools.recording.selection import Selection

Many = list[str] | None


def command(
    path: Annotated[Path, typer.Argument(help="A folder, which can be continued; or one file, NAME.mcap.")],
    since: Annotated[str | None, typer.Option(help="beginning, now (default), an age such as 2h, or a date.")] = None,
    until: Annotated[str | None, typer.Option(help="now, an age or a date (default: until stopped).")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds.", min=0.1)] = None,
    offsets: Annotated[Many, typer.Option(help="STREAM:PARTITION:BEGIN-END, such as high:3:100-199.")] = None,
    kind: Annotated[Many, typer.Option(help="Only these: states, actions, dead (may be repeated).")] = None,
    lane: Annotated[Many, typer.Option(help="States of these lanes only (may be repeated).")] = None,
    agent: Annotated[Many, typer.Option(help="Only these agents (globs; may be repeated).")] = None,
    sample: Annotated[float, typer.Option(help="Share of the agents, by a hash of their IDs.", max=1.0)] = 1.0,
    redact: Annotated[
        str | None, typer.Option(help="MODULE:FUNCTION or FILE.py:FUNCTION that sees each record.")
    ] = None,
    rotate_size: Annotated[str | None, typer.Option(help="A new file after so much, such as 500MB.")] = None,
    rotate_every: Annotated[str | None, typer.Option(help="A new file after so long, such as 1h.")] = None,
    compression: Annotated[str, typer.Option(help="zstd, lz4 or none.")] = "zstd",
    mend: Annotated[bool, typer.Option("--recover", help="Mend what a killed recorder left, and exit.")] = False,
    config: Config = None,
    fleet: Fleet = None,
    servers: Servers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Record a fleet's traffic until stopped (Ctrl-C, SIGTERM). The same command again goes on where the recording ends.

    Example: fleet record monday --since 2h --rotate-size 1GB
    """
    if mend:
        Console(stderr=True, soft_wrap=True, highlight=False).print(recover(path), markup=False)
        return
    now = time.time()
    settings = fleet_settings(config, fleet, servers)
    streams = streams_of(settings.names, kind or (), lane or ())
    since_us = parse_since(since, now)
    wanted = Wanted(streams, parse_slices(offsets or (), streams), since_us, parse_until(until, since_us, now))
    selection = Selection(
        kinds=tuple(kind or ()),
        lanes=tuple(lane or ()),
        agents=tuple(agent or ()),
        since_us=since_us,
        until_us=wanted.until_us,
        sample=sample,
    )
    keep = Keep(selection, load_redaction(redact) if redact is not None else None)
    target = Target(path)
    with Reporter(f"recording {settings.name}") as reporter:
        report = ask_cluster(record(settings, wanted, keep, target, reporter, seconds))
    recording = Recording.open(path)
    if as_json:
        sys.stdout.write(json.dumps(line_of(path, report, recording)) + "\n")
    else:
        Console().print(table_of(path, report, recording))
    if report.deleted:
        raise typer.Exit(1)
