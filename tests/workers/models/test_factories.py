"""The allow-list: a package may name a factory, only the operator decides that it runs."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.workers.models.conftest import MakeFactory, MakePackage, SmallPackage
from workers.models import ModelError, load_model

LINEAR = """
class Policy(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(4, width)

    def forward(self, observation):
        logits = self.score(observation)
        return {"logits": logits, "action": logits.argmax(1)}

def make(inputs, outputs, *, width):
    return Policy(width)
"""


def linear_weights() -> dict[str, object]:
    import torch

    generator = torch.Generator().manual_seed(1)
    return {
        "score.weight": torch.randn(3, 4, generator=generator),
        "score.bias": torch.randn(3, generator=generator),
    }


def backend(factory: str, **arguments: object) -> dict[str, object]:
    return {"kind": "torch", "factory": factory, "arguments": arguments}


def test_an_unknown_factory_is_refused_without_importing_it(package: SmallPackage) -> None:
    """A manifest cannot make this process import anything."""
    text = package.edit(backend=backend("this.zen:main")).mistake()
    assert 'factory "this.zen:main" is not allowed here, expected one of mlp' in text
    assert "model.factories" in text
    assert "this" not in sys.modules


def test_an_allowed_factory_builds_the_model(make_package: MakePackage, make_factory: MakeFactory) -> None:
    """Any torch module serves, outputs by name, in any order."""
    name = make_factory(LINEAR)
    package = make_package(linear_weights(), factories=(name,), backend=backend(name, width=3))
    assert "is not allowed here" in package.mistake()
    given = load_model(package.path, factories=[name]).predict({"observation": np.ones((1, 4), np.float32)})
    assert given["action"][0] == given["logits"][0].argmax()


@pytest.mark.parametrize(
    ("source", "arguments", "said"),
    [
        ("x = 1", {}, "has no function make"),
        ("raise RuntimeError('no licence')", {}, "cannot be imported: RuntimeError: no licence"),
        ("import module_that_is_not_there", {}, "cannot be imported: ModuleNotFoundError"),
        (LINEAR, {}, "does not take the manifest's arguments: missing a required"),
        (LINEAR, {"width": 3, "depth": 2}, "does not take the manifest's arguments: got an unexpected"),
        ("def make(inputs, outputs): return 1 / 0", {}, "failed: ZeroDivisionError"),
        ("def make(inputs, outputs): return lambda x: x", {}, "gave a function, expected a torch.nn.Module"),
    ],
)
def test_a_factory_that_fails_is_named(
    package: SmallPackage, make_factory: MakeFactory, source: str, arguments: dict[str, object], said: str
) -> None:
    """Whatever the operator's own code does, the worker's last line says where to look."""
    name = make_factory(source)
    text = package.edit(backend=backend(name, **arguments)).mistake(factories=[name])
    assert f'factory "{name}"' in text and said in text


def test_a_name_on_the_list_must_be_a_name(package: SmallPackage) -> None:
    """`model.factories` holds package.module:function and nothing else."""
    text = package.edit(backend=backend("os.system")).mistake(factories=["os.system"])
    assert 'is no "package.module:function"' in text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return logits", "gives 1 outputs, the manifest names ['action', 'logits']"),
        ("return logits, logits", 'output "action" has shape [2, 3], expected [2]'),
        ("return logits.argmax(1)", "gives 1 outputs, the manifest names ['action', 'logits']"),
        ("return logits[:, 0], logits", 'output "action" is float32, the manifest says int64'),
        ("return logits.argmax(1), 7", 'output "logits" is a int, expected a tensor'),
        ("return logits.argmax(1), logits[:, :2]", 'output "logits" has shape [2, 2], expected [2, 3]'),
        ("return {'action': logits.argmax(1)}", "fails: KeyError: 'logits'"),
        ("return logits @ logits", "a batch of 2 × observation float32[4] fails: RuntimeError"),
    ],
)
def test_a_model_that_gives_something_else(
    make_factory: MakeFactory, make_package: MakePackage, body: str, said: str
) -> None:
    """Outputs are compared with the manifest at load, not when the first agent waits."""
    head, _, tail = LINEAR.partition('        return {"logits"')
    source = f"{head}        {body}\n" + tail.partition("\n")[2]
    name = make_factory(source)
    with pytest.raises(ModelError) as caught:
        make_package(linear_weights(), factories=(name,), backend=backend(name, width=3), compute=None)
    assert said in str(caught.value)
