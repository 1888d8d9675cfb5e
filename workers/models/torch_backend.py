"""The torch backend: picks the bucket that a batch fits in and runs it there.

Called once per batch in the predictor's thread. Every bucket's buffers and forward pass exist before the
first batch, so a batch costs one copy in, the arithmetic, one copy out. Never decides batch sizes; never
looks at values.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import nn

from topics.tensors import Array
from workers.models.arrays import TORCH_DTYPES
from workers.models.errors import ModelError, OutOfMemory, one_line
from workers.models.factories import build
from workers.models.forward import forward_for, require_outputs
from workers.models.model import OnBucket, no_report
from workers.models.package import Manifest
from workers.models.torch_cpu import CpuBucket
from workers.models.torch_cuda import CudaBucket
from workers.models.weights import fill

WARM_UP_RUNS = 3  # the first allocates and picks kernels, the second may still tune, the third is what agents get


class Bucket(Protocol):
    """Buffers and forward pass for exactly `rows` rows."""

    rows: int

    def run(self, inputs: Mapping[str, Array], n: int) -> dict[str, Array]:
        """Outputs [n, *shape] by name for inputs [n, *shape] by name, n ≤ `rows`."""


class TorchModel:
    """A `Model` (see there) whose buckets run a `torch.nn.Module`."""

    def __init__(self, manifest: Manifest, device: str, buckets: Sequence[Bucket], threads: int | None) -> None:
        self.manifest = manifest
        self.device = device
        self._threads = threads
        self._buckets = tuple(buckets)
        self._bucket_of = _bucket_of(self._buckets)
        self._first_input = manifest.inputs[0].name

    def __repr__(self) -> str:
        sizes = "/".join(str(bucket.rows) for bucket in self._buckets)
        return f"<TorchModel {self.manifest} on {self.device}, buckets {sizes}>"

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        n = len(inputs[self._first_input])
        return self._run(self._bucket_of[n], inputs, n)

    def _run(self, bucket: Bucket, inputs: Mapping[str, Array], n: int) -> dict[str, Array]:
        try:
            return bucket.run(inputs, n)
        except Exception as error:
            if not _is_out_of_memory(error):
                raise
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.empty_cache()  # what other sizes of batches left reserved
            found = f"{self.device} has no memory for a batch of {bucket.rows} of {self.manifest}"
            raise OutOfMemory(f"{found}, leave out such buckets: {one_line(error)}") from error

    def use_threads(self, threads: int) -> None:
        use_threads(threads)

    def warm_up(self, on_bucket: OnBucket = no_report) -> None:
        use_threads(self._threads)
        for bucket in self._buckets:
            zeros = {spec.name: np.zeros((bucket.rows, *spec.shape), spec.numpy) for spec in self.manifest.inputs}
            for _ in range(WARM_UP_RUNS):
                begun_s = time.perf_counter()
                self._run(bucket, zeros, bucket.rows)
            on_bucket(bucket.rows, round((time.perf_counter() - begun_s) * 1e6))


def _is_out_of_memory(error: Exception) -> bool:
    """torch has a class for devices; on the CPU its allocator raises a RuntimeError that only its text tells."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def _bucket_of(buckets: Sequence[Bucket]) -> list[Bucket]:
    """The smallest bucket that holds n rows, at index n."""
    table = [buckets[0]]
    for bucket in buckets:
        table += [bucket] * (bucket.rows + 1 - len(table))
    return table


def use_threads(threads: int | None) -> None:
    """Let a CPU forward pass started by this thread use that many threads; None changes nothing.

    The number belongs to the calling thread: OpenMP keeps one per thread, and a thread started later begins
    with the one set last anywhere.
    """
    if threads is not None:
        torch.set_num_threads(threads)


def load_torch(
    manifest: Manifest, weights: bytes, where: str, device: str, factories: Sequence[str], threads: int | None
) -> TorchModel:
    """The model that `manifest` describes, with the verified bytes of its weights; `where` is their file's
    path."""
    device = require_device(device)
    use_threads(threads)
    module = build(manifest, factories)
    fill(module, weights, where)
    try:
        module.to(device=device, dtype=TORCH_DTYPES[manifest.compute] if manifest.compute else None)
    except (RuntimeError, AssertionError) as error:  # out of memory, or no such device after all
        raise ModelError(f"{manifest} does not fit on {device}: {one_line(error)}; use another device") from error
    module.eval().requires_grad_(False)
    smallest = manifest.buckets[0]
    require_outputs(forward_for(module, manifest, smallest), manifest, smallest, device)
    return TorchModel(manifest, device, _buckets(manifest, module, device), threads)


def _buckets(manifest: Manifest, module: nn.Module, device: str) -> list[Bucket]:
    forwards = [(rows, forward_for(module, manifest, rows)) for rows in manifest.buckets]
    if device == "cpu":
        return [CpuBucket(manifest, rows, forward) for rows, forward in forwards]
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))  # the weights came through that one
    return [CudaBucket(manifest, rows, forward, stream) for rows, forward in forwards]


def require_device(name: str) -> str:
    """The device's full name ("cuda" is "cuda:0"); `ModelError` if this machine has none such."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(f'device "{name}" is unknown, expected cpu, cuda or cuda:<number>') from error
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda":
        raise ModelError(f'device "{name}" is not supported, expected cpu, cuda or cuda:<number>')
    index, present = device.index or 0, torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= present:
        raise ModelError(f'device "{name}" asked for, torch sees {present} CUDA devices here; use cpu or another one')
    return f"cuda:{index}"
