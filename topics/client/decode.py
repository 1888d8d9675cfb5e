"""Answers of a whole call → one array of actions, without unpacking every record.

All answers of one model differ only in a few numbers in the middle: the head (version, outcome) and the tail (the
action's tensor, then the extras) have the same bytes or at least the same length. `Layout` remembers both from an
answer that `topics.wire` has decoded; rows that match are cut out and joined, all others are decoded one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

from topics.client.stats import ClientStats
from topics.errors import DecodeError
from topics.records import Action
from topics.tensors import Array, TensorSpec, holds_only_numbers, spec_of
from topics.wire import decode_action

MAX_LAYOUTS = 4
"""Models that one fleet serves at a time: the policy, its candidate, and those of the rollout before."""
HEAD_BYTES = 64
"""The outcome stands this early in every answer that a fleet of ours writes."""

_OUTCOME_IS_ACTION = bytes(msgpack.packb("outcome") + msgpack.packb("action"))
_ACTION = bytes(msgpack.packb("action"))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the action's raw bytes lie in the answers of one model."""

    head: bytes
    """First bytes, up to the outcome `action`."""
    mark: bytes
    """What stands in front of the raw bytes: the field's name and the tensor's header."""
    tail: int
    """Bytes from `mark` to the end."""
    spec: TensorSpec

    def match(self, values: Sequence[bytes]) -> tuple[Array, Array]:
        """Which of `values` have this layout (bool [n]), and the actions of those that have (copied, [m, *shape])."""
        size, mark = len(values), len(self.mark)
        lengths = set(map(len, values))
        if min(lengths) < max(len(self.head), self.tail):
            return self._match_long(values)
        if len(lengths) == 1:  # the usual case: no slice per answer
            whole = np.frombuffer(b"".join(values), np.uint8).reshape(size, -1)
            heads, tails = whole[:, : len(self.head)], whole[:, -self.tail :]
        else:
            heads, tails = _cut(values, 0, len(self.head)), _cut(values, -self.tail, None)
        fits = (heads == np.frombuffer(self.head, np.uint8)).all(1)
        fits &= (tails[:, :mark] == np.frombuffer(self.mark, np.uint8)).all(1)
        return fits, self._actions(tails[fits, mark : mark + self.spec.nbytes])

    def _match_long(self, values: Sequence[bytes]) -> tuple[Array, Array]:
        """The same when some answers are shorter than the layout."""
        fits = np.array([len(value) >= max(len(self.head), self.tail) for value in values])
        inner, actions = (
            self.match([value for value, long in zip(values, fits, strict=True) if long])
            if fits.any()
            else (np.empty(0, bool), self._actions(np.empty((0, self.spec.nbytes), np.uint8)))
        )
        fits[fits] = inner
        return fits, actions

    def _actions(self, raw: Array) -> Array:
        if not self.spec.nbytes:
            return np.empty((len(raw), *self.spec.shape), self.spec.numpy)
        return np.ascontiguousarray(raw).view(self.spec.numpy).reshape(len(raw), *self.spec.shape)


def _cut(values: Sequence[bytes], start: int, stop: int | None) -> Array:
    """The same slice of every answer, uint8 [n, bytes]."""
    return np.frombuffer(b"".join([value[start:stop] for value in values]), np.uint8).reshape(len(values), -1)


def layout_of(value: bytes, action: Action) -> Layout | None:
    """The layout of an answer and its decoded form; None if it has none that could be matched safely."""
    found = action.action
    end = value.find(_OUTCOME_IS_ACTION, 0, HEAD_BYTES)
    if not isinstance(found, np.ndarray) or end < 0:
        return None
    spec = spec_of(found, "action")
    mark = _ACTION + spec.ext_prefix
    at = value.rfind(mark)
    if at < 0 or value[at + len(mark) : at + len(mark) + spec.nbytes] != found.tobytes():
        return None
    return Layout(value[: end + len(_OUTCOME_IS_ACTION)], mark, len(value) - at, spec)


@dataclass(slots=True)
class Decoded:
    """The answers of one call. Rows without an answer have outcome "" and no action."""

    outcomes: Array
    """Strings, [n]."""
    actions: Array
    """[n, *shape] in the model's dtype, zeros where there is none; objects [n] if the rows' shapes or dtypes differ."""
    records: dict[int, Action]
    """Rows that had to be decoded one by one."""

    def action(self, row: int) -> Any:
        """One row's action: an array, a numpy number for shape (), or the plain numbers that the record holds."""
        record = self.records.get(row)
        if record is not None and not isinstance(record.action, np.ndarray):
            return record.action
        return self.actions[row]


