"""Where each partition's reading begins and ends, for every way of saying it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from tools.dead.filters import WrongCall
from tools.record import spans as module
from tools.record.errors import LogShrank
from tools.record.source import Deleted
from tools.record.spans import LATE_US, Spans, find_spans
from tools.record.wanted import Slice, Wanted, streams_of
from topics.names import FleetNames

ACTIONS = streams_of(FleetNames("demo"), ["actions"], ())
A, B = TopicPartition("demo.actions", 0), TopicPartition("demo.actions", 1)
OLDEST, NEWEST = {A: 10, B: 20}, {A: 100, B: 200}
NOW = 1000.0
NOW_US = round(NOW * 1e6)


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A cluster with two partitions, where any time in the past is offset 50; the times that it was asked for."""
    asked: list[int] = []

    async def offsets_at(_: Any, ends: Mapping[TopicPartition, int], us: int) -> dict[TopicPartition, int]:
        asked.append(us)
        return {place: min(50, end) if us < NOW_US else end for place, end in ends.items()}

    async def answer(found: Any) -> Any:
        return found

    monkeypatch.setattr(module, "partition_counts", lambda *_: answer({"demo.actions": 2}))
    monkeypatch.setattr(module, "begins_of", lambda _, places: answer({place: OLDEST[place] for place in places}))
    monkeypatch.setattr(module, "ends_of", lambda _, places: answer({place: NEWEST[place] for place in places}))
    monkeypatch.setattr(module, "offsets_at", offsets_at)
    return asked


async def spans(reached: Mapping[TopicPartition, int] | None = None, **wanted: Any) -> Spans:
    return await find_spans(None, Wanted(ACTIONS, **wanted), reached or {}, NOW)


async def test_it_begins_now_at_the_oldest_record_or_at_a_time() -> None:
    """And has no end unless one is named."""
    assert await spans() == Spans(NEWEST)
    assert await spans(since_us=0) == Spans(OLDEST)
    assert await spans(since_us=NOW_US - 5) == Spans({A: 50, B: 50})


async def test_an_end_in_the_past_is_looked_up_with_room_for_what_came_late(cluster: list[int]) -> None:
    """An end in the future is nobody's offset yet."""
    assert (await spans(since_us=0, until_us=NOW_US - 2 * LATE_US)).ends == {A: 50, B: 50}
    assert cluster == [NOW_US - LATE_US]
    assert (await spans(since_us=0, until_us=NOW_US)).ends == NEWEST
    assert (await spans(since_us=0, until_us=NOW_US + 1)).ends == {}


async def test_slices_name_partitions_and_offsets() -> None:
    """Open sides are the oldest record and whenever somebody stops it; other partitions are not read."""
    assert await spans(slices=(Slice("demo.actions", 1, 30, 40),)) == Spans({B: 30}, {B: 40})
    assert await spans(slices=(Slice("demo.actions", None, None, 40),)) == Spans(OLDEST, {A: 40, B: 40})
    assert await spans(slices=(Slice("demo.actions", 0, 30, None),), until_us=NOW_US) == Spans({A: 30}, {A: 100})


async def test_a_recording_that_is_continued_begins_where_it_ends() -> None:
    """Whatever else is said; a partition that it does not know is newer than it, and read whole."""
    assert (await spans({A: 60, B: 70}, since_us=0)).begins == {A: 60, B: 70}
    assert (await spans({A: 60}, until_us=NOW_US)).begins == {A: 60, B: 20}


async def test_what_is_gone_is_named() -> None:
    """Deleted since the last run, or asked for by offsets."""
    assert await spans({A: 4, B: 20}) == Spans({A: 10, B: 20}, deleted=[Deleted("demo.actions", 0, 4, 10)])
    found = await spans(slices=(Slice("demo.actions", 0, 0, 50),))
    assert found == Spans({A: 10}, {A: 50}, [Deleted("demo.actions", 0, 0, 10)])


@pytest.mark.parametrize(
    ("reached", "wanted", "error", "line"),
    [
        ({A: 101}, {}, LogShrank, "demo.actions partition 0 ends at offset 100, and was read up to 101 before"),
        ({}, {"slices": (Slice("demo.actions", 0, 101, None),)}, WrongCall, "ends at offset 100, found 101"),
        ({}, {"slices": (Slice("demo.actions", 2, 0, None),)}, WrongCall, "has partitions 0 to 1, found 2"),
        ({}, {"until_us": NOW_US}, WrongCall, "--until is not after the present"),
    ],
)
async def test_what_cannot_be_is_one_line(
    reached: dict[TopicPartition, int], wanted: dict[str, Any], error: type[Exception], line: str
) -> None:
    """Offsets and partitions that are not there, a log that is another one, a span that holds nothing."""
    with pytest.raises(error, match=line):
        await spans(reached, **wanted)
