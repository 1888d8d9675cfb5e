"""A worker in simulated time does what the real schedule does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.workers.simulation import BUCKETS, Device
from tests.workers.simulation import Simulation as Schoolbook
from tools.bench.arrivals import Stream, merged
from tools.tune.curve import Curve
from tools.tune.simulate import Simulation, States
from topics.names import LANES, Lane
from workers.slots import Limits

LINE = Curve({rows: 2000.0 + 500 * rows for rows in BUCKETS}, 0.05)
DEPTHS = dict.fromkeys(LANES, 4096)


def limits(max_batch: int = 64, max_wait_us: int = 20_000) -> Limits:
    return Limits(max_batch, max_wait_us, 1_000_000, BUCKETS)


def states(rates: dict[Lane, float], seconds: float, seed: int = 3) -> States:
    found = merged([Stream(lane, "poisson", rate, 0, seconds) for lane, rate in rates.items()], 256, seed)
    at_us = np.round(found.at_s * 1e6).astype(np.int64)
    return States(at_us, [b"%d" % agent for agent in found.agents], found.lanes)


def ran(of: States, like: Curve, bounds: Limits, predictors: int = 1, depths: dict[Lane, int] = DEPTHS) -> Simulation:
    simulation = Simulation(of, like, bounds, predictors, depths)
    simulation.run()
    return simulation


def test_a_lone_state_waits_for_its_batch_alone() -> None:
    """Nothing else is there to wait for."""
    lone = States(np.array([1000]), [b"a"], ["normal"])
    found = ran(lone, LINE, limits())
    assert found.waits_us.tolist() == [pytest.approx(2500, rel=0.05)]
    assert (found.rows, found.behind) == (1, 1)


@pytest.mark.parametrize(("max_wait_ms", "ends_ms"), [(5, [100, 200, 300]), (200, [100, 200, 200])])
def test_who_has_waited_long_enough_waits_for_nobody_else(max_wait_ms: int, ends_ms: list[int]) -> None:
    """The second state's batch is made ready by a timer, before or after the third one comes."""
    at_us = np.array([0, 10_000, 50_000])
    found = ran(
        States(at_us, [b"a", b"b", b"c"], ["normal"] * 3),
        Curve(dict.fromkeys(BUCKETS, 100_000.0), 0),
        limits(max_wait_us=max_wait_ms * 1000),
    )
    assert ((at_us + found.waits_us) // 1000).tolist() == ends_ms


def test_every_state_is_answered_once_whatever_a_lane_takes() -> None:
    """Also where most of them wait in Kafka, as the lane is full."""
    burst = States(np.arange(500), [b"%d" % number for number in range(500)], ["normal"] * 500)
    found = ran(burst, Curve(dict.fromkeys(BUCKETS, 1000.0), 0), limits(8), depths=dict.fromkeys(LANES, 16))
    assert (found.waits_us > 0).all()
    assert found.waits_us.max() > 500 / 8 * 1000
    assert found.rows == pytest.approx(8, rel=0.05)


def test_two_predictors_answer_twice_as_much() -> None:
    """What takes one of them ever longer leaves two of them time."""
    many = states({"normal": 1600}, 4)
    one, two = (ran(many, LINE, limits(8), predictors) for predictors in (1, 2))
    assert one.behind > 0.1 > two.behind
    assert one.busy > 0.99 > two.busy


def test_it_agrees_with_the_simulation_of_the_schedules_own_tests() -> None:
    """Two programs, the same schedule, device and rates: the same tails, as far as chance lets them."""
    rates: dict[Lane, float] = {"high": 60, "normal": 900, "low": 300}
    ours = ran(states(rates, 20), Curve({rows: 2000.0 + 20 * rows for rows in BUCKETS}, 0.05), limits())
    theirs = Schoolbook([Device(2000, 20, 0.05)])
    for lane, rate in rates.items():
        theirs.open_loop(lane, rate, 20_000_000, agents=256)
    theirs.until(25_000_000)
    lanes = np.array(states(rates, 20).lanes)
    for lane in ("high", "normal"):
        p99_ms = float(np.percentile(ours.waits_us[lanes == lane], 99)) / 1000
        assert p99_ms == pytest.approx(theirs.quantile(lane, 0.99), rel=0.15), lane


def test_the_same_states_give_the_same_waits() -> None:
    """A comparison of two candidates compares nothing else."""
    some = states({"normal": 500}, 2)
    first, second = (ran(some, LINE, limits()) for _ in range(2))
    assert (first.waits_us == second.waits_us).all()
