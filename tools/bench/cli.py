"""`fleet bench`: measures a worker beside its floor on this machine, in one run, in turns.

Without a configured cluster each benchmark starts a Kafka of its own. Sender and measurer are this process; broker,
worker and bare loop are others.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tools.bench.arrivals import KINDS, Kind, parse_mix
from tools.bench.client import client as run_client
from tools.bench.closed import Plan as ClosedPlan
from tools.bench.closed import closed as run_closed
from tools.bench.device import FULL, QUICK, SLOW
from tools.bench.drain import drain as run_drain
from tools.bench.echo import echo as run_echo
from tools.bench.fill import fill as run_fill
from tools.bench.idle import idle as run_idle
from tools.bench.lanes import Plan as LanesPlan
from tools.bench.lanes import lanes as run_lanes
from tools.bench.long import long as run_long
from tools.bench.machine import bare_machine, machine
from tools.bench.open_loop import Plan as OpenPlan
from tools.bench.open_loop import open_loop as run_open
from tools.bench.peers.report import show_peers
from tools.bench.peers.results import as_dict as found_peers
from tools.bench.peers.run import Plan as PeersPlan
from tools.bench.peers.run import compare, install
from tools.bench.peers.systems import chosen
from tools.bench.record import record as run_record
from tools.bench.recording import recording as run_recording
from tools.bench.report import show_result
from tools.bench.results import Result
from tools.bench.rig import Rig, bench_settings, open_rig
from tools.bench.scale import Plan as ScalePlan
from tools.bench.scale import parse_counts
from tools.bench.scale import scale as run_scale
from tools.bench.show import Show
from tools.bench.traffic import Plan as TrafficPlan
from tools.bench.traffic import traffic as run_traffic
from topics.errors import FleetError, SettingsError

app = typer.Typer(no_args_is_help=True, help="Measure a worker beside the bare loop, in one run and in turns.")

Measure = Callable[[Rig, Show], Awaitable[Result]]

Model = Annotated[Path | None, typer.Option("--model", help="Model package; default: the shipped CartPole policy.")]
Servers = Annotated[
    str | None, typer.Option("--bootstrap-servers", help="A cluster that runs; default: one of our own.")
]
Json = Annotated[Path | None, typer.Option("--json", help="Write everything that was found to this file.")]
Rounds = Annotated[int, typer.Option(min=1, help="Pairs of runs: floor, worker, floor, worker, …")]
OnSimulated = Annotated[int, typer.Option("--rounds", min=1, help="How often everything is run, in turns.")]
Seconds = Annotated[float, typer.Option(min=1, help="Measured seconds of each run.")]
Agents = Annotated[int, typer.Option(min=1, help="Agents.")]
MixText = Annotated[str, typer.Option("--mix", help="Share of each lane.")]
Call = Annotated[int, typer.Option(min=1, help="Agents per call that sent the backlog; they share their times.")]
Records = Annotated[int, typer.Option(min=1000, help="States in the backlog; a run should take seconds.")]


@app.command()
def drain(
    records: Records = 200_000,
    call: Call = 64,
    rounds: Rounds = 3,
    model: Model = None,
    servers: Servers = None,
    json_file: Json = None,
) -> None:
    """A backlog through one worker, as fast as it can."""
    _bench({"drain": lambda rig, show: run_drain(rig, records, call, rounds, show)}, model, servers, json_file)


@app.command()
def closed(
    agents: Agents = 512,
    group: Annotated[int, typer.Option(min=1, help="Agents per call.")] = 64,
    seconds: Seconds = 10,
    rounds: Rounds = 3,
    mix: MixText = "normal=1",
    model: Model = None,
    servers: Servers = None,
    json_file: Json = None,
) -> None:
    """Agents that wait for their answer before they ask again."""
    plan = ClosedPlan(agents, group, seconds, rounds, parse_mix(mix))
    _bench({"closed": lambda rig, show: run_closed(rig, plan, show)}, model, servers, json_file)


@app.command("client")
def client_command(
    agents: Agents = 512,
    group: Annotated[int, typer.Option(min=1, help="Agents per call.")] = 64,
    seconds: Seconds = 10,
    rounds: Rounds = 3,
    model: Model = None,
    servers: Servers = None,
    json_file: Json = None,
) -> None:
    """The agents' own CPU with decide_many, beside a bare client."""
    plan = ClosedPlan(agents, group, seconds, rounds, {"normal": 1})
    _bench({"client": lambda rig, show: run_client(rig, plan, show)}, model, servers, json_file)


