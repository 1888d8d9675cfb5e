"""Observations → the bytes of states: columns of one call, and single states made in one turn of the event loop.

Arrays travel as tensors in their own dtype (the worker converts), everything else as the plain numbers it is; what
rows share is encoded once (`topics.columns`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgpack
import numpy as np

from topics.columns import encode_states, observation_spec, pack_seq, state_frame
from topics.records import State
from topics.tensors import DTYPES, Array
from topics.wire import encode_state

Episodes = Sequence[int | str] | None
_SEQ = msgpack.packb("seq")


def encode_rows(observations: Any, seqs: Sequence[int], shared: State, episodes: Episodes = None) -> list[bytes]:
    """The bytes of n states.

    `observations`: an array [n, *shape] (lists of numbers become one), a map of input name → [n, *shape], or n
    single observations that have no common shape.

    Raises:
        ValueError: there are not as many observations as `seqs`.
    """
    if isinstance(observations, Mapping):
        columns = {name: _column(column, len(seqs), str(name)) for name, column in observations.items()}
        rows = [{name: column[row] for name, column in columns.items()} for row in range(len(seqs))]
        return _one_by_one(rows, seqs, shared, episodes)
    column = _column(observations, len(seqs), "observations")
    if isinstance(column, np.ndarray):
        return encode_states(column, seqs, shared, episodes)
    return _one_by_one(column, seqs, shared, episodes)


@dataclass(frozen=True, slots=True)
class Asked:
    """What comes with the observations of one call: a list [n] has one entry per row, anything else holds for all."""

    kind: Any = None
    deadline_ms: Any = None
    episode: Any = None
    options: Mapping[str, Any] | None = None

    def shared(self, kind: str | None, deadline_ms: float | None, now_us: int) -> State:
        """What the rows with this kind and deadline have in common."""
        return State(
            None,
            kind=kind,
            deadline_us=None if deadline_ms is None else now_us + round(deadline_ms * 1000),
            sent_us=now_us,
            episode=None if isinstance(self.episode, list) else self.episode,
            options=dict(self.options or {}),
        )


def encode_call(observations: Any, seqs: Sequence[int], asked: Asked, now_us: int) -> list[bytes]:
    """The bytes of a call's states; rows that share kind and deadline are encoded together.

    Raises:
        ValueError: there are not as many observations as `seqs`.
    """
    kinds, deadlines_ms = asked.kind, asked.deadline_ms
    episodes = asked.episode if isinstance(asked.episode, list) else None
    if not isinstance(kinds, list) and not isinstance(deadlines_ms, list):
        return encode_rows(observations, seqs, asked.shared(kinds, deadlines_ms, now_us), episodes)
    size = len(seqs)
    kinds = kinds if isinstance(kinds, list) else [kinds] * size
    deadlines_ms = deadlines_ms if isinstance(deadlines_ms, list) else [deadlines_ms] * size
    groups: dict[Any, list[int]] = {}
    for row, key in enumerate(zip(kinds, deadlines_ms, strict=True)):
        groups.setdefault(key, []).append(row)
    values = [b""] * size
    for (kind, deadline_ms), rows in groups.items():
        own = [episodes[row] for row in rows] if episodes else None
        found = encode_rows(
            _take(observations, rows), [seqs[row] for row in rows], asked.shared(kind, deadline_ms, now_us), own
        )
        for row, value in zip(rows, found, strict=True):
            values[row] = value
    return values


def _take(observations: Any, rows: list[int]) -> Any:
    if isinstance(observations, Mapping):
        return {name: _take(column, rows) for name, column in observations.items()}
    return observations[rows] if isinstance(observations, np.ndarray) else [observations[row] for row in rows]


def _column(found: Any, size: int, name: str) -> Array | Sequence[Any]:
    """An array [n, *shape] wherever the rows have one shape."""
    if not isinstance(found, np.ndarray):
        with contextlib.suppress(ValueError):  # rows of different shapes
            found = np.asarray(found)
    if isinstance(found, np.ndarray) and found.dtype == object:
        found = list(found)
    if np.ndim(found) == 0 if isinstance(found, np.ndarray) else not isinstance(found, Sequence):
        raise ValueError(f"{name} has no rows, expected one for each of {size} agents")
    if len(found) != size:
        shape = f" of shape {list(found.shape)}" if isinstance(found, np.ndarray) else ""
        raise ValueError(f"{name}{shape} has {len(found)} rows for {size} agents")
    return found  # type: ignore[no-any-return]


def _one_by_one(rows: Sequence[Any], seqs: Sequence[int], shared: State, episodes: Episodes) -> list[bytes]:
    states = [replace(shared, observation=row, seq=seq) for row, seq in zip(rows, seqs, strict=True)]
    if episodes is not None:
        for state, episode in zip(states, episodes, strict=True):
            state.episode = episode
    return [encode_state(state) for state in states]


class TurnEncoder:
    """Encodes the single states of one turn, which share `sent_us`: what is equal in several is packed once."""

    def __init__(self) -> None:
        self._frames: dict[Any, tuple[bytes, bytes]] = {}

    def value(self, state: State) -> bytes:
        """The bytes of `state`, the same that `wire.encode_state` gives."""
        observation = state.observation
        if type(observation) is not np.ndarray or state.options:
            return encode_state(state)
        dtype = observation.dtype
        key = (dtype, observation.shape, state.deadline_us, state.kind, state.episode)
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = state_frame(observation_spec(dtype, observation.shape), state)
        if not dtype.isnative:
            observation = observation.astype(DTYPES[dtype.name])
        prefix, middle = frame
        return b"".join((prefix, pack_seq(state.seq), middle, observation.tobytes()))
