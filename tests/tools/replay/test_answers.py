"""What was seen and answered, and when nobody waits any longer."""

from __future__ import annotations

from typing import Any

from aiokafka.structs import ConsumerRecord

from tools.replay.answers import Found, Patience, Tally
from topics.headers import CORRELATION_ID

RUN = b"run-----"


def record(topic: str, number: int, run: bytes = RUN) -> ConsumerRecord[Any, Any]:
    headers = ((CORRELATION_ID, run + number.to_bytes(8, "big")),)
    return ConsumerRecord(topic, 0, number, 1, 0, b"a", b"v", None, 1, 1, headers)


def test_missing_and_doubled_states_and_answers_are_counted_by_number() -> None:
    """Records of others are left out; a state that was never sent is not missing."""
    tally = Tally(RUN, "f.actions")
    taken = tally.take([record("f.states.low", number) for number in (0, 1, 3, 3, 5000)])
    taken += tally.take([record("f.actions", 1), record("f.actions", 1), record("f.actions", 0, b"another-")])
    assert len(taken) == 7
    found = tally.finish(5001, [4])
    assert (found.states, found.answered, found.states_twice, found.answers_twice) == (4, 1, 1, 1)
    assert found.unseen == [2, *range(5, 5000)]
    assert found.unanswered == [0, 2, 3, *range(5, 5001)]


def test_a_run_of_which_nothing_was_seen_misses_everything() -> None:
    """Also the numbers that no record had."""
    assert Tally(RUN, "f.actions").finish(3, []).unanswered == [0, 1, 2]


def test_waiting_ends_when_all_is_there_or_nothing_new_comes() -> None:
    """The quiet time counts from the end of sending and from the last news."""
    patience, found = Patience(10.0), Found()
    assert not patience.is_over(found, 100.0)
    patience.hear((3, frozenset({1})))
    assert not patience.is_over(found, 109.0)
    found.states, found.answered = 2, 1
    assert not patience.is_over(found, 118.0) and not patience.is_over(found, 127.0)
    assert patience.is_over(found, 129.0)
    found.answered = 2
    assert patience.is_over(found, 129.0)


def test_who_is_told_to_stop_stops() -> None:
    """Whether all is sent or not."""
    patience = Patience(10.0)
    patience.hear(None)
    assert patience.is_over(Found(), 0.0)
