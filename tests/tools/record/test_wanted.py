"""What people type for streams, offsets, times and sizes."""

from __future__ import annotations

import pytest

from tools.dead.filters import WrongCall
from tools.record.wanted import Slice, parse_since, parse_size, parse_slices, parse_span, parse_until, topics_of
from tools.recording.selection import Selection
from topics.names import FleetNames

NAMES = FleetNames("demo")
ALL = topics_of(NAMES, Selection())
NOW = 1_700_000_000.0


def test_all_topics_are_recorded_unless_kinds_or_lanes_are_named() -> None:
    """A lane picks among the states only: actions and dead letters have no lane of their own."""
    assert NAMES.all_topics() == ALL
    assert topics_of(NAMES, Selection(kinds=("states",), lanes=("high",))) == ("demo.states.high",)
    assert topics_of(NAMES, Selection(lanes=("low",))) == ("demo.states.low", "demo.actions", "demo.dead")


def test_offsets_are_typed_with_both_ends_included() -> None:
    """A lane, a kind or a whole topic; one partition or all; either end may be open."""
    texts = ["high:3:100-199", "actions:*:5000-", "demo.dead:0:-99"]
    assert parse_slices(texts, ALL) == (
        Slice("demo.states.high", 3, 100, 200),
        Slice("demo.actions", None, 5000, None),
        Slice("demo.dead", 0, None, 100),
    )


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (["high:100-200"], "expected STREAM:PARTITION:BEGIN-END such as high:3:100-199"),
        (["urgent:0:1-2"], "names 'urgent', expected one of high, normal, low, actions, dead"),
        (["high:0:9-8"], "its first offset must not be behind its last"),
        (["high:0:1-2", "high:*:5-6"], "names demo.states.high twice for one partition"),
    ],
)
def test_offsets_that_make_no_sense_are_one_line(texts: list[str], line: str) -> None:
    """It says what was found and what was expected."""
    with pytest.raises(WrongCall, match=line.replace("*", r"\*")):
        parse_slices(texts, ALL)


def test_times_are_words_ages_or_dates() -> None:
    """The beginning is the oldest record there is; without an end somebody stops it."""
    assert (parse_since(None, NOW), parse_since("now", NOW), parse_since("beginning", NOW)) == (None, None, 0)
    assert parse_since("1m", NOW) == round((NOW - 60) * 1e6)
    assert parse_until(None, None, NOW) is None
    assert (parse_until("now", None, NOW), parse_until("1m", 0, NOW)) == (0, round((NOW - 60) * 1e6))
    with pytest.raises(WrongCall, match="--until 2m must be after --since"):
        parse_until("2m", parse_since("1m", NOW), NOW)


def test_sizes_and_spans_have_units() -> None:
    """And are large enough to be meant."""
    assert (parse_size("--x", "500MB"), parse_size("--x", "2g"), parse_size("--x", "200000")) == (500e6, 2e9, 200_000)
    assert (parse_span("--x", "90s"), parse_span("--x", "1.5h")) == (90.0, 5400.0)
    with pytest.raises(WrongCall, match="--x is '10KB', expected a size of at least 100KB"):
        parse_size("--x", "10KB")
    with pytest.raises(WrongCall, match="--x is '5', expected a time"):
        parse_span("--x", "5")
