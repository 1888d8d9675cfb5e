"""What is to be recorded, as people type it: streams, offsets, times, sizes. Pure: the present is an argument."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tools.dead.filters import UNIT_S, WrongCall, parse_time
from tools.recording.recorded import kind_and_lane
from tools.recording.selection import Selection
from topics.names import FleetNames

SIZE_UNIT_BYTES: Final = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
BEGINNING: Final = 0
"""As `since_us`: the oldest records that are there."""
PRESENT: Final = 0
"""As `until_us`: whatever is there when reading begins."""
MIN_ROTATE_BYTES: Final = 100_000
MIN_ROTATE_S: Final = 1.0

_SLICE = re.compile(r"([\w.-]{1,249}):(\d{1,9}|\*):(\d{1,18})?-(\d{1,18})?", re.ASCII)
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?([kmg]?)b?", re.ASCII | re.IGNORECASE)
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Slice:
    """Offsets [begin, end) of a topic's partition (None: of each); None where that side is open."""

    topic: str
    partition: int | None
    begin: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """From where to where. Times are Unix µs and choose offsets; None: from now on, and for ever."""

    topics: tuple[str, ...]
    slices: tuple[Slice, ...] = ()
    since_us: int | None = None
    until_us: int | None = None


def topics_of(names: FleetNames, selection: Selection) -> tuple[str, ...]:
    """The fleet's topics whose records may be meant."""
    return tuple(topic for topic in names.all_topics() if selection.takes_topic(*kind_and_lane(topic, names.fleet)))


def parse_slices(texts: Iterable[str], topics: Sequence[str]) -> tuple[Slice, ...]:
    """STREAM:PARTITION:BEGIN-END, both offsets included; STREAM is a lane, actions, dead or a topic's whole name.

    Raises:
        WrongCall: it cannot be read, names none of `topics`, or names a partition twice.
    """
    slices = tuple(_slice(text, topics) for text in texts)
    for at, one in enumerate(slices):
        for other in slices[:at]:
            if one.topic == other.topic and (
                one.partition == other.partition or None in (one.partition, other.partition)
            ):
                raise WrongCall(f"--offsets names {one.topic} twice for one partition: give one range each")
    return slices


def parse_since(text: str | None, now: float) -> int | None:
    """When to begin, Unix µs: "beginning" (`BEGINNING`), "now" (None), an age or a date. Raises `WrongCall`."""
    if text is None or text == "now":
        return None
    return BEGINNING if text == "beginning" else parse_time("--since", text, now)


def parse_until(text: str | None, since_us: int | None, now: float) -> int | None:
    """When to end, Unix µs: "now" (`PRESENT`), an age or a date; None: when stopped. Raises `WrongCall`."""
    if text is None:
        return None
    if text == "now":
        return PRESENT
    until_us = parse_time("--until", text, now)
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


def _slice(text: str, topics: Sequence[str]) -> Slice:
    found = _SLICE.fullmatch(text)
    if found is None:
        raise WrongCall(
            f"--offsets is {text!r:.60}, expected STREAM:PARTITION:BEGIN-END such as high:3:100-199, "
            f"actions:*:5000- or dead:0:-99"
        )
    name, partition, begin, last = found.groups()
    topic = next((topic for topic in topics if name in (topic, topic.rpartition(".")[2])), None)
    if topic is None:
        short = ", ".join(topic.rpartition(".")[2] for topic in topics)
        raise WrongCall(f"--offsets names {name!r:.60}, expected one of {short}, or a topic's whole name")
    one = Slice(
        topic,
        None if partition == "*" else int(partition),
        None if begin is None else int(begin),
        None if last is None else int(last) + 1,
    )
    if one.begin is not None and one.end is not None and one.begin >= one.end:
        raise WrongCall(f"--offsets is {text!r:.60}: its first offset must not be behind its last")
    return one
