"""When a recorded state is due again. Pure: no clock, and no memory of when anything was really sent.

Every due time is counted from the beginning of the run, so a state that was sent late makes no other late.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tools.dead.filters import WrongCall
from tools.replay.times import Integers

MIN_SPEED: Final = 0.1
MAX_SPEED: Final = 100.0
BETWEEN_LOOPS_US: Final = 1000
"""From the last state of one loop to the first of the next: Kafka's timestamps have no finer unit."""
MAX_COPIES: Final = 1000

_FACTOR = re.compile(r"[x×]?(\d{1,5}(?:\.\d{1,6})?)", re.ASCII)


class Schedule:
    """Recorded times in, due times out, in µs since the beginning of the run. `speed` None: at once.

    Times that go back (agents' clocks differ) are due with the one before them: the recorded order is kept.
    """

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._begin_us: int | None = None
        self._loop_us = 0
        self._latest_us = 0

    def dues_us(self, timestamps_ms: Integers) -> Integers:
        """When the states of these Kafka timestamps [n ≥ 1], which come next, are due; the very first one at 0."""
        at_us = timestamps_ms * 1000
        if self._begin_us is None:
            self._begin_us = int(at_us[0])
        reached_us = np.maximum.accumulate(np.maximum(at_us - self._begin_us + self._loop_us, self._latest_us))
        self._latest_us = int(reached_us[-1])
        if self._speed is None:
            return np.zeros_like(reached_us)
        return np.rint(reached_us / self._speed).astype(np.int64)

    def next_loop(self) -> None:
        """The recording begins again, behind its last state."""
        self._loop_us = self._latest_us + BETWEEN_LOOPS_US
        self._begin_us = None

    def __repr__(self) -> str:
        return f"<Schedule ×{self._speed or 'max'}, at {self._latest_us / 1e6:.3f} s of recorded time>"


def parse_speed(text: str) -> float | None:
    """A factor (4, x4, 0.5) or `max`, which is None. Raises `WrongCall`."""
    if text == "max":
        return None
    found = _FACTOR.fullmatch(text)
    if found is None or not MIN_SPEED <= float(found[1]) <= MAX_SPEED:
        raise WrongCall(f"--speed is {text!r:.60}, expected a factor from {MIN_SPEED} to {MAX_SPEED:g}, or max")
    return float(found[1])


def parse_copies(text: str) -> int:
    """How many agents there are for each recorded one: x4 or 4. Raises `WrongCall`."""
    found = _FACTOR.fullmatch(text)
    if found is None or not float(found[1]).is_integer() or not 1 <= float(found[1]) <= MAX_COPIES:
        raise WrongCall(f"--agents is {text!r:.60}, expected a whole factor such as x4, at most x{MAX_COPIES}")
    return int(float(found[1]))
