"""Does a row's answer depend on where in which batch it sits? Plays the same rows everywhere and compares.

Run by `fleet model check` and the tests, never by a worker. BLAS picks its kernel by the number of rows, and
inside one call the last rows may take another path than the first: the sums round differently, and a
near-tie may flip an action.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from topics.tensors import Array
from workers.models.model import Model
from workers.models.samples import sample_inputs

PLACES_PER_BUCKET = 64  # positions tried in one bucket; larger buckets are sampled evenly, both ends included


@dataclass(frozen=True, slots=True)
class Invariance:
    """What was seen: `answers` compared, of which `differing` were not bit for bit the same.

    `largest` is the largest difference of any float output, `flips` how many whole-number outputs (actions)
    differed.
    """

    answers: int
    differing: int
    flips: int
    largest: float

    @property
    def exact(self) -> bool:
        return self.differing == 0


def measure_invariance(model: Model, probes: int = 4, seed: int = 7) -> Invariance:
    """Play `probes` random rows at the positions of every bucket among random neighbours."""
    answers = differing = flips = 0
    largest = 0.0
    for probe in range(probes):
        row = sample_inputs(model.manifest, 1, seed + probe)
        reference = model.predict(row)
        for given in _everywhere(model, row, seed=seed * 1000 + probe):
            answers += 1
            differing += any(given[name].tobytes() != reference[name][0].tobytes() for name in given)
            for name, value in given.items():
                if value.dtype.kind in "biu":
                    flips += int((value != reference[name][0]).sum())
                else:
                    largest = max(largest, _difference(value, reference[name][0]))
    return Invariance(answers, differing, flips, largest)


def _everywhere(model: Model, row: Mapping[str, Array], seed: int) -> Iterator[dict[str, Array]]:
    """The outputs of `row` at each position of each bucket."""
    for rows in model.manifest.buckets:
        batch = sample_inputs(model.manifest, rows, seed)
        for place in np.unique(np.linspace(0, rows - 1, min(rows, PLACES_PER_BUCKET)).astype(int)):
            placed = {name: column.copy() for name, column in batch.items()}
            for name, column in placed.items():
                column[place] = row[name][0]
            yield {name: output[place] for name, output in model.predict(placed).items()}


def _difference(a: Array, b: Array) -> float:
    return float(np.nanmax(np.abs(a.astype(np.float64) - b.astype(np.float64)), initial=0.0))
