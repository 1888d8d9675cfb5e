"""Forward: bad rows are found and named, good ones keep their answers."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from topics.tensors import Array, TensorSpec
from workers.models.errors import OutOfMemory
from workers.predictors.forward import Forward

INPUT = TensorSpec("observation", "float32", (2,))
OUTPUT = TensorSpec("action", "float32", ())


class Doubling:
    """A model that doubles its first number, and raises or gives NaN where told to."""

    def __init__(
        self,
        *,
        raises_on: float | None = None,
        raises: type[Exception] = RuntimeError,
        allow_nan: bool = False,
        finite: bool = True,
    ) -> None:
        self.manifest: Any = SimpleNamespace(
            inputs=(INPUT,), outputs=(OUTPUT,), buckets=(8, 64), allow_nan=allow_nan, finite=finite
        )
        self.device = "cpu"
        self.passes = 0
        self._raises_on = raises_on
        self._raises = raises

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.passes += 1
        first = inputs["observation"][:, 0]
        if self._raises_on is not None and (first == self._raises_on).any():
            raise self._raises("CUDA error: an illegal instruction\nwas encountered")
        return {"action": np.where(first == -13, np.nan, 2 * first).astype(np.float32)}

    def warm_up(self, on_bucket: Any = None) -> None:
        raise NotImplementedError


def rows(*values: float) -> list[tuple[memoryview]]:
    return [(memoryview(np.array([value, 0], np.float32).tobytes()),) for value in values]


def test_a_good_batch_takes_one_pass() -> None:
    """And gives every row its own answer."""
    model = Doubling()
    outputs, faults = Forward(model)(rows(1, 2, 3))
    assert outputs["action"].tolist() == [2, 4, 6] and not faults and model.passes == 1


@pytest.mark.parametrize("bad", [0, 31, 63])
def test_a_row_that_makes_the_model_raise_is_found_by_halving(bad: int) -> None:
    """63 good + 1 bad: 63 answers, one fault, at most 2·log2(64) extra passes."""
    values = [1.0 + n for n in range(64)]
    model = Doubling(raises_on=values[bad])
    outputs, faults = Forward(model)(rows(*values))
    assert list(faults) == [bad] and faults[bad].label == "model_error" and faults[bad].outcome == "failed"
    assert model.passes <= 1 + 2 * 6
    good = [n for n in range(64) if n != bad]
    assert [outputs["action"][n] for n in good] == [2 * values[n] for n in good]


def test_a_model_that_always_raises_fails_every_row() -> None:
    """Nothing is lost: each row has its fault."""
    _, faults = Forward(Doubling(raises_on=5))(rows(5, 5, 5))
    assert sorted(faults) == [0, 1, 2]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_inputs_are_refused_unless_the_manifest_allows_them(value: float) -> None:
    """The neighbours run in the same pass."""
    model = Doubling()
    outputs, faults = Forward(model)(rows(1, value, 3))
    assert list(faults) == [1] and (faults[1].outcome, faults[1].label) == ("rejected", "wrong_input")
    assert outputs["action"][[0, 2]].tolist() == [2, 6] and model.passes == 1
    assert not Forward(Doubling(allow_nan=True, finite=False))(rows(1, value, 3))[1]


def test_not_finite_outputs_are_a_fault_when_the_manifest_says_so() -> None:
    """The agent hears of it instead of acting on NaN."""
    _, faults = Forward(Doubling())(rows(-13, 1))
    assert list(faults) == [0] and (faults[0].outcome, faults[0].label) == ("failed", "not_finite_output")
    assert not Forward(Doubling(finite=False))(rows(-13, 1))[1]


def test_the_reason_is_one_line() -> None:
    """It travels in headers and logs."""
    _, faults = Forward(Doubling(raises_on=5))(rows(5))
    assert "\n" not in faults[0].reason and "CUDA error" in faults[0].reason


def test_a_batch_is_padded_to_the_next_bucket() -> None:
    """What the padding metric counts."""
    assert [Forward(Doubling()).bucket(n) for n in (1, 8, 9, 64)] == [8, 8, 64, 64]


class Cramped(Doubling):
    """A device with memory for `room` rows of a bucket."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.manifest.buckets = (1, 8, 16, 32, 64)
        self._room = room

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        n = len(inputs["observation"])
        if next(rows for rows in self.manifest.buckets if rows >= n) > self._room:
            self.passes += 1
            raise OutOfMemory("CUDA out of memory")
        return super().predict(inputs)


@pytest.mark.parametrize(("room", "largest"), [(64, 64), (40, 32), (8, 8), (1, 1)])
def test_a_batch_without_memory_is_cut_and_no_row_is_blamed(room: int, largest: int) -> None:
    """All rows keep their answers, and the predictor knows what it can take from now on."""
    forward = Forward(Cramped(room))
    outputs, faults = forward(rows(*range(1, 65)))
    assert not faults and outputs["action"].tolist() == [2.0 * n for n in range(1, 65)]
    assert forward.largest_batch == largest


def test_what_is_known_to_be_too_large_is_not_tried_again() -> None:
    """Batches that were formed before the schedule heard of it come in pieces at once."""
    model = Cramped(8)
    forward = Forward(model)
    forward(rows(*range(64)))
    model.passes = 0
    outputs, _ = forward(rows(*range(64)))
    assert outputs["action"].tolist() == [2.0 * n for n in range(64)] and model.passes == 8


@pytest.mark.parametrize(("waits", "failed"), [(2, []), (1, [0]), (0, [0])])
def test_a_single_row_waits_for_memory_that_others_hold_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, waits: int, failed: list[int]
) -> None:
    """Bounded by the waits of one call; only then has the row failed."""
    model = Cramped(0)
    slept: list[float] = []

    def sleep(wait_s: float) -> None:
        slept.append(wait_s)
        model._room = 64 if len(slept) == 2 else 0

    monkeypatch.setattr("time.sleep", sleep)
    _, faults = Forward(model, (0.1, 0.2)[:waits])(rows(1))
    assert list(faults) == failed and slept == [0.1, 0.2][:waits]


@pytest.mark.parametrize("bad", [0, 31, 63])
def test_a_state_that_asks_for_all_memory_does_not_make_batches_small_for_good(bad: int) -> None:
    """What a model allocates may depend on what it is given: that row fails like any other bad one."""
    model = Doubling(raises_on=-1.0, raises=OutOfMemory)
    model.manifest.buckets = (1, 2, 4, 8, 16, 32, 64)
    forward = Forward(model)
    _, faults = forward(rows(*[-1.0 if n == bad else 1.0 + n for n in range(64)]))
    assert list(faults) == [bad] and faults[bad].label == "model_error"
    assert forward.largest_batch == 64 and model.passes <= 1 + 2 * 6


def test_without_memory_for_a_single_row_the_model_is_at_fault() -> None:
    """Zeros do not fit either, which is what tells a broken model from bad rows."""
    forward = Forward(Cramped(0))
    _, faults = forward(rows(1, 2))
    assert [fault.label for fault in faults.values()] == ["model_error"] * 2
    assert "out of memory" in (forward.probe() or "")


@pytest.mark.parametrize("bad", [[0, 63], [10, 11, 40], [1, 2, 3, 4]])
def test_several_bad_rows_are_found_too(bad: list[int]) -> None:
    """Each costs at most its own way down the halves."""
    model = Doubling(raises_on=-1.0)
    values = [-1.0 if n in bad else 1.0 + n for n in range(64)]
    _, faults = Forward(model)(rows(*values))
    assert sorted(faults) == bad
    assert model.passes <= 1 + len(bad) * 2 * 6
