"""Correlation IDs carry client, call and row, and replies are grouped by call without a table per state."""

from __future__ import annotations

from dataclasses import dataclass, field

from topics.client.correlation import by_call, head_of, headers, new_client_id, row_numbers
from topics.headers import CORRELATION_ID, REPLY_TOPIC, Headers


@dataclass
class Record:
    headers: Headers = field(default_factory=list)
    value: bytes | None = b"value"


def test_every_row_of_a_call_has_an_id_of_its_own() -> None:
    """Client, call and row are read back from the 16 bytes."""
    client = new_client_id()
    first, *_, last = headers(head_of(client, 7), 300)
    assert [name for name, _ in first] == [CORRELATION_ID]
    assert first[0][1] == client + b"\0\0\0\x07" + b"\0\0\0\0"
    assert last[0][1] == client + b"\0\0\0\x07" + b"\0\0\x01\x2b"


def test_call_numbers_wrap() -> None:
    """A client that makes more than 2³² calls goes on."""
    assert head_of(b"client!!", 2**32 + 5) == head_of(b"client!!", 5)


def test_headers_of_a_place_of_its_own_follow_the_id() -> None:
    """The correlation ID stays the first header, where it is looked for."""
    (row,) = headers(b"head........", 1, [(REPLY_TOPIC, b"mine")])
    assert row == [(CORRELATION_ID, b"head........\0\0\0\0"), (REPLY_TOPIC, b"mine")]


def test_replies_are_grouped_by_call_in_the_order_they_came() -> None:
    """Interleaved calls are taken apart; rows and values stay aligned."""
    a, b = head_of(b"client!!", 1), head_of(b"client!!", 2)
    heads = [a, a, b, a]
    rows = [3, 1, 0, 2]
    records = [
        Record([(CORRELATION_ID, head + row.to_bytes(4, "big"))], bytes([row]))
        for head, row in zip(heads, rows, strict=True)
    ]
    landed = by_call(records)
    assert {head: (row_numbers(rows), values) for head, (rows, values) in landed.items()} == {
        a: ([3, 1, 2], [b"\x03", b"\x01", b"\x02"]),
        b: ([0], [b"\0"]),
    }


def test_records_of_others_do_no_harm() -> None:
    """Without headers, with an ID of another length, with an ID behind other headers, with a null one."""
    mine = head_of(b"client!!", 1)
    records = [
        Record(),
        Record([("traceparent", b"00-..")]),
        Record([(CORRELATION_ID, b"short")]),
        Record([(CORRELATION_ID, None)]),  # type: ignore[list-item]
        Record([("other", b"x"), (CORRELATION_ID, mine + b"\0\0\0\x05")]),
        Record([(CORRELATION_ID, mine + b"\0\0\0\x06...")]),
    ]
    landed = by_call(records)
    assert row_numbers(landed[mine][0]) == [5, -1]
    assert sum(len(rows) for rows, _ in landed.values()) == len(records)
