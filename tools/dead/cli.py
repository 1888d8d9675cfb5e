"""`fleet dead list|show|count|redrive`: what could not be served, why, and a second chance for it.

Exit codes: 0 done; 1 something that matched could not be sent, or another redrive runs; 2 a wrong call or setting;
3 no cluster or topic.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from tools.dead import show as shown
from tools.dead.filters import Filters, parse_filters, parse_letter, parse_rate
from tools.dead.progress import LateBar
from tools.dead.redrive import Pace, Report
from tools.dead.resend import Resend, Unsendable
from tools.dead.work import Wanted, find, read_one, redrive, rehearse
from tools.options import Config, Fleet, Servers, ask_cluster, fleet_settings
from topics.settings import FleetSettings

app = typer.Typer(no_args_is_help=True, help="Look at dead letters, and send them again.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs, one object a line.")]
Reasons = Annotated[list[str] | None, typer.Option("--reason", help="Only these reasons (globs; may be repeated).")]
Agents = Annotated[list[str] | None, typer.Option("--agent", help="Only these agents (globs; may be repeated).")]
Lanes = Annotated[list[str] | None, typer.Option("--lane", help="Only from these lanes: high, normal, low.")]
Since = Annotated[str | None, typer.Option("--since", help="Failed at or after: 30m, 2h, 7d, or an ISO date.")]
Until = Annotated[str | None, typer.Option("--until", help="Failed before: 30m, 2h, 7d, or an ISO date.")]
Newest = Annotated[int | None, typer.Option("--limit", help="Only the newest so many (default: 50; JSON: all).", min=1)]
Limit = Annotated[int | None, typer.Option("--limit", help="Send the oldest so many at most.", min=1)]
Rate = Annotated[str | None, typer.Option("--rate", help="Letters per second, such as 50/s (default: no limit).")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be sent; send and note nothing.")]
Again = Annotated[bool, typer.Option("--again", help="Send also what was redriven before.")]

SHOWN_LETTERS = 50
"""What a person reads; programs get all."""


@app.command("list")
def list_(
    reason: Reasons = None,
    agent: Agents = None,
    lane: Lanes = None,
    since: Since = None,
    until: Until = None,
    limit: Newest = None,
    config: Config = None,
    fleet: Fleet = None,
    servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """List letters, oldest first.

    Example: fleet dead list --reason wrong_input --since 2h
    """
    settings, filters = fleet_settings(config, fleet, servers), _filters(reason, agent, lane, since, until)
    with LateBar("reading") as bar:
        found = ask_cluster(find(settings, filters, bar))
    newest = limit or (len(found.letters) if as_json else SHOWN_LETTERS)
    letters = sorted(found.letters, key=lambda letter: letter.failure.time_us)[-newest:]
    if as_json:
        _lines(shown.line_of(letter, settings.names, found) for letter in letters)
        return
    where = f"{settings.names.dead} on {settings.kafka.bootstrap_servers}"
    if not letters:
        _say(f"no letter matches in {where}" if filters != Filters() else f"no letters in {where}")
        return
    title = f"{len(letters)} of {len(found.letters)} letters in {where}"
    Console().print(shown.table_of(found, letters, settings.names, title))


@app.command()
def show(
    letter: Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="As `fleet dead list` shows it.")],
    config: Config = None,
    fleet: Fleet = None,
    servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Show everything about one letter: why, where from, its history, its headers and its value.

    Example: fleet dead show 0:17
    """
    partition, offset = parse_letter(letter)
    settings = fleet_settings(config, fleet, servers)
    found = ask_cluster(read_one(settings, partition, offset))
    if as_json:
        _lines([shown.sheet_line(found, settings.names)])
        return
    Console(soft_wrap=True).print(shown.sheet_of(found, settings.names))


