"""What of a poll is written."""

from __future__ import annotations

from typing import Any

from aiokafka.structs import ConsumerRecord, TopicPartition

from tools.record.keep import Keep
from tools.recording.recorded import Recorded
from tools.recording.selection import Selection

A, B = TopicPartition("demo.actions", 0), TopicPartition("demo.actions", 1)
HEADERS = (("twice", b"1"), ("twice", None))


def polled(place: TopicPartition, *keys: bytes | None) -> list[Any]:
    return [ConsumerRecord(*place, offset, 1000, 1, key, None, None, 1, 1, HEADERS) for offset, key in enumerate(keys)]


def test_bytes_times_and_headers_stay_as_they_are() -> None:
    """Nothing is decoded, nothing is made up: no key is None, not empty."""
    keep = Keep(Selection())
    kept = keep({A: polled(A, None, b"\xff"), B: []})
    assert kept == {
        A: [Recorded(*A, 0, 1000, 1, None, None, HEADERS), Recorded(*A, 1, 1000, 1, b"\xff", None, HEADERS)]
    }
    assert (keep.left_out, keep.redacted_out) == (0, 0)


def test_agents_are_chosen_before_the_redaction_function_sees_a_record() -> None:
    """And both are counted apart; a partition of which nothing is left is not there."""
    seen: list[bytes | None] = []

    def redact(record: Recorded) -> Recorded | None:
        seen.append(record.key)
        return None if record.offset == 0 else record._replace(key=b"x")

    keep = Keep(Selection(agents=("good-*",)), redact)
    kept = keep({A: polled(A, b"good-1", b"bad-1", b"good-2"), B: polled(B, b"good-3", b"bad-2")})
    assert {place: [(one.offset, one.key) for one in ones] for place, ones in kept.items()} == {A: [(2, b"x")]}
    assert seen == [b"good-1", b"good-2", b"good-3"]
    assert (keep.left_out, keep.redacted_out) == (2, 2)