def has_action(record: Action) -> bool:
    """Whether there is an action in it: the model's, or the fallback for a state that expired."""
    return record.outcome == "action" or (record.outcome == "expired" and record.action is not None)


class ActionReader:
    """Decodes the answers of one client's calls; remembers the layouts that it met."""

    def __init__(self, stats: ClientStats) -> None:
        self._layouts: list[Layout] = []
        self._stats = stats

    def read(self, values: Sequence[bytes | None]) -> Decoded:
        """`values`: each row's answer, None where none came."""
        outcomes = np.full(len(values), "", "U10")
        left: list[bytes] = [value for value in values if value is not None]
        rows = np.arange(len(values))
        if len(left) < len(values):
            rows = rows[[value is not None for value in values]]
        blocks: list[tuple[Array, Array]] = []
        for layout in self._layouts:
            if not left:
                break
            rows, left = self._take(layout, rows, left, blocks)
        records = self._one_by_one(rows, left, blocks)
        for taken, _ in blocks:
            outcomes[taken] = "action"
        for row, record in records.items():
            outcomes[row] = record.outcome
        merged = _merged(len(values), blocks, records)
        return Decoded(outcomes, self._nothing(len(values)) if merged is None else merged, records)

    def _nothing(self, size: int) -> Array:
        """The actions of a call without any: zeros like the last ones seen."""
        if not self._layouts:
            return np.full(size, None, object)
        spec = self._layouts[0].spec
        return np.zeros((size, *spec.shape), spec.numpy)

    @staticmethod
    def _take(
        layout: Layout, rows: Array, values: list[bytes], blocks: list[tuple[Array, Array]]
    ) -> tuple[Array, list[bytes]]:
        """Move what has this layout to `blocks`; what is left."""
        fits, actions = layout.match(values)
        if len(actions):
            blocks.append((rows[fits], actions))
        if len(actions) == len(values):
            return rows[:0], []
        return rows[~fits], [value for value, fit in zip(values, fits.tolist(), strict=True) if not fit]

    def _one_by_one(self, rows: Array, values: list[bytes], blocks: list[tuple[Array, Array]]) -> dict[int, Action]:
        records: dict[int, Action] = {}
        while values:
            record = records[int(rows[0])] = self._decoded(values[0])
            layout = self._learn(values[0], record)
            rows, values = rows[1:], values[1:]
            if layout and values:
                rows, values = self._take(layout, rows, values, blocks)
        return records

    def _decoded(self, value: bytes) -> Action:
        try:
            return decode_action(value)
        except DecodeError as error:
            self._stats.unreadable += 1
            return Action("failed", None, reason=f"the answer cannot be read: {error}")

    def _learn(self, value: bytes, record: Action) -> Layout | None:
        layout = layout_of(value, record) if record.outcome == "action" else None
        if layout is None or layout in self._layouts:
            return None
        self._layouts = [layout, *self._layouts[: MAX_LAYOUTS - 1]]
        return layout


def _merged(size: int, blocks: list[tuple[Array, Array]], records: dict[int, Action]) -> Array | None:
    """All actions in one array, by row; None if there is none."""
    singles = {row: _as_array(record.action) for row, record in records.items() if has_action(record)}
    looks = {(block.dtype, block.shape[1:]) for _, block in blocks}
    looks |= {(action.dtype, action.shape) for action in singles.values()}
    if not looks:
        return None
    if len(looks) == 1 and np.dtype(object) not in next(iter(looks)):
        ((dtype, shape),) = looks
        if len(blocks) == 1 and len(blocks[0][0]) == size:
            return blocks[0][1]
        merged = np.zeros((size, *shape), dtype)
        for rows, block in blocks:
            merged[rows] = block
    else:
        merged = np.full(size, None, object)
        for rows, block in blocks:
            for row, action in zip(rows.tolist(), block, strict=True):
                merged[row] = action
    for row, action in singles.items():
        merged[row] = action[()]  # what was boxed comes out as it is
    return merged


def _as_array(action: Any) -> Array:
    """An action as an array; what numpy cannot stack (maps, ragged lists) as an object of its own."""
    if isinstance(action, np.ndarray) or holds_only_numbers(action):
        with suppress(ValueError):  # ragged
            return np.asarray(action)
    boxed = np.empty((), object)
    boxed[()] = action
    return boxed
