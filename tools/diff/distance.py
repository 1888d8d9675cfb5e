"""When two outputs count as equal, and how far apart they are. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from topics.tensors import Array


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Floats agree within `atol + rtol · |first|`, whole numbers exactly; with `argmax`: if their largest entries are
    at the same place (of the last axis), whatever the numbers are. Only `outputs` decide whether answers agree."""

    atol: float = 1e-5
    rtol: float = 1e-4
    argmax: bool = False
    outputs: frozenset[str] = frozenset({"action"})


def agree(first: Array, second: Array, tolerance: Tolerance) -> bool:
    """Whether two outputs count as equal. Different shapes never do; NaN equals NaN."""
    if first.shape != second.shape:
        return False
    if tolerance.argmax and first.ndim and first.shape[-1] > 1:
        return bool((np.argmax(_floats(first), -1) == np.argmax(_floats(second), -1)).all())
    if first.dtype.kind in "biu" and second.dtype.kind in "biu":
        return bool((first == second).all())
    wanted, given = _floats(first), _floats(second)
    return bool(np.isclose(given, wanted, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True).all())


def distance(first: Array, second: Array) -> float | None:
    """The largest difference of two entries; None for other shapes, infinity where one alone is not a number."""
    if first.shape != second.shape:
        return None
    if not first.size:
        return 0.0
    wanted, given = _floats(first), _floats(second)
    same = (wanted == given) | (np.isnan(wanted) & np.isnan(given))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(wanted - given))
    return float(np.where(np.isnan(apart), np.inf, apart).max())


def _floats(array: Array) -> Array:
    return array.astype(np.float64)
