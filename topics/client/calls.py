"""Calls that wait for answers: one entry per call, an index per state.

Takes replies grouped by call (`correlation.by_call`), says which are new, duplicate, late or another client's, and
keeps each state's first answer. Never reads the clock and never decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topics.client.correlation import CLIENT_BYTES, Landed, head_of, row_numbers
from topics.client.stats import ClientStats
from topics.errors import FleetError

MAX_REMEMBERED_CALLS = 1024
"""Timed-out calls whose late answers are told from duplicates; those of older calls count as duplicates."""

OnRows = Callable[[Sequence[int]], None]


class Call:
    """The states of one call: `values[row]` is the answer's bytes, None until it came.

    `on_rows` is told which rows have just been settled: answered, or lost before they reached the broker.
    """

    __slots__ = ("arrived_s", "error", "head", "left", "lost", "on_rows", "sent_s", "values")

    def __init__(self, head: bytes, size: int, sent_s: float, on_rows: OnRows) -> None:
        self.head = head
        self.values: list[bytes | None] = [None] * size
        self.arrived_s = [0.0] * size
        self.sent_s = sent_s
        self.left = size
        self.lost: set[int] = set()
        self.error: FleetError | None = None
        self.on_rows = on_rows

    def land(self, rows: Sequence[int], values: Sequence[bytes], now_s: float) -> int:
        """Keep each row's first answer; how many were new."""
        slots, arrived_s, size = self.values, self.arrived_s, len(self.values)
        fresh = []
        for row, value in zip(rows, values, strict=True):
            if 0 <= row < size and slots[row] is None and value is not None and row not in self.lost:
                slots[row] = value
                arrived_s[row] = now_s
                fresh.append(row)
        self._settle(fresh)
        return len(fresh)

    def lose(self, rows: Sequence[int], error: FleetError) -> int:
        """These rows never reached the broker, because of `error`; how many had no answer yet."""
        gone = [row for row in rows if self.values[row] is None and row not in self.lost]
        self.lost.update(gone)
        self.error = error
        self._settle(gone)
        return len(gone)

    def _settle(self, rows: Sequence[int]) -> None:
        self.left -= len(rows)
        if rows:
            self.on_rows(rows)

    def unanswered(self) -> list[int]:
        """Rows that have no answer."""
        return [row for row, value in enumerate(self.values) if value is None]

    def __repr__(self) -> str:
        return f"<Call {self.head[CLIENT_BYTES:].hex()} {len(self.values) - self.left}/{len(self.values)} settled>"


class PendingCalls:
    """Every call of this client that is not over. Bounded by the calls' time-outs: each ends with `close`."""

    def __init__(self, client_id: bytes, stats: ClientStats) -> None:
        self._client_id = client_id
        self._stats = stats
        self._calls: dict[bytes, Call] = {}
        self._over: dict[bytes, set[int]] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._calls)

    def open(self, size: int, sent_s: float, on_rows: OnRows) -> Call:
        """A new call of `size` states. `sent_s`: now, in seconds of the clock that `land` will be given."""
        call = Call(head_of(self._client_id, self._number), size, sent_s, on_rows)
        self._number += 1
        self._calls[call.head] = call
        self._stats.calls += 1
        self._stats.states_sent += size
        return call

    def lose(self, call: Call, rows: Sequence[int], error: FleetError) -> None:
        """The broker refused these rows of `call`."""
        self._stats.not_sent += call.lose(rows, error)

    def abort(self, error: FleetError) -> None:
        """Every call ends now, with what it has and `error` for the rest."""
        for call in list(self._calls.values()):
            call.lose(call.unanswered(), error)

    def close(self, call: Call) -> None:
        """The call is over; answers that still come for it are late."""
        if self._calls.pop(call.head, None) is None or not call.left:
            return
        self._stats.timed_out += call.left
        if len(self._over) >= MAX_REMEMBERED_CALLS:
            self._over.pop(next(iter(self._over)))
        self._over[call.head] = set(call.unanswered()) - call.lost

    def land(self, replies: Landed, now_s: float) -> None:
        """Give every reply to its call; count what belongs to none."""
        for head, (rows, values) in replies.items():
            call = self._calls.get(head)
            if call is None:
                self._stray(head, rows)
                continue
            fresh = call.land(row_numbers(rows), values, now_s)
            self._stats.answered += fresh
            self._stats.duplicates += len(rows) - fresh

    def _stray(self, head: bytes, rows: Sequence[bytes]) -> None:
        if not head.startswith(self._client_id):
            self._stats.foreign += len(rows)
            return
        unanswered = self._over.get(head, set())
        for row in row_numbers(rows):
            if row in unanswered:
                unanswered.discard(row)
                self._stats.late += 1
            else:
                self._stats.duplicates += 1

    def __repr__(self) -> str:
        waiting = sum(call.left for call in self._calls.values())
        return f"<PendingCalls {len(self._calls)} calls, {waiting} states wait>"
