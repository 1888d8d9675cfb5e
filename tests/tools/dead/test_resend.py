"""Letters on their way back: untouched, to where the agent's states go, and in batches that fit."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.tools.dead.build import letter
from tools.dead.redrive import BATCH_BYTES, Pace, batches, due
from tools.dead.resend import Resend, Resender, Unsendable
from topics.letters import HISTORY
from topics.names import FleetNames
from topics.partitions import Partitioner

LANES = {"f.states.high": 12, "f.states.normal": 12, "f.states.low": 12}


def resender(max_bytes: int = 1 << 20) -> Resender:
    return Resender(FleetNames("f"), LANES, max_bytes, "r1")


def test_a_letter_goes_to_its_lane_and_the_agents_partition() -> None:
    """Wherever its state was read: partitions may have been added since."""
    again = resender().resend(letter("robot-7", headers=[("kafka_correlationId", b"c"), ("x", None)]))
    assert isinstance(again, Resend)
    assert (again.topic, again.partition) == ("f.states.normal", Partitioner(12)(b"robot-7"))
    assert again.headers[:2] == [("kafka_correlationId", b"c"), ("x", None)]


def test_a_letter_without_a_key_goes_to_the_partition_it_came_from() -> None:
    """No agent decides it."""
    again = resender().resend(letter(None))
    assert isinstance(again, Resend) and again.partition == 3


def test_a_letter_of_no_lane_stays() -> None:
    """A record that somebody else wrote, or another fleet's; the reason says what it names."""
    for topic in ("g.states.normal", "f.actions", ""):
        stays = resender().resend(letter(topic=topic))
        assert isinstance(stays, Unsendable) and (topic or "nothing") in stays.why


def test_a_letter_without_its_state_stays() -> None:
    """It was too large for the dead-letter topic; there is nothing that a worker could answer."""
    stays = resender().resend(replace(letter(), value=None, message="boom; left out: the state"))
    assert isinstance(stays, Unsendable) and stays.why == "it has no state: boom; left out: the state"


def test_a_letter_near_the_limit_goes_without_its_history_and_one_above_it_stays() -> None:
    """The lane's limit holds for headers too; one record too large would fail its whole batch."""
    size = resender().resend(letter()).size_bytes  # type: ignore[union-attr]
    slim = resender(size - 1).resend(letter())
    assert isinstance(slim, Resend) and HISTORY not in dict(slim.headers)
    stays = resender(100).resend(letter())
    assert isinstance(stays, Unsendable) and "its lane takes 100" in stays.why


@given(st.lists(st.integers(0, BATCH_BYTES + 10), max_size=30), st.integers(1, 5))
def test_batches_keep_order_and_limits(sizes: list[int], most: int) -> None:
    """A letter that is larger than a batch may be goes alone."""
    sent = [Resend(letter(value=bytes(size), offset=at), "t", 0, []) for at, size in enumerate(sizes)]
    cut = batches(sent, most)
    assert [one for batch in cut for one in batch] == sent
    for batch in cut:
        assert 1 <= len(batch) <= most
        assert len(batch) == 1 or sum(one.size_bytes for one in batch) <= BATCH_BYTES


@given(
    st.sets(st.tuples(st.integers(0, 2), st.integers(0, 9))), st.sets(st.tuples(st.integers(0, 2), st.integers(0, 9)))
)
def test_what_is_due_is_what_matches_and_was_not_sent(
    matching: set[tuple[int, int]], sent: set[tuple[int, int]]
) -> None:
    """In the order of the letters; the limit counts only what is sent."""
    wanted, left_out = due(matching, sent, limit=3)
    flat = [(partition, offset) for partition, offsets in wanted.items() for offset in offsets]
    assert flat == sorted(matching - sent)[:3]
    assert left_out == len(matching & sent)


@given(st.floats(0.01, 10_000.0), st.integers(1, 5000))
def test_a_rate_holds_over_the_whole_redrive(rate: float, sent: int) -> None:
    """So many letters take so long at least, and a late batch is caught up."""
    pace = Pace(rate)
    assert pace.wait_s(sent, 0.0) >= sent / rate - 1e-9
    assert pace.wait_s(sent, sent / rate + 1.0) == 0.0
    assert 1 <= pace.batch_letters <= max(1, rate)
    assert Pace(None).wait_s(sent, 0.0) == 0.0
