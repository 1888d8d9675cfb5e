"""Weights from a safetensors file into a module: same names, same shapes, or an error that says which differ.

Runs at load. The file is a header of names, dtypes and offsets with raw numbers behind it: reading it runs
no code.
"""

from __future__ import annotations

from collections.abc import Mapping

import safetensors
import safetensors.torch
from torch import Tensor, nn

from workers.models.errors import ModelError, one_line


def fill(module: nn.Module, data: bytes, where: str) -> None:
    """Copy the tensors in `data` into `module`, converted to its dtypes; `ModelError` unless they fit
    exactly."""
    try:
        found = safetensors.torch.load(data)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise ModelError(f"{where} is not a whole safetensors file: {one_line(error)}; copy it again") from error
    expected = module.state_dict()
    _require_fit(found, expected, where)
    module.load_state_dict(found)


def _require_fit(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: str) -> None:
    for name, tensor in expected.items():
        if name not in found:
            raise ModelError(f'{where}: weight "{name}" {_shape(tensor)} is missing; it has {_some(sorted(found))}')
        if found[name].shape != tensor.shape:
            raise ModelError(
                f'{where}: weight "{name}" has shape {_shape(found[name])}, expected {_shape(tensor)}; '
                "correct the factory's arguments or the tensors' shapes in the manifest"
            )
        if found[name].is_floating_point() != tensor.is_floating_point():
            raise ModelError(f'{where}: weight "{name}" is {found[name].dtype}, expected {tensor.dtype}')
    extra = sorted(set(found) - set(expected))
    if extra:
        raise ModelError(f"{where}: {_some(extra)} fit no part of the model; it takes {_some(list(expected))}")


def _shape(tensor: Tensor) -> list[int]:
    return list(tensor.shape)


def _some(names: list[str]) -> str:
    """The first few names."""
    shown = ", ".join(names[:6])
    return f"{shown}, …" if len(names) > 6 else shown or "nothing"
