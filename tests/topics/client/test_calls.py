"""Every state keeps its first answer; all else is counted as what it is and dropped."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from topics.client import calls
from topics.client.calls import Call, PendingCalls
from topics.client.errors import ClientClosed, NotSent
from topics.client.stats import ClientStats

CLIENT = b"client!!"


class Table:
    """Pending calls, their counters, and what `on_rows` was told."""

    def __init__(self) -> None:
        self.stats = ClientStats()
        self.pending = PendingCalls(CLIENT, self.stats)
        self.settled: list[int] = []

    def open(self, size: int) -> Call:
        return self.pending.open(size, 10.0, self.settled.extend)

    def land(self, head: bytes, rows: Sequence[int], now_s: float = 11.0) -> None:
        raw = [row.to_bytes(4, "big") for row in rows]
        self.pending.land({head: (raw, [bytes([row]) for row in rows])}, now_s)


@pytest.fixture
def table() -> Table:
    return Table()


def test_answers_land_in_their_rows(table: Table) -> None:
    """Whatever the order in which they come."""
    call = table.open(3)
    table.land(call.head, [2, 0])
    assert call.values == [b"\0", None, b"\x02"]
    assert (call.left, call.unanswered()) == (1, [1])
    assert call.arrived_s == [11.0, 0.0, 11.0]
    assert table.settled == [2, 0]


def test_a_second_answer_is_dropped_and_counted(table: Table) -> None:
    """In the same poll, in a later one, and after the call is over: the first one stays."""
    call = table.open(2)
    table.pending.land({call.head: ([b"\0\0\0\0", b"\0\0\0\0"], [b"first", b"second"])}, 11.0)
    table.land(call.head, [0, 1])
    table.pending.close(call)
    table.land(call.head, [1])
    assert call.values == [b"first", b"\x01"]
    assert (table.stats.answered, table.stats.duplicates, table.stats.late) == (2, 3, 0)
    assert table.settled == [0, 1]


def test_an_answer_after_the_time_out_is_late_once(table: Table) -> None:
    """A further one to the same state is a duplicate."""
    call = table.open(2)
    table.land(call.head, [0])
    table.pending.close(call)
    table.land(call.head, [1])
    table.land(call.head, [1, 0])
    assert (table.stats.timed_out, table.stats.late, table.stats.duplicates) == (1, 1, 2)
    assert call.values[1] is None


def test_answers_of_other_clients_are_ignored(table: Table) -> None:
    """They share the partition, not the first 8 bytes."""
    table.open(1)
    table.land(b"another!\0\0\0\0", [0])
    table.land(b"", [0])
    assert (table.stats.foreign, table.stats.answered) == (2, 0)


def test_rows_that_no_call_has_are_dropped(table: Table) -> None:
    """A correlation ID with a wrong row cannot raise or write beyond the call."""
    call = table.open(1)
    table.pending.land({call.head: ([b"\xff\xff\xff\xff", b"odd"], [b"", b""])}, 11.0)
    assert call.values == [None]
    assert table.stats.duplicates == 2


def test_a_reply_without_a_value_is_no_answer(table: Table) -> None:
    """A tombstone on the reply topic leaves the state waiting."""
    call = table.open(1)
    table.pending.land({call.head: ([b"\0\0\0\0"], [None])}, 11.0)  # type: ignore[list-item]
    assert call.left == 1


def test_refused_rows_end_at_once_and_their_answers_do_not_count(table: Table) -> None:
    """The rest of the call goes on; a row that was answered before stays answered."""
    call = table.open(3)
    table.land(call.head, [0])
    table.pending.lose(call, [0, 1], NotSent("refused"))
    assert (call.left, call.lost, table.stats.not_sent) == (1, {1}, 1)
    assert isinstance(call.error, NotSent)
    table.land(call.head, [1])
    assert call.values[1] is None


def test_abort_ends_every_call(table: Table) -> None:
    """What was answered stays; the rest has the reason."""
    one, two = table.open(2), table.open(1)
    table.land(one.head, [1])
    table.pending.abort(ClientClosed("closed"))
    assert (one.left, two.left) == (0, 0)
    assert one.values == [None, b"\x01"]
    assert isinstance(two.error, ClientClosed)


def test_memory_of_timed_out_calls_is_bounded(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten first; its late answer then counts as a duplicate."""
    monkeypatch.setattr(calls, "MAX_REMEMBERED_CALLS", 2)
    heads = []
    for _ in range(3):
        call = table.open(1)
        table.pending.close(call)
        heads.append(call.head)
    for head in heads:
        table.land(head, [0])
    assert (table.stats.late, table.stats.duplicates) == (2, 1)


def test_it_says_what_waits(table: Table) -> None:
    """The repr that one wants in an incident."""
    call = table.open(3)
    table.land(call.head, [1])
    assert repr(table.pending) == "<PendingCalls 1 calls, 2 states wait>"
    assert repr(call) == "<Call 00000000 1/3 settled>"
