"""Percentiles from the histogram, against the exact ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tools.replay.lateness import Lateness


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=300))
def test_percentiles_are_at_most_two_percent_high_and_never_low(late_us: list[int]) -> None:
    """However the states are cut into batches."""
    lateness = Lateness()
    for at in range(0, len(late_us), 7):
        lateness.add([-late for late in late_us[at : at + 7]], 0)
    found = lateness.read()
    for share, ms in ((0.5, found.p50_ms), (0.99, found.p99_ms)):
        exact_us = float(np.percentile(late_us, share * 100, method="inverted_cdf"))
        assert exact_us - 1e-3 <= ms * 1000 <= exact_us * 1.021 + 0.03
    assert found.max_ms == max(late_us) / 1000


def test_nothing_sent_and_early_states_are_no_error() -> None:
    """A clock's rounding may make a state a µs early."""
    lateness = Lateness()
    assert lateness.read().max_ms == 0
    lateness.add([], 5)
    lateness.add([8, 6], 5)
    assert lateness.read().p99_ms == 0
