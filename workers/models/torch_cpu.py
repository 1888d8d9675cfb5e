"""One batch on the CPU: rows in, padded with zeros, one forward pass, rows out.

On the hot path once per batch. The cast to the manifest's `compute` dtype happens in the copy into the
padded buffer, where it costs nothing extra.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from topics.tensors import Array
from workers.models.arrays import array_of
from workers.models.forward import Forward, staged_dtype
from workers.models.package import Manifest


class CpuBucket:
    """Buffers and forward pass for exactly `rows` rows."""

    def __init__(self, manifest: Manifest, rows: int, forward: Forward) -> None:
        self.rows = rows
        self._forward = forward
        self._tensors = tuple(
            torch.zeros(rows, *spec.shape, dtype=staged_dtype(spec, manifest.compute)) for spec in manifest.inputs
        )
        names = (spec.name for spec in manifest.inputs)
        self._staging = tuple(zip(names, map(array_of, self._tensors), strict=True))
        self._outputs = tuple((spec.name, spec.numpy) for spec in manifest.outputs)
        self._last: tuple[Tensor, ...] = ()
        self._last_arrays: tuple[Array, ...] = ()

    def run(self, inputs: Mapping[str, Array], n: int) -> dict[str, Array]:
        """Outputs [n, *shape] by name for inputs [n, *shape] by name, n ≤ `rows`."""
        for name, staging in self._staging:
            staging[:n] = inputs[name]
            if n < self.rows:
                staging[n:] = 0
        with torch.inference_mode():
            outputs = self._forward(*self._tensors)
        if outputs is not self._last:  # a bound forward pass gives the same tensors every time
            self._last, self._last_arrays = outputs, tuple(map(array_of, outputs))
        return {
            name: array[:n].astype(dtype, order="C")
            for (name, dtype), array in zip(self._outputs, self._last_arrays, strict=True)
        }
