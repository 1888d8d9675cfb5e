"""Schedule: Fast Pass for high, micro-batches for normal, free seats and an age bound for low."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.build import request
from topics.names import LANES, Lane
from workers.lanes import Lanes
from workers.requests import NEVER, Batch, Request
from workers.schedule import Schedule
from workers.slots import Limits, Slot

DEPTHS: dict[Lane, int] = {"high": 1000, "normal": 1000, "low": 1000}


class Bench:
    """A schedule with a clock moved by hand."""

    def __init__(self, predictors: int = 1, buckets: tuple[int, ...] = (1, 4, 8), reserved: Lane | None = None) -> None:
        self.now = 0
        self.lanes = Lanes(DEPTHS)
        self.slots = [Slot() for _ in range(predictors)]
        self.slots[-1].reserved_for = reserved
        limits = Limits(max_batch=8, max_wait_us=20_000, low_max_age_us=1_000_000, buckets=buckets)
        self.schedule = Schedule(self.lanes, self.slots, limits)

    def put(self, lane: Lane, n: int, agent: str = "", deadline_us: int = NEVER) -> None:
        made = [
            request(agent or f"{lane}-{self.now}-{i}", lane=lane, received_us=self.now, deadline_us=deadline_us)
            for i in range(n)
        ]
        self.lanes[lane].put(made)

    def next(self) -> list[str] | None:
        batch = self.batch()
        return None if batch is None else sorted(found.lane for found in batch.requests)

    def batch(self) -> Batch | None:
        return self.schedule.next(self.now)

    def waits_only_for_order(self) -> bool:
        """Whether every request that waits has an earlier one of its agent and lane on a predictor."""
        held = [batch for slot in self.slots for batch in (slot.running, slot.urgent, slot.ready) if batch]
        busy = {(found.lane, found.agent) for batch in held for found in batch.requests}
        return all((lane.lane, found.agent) in busy for lane in self.lanes for found in lane._queue)


def test_an_idle_predictor_takes_what_there_is_at_once() -> None:
    """Waiting would help nobody."""
    bench = Bench()
    bench.put("normal", 3)
    assert bench.next() == ["normal"] * 3


def test_a_running_predictor_gets_a_ready_batch_only_when_it_is_full_or_has_waited() -> None:
    """The window: max_batch or max_wait, whichever comes first."""
    bench = Bench()
    bench.put("normal", 1)
    bench.next()
    bench.put("normal", 3)
    assert bench.next() is None
    assert bench.schedule.wake_us(bench.now) == 20_000
    bench.now = 19_999
    assert bench.next() is None
    bench.now = 20_000
    assert bench.next() == ["normal"] * 3


def test_a_full_batch_is_made_ready_at_once_and_only_one() -> None:
    """One runs, one is ready, the rest can still be overtaken."""
    bench = Bench()
    bench.put("normal", 30)
    assert [len(bench.next() or []) for _ in range(2)] == [8, 8]
    assert bench.next() is None
    assert len(bench.lanes.normal) == 14


def test_high_overtakes_the_ready_batch() -> None:
    """A high state waits at most for the batch that runs."""
    bench = Bench()
    bench.put("normal", 16)
    running, ready = bench.batch(), bench.batch()
    bench.put("high", 2)
    urgent = bench.batch()
    assert urgent is not None and urgent.urgent
    assert running is not None and ready is not None
    bench.schedule.finished(running)
    assert bench.slots[0].running is urgent
    bench.schedule.finished(urgent)
    assert bench.slots[0].running is ready


def test_a_high_batch_that_slips_in_before_one_not_yet_begun_leaves_the_books_right() -> None:
    """The schedule hears of a finished batch later than the predictor begins the next."""
    bench = Bench()
    bench.put("normal", 16)
    first, second = bench.batch(), bench.batch()
    assert first is not None and second is not None
    bench.schedule.finished(first)  # second moves up; its predictor has not begun it yet
    bench.put("high", 1)
    urgent = bench.batch()
    assert urgent is not None
    bench.schedule.finished(urgent)
    assert (bench.slots[0].running, bench.slots[0].urgent) == (second, None)
    bench.schedule.finished(second)
    assert bench.slots[0].running is None


def test_a_ready_batch_that_was_begun_before_we_heard_of_the_last_leaves_the_books_right() -> None:
    """high comes in just when the predictor has moved on to its ready batch by itself."""
    bench = Bench()
    bench.put("normal", 16)
    first, ready = bench.batch(), bench.batch()
    bench.put("high", 1)
    urgent = bench.batch()
    assert first is not None and ready is not None and urgent is not None
    for batch in (first, ready, urgent):  # the order in which they really ran
        bench.schedule.finished(batch)
    assert bench.slots[0].batches == 0
    bench.put("low", 1)
    assert bench.next() == ["low"]


def test_free_seats_of_a_high_batch_are_filled_where_padding_would_waste_them() -> None:
    """Three high states are padded to four: the fourth seat is free, a fifth would cost."""
    bench = Bench()
    bench.put("normal", 1)
    bench.put("low", 5)
    bench.put("high", 2)
    assert bench.next() == ["high", "high", "low", "normal"]


def test_high_leaves_before_normal_and_low_on_an_idle_predictor() -> None:
    """Whatever else waits."""
    bench = Bench(buckets=(1, 2, 4, 8))
    bench.put("low", 8)
    bench.put("normal", 8)
    bench.put("high", 4)
    assert bench.next() == ["high"] * 4


def test_low_runs_in_idle_time() -> None:
    """Nothing else waits, a predictor idles."""
    bench = Bench()
    bench.put("low", 20)
    assert bench.next() == ["low"] * 8
    assert bench.next() is None, "low is not made ready behind a running batch: normal may come"
    bench.now = 1_000_000
    assert bench.next() == ["low"] * 8, "nobody else came for a second"


def test_overdue_low_without_normal_waits_for_its_turn_and_then_has_all_seats() -> None:
    """Its share of a batch of nobody else would be one seat, and the others would stay empty."""
    bench = Bench()
    bench.put("high", 1)
    high = bench.batch()
    assert high is not None
    bench.put("low", 20)
    bench.now = 999_999
    bench.put("high", 1)
    assert bench.next() == ["high"]
    bench.now = 1_500_000
    assert bench.next() is None
    bench.schedule.finished(high)
    assert bench.slots[0].running is not None
    bench.schedule.finished(bench.slots[0].running)
    assert bench.next() == ["low"] * 8


def test_low_fills_batches_of_normal_where_it_at_most_doubles_their_time() -> None:
    """4 rows take less than twice as long as one, 8 more; and what a deadline forbids stays empty."""
    bench = Bench()
    bench.schedule.restore(0, {1: 9000, 4: 15_000, 8: 19_000})
    bench.put("low", 20)
    bench.put("normal", 1, deadline_us=17_000)
    assert bench.next() == ["normal"], "even four rows might come too late"
    bench.schedule.restore(0, {1: 9000, 4: 15_000, 8: 19_000})
    bench.put("normal", 1)
    bench.slots[0].running = None
    assert bench.next() == ["low"] * 3 + ["normal"]


def test_overdue_low_gets_its_share_of_every_batch() -> None:
    """However much normal there is, low never starves."""
    bench = Bench()
    bench.put("low", 20)
    bench.now = 1_000_000
    bench.put("normal", 40)
    assert bench.next() == ["low"] + ["normal"] * 7
    assert bench.next() == ["low"] + ["normal"] * 7


def test_overdue_low_gets_a_turn_even_with_batches_of_one() -> None:
    """One batch in eight, where there is no seat to share."""
    lanes = Lanes(DEPTHS)
    limits = Limits(max_batch=1, max_wait_us=0, low_max_age_us=10, buckets=(1,))
    schedule = Schedule(lanes, [Slot()], limits)
    lanes.low.put([request("l", lane="low")])
    lanes.normal.put([request(f"n{i}") for i in range(50)])
    ran: list[str] = []
    for _ in range(10):
        while batch := schedule.next(100):
            ran += [found.lane for found in batch.requests]
            schedule.finished(batch)
    assert "low" in ran[:9]


def test_a_reserved_predictor_runs_nothing_but_high_and_free_seats() -> None:
    """It idles while normal waits, so that high never waits for a batch."""
    bench = Bench(predictors=2, reserved="high")
    bench.put("normal", 40)
    batches = [bench.batch(), bench.batch(), bench.batch()]
    assert [batch.predictor if batch else None for batch in batches] == [0, 0, None]
    bench.put("high", 1)
    batch = bench.batch()
    assert batch is not None and batch.predictor == 1


def test_expired_states_are_given_out_once_without_a_predictor() -> None:
    """They need an answer, not a model."""
    bench = Bench()
    bench.put("normal", 1)
    bench.next()
    bench.put("normal", 2, deadline_us=5)
    assert bench.schedule.wake_us(bench.now) == 5
    bench.now = 5
    assert bench.next() is None
    assert len(bench.schedule.expired()) == 2
    assert bench.schedule.expired() == []


def test_an_agent_is_never_on_two_predictors_at_once() -> None:
    """Otherwise the faster one would answer its later state first."""
    bench = Bench(predictors=2)
    bench.put("normal", 1, agent="a")
    first = bench.batch()
    bench.put("normal", 1, agent="a")
    bench.put("normal", 1, agent="b")
    second = bench.batch()
    assert first is not None and second is not None
    assert [found.agent for found in second.requests] == [b"b"]
    bench.schedule.finished(first)
    third = bench.batch()
    assert third is not None and [found.agent for found in third.requests] == [b"a"]


def test_nothing_to_do_means_no_wake_up() -> None:
    """An idle worker sleeps until a record comes."""
    assert Bench().schedule.wake_us(0) == NEVER


class Inbox:
    """A predictor as the schedule meets it: it goes on to its next batch before we hear of the last."""

    def __init__(self) -> None:
        self.urgent: deque[Batch] = deque()
        self.ready: deque[Batch] = deque()
        self.runs: Batch | None = None
        self.reports: deque[Batch] = deque()

    def submit(self, batch: Batch) -> None:
        (self.urgent if batch.urgent else self.ready).append(batch)

    def go_on(self) -> None:
        """What runs ends, the next begins."""
        if self.runs is not None:
            self.reports.append(self.runs)
        queue = self.urgent or self.ready
        self.runs = queue.popleft() if queue else None


STEP = st.tuples(st.sampled_from(["high", "normal", "low", "go on", "report", "wait", "fence"]), st.integers(1, 12))
KINDS = [(1, None, False), (2, None, False), (2, "high", False), (2, None, True), (3, None, True)]


@given(st.lists(STEP, max_size=60))
@pytest.mark.parametrize(("predictors", "reserved", "standby"), KINDS)
def test_everything_put_in_runs_exactly_once_and_in_its_agents_order(
    predictors: int, reserved: Lane | None, standby: bool, steps: list[tuple[str, int]]
) -> None:
    """Under any interleaving of arrivals, batches that end, what we hear of them, time, and predictors that hang."""
    bench = Bench(predictors, reserved=reserved)
    bench.slots[-1].standby = standby
    bench.schedule.restore(0, {})
    inboxes = [Inbox() for _ in range(predictors)]
    ran: list[tuple[str, int]] = []
    put = 0

    def hand_out() -> None:
        while batch := bench.batch():
            assert len(batch) <= 8 and bench.slots[batch.predictor].batches <= 3
            inboxes[batch.predictor].submit(batch)
            if inboxes[batch.predictor].runs is None:
                inboxes[batch.predictor].go_on()
        for slot in bench.slots:
            may = slot.available and not slot.reserved_for and not (slot.standby and bench.slots[0].available)
            assert slot.running or not may or bench.waits_only_for_order(), "idle although something waits"

    def report(number: int) -> None:
        inbox = inboxes[number]
        batch = inbox.reports.popleft()
        ran.extend((found.lane + found.agent.decode(), found.seq or 0) for found in batch.requests)
        bench.schedule.finished(batch, bench.now - 1000, bench.now)

    def fence(number: int) -> None:
        running, waiting = bench.schedule.fence(number)
        for found in [*running, *waiting]:
            bench.lanes[found.lane].put_back(found)
        inboxes[number] = Inbox()
        hand_out()
        bench.schedule.restore(number, {})

    for kind, n in steps:
        if kind == "go on":
            inboxes[n % predictors].go_on()
        elif kind == "report":
            if inboxes[n % predictors].reports:
                report(n % predictors)
        elif kind == "wait":
            bench.now += n * 100_000
        elif kind == "fence":
            if not inboxes[0].reports:
                fence(0)
        else:
            lane: Lane = kind  # type: ignore[assignment]
            bench.lanes[lane].put(
                [request(str(put % 3), lane=lane, received_us=bench.now, seq=put + i) for i in range(n)]
            )
            put += n
        hand_out()
    for _ in range(500):
        for number, inbox in enumerate(inboxes):
            inbox.go_on()
            while inbox.reports:
                report(number)
        bench.now += 100_000
        hand_out()
    assert sorted(seq for _, seq in ran) == list(range(put))
    for key in {key for key, _ in ran}:
        seqs = [seq for found, seq in ran if found == key]
        assert seqs == sorted(seqs)


def test_a_fenced_predictor_gives_back_what_it_held_and_gets_nothing_more() -> None:
    """Its requests wait in their lanes again, in their order, and run elsewhere."""
    bench = Bench(predictors=2)
    bench.put("normal", 30)
    held = [bench.batch() for _ in range(4)]
    bench.put("high", 1)
    urgent = bench.batch()
    assert urgent is not None and urgent.predictor == 0
    running, waiting = bench.schedule.fence(0)
    assert held[0] is not None and running == held[0].requests and len(waiting) == 9
    assert not bench.schedule.holds(held[0])
    assert bench.schedule.available == 1
    for found in [*running, *waiting]:
        bench.lanes[found.lane].put_back(found)
    ran = [found for batch in held if batch and batch.predictor == 1 for found in batch.requests]
    for _ in range(10):
        if (slot := bench.slots[1]).running is not None:
            bench.schedule.finished(slot.running)
        while batch := bench.batch():
            assert batch.predictor == 1
            ran += batch.requests
    assert len(ran) == 31 == len({id(found) for found in ran})
    bench.schedule.restore(0, {})
    bench.put("normal", 1)
    batch = bench.batch()
    assert batch is not None and batch.predictor == 0


def test_a_suspect_runs_alone() -> None:
    """A state that was in a hung batch takes nobody with it the second time."""
    bench = Bench()
    suspect = request("s", received_us=0)
    suspect.hangs = 1
    bench.lanes.normal.put([request("a"), suspect, request("b")])
    bench.put("low", 5)
    sizes = []
    for _ in range(3):
        batch = bench.batch()
        assert batch is not None
        sizes.append([found.agent for found in batch.requests if found.lane == "normal"])
        assert not (suspect in batch.requests and len(batch) > 1)
        bench.schedule.finished(batch)
    assert sizes == [[b"a"], [b"s"], [b"b"]]


def suspect(lane: Lane) -> Request:
    made = request(f"suspect-{lane}", lane=lane)
    made.hangs = 1
    return made


@pytest.mark.parametrize(("lane", "beside"), [("low", "normal"), ("low", "high"), ("normal", "high")])
def test_a_suspect_is_nobodys_passenger(lane: Lane, beside: Lane) -> None:
    """Not in free seats, not in overdue low's share, on an idle predictor as behind a running batch: who shares a
    batch with it would be blamed for what it does."""
    bench = Bench(buckets=(8,))
    bench.lanes[lane].put([suspect(lane)])
    for _ in range(2):
        bench.put(beside, 2)
        bench.now += 400_000
        assert bench.next() == [beside] * 2
    bench.schedule.finished(bench.slots[0].running)  # type: ignore[arg-type]
    assert bench.slots[0].running is not None
    bench.schedule.finished(bench.slots[0].running)
    assert bench.next() == [lane]


@pytest.mark.parametrize("lane", ["high", "normal"])
def test_an_overdue_suspect_of_low_has_a_batch_of_its_own_before_others(lane: Lane) -> None:
    """It never finds a free seat, and all of low waits behind it."""
    bench = Bench()
    bench.lanes.low.put([suspect("low")])
    bench.put("low", 1)
    bench.now = 1_000_000
    ran = []
    for _ in range(4):
        bench.put(lane, 16)
        while batch := bench.batch():
            ran.append(sorted(found.lane for found in batch.requests))
        bench.schedule.finished(bench.slots[0].running)  # type: ignore[arg-type]
    assert ["low"] in ran
    assert sum(lanes.count("low") for lanes in ran) == 2, "the one behind it has had its share"


def test_what_cannot_be_answered_in_time_behind_a_running_batch_takes_no_seat() -> None:
    """Earliest deadline first would else, in a flood, run only states that are answered too late."""
    bench = Bench()
    bench.put("normal", 8)
    first = bench.batch()
    assert first is not None
    bench.now = 100_000
    bench.schedule.finished(first, started_us=0, ended_us=100_000)
    bench.put("normal", 8)
    bench.batch()  # runs until about 200,000
    bench.now = 150_000
    bench.put("normal", 8, deadline_us=290_000)
    bench.put("normal", 8, deadline_us=400_000)
    ready = bench.batch()
    assert ready is not None and [request.deadline_us for request in ready.requests] == [400_000] * 8
    assert [request.deadline_us for request in bench.schedule.expired()] == [290_000] * 8


@pytest.mark.parametrize("patient", [0, 3])
def test_who_may_just_be_in_time_gets_the_seats_that_nobody_else_wants(patient: int) -> None:
    """They are neither refused because of a margin nor put before those who will surely be in time."""
    bench = Bench()
    bench.schedule.restore(0, warm(20_000, 0))
    bench.put("normal", 1)
    assert bench.next() == ["normal"]  # until 20,000
    bench.put("normal", 8, deadline_us=44_000)
    bench.now = 1  # other agents
    bench.put("normal", patient, deadline_us=100_000)
    ready = bench.batch()  # until 40,000
    assert ready is not None
    assert sorted(found.deadline_us for found in ready.requests) == [44_000] * (8 - patient) + [100_000] * patient
    assert bench.schedule.expired() == []


def test_an_idle_predictor_tries_what_may_still_be_in_time() -> None:
    """A learned time is a guess; where nobody else waits, trying costs nothing."""
    bench = Bench()
    bench.put("normal", 8)
    first = bench.batch()
    assert first is not None
    bench.now = 100_000
    bench.schedule.finished(first, started_us=0, ended_us=100_000)
    bench.put("normal", 1, deadline_us=150_000)
    assert bench.next() == ["normal"]


def test_one_slow_batch_expires_nobody_after_the_next() -> None:
    """A hiccup of the device must not be taken for its speed."""
    bench = Bench()
    for started_us, ended_us in ((0, 5_000_000), (5_000_000, 5_010_000)):
        bench.put("normal", 8)
        batch = bench.batch()
        assert batch is not None
        bench.now = ended_us
        bench.schedule.finished(batch, started_us, ended_us)
    bench.put("normal", 8)
    bench.batch()
    bench.put("normal", 8, deadline_us=bench.now + 30_000)
    assert bench.next() == ["normal"] * 8


@pytest.mark.parametrize("most", [1, 3, 5])
def test_a_predictor_without_memory_gets_smaller_batches_until_it_is_replaced(most: int) -> None:
    """In every lane and every place, also when overdue low requests take their share."""
    bench = Bench()
    bench.schedule.limit(0, most)
    for lane in LANES:
        bench.put(lane, 20)
    bench.now += 10_000_000
    sizes = []
    while batch := bench.batch():
        sizes.append(len(batch))
    while (running := bench.slots[0].running) is not None:
        bench.schedule.finished(running)
        while batch := bench.batch():
            sizes.append(len(batch))
    assert sum(sizes) == 60 and max(sizes) <= most
    bench.schedule.restore(0, {})
    bench.put("normal", 20)
    assert len(bench.batch() or ()) > most


def warm(alpha_us: int, beta_us: int) -> dict[int, int]:
    return {rows: alpha_us + beta_us * rows for rows in (1, 4, 8)}


def test_what_nobody_can_answer_in_time_is_expired_at_once() -> None:
    """Before its deadline: behind the batch that runs even a batch of one would be too late."""
    bench = Bench()
    bench.schedule.restore(0, warm(10_000, 0))
    bench.put("normal", 1)
    assert bench.next() == ["normal"]
    bench.put("normal", 1, deadline_us=19_000)
    bench.put("normal", 1, deadline_us=21_000)
    assert bench.next() is None
    assert [found.deadline_us for found in bench.schedule.expired()] == [19_000]


def test_after_a_quiet_second_costs_are_not_believed() -> None:
    """One bad spell must not make an idle predictor refuse for ever what it could do by now."""
    bench = Bench()
    bench.schedule.restore(0, warm(100_000, 0))
    bench.put("normal", 1)
    first = bench.batch()
    assert first is not None
    bench.now = 100_000
    bench.schedule.finished(first, 0, bench.now)
    bench.put("normal", 1, deadline_us=bench.now + 50_000)
    assert bench.next() is None and len(bench.schedule.expired()) == 1
    bench.now += 1_000_000
    bench.put("normal", 1, deadline_us=bench.now + 50_000)
    assert bench.next() == ["normal"]


def test_a_batch_is_cut_for_its_tightest_deadline() -> None:
    """Four rows are back in time, eight would not be."""
    bench = Bench()
    bench.schedule.restore(0, warm(0, 1000))
    bench.put("normal", 1, deadline_us=5500)
    bench.put("normal", 9)
    assert bench.next() == ["normal"] * 4


def test_a_batch_of_high_takes_along_all_that_its_device_does_not_notice() -> None:
    """Eight rows take as long as two there."""
    bench = Bench()
    bench.schedule.restore(0, warm(10_000, 1))
    bench.put("normal", 20)
    bench.put("high", 2)
    assert bench.next() == ["high"] * 2 + ["normal"] * 6


def test_a_ready_batch_is_overtaken_once() -> None:
    """The second urgent batch waits until it runs, or high could starve all others."""
    bench = Bench()
    bench.put("normal", 16)
    running, ready = bench.batch(), bench.batch()
    bench.put("high", 1)
    urgent = bench.batch()
    assert running and ready and urgent
    bench.schedule.finished(running)
    bench.put("high", 1)
    assert bench.next() is None, "the urgent one runs, the ready one is next"
    bench.schedule.finished(urgent)
    assert bench.slots[0].running is ready
    assert bench.next() == ["high"]


def test_a_batch_of_high_behind_a_running_one_takes_no_agent_along_that_runs_there() -> None:
    """The predictor may not have begun that batch yet, and would begin the urgent one first."""
    bench = Bench()
    bench.put("normal", 1, agent="a")
    assert bench.next() == ["normal"]
    bench.put("normal", 1, agent="a")
    bench.put("normal", 1, agent="b")
    bench.put("high", 2)
    batch = bench.batch()
    assert batch is not None and batch.urgent
    assert [found.agent for found in batch.requests if found.lane == "normal"] == [b"b"]
