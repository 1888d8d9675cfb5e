"""Which letters are meant, and what a person types for a time, a rate or a letter. Pure: the present is an argument."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import ClassVar, Final

from topics.errors import FleetError
from topics.letters import DeadLetter
from topics.names import LANES, FleetNames, Lane

UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_RATE_PER_S: Final = 1_000_000

_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd])", re.ASCII)
_RATE = re.compile(r"(\d{1,7}(?:\.\d{1,6})?)(?:/s)?", re.ASCII)
_LETTER = re.compile(r"(\d{1,9}):(\d{1,18})", re.ASCII)


class WrongCall(FleetError):
    """What was typed cannot be understood."""

    exit_code: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on a letter; all that are given must hold. `reasons` and `agents` are globs, times Unix µs."""

    reasons: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    lanes: tuple[Lane, ...] = ()
    since_us: int | None = None
    until_us: int | None = None

    def match(self, letter: DeadLetter, names: FleetNames) -> bool:
        """Whether the letter is meant."""
        time_us = letter.failure.time_us
        return (
            _any(self.reasons, letter.failure.reason)
            and _any(self.agents, letter.agent)
            and (not self.lanes or lane_of(letter, names) in self.lanes)
            and (self.since_us is None or time_us >= self.since_us)
            and (self.until_us is None or time_us < self.until_us)
        )


def lane_of(letter: DeadLetter, names: FleetNames) -> Lane | None:
    """The lane that the letter's state came from; None where it names no lane of this fleet."""
    try:
        return names.lane_of(letter.failure.topic)
    except ValueError:
        return None


def parse_filters(
    reasons: Sequence[str],
    agents: Sequence[str],
    lanes: Sequence[str],
    since: str | None,
    until: str | None,
    now: float,
) -> Filters:
    """The filters of the command line. `now` in Unix seconds. Raises `WrongCall`."""
    since_us = parse_time("--since", since, now) if since is not None else None
    until_us = parse_time("--until", until, now) if until is not None else None
    if since_us is not None and until_us is not None and since_us >= until_us:
        raise WrongCall(f"--since {since} must be before --until {until}")
    return Filters(tuple(reasons), tuple(agents), tuple(map(parse_lane, lanes)), since_us, until_us)


def parse_time(option: str, text: str, now: float) -> int:
    """An age (90s, 30m, 2h, 7d) or a date in ISO form, in local time unless it names a zone; Unix µs."""
    if age := _AGE.fullmatch(text):
        return round((now - float(age[1]) * UNIT_S[age[2]]) * 1_000_000)
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        expected = "an age such as 90s, 30m, 2h or 7d, or a date such as 2030-01-31 or 2030-01-31T08:30"
        raise WrongCall(f"{option} is {text!r:.60}, expected {expected}") from None
    return round(moment.timestamp() * 1_000_000)


def parse_rate(text: str) -> float:
    """Letters per second, from N or N/s. Raises `WrongCall`."""
    found = _RATE.fullmatch(text)
    rate = float(found[1]) if found else 0.0
    if not 0 < rate <= MAX_RATE_PER_S:
        raise WrongCall(f"--rate is {text!r:.60}, expected letters per second above 0, such as 50/s")
    return rate


def parse_letter(text: str) -> tuple[int, int]:
    """Partition and offset from PARTITION:OFFSET. Raises `WrongCall`."""
    found = _LETTER.fullmatch(text)
    if found is None:
        raise WrongCall(
            f"letter is {text!r:.60}, expected PARTITION:OFFSET such as 0:17, as `fleet dead list` shows it"
        )
    return int(found[1]), int(found[2])


def parse_lane(text: str) -> Lane:
    """One of the lanes. Raises `WrongCall`."""
    for lane in LANES:
        if lane == text:
            return lane
    raise WrongCall(f"--lane is {text!r:.60}, expected one of {', '.join(LANES)}")


def _any(globs: Sequence[str], text: str) -> bool:
    return not globs or any(fnmatchcase(text, glob) for glob in globs)
