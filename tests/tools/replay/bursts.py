"""Writes the bursty recording that docs/recordings.md has figures of: `python -m tests.tools.replay.bursts OUT`.

500 agents on three lanes, 60,000 states in 30 s: 10,000/s for 0.15 s of every second, 588/s in between.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.tools.replay.build import record
from topics.names import Lane
from topics.records import State
from topics.wire import encode_state

STATES = 60_000
AGENTS = 500
BURST_PER_S = 10_000.0
BURST_S = 0.15
BETWEEN_PER_S = 500 / 0.85
BEGIN_MS = 1_760_000_000_000


def bursts() -> Iterator[tuple[Lane, str, int, bytes]]:
    """(lane, agent, Unix ms, value) in the order of their times; the same ones each time."""
    random, at_s = np.random.default_rng(1), 0.0
    lanes: tuple[Lane, ...] = ("high", "normal", "normal", "low")
    for number in range(STATES):
        at_s += random.exponential(1 / (BURST_PER_S if at_s % 1.0 < BURST_S else BETWEEN_PER_S))
        at_ms = BEGIN_MS + int(at_s * 1000)
        state = State(np.arange(4, dtype=np.float32), seq=number // AGENTS, sent_us=at_ms * 1000)
        state.deadline_us = at_ms * 1000 + 60_000_000
        yield lanes[number % 4], f"agent-{number % AGENTS}", at_ms, encode_state(state)


if __name__ == "__main__":
    record(Path(sys.argv[1]), "bursts", bursts())
