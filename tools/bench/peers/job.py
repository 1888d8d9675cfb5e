"""The job that every system gets, in each one's own process: states in, one forward pass, actions out.

The bytes are wire version 1, decoded and encoded with MessagePack like the bare loop's; the model runs on the same
backend, in one forward pass per batch and with one thread. What is around it is the system's own business.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgpack
import numpy as np

from topics.tensors import TENSOR_EXT, Array
from workers.models.load import load_unproven
from workers.models.package import read_manifest

MAX_BATCH: Final = 1024
"""States in one forward pass, as many as the bare loop polls at once."""
BUCKETS: Final = (1, 8, 32, 128, 256, 512, MAX_BATCH)
PREFIX: Final = "FLEET_PEER_"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a peer finds its work; `port` for those behind HTTP, the topics for the others."""

    model: Path
    servers: str = ""
    states: str = ""
    actions: str = ""
    group: str = ""
    port: int = 0

    def environment(self) -> dict[str, str]:
        """For the peer's process."""
        return {f"{PREFIX}{name.upper()}": str(getattr(self, name)) for name in self.__slots__}


def place() -> Place:
    """This process's place."""
    found = {name: os.environ[f"{PREFIX}{name.upper()}"] for name in Place.__slots__}
    return Place(**{**found, "model": Path(found["model"]), "port": int(found["port"])})  # type: ignore[arg-type]


class Job:
    """The model, warm, and the wire around it."""

    def __init__(self, model: Path, worker: str) -> None:
        manifest = replace(read_manifest(model), buckets=BUCKETS)
        self._model = load_unproven(model, manifest, device="cpu", threads=1)
        self._model.warm_up()
        self._input, self._outputs = manifest.inputs[0], manifest.outputs
        self._common = {"v": 1, "outcome": "action", "model": str(manifest), "worker": worker, "lane": "normal"}
        self._pack = msgpack.Packer().pack

    def act(self, observations: Sequence[Any] | Array) -> list[Any]:
        """The actions of at most 1,024 observations, as plain numbers or lists."""
        outputs = self._model.predict({self._input.name: np.asarray(observations, self._input.numpy)})
        actions: list[Any] = outputs[self._outputs[0].name].tolist()
        return actions

    def answer(self, values: Sequence[bytes], ids: Sequence[bytes] | None = None) -> list[bytes]:
        """The action records to at most 1,024 state records; `ids`: the correlation IDs that go into them."""
        received_ns, start_at = time.monotonic_ns(), len(self._input.header)

        def raw(_: int, data: bytes) -> bytes:
            return data[start_at:]

        states = [msgpack.unpackb(value, ext_hook=raw) for value in values]
        joined = b"".join([state["observation"] for state in states])
        inputs = np.frombuffer(joined, self._input.numpy).reshape(len(states), *self._input.shape)
        started_ns = time.monotonic_ns()
        outputs = self._model.predict({self._input.name: inputs})
        timing = {
            "wait_us": (started_ns - received_ns) // 1000,
            "predict_us": (time.monotonic_ns() - started_ns) // 1000,
            "batch_size": len(states),
        }
        columns = [_column(outputs[spec.name], spec.header) for spec in self._outputs]
        return self._encode({**self._common, "timing": timing}, states, columns, ids)

    def _encode(
        self,
        common: dict[str, Any],
        states: Sequence[dict[str, Any]],
        columns: Sequence[Sequence[msgpack.ExtType]],
        ids: Sequence[bytes] | None,
    ) -> list[bytes]:
        names, answers = [spec.name for spec in self._outputs[1:]], []
        for row, (state, action, *others) in enumerate(zip(states, *columns, strict=True)):
            fields = {**common, "seq": state["seq"], "action": action}
            if names:
                fields["extras"] = dict(zip(names, others, strict=True))
            if ids:
                fields["id"] = ids[row]
            answers.append(self._pack(fields))
        return answers


def _column(array: Array, header: bytes) -> list[msgpack.ExtType]:
    """The tensors of one output, row by row."""
    raw, size = array.tobytes(), array.nbytes // len(array)
    return [msgpack.ExtType(TENSOR_EXT, header + raw[at : at + size]) for at in range(0, len(raw), size)]
