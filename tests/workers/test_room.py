"""Room: what a topic would refuse is known before it is sent."""

from __future__ import annotations

from dataclasses import replace

from tests.workers.build import record, request
from workers.reply import REPLY_TOO_LARGE
from workers.requests import Refusal
from workers.room import KEPT_BYTES, LETTER_BYTES, Room


def test_an_answer_counts_with_what_it_echoes() -> None:
    """Key, value and headers; without the echoes it names its origin."""
    asked = request("a")
    room = Room(10_000)
    assert room.has(asked, bytes(9_000)) and not room.has(asked, bytes(9_900))
    asked.headers = [("kafka_correlationId", bytes(9_900))]
    assert not room.has(asked, b"")
    refusal = room.refuse(asked)
    assert refusal.outcome == "failed" and refusal.dead == REPLY_TOO_LARGE
    room.shorten(asked)
    assert room.has(asked, b"") and not asked.correlated


def test_a_letter_without_room_leaves_the_state_out() -> None:
    """And says so; one that fits is untouched."""
    room = Room(LETTER_BYTES + 5_000)
    fitting = Refusal(request("a"), "rejected", "bad", dead="input")
    assert room.for_letter(fitting) is fitting
    large = replace(request("a"), record=record(agent="k" * 4_000, value=bytes(4_000)))
    cut = room.for_letter(Refusal(large, "rejected", "bad", dead="input"))
    assert cut.request.record.value is None and len(cut.request.record.key) == KEPT_BYTES
    assert cut.reason == "bad; left out: the state, which has no room in a letter"
    assert large.record.value is not None
    without_letter = Refusal(large, "expired", "late")
    assert room.for_letter(without_letter) is without_letter
