"""One batch through one model: collate, forward, find the rows at fault. Runs in the predictor's thread.

A batch that raises is halved until the bad rows are alone, so one poisonous state costs its neighbours time, not their
answers. Where several or all are bad, the model itself may be at fault. A batch that the device has no memory for is
halved as well, and the batches that follow are to be smaller. Not finite inputs and outputs are found on the whole
batch at once.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np

from topics.observations import Observations, Row
from topics.tensors import Array
from workers.models.errors import OutOfMemory
from workers.models.model import Model
from workers.models.package import Manifest
from workers.requests import Fault

MODEL_ERROR = "model_error"
"""The label of a row that makes the model raise."""


class Forward:
    """Rows in, outputs and faults out, for one model."""

    def __init__(self, model: Model, back_off_s: Sequence[float] = ()) -> None:
        """`back_off_s`: waits of a call for memory for single rows, which others may take for a moment."""
        self._model = model
        self._back_off_s = back_off_s
        self._waits_s = iter(back_off_s)
        self.waited_s = 0.0
        """Of the last `attempt`, between its tries."""
        self._manifest: Manifest = model.manifest
        self._observations = Observations(model.manifest.inputs)
        self.largest_batch = model.manifest.buckets[-1]
        """Rows that the device has memory for. It only falls: who else uses that memory, and until when, is not known;
        a model that is loaded anew begins with all of it."""
        self._piece = self.largest_batch
        """The same, within a call that is not over."""

    def __call__(self, rows: Sequence[tuple[Row, ...]]) -> tuple[dict[str, Array], dict[int, Fault]]:
        """Outputs by name [n, *shape] and faults by row; the outputs of a row at fault mean nothing."""
        inputs = self._observations.collate(rows)
        self._waits_s, self._piece = iter(self._back_off_s), self.largest_batch
        faults = {} if self._manifest.allow_nan else _not_finite(inputs, _REFUSED)
        if faults:
            inputs = {name: _zeroed(array) for name, array in inputs.items()}
        outputs = self._halving(inputs, 0, len(rows), faults)
        self.largest_batch = self._piece
        if self._manifest.finite:
            faults = _not_finite(outputs, _FAILED) | faults
        return outputs, faults

    def attempt(
        self, rows: Sequence[tuple[Row, ...]], waits_s: Sequence[float]
    ) -> tuple[dict[str, Array], dict[int, Fault]] | str:
        """The same, or why the model takes nothing any more.

        A batch of which several rows, or all, did not come through says nothing about them if zeros do not come
        through either: it is tried again after each of `waits_s`, and then the model is at fault.
        """
        self.waited_s = 0.0
        for wait_s in waits_s:
            outputs, faults = self(rows)
            if not _many_raised(faults, len(rows)) or self.probe() is None:
                return outputs, faults
            self._wait(wait_s)
        outputs, faults = self(rows)
        if _many_raised(faults, len(rows)) and (broken := self.probe()):
            return broken
        return outputs, faults

    def bucket(self, n: int) -> int:
        """The rows that a batch of `n` is padded to."""
        return self._manifest.buckets[bisect_left(self._manifest.buckets, n)]

    def _halving(self, inputs: Mapping[str, Array], start: int, end: int, faults: dict[int, Fault]) -> dict[str, Array]:
        """Rows start…end through the model; those that make it raise end up in `faults`."""
        if end - start <= self._piece:
            try:
                return self._model.predict({name: array[start:end] for name, array in inputs.items()})
            except OutOfMemory as error:
                if end - start == 1:
                    return self._alone_without_memory(inputs, start, faults, error)
                self._piece = min(self._piece, self.bucket((end - start) // 2))
            except Exception as error:  # whatever a model raises is the fault of one row or of all: the halves tell
                if end - start == 1:
                    faults[start] = Fault("failed", MODEL_ERROR, one_line(error))
                    return self._blank()
        middle = (start + end) // 2
        halves = [self._halving(inputs, *half, faults) for half in ((start, middle), (middle, end))]
        return {name: np.concatenate([half[name] for half in halves]) for name in halves[0]}

    def _alone_without_memory(
        self, inputs: Mapping[str, Array], row: int, faults: dict[int, Fault], error: OutOfMemory
    ) -> dict[str, Array]:
        """Once more after a while, as long as this call may wait; then the row has failed.

        The size of batches is not to blame, or one state that asks for all memory would make them small for good.
        """
        self._piece = self.largest_batch
        if (wait_s := next(self._waits_s, None)) is not None:
            self._wait(wait_s)
            return self._halving(inputs, row, row + 1, faults)
        faults[row] = Fault("failed", MODEL_ERROR, one_line(error))
        return self._blank()

    def _wait(self, wait_s: float) -> None:
        self.waited_s += wait_s
        time.sleep(wait_s)

    def probe(self) -> str | None:
        """Why the model does not take even one row of zeros, which it took when it was warmed up; None if it does."""
        try:
            self._model.predict({spec.name: np.zeros((1, *spec.shape), spec.numpy) for spec in self._manifest.inputs})
        except Exception as error:  # whatever a model raises
            return one_line(error)
        return None

    def _blank(self) -> dict[str, Array]:
        return {spec.name: np.zeros((1, *spec.shape), spec.numpy) for spec in self._manifest.outputs}


_REFUSED = Fault("rejected", "wrong_input", "holds NaN or infinity, which the model refuses")
_FAILED = Fault("failed", "not_finite_output", "came out with NaN or infinity")


def _many_raised(faults: Mapping[int, Fault], rows: int) -> bool:
    """Not one bad row among good ones, but none that came through, or several: a device may be lost in mid-batch."""
    raised = sum([fault.label == MODEL_ERROR for fault in faults.values()])
    return raised > 1 or (raised == 1 and len(faults) == rows)


def _zeroed(array: Array) -> Array:
    """`array` with zeros where it is not finite: those rows are refused, but must not upset the others."""
    return array if array.dtype.kind in "biu" else np.where(np.isfinite(array), array, array.dtype.type(0))


def one_line(error: BaseException) -> str:
    """What a model raised, short enough for a header."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


def _not_finite(arrays: Mapping[str, Array], fault: Fault) -> dict[int, Fault]:
    """`fault` for each row that holds NaN or infinity in any of `arrays` [n, …]."""
    faults: dict[int, Fault] = {}
    for name, array in arrays.items():
        if array.dtype.kind in "biu" or np.isfinite(array).all():
            continue
        bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
        faults |= {int(row): Fault(fault.outcome, fault.label, f"{name} {fault.reason}") for row in bad}
    return faults
