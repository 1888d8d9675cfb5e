"""What the schedule promises for a fleet with devices, on a simulated clock: tails, fill, use, scaling, failover."""

from __future__ import annotations

import pytest

from tests.workers.simulation import SECOND, Device, Simulation

CAPACITY = Device().capacity
SLOW = Device(alpha_us=20_000, beta_us=200)


def high_p99_ms(low_share: float, devices: list[Device], per_s: float, *, poisson: bool = True) -> float:
    """p99 of high while low is offered that share of one device's capacity."""
    simulation = Simulation(devices, fast_pass_wait_us=2500)
    simulation.open_loop("high", per_s, 2 * SECOND, poisson=poisson)
    simulation.open_loop("low", low_share * CAPACITY, 2 * SECOND)
    simulation.until(2 * SECOND)
    if low_share:
        assert len(simulation.waits["low"]) > 100, "low gets what is left over"
    return simulation.quantile("high", 0.99)


@pytest.mark.parametrize("share", [1, 2])
def test_low_hardly_delays_high(share: int) -> None:
    """Not at full capacity, and not at twice of it: within 1.3 of no low at all, on one predictor for all."""
    assert high_p99_ms(share, [Device()], 300) <= 1.3 * high_p99_ms(0, [Device()], 300)


def test_high_that_never_stops_starves_nobody() -> None:
    """More high batches than the device can run: normal waits for its window and a few batches, low gets its share."""
    simulation = Simulation([Device()])
    simulation.open_loop("high", 2000, SECOND)
    simulation.open_loop("normal", 1000, SECOND)
    simulation.open_loop("low", 500, SECOND)
    simulation.until(2 * SECOND)
    assert len(simulation.answered) == simulation.put
    assert simulation.quantile("normal", 1) < 20 + 4 * 3.3
    assert simulation.quantile("low", 1) < 1000 + 100
    assert simulation.quantile("high", 0.99) < 3 * 3.3


def test_with_a_predictor_of_its_own_high_does_not_feel_low() -> None:
    """However little high there is: it meets no batch of low. (Evenly spread, or it would meet other high states.)"""

    def devices() -> list[Device]:
        return [Device(), Device(reserved_for="high")]

    assert high_p99_ms(2, devices(), 50, poisson=False) <= 1.1 * high_p99_ms(0, devices(), 50, poisson=False)


def test_a_high_state_waits_for_one_batch_and_that_is_cut() -> None:
    """The worst wait is `fast_pass_wait` and its own batch, jitter and the event loop besides."""
    simulation = Simulation([Device(alpha_us=100, beta_us=100)], fast_pass_wait_us=2000)
    simulation.open_loop("low", 1.2 * simulation.devices[0].capacity, SECOND)
    simulation.open_loop("high", 50, SECOND)
    simulation.until(SECOND)
    assert simulation.quantile("high", 1) < 1.05 * (1.7 + 0.9) + 3 * 0.15, "16 rows take 1.7 ms, 64 would take 6.5"


def test_bursty_arrivals_cost_little_more_than_even_ones() -> None:
    """Poisson against uniform at 60 and 80 % load: p99 within 1.5 (Triton's users report 2.7)."""
    for load in (0.6, 0.8):
        p99 = []
        for poisson in (True, False):
            simulation = Simulation([Device()])
            simulation.open_loop("normal", load * CAPACITY, SECOND, poisson=poisson)
            simulation.until(SECOND)
            p99.append(simulation.quantile("normal", 0.99))
        assert p99[0] <= 1.5 * p99[1]


def test_a_burst_of_ten_times_the_load_is_absorbed() -> None:
    """One second at 1.5 times the capacity; 2 s later the tail is as it was, and nothing was lost."""
    device = Device(alpha_us=8000, beta_us=80)
    simulation, load = Simulation([device], depth=100_000), 0.15 * device.capacity
    simulation.open_loop("normal", load, 6 * SECOND)
    simulation.open_loop("normal", 9 * load, 2 * SECOND, start_us=SECOND)
    simulation.until(7 * SECOND)
    assert len(simulation.answered) == simulation.put
    before = simulation.quantile("normal", 0.99, end_us=SECOND)
    assert simulation.quantile("normal", 0.99, start_us=4 * SECOND) <= 1.2 * before


@pytest.mark.parametrize(("alpha_us", "beta_us"), [(2000, 20), (5000, 50), (1000, 40)])
def test_under_load_batches_fill_by_themselves_and_the_predictor_is_busy(alpha_us: int, beta_us: int) -> None:
    """Agents for two batches: fill and use are at least 90 %, without a window."""
    simulation = Simulation([Device(alpha_us, beta_us)])
    simulation.closed_loop("normal", 128, SECOND)
    simulation.until(SECOND)
    assert simulation.fill >= 0.9 and simulation.busy >= 0.9, (simulation.fill, simulation.busy)


def test_eight_predictors_answer_eight_times_as_much() -> None:
    """Efficiency at least 0.95; full lanes, busy devices."""

    def answered(n: int) -> int:
        simulation = Simulation([Device(alpha_us=16_000, beta_us=160) for _ in range(n)])
        simulation.open_loop("normal", 1.3 * n * simulation.devices[0].capacity, SECOND, agents=20_000)
        simulation.until(SECOND)
        assert simulation.busy >= 0.9 and simulation.fill >= 0.9
        return len(simulation.answered)

    alone = answered(1)
    for n in (2, 4, 8):
        assert answered(n) >= 0.95 * n * alone


