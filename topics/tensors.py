"""Arrays ↔ bytes: the tensor of wire version 1, and the shapes other clients send.

A tensor on the wire is MessagePack extension type 1: a packed `[dtype, shape]` header, then the raw little-endian
C-order bytes. Reading one gives a view of the received bytes, never a copy. Hostile input raises `DecodeError` or
`InputError`, never anything else, and never makes us allocate more than it brought.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import ml_dtypes
import msgpack
import numpy as np
import numpy.typing as npt

from topics.errors import DecodeError, InputError

Array = npt.NDArray[Any]

TENSOR_EXT: Final = 1
"""The MessagePack extension type of a tensor."""

MAX_RANK: Final = 8
"""Axes of a tensor: video is [time, camera, height, width, channel], so 8 leaves room."""

_FLOATS = ("float32", "float64", "float16")
_INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES: Final[dict[str, np.dtype[Any]]] = {name: np.dtype(name) for name in (*_FLOATS, *_INTS, "bool")} | {
    "bfloat16": np.dtype(ml_dtypes.bfloat16)
}
"""Every dtype a tensor may have; all little-endian on the wire."""


@dataclass(frozen=True)
class TensorSpec:
    """Name, dtype and shape of one input or output, without the batch axis. `shape` () is a single number."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype."""
        return DTYPES[self.dtype]

    @cached_property
    def count(self) -> int:
        """Numbers in one row."""
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return self.count * self.numpy.itemsize

    @cached_property
    def header(self) -> bytes:
        """The packed `[dtype, shape]` that precedes the raw bytes on the wire."""
        return pack_header(self.dtype, self.shape)

    @cached_property
    def ext_prefix(self) -> bytes:
        """Everything in front of the raw bytes: the extension's own header, then `header`."""
        return ext_prefix(self.header, self.nbytes)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def ext_prefix(header: bytes, nbytes: int) -> bytes:
    """The bytes of a tensor extension up to its raw bytes, of which there will be `nbytes`."""
    packed = msgpack.packb(msgpack.ExtType(TENSOR_EXT, header + bytes(nbytes)))
    return bytes(packed[: len(packed) - nbytes])


def spec_of(array: Array, name: str) -> TensorSpec:
    """The spec of one row that looks like `array`."""
    return TensorSpec(name, dtype_name(array.dtype), array.shape)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Our name of a numpy dtype; `InputError` if a tensor cannot have it."""
    if dtype.name not in DTYPES:
        raise InputError(f"arrays of dtype {dtype} cannot travel: use one of {', '.join(sorted(DTYPES))}")
    return dtype.name


@lru_cache(maxsize=1024)
def pack_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The packed `[dtype, shape]` of a tensor."""
    return bytes(msgpack.packb([dtype, shape]))


def to_ext(array: Array) -> msgpack.ExtType:
    """The tensor extension of `array` (any byte order, any layout)."""
    name = dtype_name(array.dtype)
    raw = np.ascontiguousarray(array, dtype=DTYPES[name]).tobytes()
    return msgpack.ExtType(TENSOR_EXT, pack_header(name, array.shape) + raw)


HEADER_BYTES: Final = 96
"""No packed header is longer: 2 + dtype (≤ 9) + 8 axes of at most 9 bytes."""


def from_ext(data: bytes) -> Array:
    """A read-only view of the tensor in the extension's payload; `DecodeError` if it is none."""
    dtype, shape, start = _read_header(data)
    return view(data, start, dtype, shape)


def _read_header(data: bytes) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """dtype, shape, and where the raw bytes start."""
    unpacker = msgpack.Unpacker(max_array_len=MAX_RANK, max_str_len=16, max_buffer_size=HEADER_BYTES)
    unpacker.feed(data[:HEADER_BYTES])
    try:
        found = unpacker.unpack()
    except Exception as error:  # msgpack raises many types; all mean that these bytes are no header
        raise DecodeError(f"a tensor starts with a packed [dtype, shape], found {data[:12]!r}") from error
    match found:
        case [str(name), list(shape)] if name in DTYPES and all(type(n) is int and n >= 0 for n in shape):
            return DTYPES[name], tuple(shape), unpacker.tell()
    raise DecodeError(f"tensor header {found!r:.60} is not [dtype, shape] with a dtype of {', '.join(sorted(DTYPES))}")


