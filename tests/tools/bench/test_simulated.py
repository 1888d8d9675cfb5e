"""The pure parts of what is measured on simulated devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tools.bench.arrivals import Stream, merged
from tools.bench.device import FULL, QUICK, SLOW, Modest
from tools.bench.scale import ended_by, parse_counts, seen
from tools.bench.scrape import grown, parsed
from tools.bench.traffic import BURST, BURST_S, burst_streams, in_bins, recovered_s
from topics.errors import SettingsError
from topics.settings import load_settings
from workers.settings import Settings


def test_streams_merge_in_the_order_of_their_times() -> None:
    """Each stream keeps its lane, rate and stretch of time, and has agents of its own."""
    found = merged([Stream("high", "uniform", 10, 1, 3), Stream("low", "uniform", 100, 0, 2)], 5, 1)
    lanes = np.array(found.lanes)
    assert (np.diff(found.at_s) >= 0).all()
    assert found.at_s[lanes == "high"] == pytest.approx(1 + np.arange(20) / 10)
    assert (lanes == "low").sum() == 200
    assert set(found.agents[lanes == "high"]) == set(range(5))
    assert set(found.agents[lanes == "low"]) == set(range(5, 10))


def test_the_burst_is_ten_times_the_rate_for_its_second() -> None:
    """And a device at its capacity is done with it within the goal."""
    before, burst, after = burst_streams(7)
    assert burst.rate_per_s == BURST * before.rate_per_s == BURST * after.rate_per_s
    assert (burst.from_s, burst.to_s) == (7, 7 + BURST_S) == (before.to_s, after.from_s)
    left = (burst.rate_per_s - QUICK.capacity_per_s) * BURST_S
    assert left / (QUICK.capacity_per_s - after.rate_per_s) < 2


def test_bins_count_from_the_burst() -> None:
    """Times from the burst's begin, states without an answer counted and left out of the percentiles."""
    bins = in_bins(np.array([1.0, 3.1, 3.2, 4.0]), np.array([9.0, 0.1, np.nan, 0.3]), begin_s=4)
    assert [row["from_s"] for row in bins] == [-1, 0]
    assert (bins[0]["offered"], bins[0]["unanswered"], bins[0]["p99_ms"]) == (2, 1, 100)


def test_recovery_is_the_first_bin_at_the_old_level() -> None:
    """Counted from the burst's end; a quiet bin within the burst is none, and without one there is no recovery."""
    before = [bin_of(-0.5, 20), bin_of(-0.25, 30)]
    burst = [bin_of(0.0, 30), bin_of(0.5, 900)]
    assert recovered_s([*before, *burst, bin_of(1.0, 500), bin_of(1.25, 31), bin_of(1.5, 30)]) == 0.5
    assert recovered_s([*before, *burst, bin_of(1.0, 500), bin_of(1.25, None)]) is None


def bin_of(from_s: float, p99_ms: float | None) -> dict[str, Any]:
    return {"from_s": from_s, "p99_ms": p99_ms}


def test_a_pause_shows_as_latency_and_as_a_gap() -> None:
    """States due in a stop of 0.5 s are answered together at its end; those due outside the stretch do not count."""
    at_s = np.arange(0, 2, 0.1)
    latencies_s = np.where((at_s > 0.95) & (at_s < 1.5), 1.5 - at_s, 0.01)
    found = seen(at_s, latencies_s, 0.5, 2)
    assert found["worst_ms"] == pytest.approx(500)
    assert found["gap_ms"] == pytest.approx(590)
    assert (found["offered"], found["unanswered"]) == (15, 0)
    quiet = seen(at_s, latencies_s, 1.55, 1.75)
    assert (quiet["offered"], quiet["gap_ms"]) == (2, pytest.approx(100))


def test_a_stretch_without_answers_has_no_latency() -> None:
    """None rather than a number, and each state counts as unanswered."""
    found = seen(np.array([0.1, 0.2]), np.full(2, np.nan), 0, 1)
    assert (found["p99_ms"], found["worst_ms"], found["gap_ms"], found["unanswered"]) == (None, None, None, 2)


@pytest.mark.parametrize(
    ("efficiency", "busy", "partitions", "words"),
    [
        (0.96, 0.99, 12, "nothing up to 8 workers"),
        (0.80, 0.99, 12, "the machine's CPU: 99% busy at 8 workers"),
        (0.80, 0.50, 4, "partitions: 8 workers, 4 partitions"),
        (0.80, 0.50, 12, "neither partitions nor CPU (50% busy at 8 workers)"),
    ],
)
def test_what_ended_the_scaling_is_named(efficiency: float, busy: float, partitions: int, words: str) -> None:
    """The first row that falls behind decides."""
    rows = [
        {"workers": 1, "efficiency": 1.0, "machine_cpu": 0.3},
        {"workers": 8, "efficiency": efficiency, "machine_cpu": busy},
    ]
    assert ended_by(rows, partitions) == words


def test_numbers_of_workers() -> None:
    """Ascending, from 1 up."""
    assert parse_counts("1, 2,8") == (1, 2, 8)


@pytest.mark.parametrize("text", ["", "2,1", "0,1", "1,x", "1,1", "-1"])
def test_other_numbers_of_workers_are_refused(text: str) -> None:
    """With the text in the error."""
    with pytest.raises(SettingsError, match="--workers is"):
        parse_counts(text)


def test_counters_grow_over_all_labels() -> None:
    """A label set that is new counts from 0; buckets of histograms are no samples of their own."""
    before = parsed('# TYPE a_total counter\na_total{predictor="0"} 3\n')
    after = parsed(
        '# TYPE a_total counter\na_total{predictor="0"} 5\na_total{predictor="1"} 7\n'
        '# TYPE h histogram\nh_bucket{le="+Inf"} 4\nh_count 4\nh_sum 9\n'
    )
    assert grown(before, after, "a_total") == 9
    assert (grown(before, after, "h_count"), grown(before, after, "h_bucket")) == (4, 0)


@pytest.mark.parametrize("device", [QUICK, FULL, SLOW])
@pytest.mark.parametrize("reserved", [False, True])
def test_devices_are_settings_of_a_worker(device: Modest, reserved: bool) -> None:
    """They are taken as they are; a reserved device is one more."""
    settings = load_settings(Settings, overrides=dict(device.settings(reserved=reserved)))
    assert settings.batch.max_batch == device.max_batch
    assert [predictor.reserved_for for predictor in settings.predictors] == [None, "high"][: 1 + reserved]
    assert device.capacity_per_s == pytest.approx(device.max_batch * 1e6 / device.full_us)
