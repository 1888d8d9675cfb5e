"""Made-up inputs of a model: for golden pairs and for `fleet model check`. Never on the path of a record."""

from __future__ import annotations

import numpy as np

from topics.tensors import Array, TensorSpec
from workers.models.package import Manifest


def sample_inputs(manifest: Manifest, rows: int, seed: int) -> dict[str, Array]:
    """`rows` random rows of every input: floats normal, bytes and bools over their range, other integers 0
    to 7 (an integer input is mostly an index, and small ones are the likeliest to exist)."""
    rng = np.random.default_rng(seed)
    return {spec.name: _sample(spec, rows, rng) for spec in manifest.inputs}


def _sample(spec: TensorSpec, rows: int, rng: np.random.Generator) -> Array:
    shape = (rows, *spec.shape)
    if spec.dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if spec.dtype == "uint8":
        return rng.integers(0, 256, shape, np.uint8)
    if spec.numpy.kind in "iu":
        return rng.integers(0, 8, shape).astype(spec.numpy)
    return rng.standard_normal(shape).astype(spec.numpy)
