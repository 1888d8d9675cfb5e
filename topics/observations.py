"""Observations against a model's inputs: from the wire to one array per input for a whole batch.

The usual observation, one tensor in exactly the model's dtype and shape, is never made an array of its own: it stays
the received bytes and is copied straight into the batch. Anything else that can be converted is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from topics.errors import InputError
from topics.tensors import TENSOR_EXT, Array, TensorSpec, from_map, to_row
from topics.wire import read_ext

Row = bytes | memoryview | Array  # all are buffers, which typeshed cannot say before Python 3.12
"""One input's raw bytes for one state: `TensorSpec.nbytes` of them."""

COPIED_BYTES = 4096
"""Up to this size a row is sliced out of its record: cheaper than a view, which is three more objects for the garbage
collector to follow. Larger rows (images) stay views and are copied once."""


class Observations:
    """Reads the observations of one model, whose `inputs` are given without the batch axis."""

    def __init__(self, inputs: Sequence[TensorSpec]) -> None:
        self._inputs = tuple(inputs)
        self._single = inputs[0] if len(inputs) == 1 else None
        fast = self._single is not None and self._single.dtype != "bool"  # a bool's bytes must be normalised
        self._header = inputs[0].header if fast else b"\xc1"  # 0xc1 never occurs in MessagePack
        self._start = len(self._header)
        self._size = self._start + inputs[0].nbytes

    def ext_hook(self, code: int, data: bytes) -> Any:
        """For `decode_state`: the expected tensor as the tuple that `rows` gives (MessagePack itself never makes a
        tuple), any other as `wire.read_ext` gives it."""
        if code == TENSOR_EXT and len(data) == self._size and data.startswith(self._header):
            if self._size <= COPIED_BYTES:
                return (data[self._start :],)
            return (memoryview(data)[self._start :],)
        return read_ext(code, data)

    def rows(self, observation: Any) -> tuple[Row, ...]:
        """One row per input; `InputError` names the input, what was found and what the model takes."""
        if type(observation) is tuple:
            return observation
        if self._single is not None:
            return (to_row(self._unwrapped(observation, self._single.name), self._single),)
        if not isinstance(observation, Mapping):
            names = ", ".join(spec.name for spec in self._inputs)
            raise InputError(f"observation is a {type(observation).__name__}, expected a map of inputs: {names}")
        return tuple(to_row(self._entry(observation, spec), spec) for spec in self._inputs)

    @staticmethod
    def _unwrapped(observation: Any, name: str) -> Any:
        """A model with one input takes `{name: tensor}` as well as the tensor alone."""
        wrapped = type(observation) is dict and name in observation and from_map(observation) is None
        return observation[name] if wrapped else observation

    @staticmethod
    def _entry(observation: Mapping[Any, Any], spec: TensorSpec) -> Any:
        if spec.name not in observation:
            raise InputError(f"observation has no input {spec.name!r}, the model takes {spec}")
        return observation[spec.name]

    def collate(self, rows: Sequence[tuple[Row, ...]]) -> dict[str, Array]:
        """The batch: input name → [n, *shape], C-contiguous, in the model's dtypes."""
        return {
            spec.name: np.frombuffer(_joined([row[at] for row in rows]), spec.numpy).reshape(len(rows), *spec.shape)
            for at, spec in enumerate(self._inputs)
        }


def _joined(rows: list[Any]) -> bytes:
    return b"".join(rows)


def is_plain(observation: Any) -> bool:
    """Whether the agent speaks numbers and lists rather than tensors; it is then answered the same way."""
    if type(observation) is dict:
        return from_map(observation) is None and all(is_plain(value) for value in observation.values())
    return isinstance(observation, int | float | list)
