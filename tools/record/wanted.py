"""What is to be recorded, as people type it: streams, offsets, times, sizes. Pure: the present is an argument."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tools.dead.filters import UNIT_S, WrongCall, parse_time
from topics.names import LANES, FleetNames, Lane

Kind = Literal["states", "actions", "dead"]
KINDS: Final[tuple[Kind, ...]] = ("states", "actions", "dead")
SIZE_UNIT_BYTES: Final = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
MIN_ROTATE_BYTES: Final = 100_000
MIN_ROTATE_S: Final = 1.0

_SLICE = re.compile(r"([\w.-]{1,249}):(\d{1,9}|\*):(\d{1,18})?-(\d{1,18})?", re.ASCII)
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?([kmg]?)b?", re.ASCII | re.IGNORECASE)
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Stream:
    """One topic of the fleet; `lane` is "" for actions and dead letters."""

    topic: str
    kind: Kind
    lane: Lane | Literal[""]


@dataclass(frozen=True, slots=True)
class Slice:
    """Offsets [begin, end) of a topic's partition (None: of each); None where that side is open."""

    topic: str
    partition: int | None
    begin: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """From where to where. Times are Unix µs; `since_us` None means: from now on."""

    streams: tuple[Stream, ...]
    slices: tuple[Slice, ...] = ()
    since_us: int | None = None
    until_us: int | None = None


def streams_of(names: FleetNames, kinds: Sequence[str], lanes: Sequence[str]) -> tuple[Stream, ...]:
    """The topics of these kinds; of states only those of these lanes. Nothing given means all. Raises `WrongCall`."""
    _known("--kind", kinds, KINDS)
    _known("--lane", lanes, LANES)
    found = [Stream(names.states(lane), "states", lane) for lane in LANES if not lanes or lane in lanes]
    found += [Stream(names.actions, "actions", ""), Stream(names.dead, "dead", "")]
    return tuple(stream for stream in found if not kinds or stream.kind in kinds)


def parse_slices(texts: Iterable[str], streams: Sequence[Stream]) -> tuple[Slice, ...]:
    """STREAM:PARTITION:BEGIN-END, both offsets included; STREAM is a lane, actions, dead or a topic's whole name.

    Raises:
        WrongCall: it cannot be read, names none of `streams`, or names a partition twice.
    """
    slices = tuple(_slice(text, streams) for text in texts)
    for at, one in enumerate(slices):
        for other in slices[:at]:
            if one.topic == other.topic and (
                one.partition == other.partition or None in (one.partition, other.partition)
            ):
                raise WrongCall(f"--offsets names {one.topic} twice for one partition: give one range each")
    return slices


def parse_since(text: str | None, now: float) -> int | None:
    """When to begin, Unix µs: "beginning", "now" (None), an age or a date. Raises `WrongCall`."""
    if text is None or text == "now":
        return None
    return 0 if text == "beginning" else parse_time("--since", text, now)


def parse_until(text: str | None, since_us: int | None, now: float) -> int | None:
    """When to end, Unix µs: "now", an age or a date; None: when stopped. Raises `WrongCall`."""
    if text is None:
        return None
    until_us = round(now * 1_000_000) if text == "now" else parse_time("--until", text, now)
    if since_us is not None and until_us <= since_us:
        raise WrongCall(f"--until {text} must be after --since")
    return until_us


def parse_size(option: str, text: str) -> int:
    """Bytes, from 500MB, 2GB or plain bytes. Raises `WrongCall`."""
    found = _SIZE.fullmatch(text)
    size = round(float(found[1]) * SIZE_UNIT_BYTES[found[2].lower()]) if found else 0
    if size < MIN_ROTATE_BYTES:
        raise WrongCall(f"{option} is {text!r:.60}, expected a size of at least 100KB, such as 500MB or 2GB")
    return size


def parse_span(option: str, text: str) -> float:
    """Seconds, from 90s, 30m, 2h or 7d. Raises `WrongCall`."""
    found = _TIME.fullmatch(text)
    span_s = float(found[1]) * UNIT_S[found[2]] if found else 0.0
    if span_s < MIN_ROTATE_S:
        raise WrongCall(f"{option} is {text!r:.60}, expected a time of at least 1s, such as 90s, 30m, 2h or 7d")
    return span_s


def _slice(text: str, streams: Sequence[Stream]) -> Slice:
    found = _SLICE.fullmatch(text)
    if found is None:
        raise WrongCall(
            f"--offsets is {text!r:.60}, expected STREAM:PARTITION:BEGIN-END such as high:3:100-199, "
            f"actions:*:5000- or dead:0:-99"
        )
    name, partition, begin, last = found.groups()
    topic = next((one.topic for one in streams if name in (one.topic, one.lane or one.kind)), None)
    if topic is None:
        names = ", ".join(one.lane or one.kind for one in streams)
        raise WrongCall(f"--offsets names {name!r:.60}, expected one of {names}, or a topic's whole name")
    one = Slice(
        topic,
        None if partition == "*" else int(partition),
        None if begin is None else int(begin),
        None if last is None else int(last) + 1,
    )
    if one.begin is not None and one.end is not None and one.begin >= one.end:
        raise WrongCall(f"--offsets is {text!r:.60}: its first offset must not be behind its last")
    return one


def _known(option: str, found: Sequence[str], expected: Sequence[str]) -> None:
    for one in found:
        if one not in expected:
            raise WrongCall(f"{option} is {one!r:.60}, expected one of {', '.join(expected)}")
