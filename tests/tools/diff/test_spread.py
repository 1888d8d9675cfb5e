"""Percentiles to three digits, in memory that does not grow."""

from __future__ import annotations

import numpy as np
import pytest

from tools.diff.spread import Spread


def test_percentiles_are_right_to_three_digits_and_little_is_kept() -> None:
    """Over nine powers of ten; mean and max are exact."""
    values = np.random.default_rng(0).lognormal(5, 3, 100_000)
    spread = Spread()
    for value in values:
        spread.add(float(value))
    for percent in (50, 99):
        wanted = float(np.percentile(values, percent, method="inverted_cdf"))
        assert spread.percentile(percent) == pytest.approx(wanted, rel=0.006)
    assert spread.max == values.max() and spread.mean == pytest.approx(values.mean())
    assert len(spread.counts) < 10_000


def test_small_whole_numbers_and_infinity_stay_as_they_are() -> None:
    """ms and rows are not rounded; a number against none is infinitely far."""
    spread = Spread()
    for value in (5, 5, 999, 1001, float("inf")):
        spread.add(value)
    assert spread.counts == {5: 2, 999: 1, 1000: 1, float("inf"): 1}
    assert (Spread().percentile(50), Spread().mean, Spread().max) == (None, None, None)
