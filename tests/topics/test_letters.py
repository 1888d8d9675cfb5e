"""Headers of dead letters: what a state remembers of its failures, and what an agent cannot make us believe."""

from __future__ import annotations

from typing import Any

from aiokafka.structs import ConsumerRecord
from hypothesis import given
from hypothesis import strategies as st

from topics import letters
from topics.letters import (
    ATTEMPTS,
    HISTORY,
    LETTER,
    MAX_HISTORY,
    MAX_KEPT_BYTES,
    RUN,
    Failure,
    decode_history,
    earlier,
    encode_history,
    headers_again,
    own,
    read_letter,
)

NUMBERS = st.integers(0, 2**62)
FAILURES = st.builds(Failure, st.text(max_size=64), NUMBERS, st.text(max_size=249), NUMBERS, NUMBERS)
HEADERS = st.lists(
    st.tuples(
        st.one_of(st.text(max_size=8), st.sampled_from([letters.PREFIX + "reason", ATTEMPTS, HISTORY, LETTER, RUN])),
        st.one_of(st.none(), st.binary(max_size=64)),
    )
)


def record(headers: Any, offset: int = 17) -> ConsumerRecord:
    return ConsumerRecord("f.dead", 0, offset, 1_000, 0, b"a", b"v", None, 1, 1, tuple(headers))


def failed(**more: str) -> ConsumerRecord:
    found = {"reason": "model_error", "time_us": "5", "topic": "f.states.low", "partition": "3", "offset": "9"} | more
    ours = [(letters.PREFIX + name, text.encode()) for name, text in found.items()]
    return record([("kafka_correlationId", b"c"), *ours])


@given(st.lists(FAILURES, max_size=12))
def test_a_history_keeps_the_newest_failures_within_its_limit(failures: list[Failure]) -> None:
    """Whatever topics are called, it fits into a header; what is kept reads back as it was."""
    encoded = encode_history(failures)
    kept = decode_history(encoded)
    assert len(encoded) <= MAX_KEPT_BYTES and len(kept) <= MAX_HISTORY
    assert list(kept) == failures[len(failures) - len(kept) :]


@given(st.one_of(st.binary(max_size=200), st.sampled_from([b"[" * 4000, b"1" * 4090, b"[null, {}]", b'{"a": 1}'])))
def test_any_bytes_are_a_history(value: bytes) -> None:
    """An agent may send what it likes."""
    assert isinstance(decode_history(value), tuple)


@given(HEADERS)
def test_any_headers_are_a_letter(headers: list[tuple[str, bytes | None]]) -> None:
    """And can be sent again; the agent's own headers stay as they are, in their order."""
    letter = read_letter(record(headers))
    again = headers_again(letter, "run")
    assert letter.attempts >= 1
    assert own(again) == own(headers)
    assert dict(again)[LETTER] == b"0:17" and dict(again)[RUN] == b"run"


def test_a_failure_is_read_from_the_headers() -> None:
    """Reason, time and origin, as the worker wrote them."""
    letter = read_letter(failed())
    assert letter.failure == Failure("model_error", 5, "f.states.low", 3, 9)
    assert (letter.attempts, letter.history, letter.redriven_from) == (1, (), None)


def test_a_redriven_state_carries_its_failures() -> None:
    """Nothing of the letter's own headers goes back to the lane but what tells of them."""
    headers = headers_again(read_letter(failed()), "r1")
    assert [name for name, _ in headers] == ["kafka_correlationId", ATTEMPTS, HISTORY, LETTER, RUN]
    assert earlier(headers) == (1, headers[2:])
    assert decode_history(dict(headers)[HISTORY]) == (Failure("model_error", 5, "f.states.low", 3, 9),)


def test_forged_counts_and_long_histories_count_for_nothing() -> None:
    """What is carried on has limits."""
    assert earlier([(ATTEMPTS, b"9" * 7), (HISTORY, b"x" * (MAX_KEPT_BYTES + 1)), (RUN, None)]) == (0, [])
    assert earlier([(ATTEMPTS, b"-1")]) == (0, [])
