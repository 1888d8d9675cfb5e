"""What an agent gets back: one Reply, or Replies with a column per property.

Made at the end of a call from the bytes of its answers. The action is there at once; the rest of a record (model,
worker, timing, extras) is decoded when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from topics.client.decode import Decoded, has_action
from topics.client.errors import NoAction
from topics.errors import DecodeError, FleetError
from topics.records import Action, Timing
from topics.tensors import Array
from topics.wire import decode_action


class Reply:
    """The answer to one state.

    `outcome` is `action`, `expired`, `superseded`, `rejected` or `failed`. The first has an action, the others have a
    `reason`; an `expired` one has an action too if the model package names a fallback.
    `latency_s`: from the call to the answer's arrival.
    """

    __slots__ = ("_action", "_record", "_value", "agent_id", "latency_s", "outcome")

    def __init__(
        self, agent_id: str, outcome: str, action: Any, latency_s: float, value: bytes, record: Action | None = None
    ) -> None:
        self.agent_id = agent_id
        self.outcome = outcome
        self.latency_s = latency_s
        self._action = action
        self._value = value
        self._record = record

    @property
    def ok(self) -> bool:
        """Whether the model decided."""
        return self.outcome == "action"

    @property
    def has_action(self) -> bool:
        """Whether there is an action: the model's, or the fallback for a state that expired."""
        return self.ok or (self.outcome == "expired" and self._action is not None)

    @property
    def action(self) -> Any:
        """The action: an array [*shape], a numpy number for shape (), or plain numbers for agents that sent plain ones.

        Raises:
            NoAction: there is none; `action_or` gives a default instead.
        """
        if not self.has_action:
            raise NoAction(
                f"{self.agent_id} has no action: its state was {self.outcome} ({self.reason}); "
                "look at reply.outcome first, or use reply.action_or(default)"
            )
        return self._action

    def action_or(self, default: Any) -> Any:
        """The action, or `default` where there is none."""
        return self._action if self.has_action else default

    @property
    def record(self) -> Action:
        """The whole record as the worker wrote it."""
        if self._record is None:
            self._record = _decoded(self._value)
        return self._record

    @property
    def reason(self) -> str | None:
        """Why the model did not decide; None if it did."""
        return None if self.outcome == "action" else self.record.reason

    @property
    def seq(self) -> int | None:
        """The agent's step counter that came with the state."""
        return self.record.seq

    @property
    def model(self) -> str:
        """Version of the model that decided."""
        return self.record.model

    @property
    def lane(self) -> str:
        """Lane in which the state was served."""
        return self.record.lane

    @property
    def worker(self) -> str:
        """Name of the worker that answered."""
        return self.record.worker

    @property
    def timing(self) -> Timing:
        """Where the time went inside the fleet, in µs."""
        return self.record.timing

    @property
    def extras(self) -> dict[str, Any]:
        """The model's other outputs (logits, value) by name."""
        return self.record.extras

    def __repr__(self) -> str:
        what = f"action {self._action!r}" if self.ok else f"{self.outcome} ({self.reason})"
        if self.has_action and not self.ok:
            what += f", fallback {self._action!r}"
        return f"<Reply {self.agent_id} {what} {self.latency_s * 1000:.1f} ms>"


class Replies(Sequence[Reply]):
    """The answers to one `decide_many`, row by row in the order of the call.

    `ids` [n]; `actions` [n, *shape] in the model's dtype, writable, zeros where there is no action (objects [n] if the
    rows' shapes differ, and None [n] before this client has seen any action); `outcomes` [n], strings, "" where no
    answer came; `latency_s` [n], from the call to the answer's arrival, NaN where none came.
    """

    def __init__(
        self,
        ids: Sequence[str],
        values: Sequence[bytes | None],
        decoded: Decoded,
        latency_s: Array,
        error: FleetError | None,
    ) -> None:
        self.ids = ids
        self.actions = decoded.actions
        self.outcomes = decoded.outcomes
        self.latency_s = latency_s
        self.error = error
        """Why rows have no answer (`ReplyTimeout`, `NotSent`); None if all have."""
        self._values = values
        self._decoded = decoded

    @property
    def answered(self) -> Array:
        """bool [n]: an answer came in time, whatever its outcome."""
        return np.not_equal(self.outcomes, "")

    @property
    def ok(self) -> Array:
        """bool [n]: the model decided."""
        return np.equal(self.outcomes, "action")

    @property
    def has_action(self) -> Array:
        """bool [n]: there is an action, the model's or the fallback for a state that expired."""
        found = self.ok
        for row, record in self._decoded.records.items():
            found[row] |= has_action(record)
        return found

    def actions_or(self, default: Any) -> Array:
        """`actions` with `default` (one action, or [n, *shape] like `actions`) in the rows that have none."""
        there = self.has_action
        if there.all():
            return self.actions
        if self.actions.dtype == object and not there.any():  # this client has not seen an action yet
            return np.array([default] * len(self) if np.shape(default)[:1] != (len(self),) else default)
        filled = self.actions.copy()
        filled[~there] = np.broadcast_to(default, filled.shape)[~there]
        return filled

    def raise_for_missing(self) -> Replies:
        """These replies if every row has an action, for loops that cannot go on without.

        Raises:
            ReplyTimeout, NotSent: a row has no answer.
            NoAction: a row has none, nor a fallback; names the first one.
        """
        if self.error is not None and not self.answered.all():
            raise self.error
        bad = np.flatnonzero(~self.has_action)
        if len(bad):
            first = self[int(bad[0])]
            raise NoAction(
                f"{len(bad)} of {len(self)} states have no action, "
                f"first {first.agent_id}: {first.outcome} ({first.reason})"
            )
        return self

    def record(self, row: int) -> Action | None:
        """The whole record of one row; None where no answer came."""
        value, records = self._values[row], self._decoded.records
        if value is not None and row not in records:
            records[row] = _decoded(value)
        return records.get(row)

    def extra(self, name: str) -> Array:
        """One of the model's other outputs, [n, *shape], zeros where there is none.

        Raises:
            KeyError: no answer carries it.
        """
        found = {row: r.extras[name] for row in range(len(self)) if (r := self.record(row)) and name in r.extras}
        if not found:
            known = sorted({each for row in range(len(self)) if (r := self.record(row)) for each in r.extras})
            raise KeyError(f"no answer has an extra named {name!r}, the model gives {', '.join(known) or 'none'}")
        first = np.asarray(next(iter(found.values())))
        column = np.zeros((len(self), *first.shape), first.dtype)
        for row, value in found.items():
            column[row] = value
        return column

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: Any) -> Any:
        """One row as a Reply; its outcome is "" where no answer came."""
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        row = range(len(self))[row]
        return Reply(
            self.ids[row],
            str(self.outcomes[row]),
            self._decoded.action(row),
            float(self.latency_s[row]),
            self._values[row] or b"",
            self._decoded.records.get(row) if self._values[row] else Action("failed", None, reason=str(self.error)),
        )

    def __iter__(self) -> Iterator[Reply]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        return f"<Replies {int(self.ok.sum())} actions, {int(self.answered.sum())} answers of {len(self)}>"


def _decoded(value: bytes) -> Action:
    try:
        return decode_action(value)
    except DecodeError as error:
        return Action("failed", None, reason=f"the answer cannot be read: {error}")
