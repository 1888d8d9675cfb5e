"""One batch on a CUDA device: pinned buffers, one stream, one wait.

On the hot path once per batch. Copies in, forward pass and copies out are queued on the model's own stream
and the host waits for the event behind them, once: nothing else synchronises, and two models on one device
do not wait for each other. Inputs travel in the manifest's dtype and are cast on the device, so that the bus
carries as little as possible.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from topics.tensors import Array, TensorSpec
from workers.models.arrays import TORCH_DTYPES, array_of
from workers.models.forward import Forward, staged_dtype
from workers.models.package import Manifest


class CudaBucket:
    """Buffers and forward pass for exactly `rows` rows, on the device of `stream`."""

    def __init__(self, manifest: Manifest, rows: int, forward: Forward, stream: torch.cuda.Stream) -> None:
        self.rows = rows
        self._forward = forward
        self._stream = stream
        self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._staging = tuple(_pinned(rows, spec) for spec in manifest.inputs)
        self._staged_arrays = tuple(
            (spec.name, array_of(staging)) for spec, staging in zip(manifest.inputs, self._staging, strict=True)
        )
        self._on_device = tuple(torch.empty_like(staging, device=stream.device) for staging in self._staging)
        self._dtypes = tuple(staged_dtype(spec, manifest.compute) for spec in manifest.inputs)
        self._landing = tuple(_pinned(rows, spec) for spec in manifest.outputs)
        self._landed_arrays = tuple(
            (spec.name, array_of(landing)) for spec, landing in zip(manifest.outputs, self._landing, strict=True)
        )

    def run(self, inputs: Mapping[str, Array], n: int) -> dict[str, Array]:
        """Outputs [n, *shape] by name for inputs [n, *shape] by name, n ≤ `rows`."""
        for name, staged in self._staged_arrays:
            staged[:n] = inputs[name]
            if n < self.rows:
                staged[n:] = 0
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            self._queue()
            self._done.record(self._stream)
        self._done.synchronize()
        return {name: landed[:n].copy() for name, landed in self._landed_arrays}

    def _queue(self) -> None:
        """Put the whole batch on the stream; returns before any of it has run."""
        for staging, tensor in zip(self._staging, self._on_device, strict=True):
            tensor.copy_(staging, non_blocking=True)
        casts = (tensor.to(dtype) for tensor, dtype in zip(self._on_device, self._dtypes, strict=True))
        outputs = self._forward(*casts)
        for landing, output in zip(self._landing, outputs, strict=True):
            landing.copy_(output.to(landing.dtype), non_blocking=True)


def _pinned(rows: int, spec: TensorSpec) -> Tensor:
    """Host memory the device reads and writes by itself, zeroed; [rows, *shape]."""
    return torch.zeros(rows, *spec.shape, dtype=TORCH_DTYPES[spec.dtype], pin_memory=True)
