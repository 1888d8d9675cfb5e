"""Correlation IDs: which answer belongs to which state, without a table entry per state.

An ID has 16 bytes: 8 random ones of this client, 4 of the call's number, 4 of the row in the call. The first 12 are
the call's *head*: one look-up of it finds the call, and the row is an index. Replies of other clients on a shared
partition differ in the first 8 bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from topics.headers import CORRELATION_ID, Headers

CLIENT_BYTES = 8
HEAD_BYTES = 12
ROW_BYTES = 4

Landed = dict[bytes, tuple[list[bytes], list[bytes]]]
"""Head → the row numbers (4 bytes each) and values of the replies to that call, in the order they came."""

_rows: list[bytes] = []


def new_client_id() -> bytes:
    """8 random bytes: two clients of one fleet share them with a chance of 1 in 2⁶⁴."""
    return os.urandom(CLIENT_BYTES)


def head_of(client_id: bytes, number: int) -> bytes:
    """The first 12 bytes of the correlation IDs of call `number` (taken modulo 2³²)."""
    return client_id + (number & 0xFFFFFFFF).to_bytes(HEAD_BYTES - CLIENT_BYTES, "big")


def headers(head: bytes, size: int, more: Sequence[tuple[str, bytes]] = ()) -> list[Headers]:
    """The Kafka headers of a call's rows: each row's correlation ID, then `more`."""
    while len(_rows) < size:  # grown to the largest call ever made, 50 bytes a row
        _rows.append(len(_rows).to_bytes(ROW_BYTES, "big"))
    if more:
        return [[(CORRELATION_ID, head + row), *more] for row in _rows[:size]]
    return [[(CORRELATION_ID, head + row)] for row in _rows[:size]]


def row_numbers(rows: Sequence[bytes]) -> list[int]:
    """Row numbers of what `by_call` collected; anything that is not 4 bytes becomes −1."""
    joined = b"".join(rows)
    if len(joined) == ROW_BYTES * len(rows):
        return np.frombuffer(joined, ">u4").tolist()  # type: ignore[no-any-return]
    return [int.from_bytes(row, "big") if len(row) == ROW_BYTES else -1 for row in rows]


def by_call(records: Iterable[Any]) -> Landed:
    """Kafka records by the head of their correlation ID, which is b"" for those without one.

    It is the only header of most answers. If the only one is something else, its bytes are no ID of ours either.
    """
    landed: Landed = {}
    head = None
    rows: list[bytes] = []
    values: list[bytes] = []
    for record in records:
        found = record.headers
        correlation_id = (found[0][1] if len(found) == 1 else _search(found)) or b""
        if correlation_id[:HEAD_BYTES] != head:  # replies to one call come in runs
            head = correlation_id[:HEAD_BYTES]
            rows, values = landed.setdefault(head, ([], []))
        rows.append(correlation_id[HEAD_BYTES:])
        values.append(record.value)
    return landed


def _search(found: Headers) -> bytes | None:
    return next((value for name, value in found if name == CORRELATION_ID), None)
