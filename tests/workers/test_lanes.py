"""Lanes: bounded, earliest deadline first, each agent's states in their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.workers.build import request
from workers.lanes import LaneQueue
from workers.requests import NEVER, Request


def agents(requests: list[Request]) -> list[str]:
    return [found.agent.decode() for found in requests]


def test_states_without_deadlines_leave_in_the_order_of_arrival() -> None:
    """First come, first served is what equal deadlines mean."""
    lane = LaneQueue("normal", 10)
    lane.put([request("a", received_us=1), request("b", received_us=2)])
    lane.put([request("c", received_us=3)])
    assert agents(lane.take(2, 5).requests) == ["a", "b"]
    assert agents(lane.take(2, 5).requests) == ["c"]


def test_the_earliest_deadline_leaves_first() -> None:
    """A later state with a closer deadline overtakes."""
    lane = LaneQueue("normal", 10)
    lane.put([request("late", deadline_us=900), request("soon", deadline_us=100), request("none", received_us=0)])
    assert agents(lane.take(3, 0).requests) == ["soon", "late", "none"]


def test_a_generous_deadline_is_no_worse_than_none() -> None:
    """Its state would wait behind all that come later, and its agent's urgent ones behind it, answered by nobody."""
    lane = LaneQueue("normal", 10)
    lane.put([request("a", seq=1, deadline_us=3_600_000_000), request("a", seq=2, deadline_us=60_000)])
    lane.put([request(str(at), received_us=20_000) for at in range(5)])
    assert [(found.agent, found.seq) for found in lane.take(2, 30_000).requests] == [(b"a", 1), (b"a", 2)]


def test_a_state_never_overtakes_an_earlier_one_of_its_agent() -> None:
    """Even with a closer deadline: the promise of order per agent is stronger."""
    lane = LaneQueue("normal", 10)
    lane.put(
        [
            request("a", deadline_us=900, seq=1),
            request("b", deadline_us=500),
            request("a", deadline_us=100, seq=2),
        ]
    )
    taken = lane.take(3, 0).requests
    assert [(found.agent, found.seq) for found in taken] == [(b"b", 0), (b"a", 1), (b"a", 2)]


def test_what_expired_comes_out_as_expired() -> None:
    """No model time for a state whose deadline has passed."""
    lane = LaneQueue("normal", 10)
    lane.put([request("dead", deadline_us=10), request("alive", deadline_us=99)])
    taken = lane.take(5, 10)
    assert agents(taken.expired) == ["dead"] and agents(taken.requests) == ["alive"]


def test_expiry_does_not_wait_for_a_predictor() -> None:
    """With every predictor busy the front still expires on time."""
    lane = LaneQueue("normal", 10)
    lane.put([request("dead", deadline_us=10), request("alive", deadline_us=99)])
    assert agents(lane.expire(50)) == ["dead"]
    assert len(lane) == 1 and lane.in_flight == 1


def test_room_counts_what_is_in_flight() -> None:
    """A slow broker slows the intake: what left the queue keeps its place until it is answered."""
    lane = LaneQueue("low", 4)
    lane.put([request(str(n)) for n in range(3)])
    lane.take(2, 0)
    lane.hold(1)
    assert lane.room == 0
    lane.answered(3)
    assert lane.room == 3


def test_busy_agents_keep_their_place() -> None:
    """States of an agent that is being served elsewhere wait, and wait in order."""
    lane = LaneQueue("normal", 10)
    lane.put([request("a", seq=1), request("b"), request("a", seq=2)])
    assert agents(lane.take(3, 0, busy={b"a"}).requests) == ["b"]
    assert [found.seq for found in lane.take(3, 0).requests] == [1, 2]


def test_an_agents_later_state_never_takes_the_seat_that_its_earlier_one_does_not_get() -> None:
    """Who is pressed for time waits for what is left, and so do the states behind it."""
    lane = LaneQueue("normal", 10)
    lane.put([request("a", seq=1, deadline_us=50), request("a", seq=2, deadline_us=900), request("b", deadline_us=900)])
    lane.put([request("c", deadline_us=950)])
    taken = lane.take(3, 0, surely_us=60).requests
    assert [(found.agent, found.seq) for found in taken] == [(b"a", 1), (b"b", 0), (b"c", 0)]
    assert [(found.agent, found.seq) for found in lane.take(3, 0).requests] == [(b"a", 2)]


def test_what_is_put_back_keeps_its_place() -> None:
    """Before its agent's later states, also those of the same poll."""
    lane = LaneQueue("normal", 10)
    lane.put([request("a", seq=1), request("b"), request("a", seq=2)])
    taken = lane.take(2, 0).requests
    for found in reversed(taken):
        lane.put_back(found)
    assert lane.in_flight == 0
    assert [(found.agent, found.seq) for found in lane.take(3, 0).requests if found.agent == b"a"] == [
        (b"a", 1),
        (b"a", 2),
    ]


def test_what_is_put_back_goes_first_although_its_agent_was_forgotten() -> None:
    """While it ran, so many others came that nobody remembers where its agent's states have to stand; twice."""
    lane = LaneQueue("normal", 8)
    lane.put([request("a", seq=1, deadline_us=40_000), request("a", seq=2)])
    for again in range(2):
        first, second = lane.take(2, 0).requests
        for at in range(20):
            lane.put([request(f"{again}-{at}", deadline_us=5_000)])
            lane.take(1, 0)
            lane.answered(1)
        lane.put([request("a", seq=3 + again, deadline_us=10_000)])
        lane.put_back(second)
        lane.put_back(first)
    assert [found.seq for found in lane.take(4, 0).requests] == [1, 2, 3, 4]


def test_handing_back_empties_the_queue_but_not_what_is_in_flight() -> None:
    """Queued states are read again by the partition's next owner; running ones are still ours to answer."""
    lane = LaneQueue("normal", 10)
    lane.put([request("a"), request("b"), request("c")])
    lane.take(1, 0)
    assert lane.hand_back() == 2
    assert (len(lane), lane.in_flight) == (0, 1)


def test_agents_are_forgotten_when_nothing_of_them_is_queued() -> None:
    """Memory is bounded by the lane, not by how many agents ever came."""
    lane = LaneQueue("normal", 10)
    for n in range(500):
        lane.put([request(f"agent-{n}")])
        lane.take(1, 0)
    assert len(lane._last_rank) <= 21


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(1, 50), st.integers(1, 3)), max_size=30))
def test_any_mix_keeps_each_agents_order_and_loses_nothing(found: list[tuple[str, int | None, int]]) -> None:
    """Whatever deadlines and polls, every state comes out once and each agent's in their order."""
    lane = LaneQueue("normal", 100)
    for seq, (agent, deadline_us, _) in enumerate(found):
        lane.put([request(agent, deadline_us=deadline_us or NEVER, received_us=seq, seq=seq)])
    out: list[Request] = []
    for _, _, n in [*found, ("", 0, 99)]:
        out += lane.take(n, 0).requests
    assert sorted(taken.seq or 0 for taken in out) == list(range(len(found)))
    for agent in "abc":
        seqs = [taken.seq or 0 for taken in out if taken.agent == agent.encode()]
        assert seqs == sorted(seqs)