def view(data: bytes | memoryview, start: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """`data[start:]` as an array, without copying; `DecodeError` unless the bytes fit the shape exactly."""
    expected = math.prod(shape) * dtype.itemsize
    if len(data) - start != expected:
        raise DecodeError(
            f"tensor {dtype_name(dtype)}{list(shape)} takes {expected} bytes, {len(data) - start} came with it"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape) if expected else _empty(dtype, shape)


def _empty(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    try:
        return np.empty(shape, dtype)
    except (ValueError, OverflowError) as error:  # [0, 2**62]: no numbers, and still more than numpy can count
        raise DecodeError(f"tensor shape {list(shape)} is larger than any array") from error


def from_map(found: Mapping[Any, Any]) -> Array | None:
    """The array in a map of msgpack-numpy (`nd`, `type`, `shape`, `data`; byte or string keys), in its older
    `__ndarray__` form, or in `{dtype, shape, data}`; None if the map is none of them."""
    fields = {key.decode("ascii", "replace") if type(key) is bytes else key: found[key] for key in found}
    if "data" not in fields or not ("nd" in fields or "__ndarray__" in fields or "dtype" in fields):
        return None
    data, shape = fields["data"], fields.get("shape", ())
    if type(data) is not bytes or not isinstance(shape, list | tuple):
        raise DecodeError("an array as a map needs `data` as binary and `shape` as a list")
    if len(shape) > MAX_RANK or not all(type(n) is int and n >= 0 for n in shape):
        raise DecodeError(f"array shape {list(shape)!r:.60} is not up to {MAX_RANK} numbers ≥ 0")
    return view(data, 0, _foreign_dtype(fields.get("type", fields.get("dtype"))), tuple(shape))


def _foreign_dtype(found: Any) -> np.dtype[Any]:
    """A dtype written numpy's way (`<f4`, `float32`), byte order kept."""
    text = found.decode("ascii", "replace") if type(found) is bytes else found
    if type(text) is str and text in DTYPES:
        return DTYPES[text]
    try:
        dtype = np.dtype(text) if type(text) is str and len(text) <= 8 else None
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    if dtype is None or dtype.name not in DTYPES:
        raise DecodeError(f"array dtype {found!r:.40} is not one of {', '.join(sorted(DTYPES))}")
    return dtype


def to_row(found: Any, spec: TensorSpec) -> Array:
    """One observation as a row of `spec`, converted where nothing but precision can be lost (float64 → float32,
    int → float); `InputError` where shape or kind differ.

    `found` is an array, a map that `from_map` knows, or numbers and lists.
    """
    if isinstance(found, Mapping):
        found = _array_in(found, spec)
    array = found if isinstance(found, np.ndarray) else _from_lists(found, spec)
    if array.shape != spec.shape:
        raise InputError(f"{spec.name} has shape {list(array.shape)}, expected {list(spec.shape)}")
    if array.dtype != spec.numpy:
        array = _converted(array, spec)
    if spec.dtype == "bool":  # a byte that is neither 0 nor 1 is undefined behaviour further on
        array = array.view(np.uint8) != 0
    return np.ascontiguousarray(array).reshape(spec.shape)


def _array_in(found: Mapping[Any, Any], spec: TensorSpec) -> Array:
    array = from_map(found)
    if array is None:
        raise InputError(f"{spec.name} is a map with {list(found)!r:.60}, expected a tensor or numbers")
    return array


def _from_lists(found: Any, spec: TensorSpec) -> Array:
    if not isinstance(found, int | float | Sequence) or isinstance(found, str | bytes):
        raise InputError(f"{spec.name} is a {type(found).__name__}, expected a tensor, numbers or lists of numbers")
    if not holds_only_numbers(found):
        raise InputError(f"{spec.name} holds something other than numbers, expected {spec}")
    try:
        array = np.asarray(found)
    except ValueError as error:  # ragged or deeper than numpy's 64 axes
        raise InputError(f"{spec.name} is not a regular list of numbers, expected shape {list(spec.shape)}") from error
    if array.dtype.kind not in "biuf":
        raise InputError(f"{spec.name} holds something other than numbers, expected {spec}")
    return array


def holds_only_numbers(found: Any) -> bool:
    """Whether numpy may see these lists: one long string among empty ones would give each of them its length, and 1 MiB
    became 50 GiB. Walks without recursion."""
    level = found if type(found) is list else [found]
    while level:
        kinds = set(map(type, level))
        if not kinds <= _NUMBERS:
            return False
        level = [child for parent in level if type(parent) is list for child in parent] if list in kinds else []
    return True


_NUMBERS: Final = {int, float, bool, list, np.ndarray}


def _fits(array: Array, spec: TensorSpec) -> Array:
    """Whole numbers as the spec's integer dtype; `InputError` if one is out of its range."""
    limits = np.iinfo(spec.numpy)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise InputError(f"{spec.name} holds a number outside {spec.dtype}'s {limits.min}…{limits.max}")
    return array.astype(spec.numpy)


def _converted(array: Array, spec: TensorSpec) -> Array:
    if dtype_name(array.dtype) == spec.dtype:  # only the byte order differs
        return array.astype(spec.numpy)
    if array.dtype.kind in "iu" and spec.numpy.kind in "iu":
        return _fits(array, spec)
    if "bfloat16" in (spec.dtype, array.dtype.name):
        allowed = array.dtype.kind in "biuf" or array.dtype.name == "bfloat16"
        allowed = allowed and (spec.dtype == "bfloat16" or spec.numpy.kind == "f")
    else:
        allowed = np.can_cast(array.dtype, spec.numpy, "same_kind") and array.dtype.kind != "b"
    if not allowed:
        raise InputError(f"{spec.name} has dtype {array.dtype.name}, expected {spec.dtype}")
    with np.errstate(over="ignore"):  # out of float32's range becomes inf, which the finite check answers
        return array.astype(spec.numpy)
