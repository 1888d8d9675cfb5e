"""Recorded states become outgoing ones: numbers, due times, partitions, and what a resumed run leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tools.recording.recorded import Recorded
from tools.replay.outgoing import Done, Outgoing, Places, require_partitions
from topics.errors import FleetError
from topics.partitions import Partitioner
from topics.records import State
from topics.wire import decode_state, encode_state

BEGIN_US = 1_800_000_000_000_000
RECORDED_MS = 1_700_000_000_000
TOPICS = {"old.states.high": "new.states.high", "old.states.low": "new.states.low"}
PARTITIONS = {"new.states.high": 4, "new.states.low": 4}


def recorded(at_ms: int, agent: bytes | None = b"a", partition: int = 0, **changes: Any) -> Recorded:
    value = encode_state(
        State([1.0], sent_us=(RECORDED_MS + at_ms) * 1000, deadline_us=(RECORDED_MS + at_ms + 50) * 1000)
    )
    found: dict[str, Any] = {
        "topic": "old.states.low",
        "offset": at_ms,
        "value": value,
        "headers": (("kafka_correlationId", b"old"),),
    }
    return Recorded(
        **(found | changes), partition=partition, timestamp_ms=RECORDED_MS + at_ms, timestamp_type=0, key=agent
    )


def outgoing(**changes: Any) -> Outgoing:
    settings: dict[str, Any] = {"speed": 1.0, "loops": 1, "copies": 1, "max_bytes": 1000, "rekey": False} | changes
    places = Places(TOPICS, PARTITIONS, rekey=settings.pop("rekey"))
    return Outgoing(b"run-----", places, **settings)


def sent(out: Outgoing, records: Sequence[Recorded]) -> list[tuple[Any, ...]]:
    """(number, due in ms, place, key, value, headers) of everything, whatever the pieces."""
    rows: list[tuple[Any, ...]] = []
    for piece in out.pieces(lambda: [records[:3], records[3:]], BEGIN_US):
        dues_ms = [due_us / 1000 for due_us in piece.dues_us]
        places = [out.places.all[place] for place in piece.places]
        rows += zip(piece.numbers, dues_ms, places, piece.keys, piece.values, piece.headers, strict=True)
    return rows


def test_states_keep_their_distances_partitions_and_budgets() -> None:
    """The time left for the answer is what it was, at any speed."""
    rows = sent(outgoing(speed=2.0), [recorded(0, partition=3), recorded(10), recorded(10, topic="old.states.high")])
    assert [row[1] for row in rows] == [0, 5, 5]
    assert [row[2] for row in rows] == [("new.states.low", 3), ("new.states.low", 0), ("new.states.high", 0)]
    for number, due_ms, _, key, value, headers in rows:
        state = decode_state(value)
        assert state.sent_us == BEGIN_US + due_ms * 1000 and state.deadline_us == BEGIN_US + due_ms * 1000 + 50_000
        assert key == b"a" and headers == [("kafka_correlationId", b"run-----" + number.to_bytes(8, "big"))]


def test_loops_and_copies_have_numbers_and_agents_of_their_own() -> None:
    """Copies leave with their originals; no correlation ID comes twice."""
    rows = sent(outgoing(loops=2, copies=3), [recorded(0, b"a"), recorded(4, b"b")])
    assert [row[0] for row in rows] == list(range(12))
    assert [row[3] for row in rows[:6]] == [b"a", b"a~1", b"a~2", b"b", b"b~1", b"b~2"]
    assert [row[1] for row in rows[::3]] == [0, 4, 5, 9]
    assert len({row[5][0][1] for row in rows}) == 12
    partitioner = Partitioner(4)
    assert [row[2][1] for row in rows[:3]] == [0, partitioner(b"a~1"), partitioner(b"a~2")]


def test_rekeyed_states_go_where_agents_would_send_them() -> None:
    """Whatever partition they were recorded in; those without a key are spread."""
    rows = sent(outgoing(rekey=True), [recorded(0, b"x", 7), recorded(0, None, 7)])
    assert [row[2][1] for row in rows] == [Partitioner(4)(b"x"), 3]


def test_a_resumed_run_leaves_out_what_arrived_and_starts_at_once() -> None:
    """The first state that is left is due at 0, and the others keep their distance from it."""
    records = [recorded(at_ms) for at_ms in (0, 10, 20, 40, 80)]
    whole, rest = outgoing(), outgoing(done=Done(1, {2}))
    first, again = sent(whole, records), sent(rest, records)
    assert [(row[0], row[1]) for row in again] == [(1, 0), (3, 30), (4, 70)]
    assert whole.total == rest.total == 5
    assert [row[5] for row in again] == [first[number][5] for number in (1, 3, 4)]


def test_a_state_that_its_topic_would_not_take_is_named_and_the_others_go() -> None:
    """Headers count too."""
    large = (("kafka_correlationId", b""), ("x", b"h" * 900))
    out = outgoing()
    rows = sent(out, [recorded(0), recorded(1, value=b"v" * 900), recorded(2, headers=large), recorded(3, value=None)])
    assert [row[0] for row in rows] == [0, 3] and rows[1][4] is None
    assert [one.number for one in out.unsendable] == [1, 2] and out.total == 4
    assert "agent a (old.states.low/0:1)" in out.unsendable[0].state


def test_a_target_with_fewer_partitions_is_refused_unless_rekeyed() -> None:
    """Agents would share partitions that they did not share."""
    require_partitions([("old.states.low", 3)], TOPICS, PARTITIONS)
    with pytest.raises(FleetError, match=r"partition 4, new\.states\.low has 4 partitions: --rekey"):
        require_partitions([("old.states.low", 4)], TOPICS, PARTITIONS)
