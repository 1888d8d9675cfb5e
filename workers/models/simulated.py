"""A model on a device that does not exist: a batch takes a set time and no CPU.

With it scheduling, scaling and utilisation can be measured on a laptop as if it had accelerators. Takes any model
package and reads its manifest only: no weights, no torch. A batch of n rows is padded to its bucket, as on a real
device, and takes `batch_us + row_us · bucket`, more or less `jitter`. The thread sleeps meanwhile, as for a GPU.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from topics.tensors import Array, TensorSpec
from workers.models.model import OnBucket, no_report
from workers.models.package import Manifest, read_manifest

SIMULATED: Final = "simulated"
"""The device's name in the settings."""

MOST_OVERSLEPT_S: Final = 0.001
"""What a late wake-up may shorten the next batch by. Linux wakes a sleeper 50–100 µs late; without this a device of
1 ms would be a tenth too slow. More than this is a busy machine, and that must show."""


@dataclass(frozen=True, slots=True)
class Device:
    """How long a batch takes: µs per batch and per padded row, ± `jitter` (a share), the same from the same `seed`.

    Outputs are zeros, or with "echo" the first numbers of the first input, over and over.
    """

    batch_us: float
    row_us: float
    jitter: float = 0.0
    seed: int = 0
    outputs: Literal["zeros", "echo"] = "zeros"


class SimulatedModel:
    """A `Model` (see there) that sleeps."""

    def __init__(self, manifest: Manifest, device: Device) -> None:
        self.manifest = manifest
        self.device = SIMULATED
        self._spec = device
        self._chance = random.Random(device.seed)
        self._overslept_s = 0.0
        self._first_input = manifest.inputs[0].name

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        begun_s = time.monotonic()
        rows = inputs[self._first_input]
        outputs = {spec.name: self._output(spec, rows) for spec in self.manifest.outputs}
        self._sleep_until(begun_s + self.batch_us(len(rows)) / 1e6)
        return outputs

    def batch_us(self, n: int) -> float:
        """How long the next batch takes, of `n` rows; each call draws its jitter."""
        buckets, spec = self.manifest.buckets, self._spec
        took_us = spec.batch_us + spec.row_us * buckets[bisect_left(buckets, n)]
        return took_us * (1 + spec.jitter * self._chance.uniform(-1, 1))

    def _output(self, spec: TensorSpec, rows: Array) -> Array:
        if self._spec.outputs == "zeros":
            return np.zeros((len(rows), *spec.shape), spec.numpy)
        flat = rows.reshape(len(rows), -1)
        echoed = flat[:, np.arange(spec.count) % flat.shape[1]].astype(spec.numpy)
        return echoed.reshape(len(rows), *spec.shape)

    def _sleep_until(self, end_s: float) -> None:
        """What the last sleep took too long, this one is shorter."""
        end_s -= self._overslept_s
        left_s = end_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)
        self._overslept_s = min(max(time.monotonic() - end_s, 0.0), MOST_OVERSLEPT_S)

    def use_threads(self, threads: int) -> None:
        """It has none."""

    def warm_up(self, on_bucket: OnBucket = no_report) -> None:
        for rows in self.manifest.buckets:
            begun_s = time.monotonic()
            self.predict({spec.name: np.zeros((rows, *spec.shape), spec.numpy) for spec in self.manifest.inputs})
            on_bucket(rows, round((time.monotonic() - begun_s) * 1e6))

    def __repr__(self) -> str:
        return f"<SimulatedModel {self.manifest}, {self._spec}>"


def load_simulated(path: Path, device: Device) -> SimulatedModel:
    """The package at `path` on a simulated `device`. `ModelError` when its manifest is wrong."""
    return SimulatedModel(read_manifest(path), device)