@app.command("open")
def open_command(
    rate: Annotated[float, typer.Option(min=1, help="States per second.")] = 1000,
    arrivals: Annotated[str, typer.Option(help="poisson or uniform.")] = "poisson",
    seconds: Seconds = 10,
    rounds: Rounds = 3,
    agents: Agents = 512,
    mix: MixText = "high=0.1,normal=0.7,low=0.2",
    seed: Annotated[int, typer.Option(help="Of the arrivals.")] = 1,
    model: Model = None,
    servers: Servers = None,
    json_file: Json = None,
) -> None:
    """States that arrive at a rate, whether or not answers come."""
    plan = OpenPlan(_kind(arrivals), rate, seconds, rounds, agents, parse_mix(mix), seed)
    _bench({"open": lambda rig, show: run_open(rig, plan, show)}, model, servers, json_file)


@app.command()
def echo(
    trips: Annotated[int, typer.Option(min=10, help="Round trips of each run.")] = 2000,
    rounds: Rounds = 3,
    model: Model = None,
    servers: Servers = None,
    json_file: Json = None,
) -> None:
    """One agent alone on the high lane, beside a raw aiokafka echo."""
    _bench({"echo": lambda rig, show: run_echo(rig, trips, rounds, show)}, model, servers, json_file)


@app.command()
def idle(seconds: Seconds = 20, model: Model = None, servers: Servers = None, json_file: Json = None) -> None:
    """CPU of a worker that nobody asks."""
    _bench({"idle": lambda rig, show: run_idle(rig, seconds, show)}, model, servers, json_file)


@app.command()
def run(
    rounds: Rounds = 2,
    seconds: Seconds = 6,
    records: Records = 150_000,
    model: Model = None,
    servers: Servers = None,
    json_file: Json = None,
) -> None:
    """A short set of all five, about four minutes."""
    closed_plan = ClosedPlan(512, 64, seconds, rounds, parse_mix("normal=1"))
    open_plan = OpenPlan("poisson", 1000, seconds, rounds, 512, parse_mix("high=0.1,normal=0.7,low=0.2"))
    measures: dict[str, Measure] = {
        "drain": lambda rig, show: run_drain(rig, records, 64, rounds, show),
        "closed": lambda rig, show: run_closed(rig, closed_plan, show),
        "open": lambda rig, show: run_open(rig, open_plan, show),
        "echo": lambda rig, show: run_echo(rig, 1000, rounds, show),
        "idle": lambda rig, show: run_idle(rig, seconds, show),
    }
    _bench(measures, model, servers, json_file)


@app.command()
def peers(
    only: Annotated[str | None, typer.Option("--only", help="Some of them, separated by commas.")] = None,
    records: Records = 200_000,
    seconds: Seconds = 6,
    rounds: Rounds = 2,
    agents: Agents = 512,
    model: Model = None,
    servers: Servers = None,
    json_file: Json = None,
) -> None:
    """The same job on FastStream, Quix Streams, faust, and behind HTTP on Ray, BentoML, LitServe, Mosec."""
    plan = PeersPlan(records, seconds, rounds, agents)
    console, show = Console(), Show(Console(stderr=True))
    systems = install(chosen(only), console)
    with bench_settings("peers", model, servers, console) as settings:

        async def measured() -> dict[str, Any]:
            gc.collect()
            gc.freeze()
            async with open_rig(settings) as rig:
                about = machine(settings, rig.manifest)
                await compare(rig, systems, plan, show)
                return {**found_peers([pairs for pairs, _ in systems], asdict(plan)), "machine": about}

        found = asyncio.run(measured())
    show_peers(console, found)
    if json_file is not None:
        _write(json_file, found)
    if failed := [pairs.system.name for pairs, _ in systems if pairs.failed]:
        raise FleetError(f"not measured: {', '.join(failed)}; the reasons stand above")


@app.command()
def lanes(
    seconds: Seconds = 5,
    rounds: OnSimulated = 1,
    reserved: Annotated[bool, typer.Option("--reserved", help="A second device, for the high lane alone.")] = False,
    servers: Servers = None,
    json_file: Json = None,
) -> None:
    """Simulated device: p99 of high while low is flooded."""
    plan = LanesPlan(seconds, rounds, reserved)
    special = QUICK.settings(reserved=reserved)
    _bench({"lanes": lambda rig, show: run_lanes(rig, plan, show)}, None, servers, json_file, special)


