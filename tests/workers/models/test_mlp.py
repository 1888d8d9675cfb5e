"""The built-in factory: the same numbers as plain torch, and clear words for arguments it cannot take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from topics.tensors import TensorSpec
from workers.models import ModelError
from workers.models.mlp import ACTIVATIONS, mlp

OBSERVATION = TensorSpec("observation", "float32", (2, 3))
ACTION = TensorSpec("action", "int64", ())
LOGITS = TensorSpec("logits", "float32", (5,))
PLAIN = {"relu": nn.ReLU(), "tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(), "elu": nn.ELU(), "silu": nn.SiLU()}


def plain(module: nn.Module, activation: nn.Module, x: torch.Tensor) -> torch.Tensor:
    *hidden, last = module.layers  # type: ignore[misc]
    for layer in hidden:
        x = activation(layer(x))
    out: torch.Tensor = last(x)
    return out


@pytest.mark.parametrize("activation", ACTIVATIONS)
@torch.inference_mode()
def test_it_computes_what_linear_layers_compute(activation: str) -> None:
    """The written-out forward pass is nn.Linear and the activation, observation flattened."""
    torch.manual_seed(0)
    module = mlp((OBSERVATION,), (ACTION, LOGITS), hidden=[7, 9], activation=activation)
    x = torch.randn(11, 2, 3)
    action, logits = module.bind(11)(x)
    expected = plain(module, PLAIN[activation], x.reshape(11, 6))
    torch.testing.assert_close(logits, expected)
    assert torch.equal(action, expected.argmax(1))


@torch.inference_mode()
def test_the_second_batch_is_not_the_first() -> None:
    """The buffers are used again, the answers are new."""
    module = mlp((OBSERVATION,), (ACTION, LOGITS), hidden=[7])
    forward = module.bind(2)
    first = forward(torch.zeros(2, 2, 3))[1].clone()
    forward(torch.ones(2, 2, 3))
    assert torch.equal(forward(torch.zeros(2, 2, 3))[1], first)


@torch.inference_mode()
def test_values_are_the_action_itself() -> None:
    """Head "values": continuous control, also a chunk of steps."""
    chunk = TensorSpec("action", "float32", (4, 2))
    (action,) = mlp((OBSERVATION,), (chunk,), hidden=[], head="values").bind(3)(torch.ones(3, 2, 3))
    assert action.shape == (3, 4, 2)


@pytest.mark.parametrize(
    ("inputs", "outputs", "arguments", "said"),
    [
        ((OBSERVATION, ACTION), (ACTION, LOGITS), {"hidden": []}, "takes one input"),
        ((OBSERVATION,), (ACTION,), {"hidden": []}, r"head argmax gives action int64\[\] and logits"),
        ((OBSERVATION,), (LOGITS, ACTION), {"hidden": []}, "head argmax gives"),
        ((OBSERVATION,), (ACTION, LOGITS), {"hidden": [], "head": "values"}, "gives one output"),
        ((OBSERVATION,), (ACTION, LOGITS), {"hidden": [], "head": "softmax"}, "head is 'softmax', expected one of"),
        ((OBSERVATION,), (ACTION, LOGITS), {"hidden": 64}, "hidden is 64, expected a list"),
        ((OBSERVATION,), (ACTION, LOGITS), {"hidden": [0]}, "expected a list of layer widths"),
        ((OBSERVATION,), (ACTION, LOGITS), {"hidden": [], "activation": "gelu"}, "activation is 'gelu', expected"),
        ((OBSERVATION,), (ACTION, LOGITS), {"hidden": [], "activation": ["relu"]}, "activation is"),
    ],
)  # fmt: skip  # as a table
def test_arguments_it_cannot_take(
    inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], arguments: dict[str, Any], said: str
) -> None:
    """Found, expected, in one line."""
    with pytest.raises(ModelError, match=said):
        mlp(inputs, outputs, **arguments)
