"""Half an hour in tenths: what is compared with what."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tools.bench.arrivals import Arrivals
from tools.bench.long import Look, by_part, over_time
from tools.bench.serving import WARM_S


def load_of(at_s: Any, lanes: list[Any], latencies_s: Any) -> Any:
    """As much of a `Load` as is looked at."""
    arrivals = Arrivals(at_s + WARM_S, np.zeros(len(at_s), np.intp), lanes)
    return SimpleNamespace(arrivals=arrivals, latencies_s=latencies_s)


def test_each_tenth_has_its_own_states_and_looks() -> None:
    """By when states were due; the warm-up is in none of them."""
    at_s = np.concatenate([[-1.0], np.arange(100) + 0.5])
    latencies_s = np.concatenate([[9.0], np.where(np.arange(100) < 90, 0.010, 0.030)])
    looks = [Look(second + 0.1, 70.0 + second, 5.0, 7.0, 4, 15) for second in range(100)]
    parts = by_part(load_of(at_s, ["high"] * 101, latencies_s), looks, 100.0)
    assert len(parts) == 10
    assert (parts[0]["high_p99_ms"], parts[-1]["high_p99_ms"]) == (10, 30)
    assert parts[0]["rss_mb"] == pytest.approx(74.5) and parts[-1]["rss_mb"] == pytest.approx(164.5)
    assert parts[0]["low_p99_ms"] is None


def test_what_happened_over_time_is_by_lane() -> None:
    """Each lane by itself, times from the end of the warm-up on."""
    found = over_time(load_of(np.array([0.0, 1.005]), ["high", "low"], np.array([0.001, np.nan])), 2.0)
    assert found == {"high": [[0.0, 1.0]], "normal": [], "low": [[1.0, None]]}
