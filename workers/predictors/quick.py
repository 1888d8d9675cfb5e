"""Whether a model runs on the event loop itself. Asked once, when it is warm, by its predictor's thread.

For a forward pass of some 100 µs, handing Python's interpreter lock to a thread and back may cost more than the pass
(two trial rounds in docs/performance.md: half as many decisions/s again in one, none more in the other, less CPU in
both). Only built-in factories on a CPU qualify: their code cannot hang, so the loop cannot either.
"""

from __future__ import annotations

import timeit
from typing import Final

import numpy as np

from workers.models.model import Model

ON_LOOP_BELOW_US: Final = 500
"""A forward pass of a full batch must be quicker than this to run on the event loop: as long as the admission of one
poll, so it delays nothing more than that does."""
TIMED_RUNS: Final = 5


def is_quick(model: Model, rows: int) -> bool:
    """Whether a forward pass over `rows` rows of zeros is quick, at its best, and no operator's own code runs in it."""
    manifest = model.manifest
    if ":" in manifest.backend.factory or rows > manifest.buckets[-1]:
        return False
    inputs = {spec.name: np.zeros((rows, *spec.shape), spec.numpy) for spec in manifest.inputs}
    return min(timeit.repeat(lambda: model.predict(inputs), number=1, repeat=TIMED_RUNS)) * 1e6 < ON_LOOP_BELOW_US
