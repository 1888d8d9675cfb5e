"""What the agents count."""

from __future__ import annotations

import numpy as np

from tools.demo.tally import Tally


def test_a_window_shows_only_what_is_new_and_the_total_shows_all() -> None:
    """The live view must follow what happens now."""
    tally = Tally()
    tally.answered("high", np.full(10, 0.001))
    assert tally.window()["high"] == {"answered": 10, "p50_ms": 1.0, "p95_ms": 1.0, "p99_ms": 1.0}
    tally.answered("high", np.full(30, 0.005))
    assert tally.window()["high"]["p50_ms"] == 5.0
    assert tally.window()["high"] == {"answered": 0, "p50_ms": None, "p95_ms": None, "p99_ms": None}
    assert tally.lanes()["high"]["answered"] == 40


def test_a_state_without_an_answer_has_no_latency() -> None:
    """The client marks it with NaN, which must not spoil the percentiles."""
    tally = Tally()
    tally.answered("low", np.array([0.002, np.nan]))
    assert tally.lanes()["low"] == {"answered": 1, "p50_ms": 2.0, "p95_ms": 2.0, "p99_ms": 2.0}


def test_the_mean_batch_is_not_biased_towards_large_ones() -> None:
    """One batch of 30 and three of 10, every request sampled once."""
    tally = Tally()
    for size in [30] * 30 + [10] * 30:
        tally.sampled("w", size)
    assert tally.workers() == {"w": 15.0}
