"""What the model decides, in a few numbers that move when its world or its weights do. Beside the path.

Looks at one batch in `EVERY`: that costs next to nothing. Integer actions: the share of each. Others: mean
and standard deviation of each number of an action. All are exponentially weighted over some thousands of decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from topics.tensors import Array

EVERY: Final = 16
"""Batches; the others are not looked at."""
MEMORY: Final = 256
"""Looked-at decisions that an old one is forgotten in: some 4,000 in all."""
MOST: Final = 16
"""Actions, or numbers of one, that are told apart; each is a series. Larger actions count as the last."""


class ActionsSeen:
    """Written by the event loop alone; a reader sees the numbers of before or of after."""

    def __init__(self) -> None:
        self._batches = 0
        self._weight = 0.0
        self.shares: Mapping[str, float] = {}
        self.means: Mapping[str, float] = {}
        self.deviations: Mapping[str, float] = {}
        self._moments: tuple[Array, Array] = (np.zeros(0), np.zeros(0))

    def look(self, actions: Array) -> None:
        """The actions of a batch, [n, *shape], of any dtype."""
        self._batches += 1
        if self._batches % EVERY != 1 or not len(actions):
            return
        rows = actions.reshape(len(actions), -1)
        old = max(0.0, 1 - len(rows) / MEMORY) * self._weight
        share = len(rows) / (old * MEMORY + len(rows))
        self._weight = min(1.0, old + len(rows) / MEMORY)
        if rows.dtype.kind in "iub" and rows.shape[1] == 1:
            self._count(rows[:, 0], share)
        else:
            self._measure(rows[:, :MOST].astype(np.float64), share)

    def _count(self, actions: Array, share: float) -> None:
        found = np.bincount(np.clip(actions, 0, MOST - 1).astype(np.int64), minlength=MOST) / len(actions)
        old = np.array([self.shares.get(str(number), 0.0) for number in range(MOST)])
        mixed = old + share * (found - old)
        self.shares = {str(number): float(one) for number, one in enumerate(mixed) if one}

    def _measure(self, numbers: Array, share: float) -> None:
        mean, square = self._moments
        found = numbers.mean(axis=0), (numbers**2).mean(axis=0)
        if len(mean) == len(found[0]):
            found = mean + share * (found[0] - mean), square + share * (found[1] - square)
        self._moments = found
        spread = np.sqrt(np.maximum(found[1] - found[0] ** 2, 0))
        self.means = {str(number): float(one) for number, one in enumerate(found[0])}
        self.deviations = {str(number): float(one) for number, one in enumerate(spread)}

    def __repr__(self) -> str:
        return f"<ActionsSeen shares {self.shares} means {self.means}>"
