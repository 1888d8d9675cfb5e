"""What low gets of devices that others use little, and what that costs those others; on a simulated clock."""

from __future__ import annotations

import pytest

from tests.workers.simulation import REPORT_US, SECOND, Device, Simulation
from topics.names import Lane

CUT_US = 10_000
AGE_US = 50_000
END_US = 2 * SECOND
DEVICES = [(2000, 20), (6000, 20), (5200, 100)]


def flooded(
    device: tuple[float, float], lane: Lane = "high", per_s: float = 0, *, max_batch: int = 64, poisson: bool = True
) -> Simulation:
    """Two seconds with another lane's traffic, and twice of what low could get."""
    limits = {"fast_pass_wait_us": CUT_US, "low_max_age_us": AGE_US, "max_batch": max_batch}
    simulation = Simulation([Device(*device)], **limits)
    simulation.open_loop("low", 2 * simulation.devices[0].capacity * max_batch / 64, END_US, poisson=False)
    simulation.open_loop(lane, per_s, END_US, poisson=poisson)
    simulation.until(END_US)
    assert simulation.lanes.low.front_us() < END_US - AGE_US, "low is overdue"
    return simulation


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("max_batch", [8, 64])
def test_overdue_low_has_all_the_time_that_sparse_high_leaves(max_batch: int, device: tuple[float, float]) -> None:
    """At least 95 % of it, in batches as full as the cut allows. 20 high states a second take what theirs take, and a
    batch ends for low when the event loop hears of it."""
    simulation = flooded(device, "high", 20, max_batch=max_batch)
    costs = simulation.schedule._slots[0].costs
    rows = costs.rows_within(max_batch, CUT_US)
    of_high_us = len(simulation.waits["high"]) * costs.batch_us(8)
    could = rows * (END_US - of_high_us) / (costs.batch_us(rows) + REPORT_US)
    assert len(simulation.waits["low"]) >= 0.95 * could


@pytest.mark.parametrize("device", DEVICES)
def test_high_waits_for_one_batch_of_overdue_low_at_most(device: tuple[float, float]) -> None:
    """The worst of them: what runs, its own batch with low's share, jitter, and until the event loop hears of it.
    Evenly spread, or it would meet other high states."""
    simulation = flooded(device, "high", 40, poisson=False)
    costs = simulation.schedule._slots[0].costs
    longest_us = costs.batch_us(costs.rows_within(64, CUT_US))
    waits_us = [us for _, us in simulation.waits["high"]]
    assert max(waits_us) <= 1.06 * (longest_us + costs.batch_us(16)) + REPORT_US


def test_high_that_comes_often_hardly_feels_overdue_low() -> None:
    """One a batch: p99 within 1.3 of no low at all."""
    alone = Simulation([Device()], fast_pass_wait_us=CUT_US)
    alone.open_loop("high", 300, END_US)
    alone.until(END_US)
    assert flooded((2000, 20), "high", 300).quantile("high", 0.99) <= 1.3 * alone.quantile("high", 0.99)


def test_low_alone_keeps_even_a_quick_device_busy() -> None:
    """After a second without anybody else its batches are ready before the last one ends."""
    simulation = flooded((800, 3))
    late = [at for at, us in simulation.waits["low"] if at + us > 1.2 * SECOND]
    assert len(late) >= 0.98 * 0.8 * simulation.devices[0].capacity


@pytest.mark.parametrize("per_s", [100, 1000])
def test_sparse_normal_does_not_halve_what_low_gets(per_s: int) -> None:
    """They share batches, where a row costs little beside a pass: together at least nine tenths of the capacity."""
    simulation = flooded((2000, 20), "normal", per_s)
    assert len(simulation.answered) >= 0.9 * 2 * simulation.devices[0].capacity
    assert simulation.quantile("normal", 0.99) < 3.5 * 3.28, "what runs, one behind it, and its own"


def test_normal_is_not_slowed_for_low_where_rows_are_dear() -> None:
    """One state takes 0.2 ms here, with 63 low ones 6.5. So it waits for the batch that runs, and no more."""
    assert flooded((100, 100), "normal", 100).quantile("normal", 0.5) < 6.5
