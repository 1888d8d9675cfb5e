"""Wire version 1: MessagePack bytes ↔ State and Action, one record at a time.

Decoding raises `DecodeError` for anything that is not a well-formed record within the limits, and nothing else,
whatever the bytes. Unknown fields are ignored; a field is never renamed or reused. Whole batches are encoded by
`topics.columns`, which writes the very same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import msgpack
import numpy as np

from topics import tensors
from topics.errors import DecodeError
from topics.records import OUTCOMES, Action, Origin, State, Timing

VERSION: Final = 1
"""The wire version that this code writes, and the only one it reads."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one record may claim. Anything above is a `DecodeError` before it is allocated."""

    max_bytes: int = 1 << 20
    """Bytes of the value; also what a topic of the fleet takes (`topics.max_record_bytes`)."""
    max_elements: int = 1 << 16
    """Entries of all lists and maps together; larger arrays travel as tensors."""
    max_string: int = 1 << 12
    """Bytes of one string: kinds and names, never data."""
    max_depth: int = 16
    """Levels of nesting: an observation in plain lists needs its rank, options rarely three."""


DEFAULT_LIMITS: Final = Limits()

ExtHook = Callable[[int, bytes], Any]


def read_ext(code: int, data: bytes) -> Any:
    """The extension hook: tensors become read-only array views, any other extension is refused."""
    if code != tensors.TENSOR_EXT:
        raise DecodeError(f"MessagePack extension type {code} is unknown: tensors are type {tensors.TENSOR_EXT}")
    return tensors.from_ext(data)


def unpack(value: bytes, limits: Limits = DEFAULT_LIMITS, ext_hook: ExtHook = read_ext) -> dict[str, Any]:
    """The fields of one record, its wire version checked."""
    if len(value) > limits.max_bytes:
        raise DecodeError(f"record has {len(value)} bytes, the limit is {limits.max_bytes}")
    try:
        fields = msgpack.unpackb(
            value,
            ext_hook=ext_hook,
            max_str_len=limits.max_string,
            max_array_len=limits.max_elements,
            max_map_len=limits.max_elements,
            **({} if len(value) <= limits.max_elements else _counting(limits.max_elements)),
        )
    except DecodeError:
        raise
    except Exception as error:  # msgpack raises ValueError, its subclasses, TypeError, RecursionError, MemoryError
        raise DecodeError(f"not MessagePack within the limits: {_first_line(error)}") from error
    if type(fields) is not dict:
        raise DecodeError(f"record is a MessagePack {type(fields).__name__}, expected a map with v and observation")
    version = fields.get("v")
    if type(version) is not int or version != VERSION:
        raise DecodeError(f"record has wire version {_shown(version)}, this fleet reads v: {VERSION}")
    return fields


def _counting(limit: int) -> dict[str, Callable[[Any], Any]]:
    """Hooks that count every entry. n bytes hold at most n of them, so records up to the limit need none.

    A byte of nested empty lists becomes 72 bytes of memory: 1 MiB of them took 1.5 s and 72 MB.
    """
    left = limit

    def count(found: Any) -> Any:
        nonlocal left
        left -= len(found) + 1
        if left < 0:
            raise DecodeError(f"record has more than {limit} entries in its lists and maps: send arrays as tensors")
        return found

    return {"list_hook": count, "object_hook": count}


def _shown(found: Any) -> str:
    """A value in an error. Lists and maps by their type alone: a thousand levels of them have no repr."""
    return f"a {type(found).__name__}" if isinstance(found, list | dict | np.ndarray) else f"{found!r:.40}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:120] or type(error).__name__


def check_depth(value: Any, limit: int) -> None:
    """`DecodeError` if lists and maps nest deeper than `limit`; walks without recursion, so no depth can break it."""
    level = [value]
    for _ in range(limit):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise DecodeError(f"record nests deeper than {limit} levels")


def _children(parent: Any) -> list[Any]:
    children = parent.values() if type(parent) is dict else parent
    return [child for child in children if type(child) in (list, dict)] if type(parent) in (list, dict) else []


def encode_state(state: State) -> bytes:
    """The bytes of one state. Arrays travel as tensors, everything else as it is."""
    fields: dict[str, Any] = {"v": VERSION}
    for name in ("sent_us", "deadline_us", "kind", "episode"):
        if (value := getattr(state, name)) is not None:
            fields[name] = value
    if state.options:
        fields["options"] = state.options
    fields |= {"seq": state.seq, "observation": state.observation}
    return _pack(fields)


def _pack(fields: dict[str, Any]) -> bytes:
    return bytes(msgpack.packb(fields, default=_pack_array))


