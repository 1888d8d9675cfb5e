"""Batches through the torch backend: padding, dtypes, memory, threads."""

from __future__ import annotations

import importlib
import threading

import numpy as np
import pytest
import torch

from tests.workers.models.conftest import MakeFactory, MakePackage, SmallPackage
from topics.tensors import DTYPES
from workers.models import load_model
from workers.models.errors import ModelError, OutOfMemory

ECHO = """
class Echo(nn.Module):
    def forward(self, *inputs):
        return inputs

def make(inputs, outputs):
    return Echo()
"""


def echo(make_package: MakePackage, make_factory: MakeFactory, *dtypes: str, **changes: object) -> SmallPackage:
    """A package whose outputs are its inputs; the first pair is called action."""
    name = make_factory(ECHO)
    specs = [{"name": f"x{i}", "dtype": dtype, "shape": [2]} for i, dtype in enumerate(dtypes)]
    outputs = [specs[0] | {"name": "action"}, *specs[1:]]
    backend = {"kind": "torch", "factory": name}
    package = make_package({}, factories=(name,), inputs=specs, outputs=outputs, backend=backend, **changes)
    package.factory = name  # type: ignore[attr-defined]
    return package


def test_every_batch_size_up_to_the_last_bucket(package: SmallPackage) -> None:
    """A batch is padded to its bucket and cut back; the rows that fill it up change nothing."""
    model = load_model(package.path)
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    whole = model.predict({"observation": x})
    for n in range(1, 9):
        given = model.predict({"observation": x[:n]})
        assert given["action"].tolist() == whole["action"][:n].tolist()
        np.testing.assert_array_equal(given["logits"], whole["logits"][:n])
    with pytest.raises(IndexError):
        model.predict({"observation": np.zeros((9, 4), np.float32)})


def test_outputs_belong_to_the_caller(package: SmallPackage) -> None:
    """Replies are encoded while the next batch already runs: its buffers must be others."""
    model = load_model(package.path)
    first = model.predict({"observation": np.zeros((8, 4), np.float32)})
    kept = {name: array.copy() for name, array in first.items()}
    model.predict({"observation": np.ones((8, 4), np.float32)})
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name])
        assert array.flags.c_contiguous and array.flags.writeable


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("compute", [None, "float64"])
def test_every_dtype_of_the_wire_goes_through(
    make_package: MakePackage, make_factory: MakeFactory, dtype: str, compute: str | None
) -> None:
    """Also bfloat16, which torch and numpy do not share; floats inside may be wider than outside."""
    package = echo(make_package, make_factory, dtype, compute=compute)
    model = load_model(package.path, factories=[package.factory])  # type: ignore[attr-defined]
    x = np.array([[0, 1], [1, 0], [1, 1]]).astype(DTYPES[dtype])
    given = model.predict({"x0": x})["action"]
    assert given.dtype == DTYPES[dtype]
    np.testing.assert_array_equal(given, x)


def test_several_inputs_keep_their_order(make_package: MakePackage, make_factory: MakeFactory) -> None:
    """The manifest's order is the order of the module's arguments, whatever order the batch's dict has."""
    package = echo(make_package, make_factory, "float32", "uint8", "bool")
    model = load_model(package.path, factories=[package.factory])  # type: ignore[attr-defined]
    given = model.predict(
        {
            "x2": np.array([[True, False]]),
            "x0": np.array([[1.5, 2.5]], np.float32),
            "x1": np.array([[7, 8]], np.uint8),
        }
    )
    assert list(given) == ["action", "x1", "x2"]
    assert [array.tolist() for array in given.values()] == [[[1.5, 2.5]], [[7, 8]], [[True, False]]]


def test_padding_is_zero_whatever_came_before(make_package: MakePackage, make_factory: MakeFactory) -> None:
    """Nothing of an earlier agent's state is computed on again."""
    source = ECHO.replace("return inputs", "return (inputs[0].sum(0, keepdim=True).expand(len(inputs[0]), -1),)")
    name = make_factory(source)
    spec = {"name": "x0", "dtype": "float32", "shape": [2]}
    package = make_package(
        {}, factories=(name,), inputs=[spec], outputs=[spec | {"name": "action"}],
        backend={"kind": "torch", "factory": name},
    )  # fmt: skip
    model = load_model(package.path, factories=[name])
    model.predict({"x0": np.full((8, 2), 5, np.float32)})
    assert model.predict({"x0": np.ones((3, 2), np.float32)})["action"].tolist() == [[3, 3]] * 3


def test_warm_up_sets_the_threads_of_its_own_thread(package: SmallPackage) -> None:
    """The number of threads belongs to the thread that predicts, so that is the one to be told."""
    before = torch.get_num_threads()
    model = load_model(package.path, threads=1)
    seen: list[int] = []

    def predictor() -> None:
        torch.set_num_threads(2)
        model.warm_up()
        seen.append(torch.get_num_threads())

    thread = threading.Thread(target=predictor)
    thread.start()
    thread.join(timeout=30)
    torch.set_num_threads(before)
    assert seen == [1]


def test_nothing_is_recorded_for_gradients(package: SmallPackage) -> None:
    """Inference only: no graph grows from batch to batch."""
    model = load_model(package.path)
    with torch.enable_grad():
        model.predict({"observation": np.ones((1, 4), np.float32)})
    module_weights = [tensor for tensor in gc_tensors() if tensor.requires_grad and tensor.shape == (16, 4)]
    assert not module_weights


def gc_tensors() -> list[torch.Tensor]:
    import gc

    return [found for found in gc.get_objects() if type(found) is torch.nn.Parameter]


HUNGRY = """
class Hungry(nn.Module):
    room = 64

    def forward(self, x):
        if len(x) > Hungry.room:
            {raises}
        return (x,)

def make(inputs, outputs):
    return Hungry()
"""
RAISES = {
    "cpu": "torch.empty(1 << 55, dtype=torch.uint8)",  # more than any address space: torch's own words
    "device": "raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB')",
    "python": "raise MemoryError",
}


@pytest.mark.parametrize("kind", RAISES)
def test_no_memory_for_a_batch_is_told_apart_from_bad_rows(
    make_package: MakePackage, make_factory: MakeFactory, kind: str
) -> None:
    """Whichever way torch says it; smaller batches still run. A warm-up that does not fit says so in one line."""
    name = make_factory(HUNGRY.format(raises=RAISES[kind]))
    spec = {"name": "x0", "dtype": "float32", "shape": [2]}
    backend = {"kind": "torch", "factory": name}
    package = make_package(
        {}, factories=(name,), inputs=[spec], outputs=[spec | {"name": "action"}], backend=backend, buckets=[1, 8]
    )
    model = load_model(package.path, factories=(name,))
    importlib.import_module(name.split(":", maxsplit=1)[0]).Hungry.room = 1
    with pytest.raises(OutOfMemory, match=r"cpu has no memory for a batch of 8 of .*, leave out such buckets: "):
        model.predict({"x0": np.zeros((2, 2), np.float32)})
    assert model.predict({"x0": np.ones((1, 2), np.float32)})["action"].tolist() == [[1, 1]]
    with pytest.raises(ModelError, match="no memory for a batch of 8"):
        model.warm_up()
