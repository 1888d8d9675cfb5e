"""What a person types: times, rates, letters, globs. Everything else is one line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.dead.build import letter
from tools.dead.filters import Filters, WrongCall, parse_filters, parse_letter, parse_rate, parse_time
from topics.names import FleetNames

NAMES = FleetNames("f")


@given(st.integers(0, 99_999), st.sampled_from("smhd"))
def test_an_age_is_that_long_ago(number: int, unit: str) -> None:
    """Counted back from now."""
    seconds = number * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[unit]
    assert parse_time("--since", f"{number}{unit}", 0.0) == -seconds * 1_000_000


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_an_iso_date_is_that_moment(moment: datetime) -> None:
    """To the microsecond, in the zone that it names."""
    assert parse_time("--until", moment.isoformat(), 0.0) == round(moment.timestamp() * 1_000_000)


@given(st.text(max_size=20))
def test_any_text_is_a_time_or_one_line(text: str) -> None:
    """Nothing else is raised."""
    try:
        parse_time("--since", text, 0.0)
    except WrongCall as error:
        assert "\n" not in str(error) and "--since" in str(error)


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**18 - 1))
def test_a_letter_is_a_partition_and_an_offset(partition: int, offset: int) -> None:
    """As the list shows it."""
    assert parse_letter(f"{partition}:{offset}") == (partition, offset)


@pytest.mark.parametrize("text", ["", "17", ":17", "0:", "0:-1", "a:b", "0:1:2", "0:1 ", "٣:١", "0:" + "9" * 19])
def test_what_is_no_letter_is_one_line(text: str) -> None:
    """It names what was found and expected."""
    with pytest.raises(WrongCall, match="expected PARTITION:OFFSET"):
        parse_letter(text)


@pytest.mark.parametrize(("text", "rate"), [("50", 50.0), ("50/s", 50.0), ("0.5/s", 0.5)])
def test_a_rate_is_letters_per_second(text: str, rate: float) -> None:
    """With or without its unit."""
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "-1", "50/m", "fast", "1e9", "nan"])
def test_what_is_no_rate_is_one_line(text: str) -> None:
    """It names what was found and expected."""
    with pytest.raises(WrongCall, match="expected letters per second"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("filters", "is_meant"),
    [
        ({}, True),
        ({"reasons": ("model_error",)}, True),
        ({"reasons": ("wrong_*", "model_*")}, True),
        ({"reasons": ("wrong_input",)}, False),
        ({"agents": ("robot-*",)}, True),
        ({"agents": ("Robot-*",)}, False),
        ({"lanes": ("low", "normal")}, True),
        ({"lanes": ("high",)}, False),
        ({"since_us": 1000, "until_us": 1001}, True),
        ({"since_us": 1001}, False),
        ({"until_us": 1000}, False),
        ({"reasons": ("model_error",), "lanes": ("high",)}, False),
    ],
)
def test_all_filters_must_hold(filters: dict[str, Any], is_meant: bool) -> None:
    """One that is given twice means either; the end of a time span does not belong to it."""
    found = letter(agent="robot-7", reason="model_error", time_us=1000, topic="f.states.normal")
    assert Filters(**filters).match(found, NAMES) is is_meant


def test_bad_filters_are_one_line() -> None:
    """Both values are in the text."""
    with pytest.raises(WrongCall, match="--lane is 'urgent', expected one of high, normal, low"):
        parse_filters((), (), ["urgent"], None, None, 0.0)
    with pytest.raises(WrongCall, match="--since 1h must be before --until 2h"):
        parse_filters((), (), (), "1h", "2h", 0.0)
