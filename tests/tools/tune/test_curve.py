"""What a batch takes."""

from __future__ import annotations

import pytest

from tests.tools.tune.build import curve, settings
from tools.tune.curve import measured_curve, simulated_curve


def test_a_batch_is_padded_to_its_bucket() -> None:
    """And the batch size that answers most is not always the largest."""
    line = curve(2000, 500)
    assert (line.us(1), line.us(2), line.us(8), line.us(9)) == (2500, 6000, 6000, 34_000)
    assert line.least_ms == 2.5
    assert line.rows_per_s(8) == pytest.approx(8 / 0.006)
    assert line.capacity_per_s == line.rows_per_s(64)


def test_a_simulated_device_says_what_it_takes() -> None:
    """Without running it."""
    found = simulated_curve(settings(6000, 50))
    assert found.us(64) == 9200 and found.jitter == 0.05


def test_a_device_is_timed_as_a_worker_uses_it() -> None:
    """Every bucket, through the pass that a batch takes; a device of known speed comes out as it is."""
    seen: list[float] = []
    found = measured_curve(settings(3000, 20), seen.append)
    assert seen == list(range(1, len(found.batch_us) + 1))
    for rows, us in found.batch_us.items():
        assert 3000 + 20 * rows < us * 1.06 and us < 2 * (3000 + 20 * rows)
    assert list(found.batch_us.values()) == sorted(found.batch_us.values())