@app.command()
def count(
    reason: Reasons = None,
    agent: Agents = None,
    lane: Lanes = None,
    since: Since = None,
    until: Until = None,
    config: Config = None,
    fleet: Fleet = None,
    servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Count letters by reason and lane.

    Example: fleet dead count --since 1d
    """
    settings, filters = fleet_settings(config, fleet, servers), _filters(reason, agent, lane, since, until)
    with LateBar("reading") as bar:
        found = ask_cluster(find(settings, filters, bar))
    counts = shown.counts_of(found, settings.names)
    if as_json:
        _lines(counts)
        return
    title = f"{len(found.letters)} letters in {settings.names.dead} on {settings.kafka.bootstrap_servers}"
    Console().print(shown.count_table(counts, title) if counts else title)


@app.command("redrive")
def redrive_(
    reason: Reasons = None,
    agent: Agents = None,
    lane: Lanes = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    again: Again = False,
    config: Config = None,
    fleet: Fleet = None,
    servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Send letters to their lanes again. If it is cut off, the same command goes on where it stopped.

    Example: fleet dead redrive --reason model_error --since 1d --rate 50/s
    """
    filters = _filters(reason, agent, lane, since, until)
    wanted = Wanted(filters, limit, again, Pace(parse_rate(rate) if rate is not None else None))
    settings = fleet_settings(config, fleet, servers)
    if dry_run:
        _rehearse(settings, wanted, as_json)
        return
    with LateBar("reading") as reading, LateBar("sending") as sending:
        report, left_out = ask_cluster(
            redrive(
                settings,
                wanted,
                say=_complain,
                on_sent=_print_sent if as_json else lambda _batch: None,
                on_reading=reading,
                on_sending=sending,
            )
        )
    _tell(report, left_out, as_json)
    raise typer.Exit(1 if report.unsendable or report.unknown else 0)


def _rehearse(settings: FleetSettings, wanted: Wanted, as_json: bool) -> None:
    with LateBar("reading") as bar:
        would, cannot, left_out, perhaps = ask_cluster(rehearse(settings, wanted, bar))
    if as_json:
        _lines(shown.resend_line(one, "would_send") for one in would)
        _lines(map(shown.unsendable_line, cannot))
        return
    for topic in dict.fromkeys(one.topic for one in would):
        _say(f"would send {sum(one.topic == topic for one in would)} letters to {topic}")
    if not would:
        _say("would send nothing")
    doubtful = sum((one.letter.partition, one.letter.offset) in perhaps for one in would)
    if doubtful:
        _say(f"{doubtful} of them may have been sent already by a redrive that was cut off; the next one finds out")
    _tell_left(cannot, left_out)


def _tell(report: Report, left_out: int, as_json: bool) -> None:
    for run, (sent, of) in report.resumed.items():
        _complain(f"redrive {run} had been cut off: {sent} of the {of} letters of its last batch had been sent")
    if report.unknown:
        unknown = ", ".join(f"{partition}:{offset}" for partition, offset in report.unknown[:10])
        more = f" and {len(report.unknown) - 10} more" if len(report.unknown) > 10 else ""
        _complain(
            f"{len(report.unknown)} letters may or may not have been sent by it, the lanes have deleted what would "
            f"tell: {unknown}{more}; send them with --again if their states have no answer"
        )
    if as_json:
        _lines(map(shown.unsendable_line, report.unsendable))
        return
    _say(f"sent {report.sent} letters again")
    _tell_left(report.unsendable, left_out)


def _tell_left(unsendable: Sequence[Unsendable], left_out: int) -> None:
    if left_out:
        _say(f"left out {left_out} that were redriven before (--again sends them too)")
    for one in unsendable[:10]:
        _say(f"cannot send {one.letter.id}: {shown.clean(one.why)}")
    if len(unsendable) > 10:
        _say(f"cannot send {len(unsendable) - 10} more (--json lists them)")


def _print_sent(batch: Sequence[Resend]) -> None:
    _lines(shown.resend_line(one, "sent") for one in batch)


def _filters(
    reason: list[str] | None, agent: list[str] | None, lane: list[str] | None, since: str | None, until: str | None
) -> Filters:
    return parse_filters(reason or (), agent or (), lane or (), since, until, time.time())


def _lines(objects: Iterable[dict[str, Any]]) -> None:
    for one in objects:
        sys.stdout.write(json.dumps(one) + "\n")
    sys.stdout.flush()


def _say(line: str) -> None:
    Console(soft_wrap=True, highlight=False).print(line, markup=False)


def _complain(line: str) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(line, markup=False)
