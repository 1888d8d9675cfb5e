"""`fleet replay RECORDING`: recorded states go to a fleet again, in time, and its answers are recorded beside them.

Exit codes: 0 sent in time and all answered; 1 something is missing, or it was stopped by the brokers; 2 a wrong call or
setting; 3 no cluster or topic; 4 the sender did not keep up, so the timing proves nothing; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from tools.dead.filters import WrongCall, parse_lane, parse_time
from tools.dead.progress import LateBar
from tools.options import Config, Fleet, Servers, ask_cluster, fleet_settings
from tools.recording.read import Recording
from tools.replay import run
from tools.replay.bookmark import BookmarkFile, Job
from tools.replay.outcome import NAMED, Outcome
from tools.replay.plan import plan
from tools.replay.rewrite import RUN_BYTES
from tools.replay.schedule import parse_copies, parse_speed
from topics.settings import FleetSettings

RecordingPath = Annotated[Path | None, typer.Argument(metavar="RECORDING", help="A .mcap file, or a folder of them.")]
Speed = Annotated[str, typer.Option("--speed", help="0.1 to 100 times the recorded speed, or max.")]
Loop = Annotated[int, typer.Option("--loop", help="Send the whole so many times.", min=1, max=1_000_000)]
Multiply = Annotated[str, typer.Option("--agents", help="So many agents for each recorded one, such as x4, for load.")]
From = Annotated[str | None, typer.Option("--from", help="Recorded at or after: an ISO date, or 30m, 2h, 7d ago.")]
To = Annotated[str | None, typer.Option("--to", help="Recorded before: an ISO date, or 30m, 2h, 7d ago.")]
Lanes = Annotated[list[str] | None, typer.Option("--lane", help="Only these lanes: high, normal, low.")]
Agents = Annotated[list[str] | None, typer.Option("--agent", help="Only these agents (globs; may be repeated).")]
Sample = Annotated[float, typer.Option("--sample", help="Only this share of the agents, by hash.", min=1e-6, max=1.0)]
Rekey = Annotated[bool, typer.Option("--rekey", help="Partitions by key, as agents choose them, not as recorded.")]
Out = Annotated[Path | None, typer.Option("--out", help="Recording of states and answers (default: replay-….mcap).")]
NoAnswers = Annotated[bool, typer.Option("--no-answers", help="Only send; wait for no answers, record nothing.")]
Wait = Annotated[float, typer.Option("--wait-s", help="Stop when no answer has come for so long.", min=0.0)]
MaxLate = Annotated[float, typer.Option("--max-late-ms", help="A run is invalid if p99 of lateness is above.", min=0.1)]
Resume = Annotated[Path | None, typer.Option("--resume", help="Go on with a replay that was cut off: its bookmark.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be sent, and what changes; send nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Also to a fleet that is live, or that was recorded.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs.")]


def command(
    recording: RecordingPath = None,
    speed: Speed = "1",
    loop: Loop = 1,
    agents: Multiply = "x1",
    from_: From = None,
    to: To = None,
    lane: Lanes = None,
    agent: Agents = None,
    sample: Sample = 1.0,
    rekey: Rekey = False,
    out: Out = None,
    no_answers: NoAnswers = False,
    wait_s: Wait = 30.0,
    max_late_ms: MaxLate = 5.0,
    resume: Resume = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    config: Config = None,
    fleet: Fleet = None,
    servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Send recorded states to a fleet again, when they are due, and record its answers.

    Example: fleet replay incident.mcap --fleet staging --speed 2
    """
    settings = fleet_settings(config, fleet, servers)
    if resume is not None:
        if recording is not None:
            raise WrongCall(f"--resume {resume} names its recording itself: leave out {recording}")
        _tell(*_resume(settings, resume), as_json=as_json)
    if recording is None:
        raise WrongCall("no RECORDING: name a .mcap file or a folder of them")
    out = out or Path(datetime.now(UTC).strftime("replay-%Y%m%dT%H%M%SZ.mcap"))
    now = time.time()
    job = Job(
        recording=str(recording.absolute()),
        run=os.urandom(RUN_BYTES).hex(),
        fleet=settings.names.fleet,
        cluster="",
        speed=parse_speed(speed),
        loops=loop,
        copies=parse_copies(agents),
        rekey=rekey,
        lanes=tuple(map(parse_lane, lane or ())),
        agents=tuple(agent or ()),
        since_us=None if from_ is None else parse_time("--from", from_, now),
        until_us=None if to is None else parse_time("--to", to, now),
        sample=sample,
        out=None if no_answers else str(out.absolute()),
        answers_within_s=wait_s,
        max_late_ms=max_late_ms,
    )
    if job.since_us is not None and job.until_us is not None and job.since_us >= job.until_us:
        raise WrongCall(f"--from {from_} must be before --to {to}")
    opened = Recording.open(recording)
    if dry_run:
        _rehearse(settings, job, opened, as_json)
        return
    _require_free(out)
    with LateBar("replaying") as bar:
        begun = run.begin(settings, job, opened, out.with_suffix(".resume"), yes=yes, progress=bar)
        outcome = ask_cluster(begun)
    _tell(outcome, opened, as_json=as_json)


def _resume(settings: FleetSettings, bookmark: Path) -> tuple[Outcome, Recording]:
    file = BookmarkFile.open(bookmark, new=False)
    with contextlib.closing(file), LateBar("replaying") as bar:
        mark = file.read()
        opened = Recording.open(Path(mark.job.recording))
        if mark.job.out is not None:
            _put_aside(Path(mark.job.out))
        return ask_cluster(run.resume(settings, file, mark, opened, bar)), opened


def _put_aside(out: Path) -> None:
    """The recording of the run that was cut off stays, under a name of its own: the new one reads all of it again."""
    if out.exists():
        number = next(number for number in count(1) if not out.with_name(f"{out.stem}.part{number}.mcap").exists())
        out.rename(out.with_name(f"{out.stem}.part{number}.mcap"))


def _require_free(out: Path) -> None:
    if out.exists():
        raise WrongCall(f"--out {out} is there: name another file, nothing is overwritten")


def _rehearse(settings: FleetSettings, job: Job, recording: Recording, as_json: bool) -> None:
    found = plan(recording, job, ask_cluster(run.look_at(settings)))
    if as_json:
        sys.stdout.write(json.dumps(found.line()) + "\n")
        return
    for line in found.lines():
        _say(line)


def _tell(outcome: Outcome, recording: Recording, *, as_json: bool) -> NoReturn:
    outcome.names = run.names_of(recording, outcome.job, outcome.missing if as_json else outcome.missing[:NAMED])
    if as_json:
        sys.stdout.write(json.dumps(outcome.line()) + "\n")
    else:
        for line in outcome.lines():
            _say(line)
    raise typer.Exit(outcome.exit_code)


def _say(line: str) -> None:
    Console(soft_wrap=True, highlight=False).print(line, markup=False)
