"""What the worker sees of a model, whatever runs underneath.

The seam between the predictors (one thread, one batch at a time) and the backends. Holds no code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from topics.tensors import Array
from workers.models.package import Manifest

OnBucket = Callable[[int, int], None]


def no_report(rows: int, took_us: int) -> None:
    """Nobody wants to hear that the bucket of `rows` rows took so many µs."""


class Model(Protocol):
    """A policy on a device. Blocking and not thread-safe: one thread calls it, the predictor's own."""

    manifest: Manifest
    device: str

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One forward pass over n rows, 1 ≤ n ≤ `manifest.buckets[-1]`.

        Takes every input by name, [n, *shape] in its spec's dtype; gives every output by name, likewise,
        C-contiguous and in memory of its own that no later call touches. Raises `OutOfMemory` where the batch
        is too large for the device, else whatever the device raises;
        never looks at values: whether they are finite is for the caller to check. A row's outputs do not
        depend on its neighbours; on how exactly they do not depend on the bucket, see docs/models.md.
        """

    def use_threads(self, threads: int) -> None:
        """Passes that the calling thread makes on a CPU take so many threads from now on."""

    def warm_up(self, on_bucket: OnBucket = no_report) -> None:
        """Bind the calling thread (`threads`) and run every bucket a few times, smallest first;
        `on_bucket(rows, took_us)` after each, with the time of its last run. Call it once, from the thread that
        will call `predict`."""
