"""A package becomes a model: every hash checked, the module built and filled, the golden pairs played on the
device.

Called once per predictor before the worker joins its groups. Takes a package directory and a device, gives a
`Model`; everything that can be wrong raises `ModelError`. torch is imported here only when a package asks
for it; another backend gets a module of its own and a line in `_backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from workers.models.errors import ModelError
from workers.models.files import read_verified
from workers.models.golden import check_golden, read_golden
from workers.models.model import Model
from workers.models.package import Manifest, read_manifest

BACKENDS = ("torch",)


def load_model(path: Path, *, device: str = "cpu", factories: Sequence[str] = (), threads: int | None = None) -> Model:
    """The package at `path` on `device` ("cpu", "cuda", "cuda:1"), checked and ready for `warm_up`.

    `factories` are the operator's own ("package.module:function") that manifests may name. `threads` is how
    many threads one CPU forward pass may use; None leaves torch's choice, one per core. Raises `ModelError`.
    """
    manifest = read_manifest(path)
    model = load_unproven(path, manifest, device=device, factories=factories, threads=threads)
    if manifest.golden:
        name = manifest.golden.file
        golden = read_golden(path, manifest, name, manifest.files[name])
        check_golden(golden, model.predict, manifest, manifest.golden)
    return model


def load_unproven(
    path: Path, manifest: Manifest, *, device: str, factories: Sequence[str] = (), threads: int | None = None
) -> Model:
    """`load_model` without the golden pairs: for whoever is about to make them. Every hash is checked."""
    data = {name: read_verified(path, name, sha256) for name, sha256 in manifest.files.items()}
    weights = manifest.backend.weights
    return _backend(manifest)(manifest, data[weights], str(path / weights), device, factories, threads)


def _backend(manifest: Manifest) -> Callable[[Manifest, bytes, str, str, Sequence[str], int | None], Model]:
    if manifest.backend.kind == "torch":
        from workers.models.torch_backend import load_torch

        return load_torch
    raise ModelError(
        f'{manifest}: backend.kind is "{manifest.backend.kind}", expected one of {", ".join(BACKENDS)}; '
        "a newer fleet may know it"
    )
