"""`fleet tune`: from a target to settings, on simulated time; `--check` runs what it recommends.

Exit codes: 0 found (and the check met the target), 1 the target is out of reach or missed, 2 a wrong call.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tools.bench.rig import SHIPPED_MODEL, bench_settings
from tools.bench.show import Show
from tools.tune import live, report
from tools.tune.bounds import check_possible
from tools.tune.curve import Curve, measured_curve, simulated_curve
from tools.tune.fleet import Fleet
from tools.tune.round_trip import given
from tools.tune.search import Found, Most, as_set, search
from tools.tune.target import by_lane, make_target
from tools.tune.traffic import Traffic, poisson, recorded
from tools.tune.write import as_toml, require_alike, require_free, tuned, write
from topics.errors import SettingsError
from topics.settings import describe, load_settings
from workers.models.package import read_manifest
from workers.models.simulated import SIMULATED
from workers.settings import Settings

SIMULATED_PREDICTORS = 4
"""Most simulated devices of a worker that are tried, unless --max-predictors says otherwise."""


def command(
    p99: Annotated[str, typer.Option("--p99", help="Targets in ms by lane: high=20,normal=50.")],
    rate: Annotated[str | None, typer.Option(help="States/s by lane: high=50,normal=800,low=200.")] = None,
    recording: Annotated[Path | None, typer.Option(help="Recorded states instead of --rate.")] = None,
    speed: Annotated[float, typer.Option(min=0.01, help="Times as many states/s as recorded.")] = 1.0,
    agents: Annotated[int, typer.Option(min=1, help="Agents in each lane, with --rate.")] = 512,
    model: Annotated[Path | None, typer.Option(help="Model package; default: the shipped CartPole policy.")] = None,
    simulated: Annotated[str | None, typer.Option(help="A device instead: µs a batch + µs a row, 2000+500.")] = None,
    max_workers: Annotated[int, typer.Option(min=1, help="Most workers to try.")] = 8,
    max_predictors: Annotated[int | None, typer.Option(min=1, help="Most predictors of a worker to try.")] = None,
    round_trip_ms: Annotated[
        float | None, typer.Option(min=0, help="Of client and broker; default: measured on a broker here.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Of each run on a broker.")] = 10.0,
    only_set: Annotated[bool, typer.Option("--as-set", help="Look at the settings in force, in one worker.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Run the recommended fleet here, and compare.")] = False,
    write_file: Annotated[Path | None, typer.Option("--write", help="Write the settings to this TOML file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="With --write: replace the file.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write p99 by rate to this SVG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
    servers: Annotated[str | None, typer.Option("--bootstrap-servers", help="A cluster that runs.")] = None,
) -> None:
    """Find batch settings, predictors and workers for a target.

    Example: fleet tune --p99 high=20,normal=50 --rate high=50,normal=800,low=200
    """
    limits_ms, traffic = by_lane(p99, "--p99", "ms"), _traffic(rate, recording, speed, agents)
    if write_file is not None:
        require_free(write_file, force=force)
    console, show = Console(stderr=as_json, soft_wrap=True), Show(Console(stderr=True))
    on_broker = check or round_trip_ms is None
    with _settings(model, simulated, servers, console, on_broker=on_broker) as settings:
        target, like = make_target(limits_ms, traffic.rate_per_s), require_alike(settings)
        curve = _curve(settings, show)
        trip = live.round_trip(settings, traffic, seconds, show) if round_trip_ms is None else given(round_trip_ms)
        fleet = Fleet(settings, curve, traffic, trip, target)
        predictors = max_predictors or (SIMULATED_PREDICTORS if like.device == SIMULATED else 1)
        found = _found(fleet, Most(min(max_workers, settings.topics.partitions), predictors), show, only_set=only_set)
        chosen = settings if only_set else tuned(settings, found.best.candidate)
        report.show_found(console, fleet, found)
        if write_file is not None:
            write(write_file, as_toml(chosen, found.best.candidate, target, model), "--write")
            console.print(f"settings written to {write_file}")
        if plot is not None:
            write(plot, report.svg(fleet, found), "--plot")
        measured = live.check(chosen, found.best.candidate, traffic, seconds, show) if check else None
    if measured is not None:
        report.show_check(console, fleet, found, measured)
    if as_json:
        sys.stdout.write(json.dumps(report.as_dict(fleet, found, measured), indent=2) + "\n")
    if not report.met(fleet, found, measured):
        raise typer.Exit(1)


def _curve(settings: Settings, show: Show) -> Curve:
    """Measured under a bar; what a simulated device takes is known."""
    if settings.predictors[0].device == SIMULATED:
        return simulated_curve(settings)
    with show.bar("batches of every size", len(read_manifest(settings.model.path).buckets)) as on_bucket:
        return measured_curve(settings, on_bucket)


def _found(fleet: Fleet, most: Most, show: Show, *, only_set: bool) -> Found:
    if only_set:
        return as_set(fleet, show.bar)
    check_possible(fleet, most)
    return search(fleet, most, show.bar)


def _traffic(rate: str | None, recording: Path | None, speed: float, agents: int) -> Traffic:
    if (rate is None) == (recording is None):
        raise SettingsError("fleet tune takes either --rate or --recording: the rates are those of the recording")
    if recording is not None:
        found = recorded(recording)
        return found if speed == 1 else found.times(speed)
    assert rate is not None, "one of the two is given"
    return poisson(by_lane(rate, "--rate", "states/s"), agents)


@contextmanager
def _settings(
    model: Path | None, simulated: str | None, servers: str | None, console: Console, *, on_broker: bool
) -> Iterator[Settings]:
    """The settings in force, of a fleet of its own; with a cluster where one is needed."""
    special = {"predictors": [_device(simulated)]} if simulated is not None else {}
    if on_broker:
        with bench_settings("tune", model, servers, console, special) as settings:
            yield settings
        return
    overrides: dict[str, Any] = {"model": {"path": model}, **special}
    settings = load_settings(Settings, overrides=overrides)
    if all(shown.source == "default" for shown in describe(settings) if shown.key == "model.path"):
        settings = load_settings(Settings, overrides=overrides | {"model": {"path": SHIPPED_MODEL}})
    yield settings


def _device(text: str) -> dict[str, Any]:
    """A predictor on a simulated device, from "2000+500"."""
    batch, _, row = text.partition("+")
    try:
        device = {"batch_us": float(batch), "row_us": float(row)}
    except ValueError:
        raise SettingsError(f"--simulated is {text!r}, expected µs a batch + µs a row, such as 2000+500") from None
    return {"device": SIMULATED, "simulated": device}
