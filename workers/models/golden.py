"""Golden pairs: inputs with the outputs they must give, checked on the very device that will serve.

Runs once per predictor, at load: it finds the wrong weights, the wrong factory and the broken device before
any agent does. They lie in a safetensors file with `inputs.<name>` and `outputs.<name>`,
each [pairs, *shape].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors
import safetensors.numpy

from topics.tensors import DTYPES, Array, TensorSpec
from workers.models.errors import ModelError, one_line
from workers.models.files import read_verified
from workers.models.package import GoldenFile, Manifest

Predict = Callable[[Mapping[str, Array]], Mapping[str, Array]]

_DTYPES: Final = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
}  # fmt: skip  # safetensors.numpy reads all of these but BF16


@dataclass(frozen=True, slots=True)
class Golden:
    """`inputs` and `outputs` by name, each [pairs, *shape] in the manifest's dtypes."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]

    @property
    def pairs(self) -> int:
        return len(next(iter(self.inputs.values())))

    def to_bytes(self) -> bytes:
        """The safetensors file that `read_golden` reads."""
        arrays = {f"inputs.{name}": array for name, array in self.inputs.items()}
        arrays |= {f"outputs.{name}": array for name, array in self.outputs.items()}
        return safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def read_golden(path: Path, manifest: Manifest, name: str, sha256: str) -> Golden:
    """The pairs of the package at `path`; `ModelError` unless they have the manifest's names, dtypes and
    shapes."""
    where = str(path / name)
    data = read_verified(path, name, sha256)
    try:
        arrays = {name: _array(found) for name, found in _tensors(data)}
    except KeyError as error:
        raise ModelError(
            f"{where} has numbers of dtype {error.args[0]}, expected one of {', '.join(_DTYPES)}"
        ) from error
    except safetensors.SafetensorError as error:
        raise ModelError(f"{where} is not a safetensors file: {one_line(error)}; copy the file again") from error
    inputs = {spec.name: _column(arrays, "inputs", spec, where) for spec in manifest.inputs}
    outputs = {spec.name: _column(arrays, "outputs", spec, where) for spec in manifest.outputs}
    if arrays:
        raise ModelError(f"{where}: {min(arrays)} belongs to no input or output of {manifest}; remove it")
    counts = {len(column) for column in (*inputs.values(), *outputs.values())}
    if len(counts) > 1 or not min(counts):
        raise ModelError(f"{where} has {sorted(counts)} rows, expected as many in every tensor, and at least 1")
    return Golden(inputs, outputs)


def _tensors(data: bytes) -> list[tuple[str, Mapping[str, Any]]]:
    """Name, and dtype, shape and bytes of every tensor."""
    tensors: list[tuple[str, Mapping[str, Any]]] = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    return tensors


def _array(found: Mapping[str, Any]) -> Array:
    return np.frombuffer(found["data"], DTYPES[_DTYPES[found["dtype"]]]).reshape(found["shape"])


def _column(arrays: dict[str, Array], side: str, spec: TensorSpec, where: str) -> Array:
    column = arrays.pop(f"{side}.{spec.name}", None)
    if column is None:
        raise ModelError(f"{where}: {side}.{spec.name} is missing, expected {spec.dtype} {['pairs', *spec.shape]}")
    if column.dtype != spec.numpy or column.shape[1:] != spec.shape:
        raise ModelError(
            f"{where}: {side}.{spec.name} is {column.dtype} {list(column.shape)}, "
            f"expected {spec.dtype} {['pairs', *spec.shape]}"
        )
    return column


def check_golden(golden: Golden, predict: Predict, manifest: Manifest, tolerance: GoldenFile) -> None:
    """`ModelError` if the model gives anything else than the golden outputs."""
    step = manifest.buckets[-1]
    for start in range(0, golden.pairs, step):
        rows = slice(start, start + step)
        given = predict({name: column[rows] for name, column in golden.inputs.items()})
        for spec in manifest.outputs:
            _compare(spec, given[spec.name], golden.outputs[spec.name][rows], start, tolerance)


def _compare(spec: TensorSpec, given: Array, expected: Array, start: int, tolerance: GoldenFile) -> None:
    if spec.numpy.kind in "biu":
        allowed, same = "exactly", given == expected
    else:
        given, expected = given.astype(np.float64), expected.astype(np.float64)
        allowed = f"within {tolerance.atol:g} + {tolerance.rtol:g}·|expected|"
        same = np.isclose(given, expected, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True)
    if same.all():
        return
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    raise ModelError(
        f'golden pair {start + at[0]}: output "{spec.name}"{list(at[1:])} is {given[at]:g}, '
        f"expected {expected[at]:g} {allowed}; these weights are not the ones the package was made with, "
        "or the device computes something else"
    )
