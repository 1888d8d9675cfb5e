"""Many records at once: what a batch shares is encoded once and spliced around each row's own bytes.

The bytes are the same as `topics.wire` writes one by one (a test compares them); only the cost differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgpack
import numpy as np

from topics.records import State
from topics.tensors import Array, TensorSpec, dtype_name
from topics.wire import VERSION

_SEQ: Final[bytes] = msgpack.packb("seq")
_OBSERVATION: Final[bytes] = msgpack.packb("observation")
_pack = msgpack.Packer().pack


def rows_of(array: Array, spec: TensorSpec) -> list[bytes]:
    """The raw bytes of each row of `array` [n, *shape]."""
    raw = np.ascontiguousarray(array, dtype=spec.numpy).tobytes()
    size = spec.nbytes
    return [raw[at : at + size] for at in range(0, size * len(array), size)] if size else [b""] * len(array)


def encode_states(
    observations: Array, seqs: Sequence[int], shared: State, episodes: Sequence[int | str] | None = None
) -> list[bytes]:
    """The bytes of n states: row i of `observations` [n, *shape] with `seqs[i]` (and `episodes[i]`, where every row
    has its own); all else is taken from `shared`."""
    spec = observation_spec(observations.dtype, observations.shape[1:])
    prefix, middle = state_frame(spec, shared, own_episodes=episodes is not None)
    rows = rows_of(observations, spec)
    if episodes is None:
        return [b"".join((prefix, _pack(seq), middle, row)) for seq, row in zip(seqs, rows, strict=True)]
    return [
        b"".join((prefix, _pack(episode), _SEQ, _pack(seq), middle, row))
        for episode, seq, row in zip(episodes, seqs, rows, strict=True)
    ]


@lru_cache(maxsize=256)  # a fleet's agents send a handful; finding a dtype's name alone takes numpy 2 µs
def observation_spec(dtype: np.dtype[Any], shape: tuple[int, ...]) -> TensorSpec:
    """The spec of observations that look like this; `InputError` if their dtype cannot travel."""
    return TensorSpec("observation", dtype_name(dtype), shape)


def state_frame(spec: TensorSpec, shared: State, *, own_episodes: bool = False) -> tuple[bytes, bytes]:
    """The bytes in front of a state's packed `seq`, and those between it and the raw bytes of a tensor like `spec`.

    With `own_episodes`, the first end where each row's packed `episode` goes, with the key of `seq` behind it.
    """
    fields = {
        name: value
        for name in ("sent_us", "deadline_us", "kind", "episode")
        if (value := getattr(shared, name)) is not None and not (own_episodes and name == "episode")
    }
    if shared.options:
        fields["options"] = shared.options
    middle = _OBSERVATION + spec.ext_prefix
    if own_episodes:
        return _open_map({"v": VERSION, **fields}, 3) + msgpack.packb("episode"), middle
    return _open_map({"v": VERSION, **fields}, 2) + _SEQ, middle


def _open_map(fields: Mapping[str, Any], more: int) -> bytes:
    """A packed map with `fields` and room for `more` entries that the caller appends."""
    packer = msgpack.Packer(autoreset=False)
    packer.pack_map_header(len(fields) + more)
    for name, value in fields.items():
        packer.pack(name)
        packer.pack(value)
    return bytes(packer.bytes())


class ActionColumns:
    """Encodes the `action` replies of whole batches for one model on one worker.

    `outputs` are the model's output specs: the first is `action`, the others travel as `extras`.
    """

    def __init__(self, outputs: Sequence[TensorSpec], model: str, worker: str) -> None:
        self._outputs = tuple(outputs)
        self._common = {"v": VERSION, "outcome": "action", "model": model, "worker": worker}
        self._frame, self._places = self._tail_frame(self._outputs)

    @staticmethod
    def _tail_frame(outputs: Sequence[TensorSpec]) -> tuple[Array, list[slice]]:
        """What is the same in all rows behind `seq`, uint8 [size of a tail], and where each output's raw bytes go."""
        first, *extras = outputs
        tail, places = bytearray(), []
        for spec in outputs:
            if spec is not first and spec is extras[0]:
                tail += msgpack.packb("extras") + msgpack.Packer().pack_map_header(len(extras))
            tail += msgpack.packb("action" if spec is first else spec.name) + spec.ext_prefix
            places.append(slice(len(tail), len(tail) + spec.nbytes))
            tail += bytes(spec.nbytes)
        return np.frombuffer(bytes(tail), np.uint8), places

    def open(self, lane: str, wait_us: int, epoch: int, predict_us: int, batch_size: int) -> bytes:
        """The bytes in front of `seq`, the same for all rows of a batch that share lane, wait and epoch."""
        timing = {"wait_us": wait_us, "predict_us": predict_us, "batch_size": batch_size}
        more = 3 if len(self._outputs) > 1 else 2
        return _open_map({**self._common, "lane": lane, "epoch": epoch, "timing": timing}, more) + _SEQ

    def encode(
        self,
        lanes: Sequence[str],
        waits_us: Sequence[int],
        epochs: Sequence[int],
        seqs: Sequence[int | None],
        predict_us: int,
        outputs: Mapping[str, Array],
    ) -> list[bytes]:
        """The bytes of n actions that ran in one batch. `outputs`: name → [n, *shape]."""
        shared = list(zip(lanes, waits_us, epochs, strict=True))  # rows of one poll share all three
        heads = {mine: self.open(*mine, predict_us, len(seqs)) for mine in set(shared)}
        rows = zip([heads[mine] for mine in shared], map(_pack, seqs), self.tails(outputs), strict=True)
        return list(map(b"".join, rows))

    def tails(self, outputs: Mapping[str, Array]) -> list[bytes]:
        """The bytes behind `seq` of every row: its action and extras. `outputs`: name → [n, *shape]."""
        n, size = len(outputs[self._outputs[0].name]), len(self._frame)
        matrix = np.empty((n, size), np.uint8)
        matrix[:] = self._frame
        for spec, place in zip(self._outputs, self._places, strict=True):
            column = np.ascontiguousarray(outputs[spec.name], dtype=spec.numpy)
            matrix[:, place] = column.view(np.uint8).reshape(n, spec.nbytes)
        raw = matrix.tobytes()
        return [raw[at : at + size] for at in range(0, n * size, size)]


def pack_seq(seq: int) -> bytes:
    """A step counter's bytes."""
    return bytes(_pack(seq))
