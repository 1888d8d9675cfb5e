"""Figures: windows, percentiles, ratios."""

from __future__ import annotations

import numpy as np
import pytest

from tools.bench.stats import Sample, latency, rate, ratios, rounded, spread


def samples(*rows: tuple[float, int, float]) -> list[Sample]:
    return [Sample(*row) for row in rows]


def test_a_rate_counts_from_the_warm_share_to_the_end() -> None:
    """What came before the first 10 % belongs to the start, what comes after the last decision to nobody."""
    seen = samples((0, 0, 9.0), (5, 40, 9.5), (6, 100, 10.0), (8, 600, 10.2), (10, 1000, 11.8), (20, 1000, 15.0))
    found = rate(seen, 1000, 0.1)
    assert found.decisions_per_s == pytest.approx(900 / 4)
    assert found.cpu_us == pytest.approx(1.8 / 900 * 1e6)


def test_a_rate_needs_the_whole_total() -> None:
    """Half a drain is no figure."""
    with pytest.raises(ValueError, match="do not reach 1000"):
        rate(samples((0, 0, 0), (1, 999, 1)), 1000, 0.1)


def test_a_rate_needs_more_than_one_sample() -> None:
    """Everything within one sample says nothing about the time it took."""
    with pytest.raises(ValueError, match="measure more"):
        rate(samples((0, 0, 0), (1, 1000, 1)), 1000, 0.1)


def test_ratios_are_taken_pair_by_pair() -> None:
    """A machine that slows down between the pairs does not change the ratio."""
    found = ratios([90, 45, 20], [100, 50, 20])
    assert (found.median, found.low, found.high) == (0.9, 0.9, 1.0)


def test_a_spread_of_an_even_number_takes_the_middle() -> None:
    """As statistics.median has it."""
    assert spread([1.0, 4.0]).median == 2.5
    assert str(spread([0.812, 0.9])) == "0.86 (0.81–0.90)"


def test_latency_leaves_out_what_got_no_answer() -> None:
    """The unanswered are counted elsewhere; as NaN they would hide every percentile."""
    found = latency([np.array([0.001, np.nan]), np.array([0.003])])
    assert found.p50_ms == pytest.approx(2.0)
    assert latency([np.array([np.nan])]).p99_ms is None
    assert latency([]).p50_ms is None


def test_rounded_keeps_whole_numbers_and_four_digits() -> None:
    """JSON for people: no 0.8333333333333334."""
    found = rounded({"a": 0.123456, "b": [61234.56, 7], "c": "text", "d": None})
    assert found == {"a": 0.1235, "b": [61235, 7], "c": "text", "d": None}
