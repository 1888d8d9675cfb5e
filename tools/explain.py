"""`fleet worker --explain`: what a worker with these settings would choose on this machine, and why. Without Kafka.

Loads and warms up the models as the worker does, since what they take decides: where they run, how large batches get.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from workers.assembly import check_fits, make_limits, make_predictors, shares, start_predictors
from workers.costs import Costs
from workers.metrics import Metrics
from workers.models.package import read_manifest
from workers.predictors.predictor import Predictor
from workers.requests import NEVER
from workers.resources import Cpus, Share, oversubscribed, read_cpus
from workers.settings import PredictorSettings, Settings
from workers.slots import Limits


def explain(settings: Settings, *, as_json: bool) -> None:
    """Print it, as a table or as JSON. Raises what would end the worker's start."""
    found = asyncio.run(_found(settings))
    if as_json:
        Console(soft_wrap=True).print_json(json.dumps(found))
    else:
        _show(found)


async def _found(settings: Settings) -> dict[str, Any]:
    manifest = read_manifest(settings.model.path)
    check_fits(settings, manifest)
    cpus, parts, limits = read_cpus(), shares(settings), make_limits(settings, manifest)
    predictors = make_predictors(settings, Metrics(max_batch=limits.max_batch))
    await start_predictors(predictors)
    reserved = any(ours.reserved_for for ours in settings.predictors)
    rows = [
        _predictor(predictor, ours, part, limits, NEVER if reserved else limits.fast_pass_wait_us)
        for predictor, ours, part in zip(predictors, settings.predictors, parts, strict=True)
    ]
    for predictor in predictors:
        await predictor.stop(1.0)
    return {
        "model": str(manifest),
        "cpus": asdict(cpus) | {"usable": cpus.usable},
        "oversubscribed": oversubscribed(settings.predictors, parts, cpus),
        "batch": {"max_batch": limits.max_batch, "max_wait_ms": settings.batch.max_wait_ms, "sizes": limits.sizes},
        "predictors": rows,
    }


def _predictor(
    predictor: Predictor, ours: PredictorSettings, part: Share, limits: Limits, cut_us: int
) -> dict[str, Any]:
    costs = Costs(limits.sizes, predictor.warm_us)
    alpha_us, beta_us = costs.line()
    rows = costs.rows_within(limits.max_batch, cut_us)
    return {
        "name": predictor.name,
        "broken": predictor.broken,
        "role": "standby" if ours.standby else f"hot, for {ours.reserved_for} only" if ours.reserved_for else "hot",
        "runs_on": "event loop" if predictor.runs_on_loop else "thread",
        "cores": part.cores,
        "threads": part.threads,
        "why": part.why,
        "batch_us": round(alpha_us, 1),
        "row_us": round(beta_us, 2),
        "full_batch_us": costs.full_us,
        "rows_without_high": rows,
        "why_rows": _why_rows(rows, limits, costs, cut_us),
    }


def _why_rows(rows: int, limits: Limits, costs: Costs, cut_us: int) -> str:
    if cut_us == NEVER:
        return "a predictor is reserved for high: nobody else's batch is cut"
    wait = f"batch.fast_pass_wait_ms={cut_us / 1000:g}"
    if costs.batch_us(rows) <= cut_us:
        return f"{'cut to' if rows < limits.max_batch else 'full, and within'} {wait}"
    return f"longer than {wait}, but cut they would more than double the cost of a row: reserve a predictor for high"


def _show(found: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    cpus = Cpus(**{key: found["cpus"][key] for key in ("cores", "machine", "quota")})
    quota = f"a quota of {cpus.quota:g}" if cpus.quota else "no quota"
    console.print(f"[bold]{found['model']}[/], batches up to {found['batch']['max_batch']}, "
                  f"longest wait to fill {found['batch']['max_wait_ms']:g} ms")  # fmt: skip
    console.print(
        f"{len(cpus.cores)} of {cpus.machine} cores, {quota}: {cpus.usable:g} usable, one is the event loop's"
    )
    if found["oversubscribed"]:
        console.print(f"[yellow]![/] {found['oversubscribed']}")
    table = Table(box=None, pad_edge=False)
    for heading in ("predictor", "role", "runs on", "cores", "threads", "a batch takes", "rows without high"):
        table.add_column(heading)
    for row in found["predictors"]:
        took = (
            row["broken"]
            or f"{row['batch_us']:g} + {row['row_us']:g} µs a row, full {row['full_batch_us'] / 1000:g} ms"
        )
        cores = " ".join(map(str, row["cores"])) or "any"
        table.add_row(row["name"], row["role"], row["runs_on"], cores, str(row["threads"]), took,
                      str(row["rows_without_high"]))  # fmt: skip
    console.print(table)
    for row in found["predictors"]:
        console.print(f"{row['name']}: {row['threads']} threads: {row['why']}; "
                      f"{row['rows_without_high']} rows: {row['why_rows']}")  # fmt: skip
