"""`fleet model show|check|pack`: look at a model package, prove that it works here, complete one you wrote.

Off the hot path. `show` reads the manifest and needs no torch; `check` loads the package the way a worker
does and adds what a worker has no time for; `pack` writes hashes and golden pairs. Exit codes: 0 fine, 4 the
package is not.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from topics.tensors import TensorSpec
from workers.models.fields import shown
from workers.models.package import Manifest, read_manifest

if TYPE_CHECKING:
    from workers.models import Model
    from workers.models.invariance import Invariance

app = typer.Typer(no_args_is_help=True, help="Look at, check and complete model packages.")

Package = Annotated[Path, typer.Argument(help="Directory with manifest.json.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Device = Annotated[str, typer.Option(help="Where to run it: cpu, cuda, cuda:1.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads of one CPU forward pass.")]
Factory = Annotated[
    list[str] | None,
    typer.Option("--factory", help="Allow this package.module:function to build the model; repeatable."),
]

TIMED_RUNS = 50  # the median of so few still moves by a few per cent; it is an orientation, not a benchmark

_console = Console(highlight=False, soft_wrap=True)


@app.command()
def show(package: Package, as_json: AsJson = False) -> None:
    """Show what the package says of itself. Loads nothing."""
    manifest = read_manifest(package)
    if as_json:
        _console.print_json(json.dumps(asdict(manifest)))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for key, value in _facts(manifest):
        table.add_row(f"[bold]{key}[/]", escape(value))
    _console.print(table)


@app.command()
def check(
    package: Package,
    device: Device = "cpu",
    threads: Threads = 1,
    factory: Factory = None,
    as_json: AsJson = False,
) -> None:
    """Load it as a worker would (hashes, weights, golden pairs), then time every bucket and look whether a
    row's answer depends on the batch around it."""
    from workers.models import load_model
    from workers.models.invariance import measure_invariance

    model = load_model(package, device=device, factories=factory or (), threads=threads)
    model.warm_up()
    forward_us = {rows: _median_us(model, rows) for rows in model.manifest.buckets}
    invariance = measure_invariance(model)
    if as_json:
        report = {"name": model.manifest.name, "version": model.manifest.version, "device": model.device}
        report |= {"forward_us": forward_us, "invariance": asdict(invariance)}  # type: ignore[dict-item]
        _console.print_json(json.dumps(report))
        return
    golden = "golden pairs match" if model.manifest.golden else "no golden pairs (`fleet model pack` makes some)"
    _console.print(f"[green]✓[/] {model.manifest} on {model.device}: hashes and weights fit, {golden}")
    for rows, took_us in forward_us.items():
        _console.print(f"  batch of {rows:>5}  {took_us:9.1f} µs  {took_us / rows:8.2f} µs a decision")
    _console.print(_verdict(invariance))


@app.command()
def pack(package: Package, factory: Factory = None) -> None:
    """Write the hashes of its files and the golden pairs that it gives now into the package."""
    from workers.models.pack import pack as pack_package

    manifest = pack_package(package, factories=factory or ())
    _console.print(f"[green]✓[/] packed {manifest} in {package}, {len(manifest.files)} files hashed")


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    backend = manifest.backend
    training = ", ".join(f"{key} {value}" for key, value in manifest.training.items())
    return [
        ("model", str(manifest)),
        ("environment", manifest.environment or "–"),
        ("inputs", _tensors(manifest.inputs)),
        ("outputs", _tensors(manifest.outputs)),
        ("buckets", " ".join(map(str, manifest.buckets))),
        ("compute", manifest.compute or "as the factory builds it"),
        ("not finite", f"inputs {'let through' if manifest.allow_nan else 'rejected'}, "
                       f"outputs {'a fault' if manifest.finite else 'let through'}"),
        ("fallback", "–" if manifest.fallback is None else f"action {shown(manifest.fallback)} for states that expire"),
        ("backend", f"{backend.kind}, factory {backend.factory} {dict(backend.arguments)}"),
        ("training", training or "–"),
        ("files", ", ".join(f"{name} {sha256[:12]}…" for name, sha256 in manifest.files.items())),
        ("digest", manifest.digest),
    ]  # fmt: skip  # as a table


def _tensors(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(f"{spec.name} {spec}" for spec in specs)


def _median_us(model: Model, rows: int) -> float:
    inputs: dict[str, Any] = {spec.name: np.zeros((rows, *spec.shape), spec.numpy) for spec in model.manifest.inputs}
    took = []
    for _ in range(TIMED_RUNS):
        begun = time.perf_counter()
        model.predict(inputs)
        took.append(time.perf_counter() - begun)
    return float(np.median(took) * 1e6)


def _verdict(seen: Invariance) -> str:
    if seen.exact:
        return f"[green]✓[/] {seen.answers} answers, the same bits at every place in every bucket"
    advice = 'set "compute": "float64" or a single bucket if answers must not depend on their batch'
    return (
        f"[yellow]![/] {seen.differing} of {seen.answers} answers change with their place in the batch, "
        f"by up to {seen.largest:.1e}; {seen.flips} whole numbers flip; {advice}"
    )