@app.command("arrivals")
def arrivals_command(
    load: Annotated[float, typer.Option(min=0.01, max=0.95, help="Share of the device's capacity.")] = 0.65,
    seconds: Seconds = 10,
    rounds: OnSimulated = 1,
    servers: Servers = None,
    json_file: Json = None,
) -> None:
    """Simulated device: Poisson beside uniform arrivals; a burst."""
    plan = TrafficPlan(seconds, rounds, load)
    _bench({"arrivals": lambda rig, show: run_traffic(rig, plan, show)}, None, servers, json_file, QUICK.settings())


@app.command()
def fill(seconds: Seconds = 8, rounds: OnSimulated = 1, servers: Servers = None, json_file: Json = None) -> None:
    """Simulated device: fill, busy share, CPU at 2 × max_batch."""
    _bench({"fill": lambda rig, show: run_fill(rig, seconds, rounds, show)}, None, servers, json_file, FULL.settings())


@app.command()
def scale(
    workers: Annotated[str, typer.Option(help="Numbers of workers, ascending.")] = "1,2,4,8",
    seconds: Seconds = 5,
    servers: Servers = None,
    json_file: Json = None,
) -> None:
    """Simulated devices: 1, 2, 4, 8 workers; one joins, one leaves."""
    plan = ScalePlan(parse_counts(workers), seconds)
    _bench({"scale": lambda rig, show: run_scale(rig, plan, show)}, None, servers, json_file, SLOW.settings())


def _kind(text: str) -> Kind:
    for kind in KINDS:
        if kind == text:
            return kind
    raise SettingsError(f"--arrivals is {text!r}, expected one of {', '.join(KINDS)}")


@app.command()
def plot(
    files: Annotated[list[Path], typer.Argument(metavar="JSON…", help="What other benchmarks wrote with --json.")],
    out: Annotated[Path, typer.Option(help="Folder for the pictures; those of the same name are replaced.")],
) -> None:
    """Pictures of what was found, as SVG (extra: plots).

    Example: fleet bench plot docs/results/*.json --out docs/plots
    """
    from tools.bench.plot import plot as plot_files

    for path in plot_files(files, out):
        Console(soft_wrap=True, highlight=False).print(str(path), markup=False)


@app.command("long")
def long_command(
    minutes: Annotated[float, typer.Option(min=0.2, help="How long.")] = 30,
    servers: Servers = None,
    json_file: Json = None,
) -> None:
    """Simulated device: half an hour at 60 % of its capacity; does anything drift?"""
    _bench({"long": lambda rig, show: run_long(rig, minutes * 60, show)}, None, servers, json_file, QUICK.settings())


@app.command()
def record(records: Records = 300_000, rounds: Rounds = 3, servers: Servers = None, json_file: Json = None) -> None:
    """A backlog through `fleet record` on one core."""
    _bench({"record": lambda rig, show: run_record(rig, records, rounds, show)}, None, servers, json_file)


@app.command()
def recording(
    records: Annotated[int, typer.Option(min=1000, help="Records of the made-up day.")] = 1_000_000,
    json_file: Json = None,
) -> None:
    """A day's recording written, planned and read. Needs no Kafka."""
    found = {**_found(asyncio.run(run_recording(records, Show(Console(stderr=True))))), "machine": bare_machine()}
    show_result(Console(), found)
    if json_file is not None:
        _write(json_file, found)


def _bench(
    measures: dict[str, Measure],
    model: Path | None,
    servers: str | None,
    json_file: Path | None,
    special: Mapping[str, Any] | None = None,
) -> None:
    """Run the benchmarks one after the other, show each, and write what was found even if a later one fails."""
    console, show = Console(), Show(Console(stderr=True))
    found: dict[str, dict[str, Any]] = {}
    try:
        for name, measure in measures.items():
            with bench_settings(name, model, servers, console, special) as settings:

                async def measured(measure: Measure = measure) -> dict[str, Any]:
                    gc.collect()
                    gc.freeze()  # what is loaded stays: the measurer's own pauses would look like the fleet's
                    async with open_rig(settings) as rig:
                        about = machine(settings, rig.manifest)
                        return {**_found(await measure(rig, show)), "machine": about}

                found[name] = asyncio.run(measured())
            show_result(console, found[name])
    finally:
        if json_file is not None and found:
            _write(json_file, found if len(measures) > 1 else next(iter(found.values())))


def _found(result: Result) -> dict[str, Any]:
    try:
        return result.as_dict()
    except ValueError as error:
        raise FleetError(f"{result.benchmark} found nothing to compare: {error}") from error


def _write(path: Path, found: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(found, indent=2) + "\n")
    except OSError as error:
        raise FleetError(f"--json {path} cannot be written: {error.strerror}") from error