def _pack_array(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return tensors.to_ext(np.asarray(value))
    raise TypeError(f"{type(value).__name__} cannot travel in a record: use numbers, strings, lists, maps or arrays")


def decode_state(value: bytes, limits: Limits = DEFAULT_LIMITS, ext_hook: ExtHook = read_ext) -> State:
    """The state in a record's value; `DecodeError` names the first field that is wrong."""
    fields = unpack(value, limits, ext_hook)
    if "observation" not in fields:
        raise DecodeError("state has no observation, expected a tensor, a map of tensors, or numbers and lists")
    get = fields.get
    observation, options = fields["observation"], get("options")
    if type(observation) in (list, dict) or type(options) is dict:
        check_depth([observation, options], limits.max_depth)
    seq, episode, kind = get("seq", 0), get("episode"), get("kind")
    deadline_us, sent_us = get("deadline_us"), get("sent_us")
    found = (type(seq), type(episode), type(kind), type(deadline_us), type(sent_us), type(options))
    if found not in _STATE_TYPES or seq < 0:
        raise _wrong_state(fields)
    return State(observation, seq, episode, kind, deadline_us, sent_us, options or {})


_MAYBE_INT: Final = (int, type(None))
_STATE_TYPES: Final = frozenset(
    product((int,), (int, str, type(None)), (str, type(None)), _MAYBE_INT, _MAYBE_INT, (dict, type(None)))
)
"""Types of seq, episode, kind, deadline_us, sent_us and options: one look-up per record, not a check per field."""

_EXPECTED: Final = {
    "seq": "a whole number ≥ 0",
    "episode": "a whole number or a string",
    "kind": "a string",
    "deadline_us": "Unix time in µs as a whole number",
    "sent_us": "Unix time in µs as a whole number",
    "options": "a map",
}


def _wrong_state(fields: dict[str, Any]) -> DecodeError:
    """The first field that keeps `fields` from being a state."""
    for at, name in enumerate(("seq", "episode", "kind", "deadline_us", "sent_us", "options")):
        if name in fields and type(fields[name]) not in {types[at] for types in _STATE_TYPES}:
            return _wrong(name, fields[name], _EXPECTED[name])
    return _wrong("seq", fields["seq"], _EXPECTED["seq"])


def _wrong(field: str, found: Any, expected: str) -> DecodeError:
    return DecodeError(f"{field} is {_shown(found)}, expected {expected}")


def encode_action(action: Action) -> bytes:
    """The bytes of one action record, fields in the order that `topics.columns` splices."""
    fields: dict[str, Any] = {
        "v": VERSION,
        "outcome": action.outcome,
        "model": action.model,
        "worker": action.worker,
        "lane": action.lane,
        **({} if action.epoch is None else {"epoch": action.epoch}),
        "timing": {
            "wait_us": action.timing.wait_us,
            "predict_us": action.timing.predict_us,
            "batch_size": action.timing.batch_size,
        },
    }
    if action.reason is not None:
        fields["reason"] = action.reason
    if action.origin is not None:
        fields["origin"] = [action.origin.topic, action.origin.partition, action.origin.offset]
    fields["seq"] = action.seq
    if action.outcome == "action" or (action.outcome == "expired" and action.action is not None):
        fields["action"] = action.action
    if action.extras:
        fields["extras"] = action.extras
    return _pack(fields)


def decode_action(value: bytes, limits: Limits = DEFAULT_LIMITS) -> Action:
    """The action in a record's value, tensors as read-only array views; `DecodeError` names what is wrong."""
    fields = unpack(value, limits)
    get = fields.get
    if type(get("outcome")) is not str or fields["outcome"] not in OUTCOMES:
        raise _wrong("outcome", get("outcome"), "one of " + ", ".join(OUTCOMES))
    for name, (expected, kinds) in _ACTION_TYPES.items():
        if type(get(name)) not in kinds:
            raise _wrong(name, get(name), expected)
    check_depth(fields, limits.max_depth)
    try:
        timing = Timing(**{name: int(us) for name, us in (get("timing") or {}).items() if name in _TIMINGS})
        origin = Origin(*fields["origin"]) if get("origin") else None
    except (TypeError, ValueError, OverflowError) as error:
        raise DecodeError(f"timing or origin is malformed: {_first_line(error)}") from error
    return Action(
        outcome=fields["outcome"],
        seq=get("seq"),
        action=get("action"),
        reason=get("reason"),
        model=get("model") or "",
        lane=get("lane") or "",
        worker=get("worker") or "",
        timing=timing,
        extras=get("extras") or {},
        origin=origin,
        epoch=get("epoch"),
    )


_TIMINGS: Final = frozenset({"wait_us", "predict_us", "batch_size"})
_ACTION_TYPES: Final = (
    {"seq": ("a whole number", _MAYBE_INT), "epoch": ("a whole number", _MAYBE_INT)}
    | {name: ("a string", (str, type(None))) for name in ("reason", "model", "lane", "worker")}
    | {name: ("a map", (dict, type(None))) for name in ("timing", "extras")}
    | {"origin": ("a list of topic, partition and offset", (list, type(None)))}
)
