"""Runs of offsets without a hole between them, as rows of (first, end). Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Runs = npt.NDArray[np.int64]
"""[runs, 2]"""


def runs_in(offsets: npt.NDArray[np.int64]) -> Runs:
    """In the order of `offsets`, which is not empty."""
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    firsts = offsets[np.concatenate(([0], breaks + 1))]
    lasts = offsets[np.concatenate((breaks, [len(offsets) - 1]))]
    return np.stack((firsts, lasts + 1), axis=1)


def joined(runs: Sequence[Runs]) -> Runs:
    """All in ascending order, those that touch or overlap made one."""
    every = np.concatenate([np.empty((0, 2), np.int64), *runs])
    every = every[np.argsort(every[:, 0], kind="stable")]
    if not len(every):
        return every
    reach = np.maximum.accumulate(every[:, 1])
    begins = np.concatenate(([True], every[1:, 0] > reach[:-1]))
    ends = np.concatenate((begins[1:], [True]))
    return np.stack((every[begins, 0], reach[ends]), axis=1)


def holes(runs: Runs) -> list[tuple[int, int]]:
    """Offsets [begin, end) between joined runs."""
    return list(zip(runs[:-1, 1].tolist(), runs[1:, 0].tolist(), strict=True))