@pytest.mark.parametrize("load", [0.3, 0.9])
def test_a_slow_predictor_beside_a_fast_one_makes_nobody_wait_longer(load: float) -> None:
    """A CPU ten times slower than the GPU beside it: p99 is no worse than the GPU's alone."""
    p99 = []
    for devices in ([Device()], [Device(), Device(20_000, 200)]):
        simulation = Simulation(devices)
        simulation.open_loop("normal", load * CAPACITY, SECOND, agents=20_000)
        simulation.open_loop("high", 100, SECOND)
        simulation.until(SECOND)
        p99.append((simulation.quantile("normal", 0.99), simulation.quantile("high", 0.99)))
    for alone, both in zip(*p99, strict=True):
        assert both <= 1.05 * alone


def test_a_slow_predictor_takes_the_overflow_of_a_fast_one() -> None:
    """Above the fast one's capacity it helps: more answers, and a shorter tail."""
    found = []
    for devices in ([Device()], [Device(), Device(20_000, 200)]):
        simulation = Simulation(devices)
        simulation.open_loop("normal", 1.1 * CAPACITY, SECOND, agents=20_000)
        simulation.until(SECOND)
        found.append(simulation)
    alone, both = found
    assert len(both.answered) > 1.03 * len(alone.answered)
    assert both.quantile("normal", 0.99) < alone.quantile("normal", 0.99)
    assert both.fill > 0.9


def test_overflow_is_no_excuse_for_a_late_answer() -> None:
    """The slow predictor would need 20 ms; who has 15 waits for the fast one, and comes late no more often."""
    late = []
    for devices in ([Device()], [Device(), Device(20_000, 200)]):
        simulation = Simulation(devices)
        simulation.open_loop("normal", 1.1 * CAPACITY, SECOND, within_us=15_000, agents=20_000)
        simulation.until(SECOND)
        assert simulation.expired > 0
        late.append(simulation.late)
        assert simulation.devices[-1].rows == 0 or len(devices) == 1
    assert late[1] <= late[0]


def test_in_a_flood_with_deadlines_who_is_served_is_served_in_time() -> None:
    """Twice the capacity: the rest is told so at once, and the device is not wasted on late answers."""
    simulation = Simulation([Device()])
    simulation.open_loop("normal", 2 * CAPACITY, SECOND, within_us=30_000)
    simulation.until(SECOND)
    in_time = len(simulation.answered) - simulation.late
    assert in_time > 0.85 * CAPACITY, (in_time, simulation.late, simulation.expired)


def fail_over(devices: list[Device], *, detected_us: int) -> Simulation:
    """Half a second of traffic; predictor 0 hangs after 0.2 s, which is found `detected_us` later."""
    simulation = Simulation(devices)
    for lane in ("high", "normal", "low"):
        simulation.open_loop(lane, 1000, SECOND)  # type: ignore[arg-type]
    simulation.at(200_000 + detected_us, lambda: simulation.fence(0))
    simulation.until(2 * SECOND)
    return simulation


def test_a_standby_takes_over_in_one_batch_and_drops_nothing() -> None:
    """All that the hot one held and all that comes is answered, less than 100 ms after the detection."""
    hot, standby = Device(hangs_at_us=200_000), Device(standby=True)
    simulation = fail_over([hot, standby], detected_us=300_000)
    assert len(simulation.answered) == simulation.put
    longest = max(at + us for lane in ("high", "normal") for at, us in simulation.waits[lane] if at < 500_000)
    assert longest < 500_000 + 100_000
    assert standby.batches > 0 and standby.busy_us < simulation.now


def test_a_standby_idles_while_the_hot_one_serves_and_when_it_is_back() -> None:
    """It costs nothing until it is needed, and goes back to that."""
    hot, standby = Device(), Device(standby=True)
    simulation = Simulation([hot, standby])
    simulation.open_loop("normal", 1.2 * CAPACITY, 600_000, agents=20_000)
    simulation.until(200_000)
    assert standby.batches == 0
    simulation.fence(0)
    simulation.until(400_000)
    assert (while_away := standby.batches) > 0
    simulation.schedule.restore(0, {})
    simulation.pump()
    served = hot.batches
    simulation.until(600_000)
    assert hot.batches > served and standby.batches <= while_away + 2, "what it held it may finish"


def test_one_standby_stands_in_for_one_predictor() -> None:
    """With two hot ones it gets work as soon as one of them is gone."""
    devices = [Device(), Device(), Device(standby=True)]
    simulation = Simulation(devices)
    simulation.open_loop("normal", 1.8 * CAPACITY, 400_000, agents=20_000)
    simulation.until(200_000)
    assert devices[2].batches == 0
    simulation.fence(1)
    simulation.until(400_000)
    assert devices[0].batches > 0 < devices[2].batches


def test_a_predictor_that_hangs_gets_nothing_more_long_before_it_is_found_out() -> None:
    """What is late is expected to be late as long again, so others look quicker; only what it held has to wait."""
    simulation = fail_over([Device(hangs_at_us=200_000), Device()], detected_us=10 * SECOND)
    unanswered = simulation.put - len(simulation.answered)
    assert unanswered <= 3 * 64
    assert simulation.quantile("high", 0.99, start_us=300_000) < 20
