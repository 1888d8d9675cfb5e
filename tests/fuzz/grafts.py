"""Hostile trees: good values in which single places are replaced by what nobody expects there.

Bytes that are damaged at random hardly ever stay MessagePack, JSON or TOML; these always do. What is replaced
by what is read from bytes, so that hypothesis and coverage lead here as well as to bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import msgpack
import numpy as np

from topics.tensors import to_ext

DEEP, ENDLESS, LONG = "@deep", "@endless", "@long"
"""What no encoder writes; put in behind its back."""
DROP: Final = object()

ANYWHERE: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 255, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    *(0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        "x",
        "x" * 3000,
        "\n",
        "\0",
        "a\nb",
        "..",
        "../x",
        "/etc/passwd",
        "²",
        "9" * 5000,
        "<f4",
        "float32",
        "[bold]",
    ),
    *([], [[]], {}, {"": {}}, [None], [{}], [[], {}], [0] * 20, [2**62] * 9, ["x" * 4000] + [""] * 2000),
    *({"x" * 3000: 1}, {"a\nb": 1}, {"v": 1}, DEEP, LONG, DROP),
)
PACKED: Final = ANYWHERE + (
    *(b"", b"x" * 4000, [b"x" * 4000] + [b""] * 2000, msgpack.Timestamp(0, 0), msgpack.ExtType(2, b"x")),
    *(to_ext(np.zeros(shape, "float32")) for shape in ((), 0, 1, 2, 4, (2, 2), (4, 0))),
    *(to_ext(np.ones(4, dtype)) for dtype in ("bool", "int8", "uint64", "float64")),
    *({"dtype": "float32", "shape": shape, "data": b""} for shape in ([0], [0, 2**62, 2**62], [2**64 - 1], [], "x")),
    *({"nd": True, "type": kind, "shape": [4], "data": bytes(16)} for kind in ("<f4", ">f4", "2f4", "O", "V4", [[]])),
)
WRITTEN: Final = (*ANYWHERE, 10**400, -(10**400), ENDLESS, "\ud800")


def grafted(tree: Any, data: bytes, values: tuple[Any, ...]) -> Any:
    """`tree` with one of `values` at one place for each two bytes."""
    for place, value in zip(data[::2], data[1::2], strict=False):
        places = list(_places(tree))
        if places:
            tree = _put(tree, places[place % len(places)], values[value % len(values)])
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, ...]]:
    children = tree.items() if type(tree) is dict else enumerate(tree[:8]) if type(tree) is list else ()
    for key, child in children:
        yield (key,)
        yield from ((key, *rest) for rest in _places(child))


def _put(tree: Any, place: tuple[Any, ...], value: Any) -> Any:
    key, *rest = place
    changed = tree.copy()
    if rest:
        changed[key] = _put(tree[key], tuple(rest), value)
    elif value is DROP:
        del changed[key]
    else:
        changed[key] = value
    return changed


def packed(tree: Any) -> bytes:
    """As MessagePack."""
    value: bytes = msgpack.packb(tree)
    return value.replace(b"\xa5@deep", b"\x91" * 1010 + b"\xc0").replace(b"\xa5@long", b"\xdb\x06\x40\x00\x00")


def written(tree: Any) -> str:
    """As JSON, of this and of no standard."""
    return _behind_its_back(json.dumps(tree))


def toml(tree: dict[str, Any]) -> bytes:
    """As TOML: an inline table is JSON with = for : ."""
    lines = (f"{json.dumps(name)} = {json.dumps(value, separators=(',', '='))}" for name, value in tree.items())
    return _behind_its_back("\n".join(lines)).encode()


def _behind_its_back(text: str) -> str:
    return text.replace('"@deep"', "[" * 960 + "]" * 960).replace('"@endless"', "1e999").replace('"@long"', "9" * 4400)
