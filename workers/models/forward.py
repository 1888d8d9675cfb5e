"""A module as a plain function over the manifest's tensors, and the check that it gives what the manifest
says.

Made at load, one function per bucket. A module that can `bind` itself to a batch size (see `mlp`) is asked
to; any other is called as it is and may return one tensor, a tuple in the manifest's order, or a dict by
output name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from topics.tensors import TensorSpec
from workers.models.arrays import TORCH_DTYPES, dtype_name
from workers.models.errors import ModelError, one_line
from workers.models.package import Manifest

Forward = Callable[..., tuple[Tensor, ...]]
"""Inputs in the manifest's order, each [rows, *shape]; outputs likewise, valid until the next call."""


def forward_for(module: nn.Module, manifest: Manifest, rows: int) -> Forward:
    """The forward pass for exactly `rows` rows."""
    bind: Callable[[int], Forward] | None = getattr(module, "bind", None)
    if bind is not None:
        return bind(rows)
    names = tuple(spec.name for spec in manifest.outputs)

    def forward(*inputs: Tensor) -> tuple[Tensor, ...]:
        return _in_order(module(*inputs), names)

    return forward


def _in_order(given: Any, names: tuple[str, ...]) -> tuple[Tensor, ...]:
    if isinstance(given, Tensor):
        return (given,)
    if isinstance(given, Mapping):
        return tuple(given[name] for name in names)
    return tuple(given)


def staged_dtype(spec: TensorSpec, compute: str | None) -> torch.dtype:
    """The dtype in which the module gets an input: floats in `compute`, everything else as it came."""
    dtype = TORCH_DTYPES[spec.dtype]
    return TORCH_DTYPES[compute] if compute and dtype.is_floating_point else dtype


def require_outputs(forward: Forward, manifest: Manifest, rows: int, device: str) -> None:
    """`ModelError` unless a batch of zeros comes out in the manifest's shapes, and in dtypes that convert to
    its own."""
    inputs = [
        torch.zeros(rows, *spec.shape, dtype=staged_dtype(spec, manifest.compute), device=device)
        for spec in manifest.inputs
    ]
    try:
        with torch.inference_mode():
            outputs = forward(*inputs)
    except Exception as error:  # a user's module may raise anything
        shapes = ", ".join(f"{spec.name} {spec}" for spec in manifest.inputs)
        raise ModelError(f"{manifest}: a batch of {rows} × {shapes} fails: {one_line(error)}") from error
    if len(outputs) != len(manifest.outputs):
        names = [spec.name for spec in manifest.outputs]
        raise ModelError(f"{manifest}: the model gives {len(outputs)} outputs, the manifest names {names}")
    for spec, tensor in zip(manifest.outputs, outputs, strict=True):
        _require_fit(spec, tensor, manifest, rows)


def _require_fit(spec: TensorSpec, tensor: Any, manifest: Manifest, rows: int) -> None:
    if not isinstance(tensor, Tensor):
        raise ModelError(f'{manifest}: output "{spec.name}" is a {type(tensor).__name__}, expected a tensor')
    if tuple(tensor.shape) != (rows, *spec.shape):
        raise ModelError(
            f'{manifest}: output "{spec.name}" has shape {list(tensor.shape)}, '
            f"expected {[rows, *spec.shape]}; correct the manifest's outputs or the factory's arguments"
        )
    if not torch.can_cast(tensor.dtype, TORCH_DTYPES[spec.dtype]):
        raise ModelError(
            f'{manifest}: output "{spec.name}" is {dtype_name(tensor.dtype)}, the manifest says {spec.dtype}'
        )
