"""States as a worker reads them: whole polls of records whose bytes are mostly the same.

A client writes what a call shares (times, kind, options) once for all its agents (`topics.columns`), so most records
differ from one before only in `seq` and in the observation's raw bytes. The bytes in front of `seq`, the head, are
decoded once and remembered; a record with a known head needs no MessagePack at all. Anything else goes through
`wire.decode_state`, and gives the very same state (a test compares them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgpack

from topics.errors import DecodeError
from topics.observations import COPIED_BYTES, Observations
from topics.records import State
from topics.tensors import TensorSpec
from topics.wire import DEFAULT_LIMITS, Limits, decode_state

MAX_HEADS: Final = 512
"""Heads remembered at once; one call of a client is one head. When full, all are forgotten and learned anew."""

_SEQ: Final[bytes] = msgpack.packb("seq")
_SEQ_LEAD: Final = {2: 0xCC, 3: 0xCD, 5: 0xCE, 9: 0xCF}
"""First byte of MessagePack's unsigned integers, by their length in bytes."""


class StateReader:
    """Bytes → State, for one model. A usual observation comes as the row that `Observations.rows` would give."""

    def __init__(self, inputs: Sequence[TensorSpec], limits: Limits = DEFAULT_LIMITS) -> None:
        self._observations = Observations(inputs)
        self._limits = limits
        self._row_bytes = inputs[0].nbytes
        self._tail = msgpack.packb("observation") + inputs[0].ext_prefix
        single = len(inputs) == 1 and inputs[0].dtype != "bool" and self._row_bytes <= COPIED_BYTES
        self._tail_bytes = len(self._tail) + self._row_bytes if single else limits.max_bytes + 1
        self._heads: dict[bytes, State] = {}
        self._last_head = b""

    @property
    def observations(self) -> Observations:
        """How the observations of the states are read."""
        return self._observations

    def read(self, value: bytes) -> State:
        """The state in a record's value; raises `DecodeError` like `decode_state`."""
        tail_at = len(value) - self._tail_bytes
        if tail_at <= 0 or not value.startswith(self._tail, tail_at):
            return self._decode(value)
        seq_at = value.rfind(_SEQ, 0, tail_at) + len(_SEQ)
        head = value[:seq_at]
        shared = self._heads.get(head)
        if shared is None:
            return self._learn(head, value)
        seq = value[seq_at]
        size = tail_at - seq_at
        if size != 1 or seq > 0x7F:
            if _SEQ_LEAD.get(size) != seq:
                return self._decode(value)
            seq = int.from_bytes(value[seq_at + 1 : tail_at], "big")
        return State(
            (value[-self._row_bytes :],),
            seq,
            shared.episode,
            shared.kind,
            shared.deadline_us,
            shared.sent_us,
            shared.options,
        )

    def _decode(self, value: bytes) -> State:
        return decode_state(value, self._limits, self._observations.ext_hook)

    def _learn(self, head: bytes, value: bytes) -> State:
        """Decode in full; the second time that a head is met in a row, remember it if it really is one."""
        state = self._decode(value)
        if head != self._last_head:
            self._last_head = head
        elif self._is_head(head, state):
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[head] = state
        return state

    def _is_head(self, head: bytes, state: State) -> bool:
        """Whether `seq` and the observation do follow `head`: another `seq` and observation must come out of it, and
        nothing else may change. (The bytes of the key could as well stand inside a string.)"""
        other = bytes(self._row_bytes)
        try:
            found = self._decode(head + b"\x07" + self._tail + other)
        except DecodeError:
            return False
        same = (found.episode, found.kind, found.deadline_us, found.sent_us, found.options)
        return (found.seq, found.observation) == (7, (other,)) and same == (
            state.episode,
            state.kind,
            state.deadline_us,
            state.sent_us,
            state.options,
        )
