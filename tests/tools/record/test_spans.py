"""Where each partition's reading begins and ends, for every way of saying it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from tools.dead.filters import WrongCall
from tools.record import spans as module
from tools.record.source import Deleted, LogShrank
from tools.record.spans import Spans, find_spans
from tools.record.wanted import PRESENT, Slice, Wanted

ACTIONS = ("demo.actions",)
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


def expected(
    begins: dict[TopicPartition, int],
    ends: dict[TopicPartition, int] | None = None,
    deleted: list[Deleted] | None = None,
) -> Spans:
    return Spans({"demo.actions": 2}, begins, ends or {}, deleted or [])


async def test_it_begins_now_at_the_oldest_record_or_at_a_time() -> None:
    """And has no end unless one is named."""
    assert await spans() == expected(NEWEST)
    assert await spans(since_us=0) == expected(OLDEST)
    assert await spans(since_us=NOW_US - 5) == expected({A: 50, B: 50})


async def test_an_end_is_an_offset_as_soon_as_its_time_has_come(cluster: list[int]) -> None:
    """The present is whatever is there, also of senders whose clocks are ahead; the future is nobody's offset yet."""
    assert (await spans(since_us=0, until_us=NOW_US - 5)).ends == {A: 50, B: 50}
    assert cluster == [NOW_US - 5]
    assert (await spans(since_us=0, until_us=PRESENT)).ends == NEWEST
    assert (await spans(since_us=0, until_us=NOW_US + 1)).ends == {}


async def test_slices_name_partitions_and_offsets() -> None:
    """Open sides are the oldest record and whenever somebody stops it; other partitions are not read."""
    assert await spans(slices=(Slice("demo.actions", 1, 30, 40),)) == expected({B: 30}, {B: 40})
    assert await spans(slices=(Slice("demo.actions", None, None, 40),)) == expected(OLDEST, {A: 40, B: 40})
    assert await spans(slices=(Slice("demo.actions", 0, 30, None),), until_us=PRESENT) == expected({A: 30}, {A: 100})


async def test_a_recording_that_is_continued_begins_where_it_ends() -> None:
    """Whatever else is said; a partition that it does not know is newer than it, and read whole."""
    assert (await spans({A: 60, B: 70}, since_us=0)).begins == {A: 60, B: 70}
    assert (await spans({A: 60}, until_us=PRESENT)).begins == {A: 60, B: 20}


async def test_what_is_gone_is_named() -> None:
    """Deleted since the last run, or asked for by offsets."""
    assert await spans({A: 4, B: 20}) == expected({A: 10, B: 20}, deleted=[Deleted("demo.actions", 0, 4, 10)])
    found = await spans(slices=(Slice("demo.actions", 0, 0, 50),))
    assert found == expected({A: 10}, {A: 50}, [Deleted("demo.actions", 0, 0, 10)])


@pytest.mark.parametrize(
    ("reached", "wanted", "error", "line"),
    [
        ({A: 101}, {}, LogShrank, "demo.actions partition 0 ends at offset 100, and was read up to 101 before"),
        ({}, {"slices": (Slice("demo.actions", 0, 101, None),)}, WrongCall, "ends at offset 100, found 101"),
        ({}, {"slices": (Slice("demo.actions", 2, 0, None),)}, WrongCall, "has partitions 0 to 1, found 2"),
        ({}, {"until_us": PRESENT}, WrongCall, "--until is not after the present"),
    ],
)
async def test_what_cannot_be_is_one_line(
    reached: dict[TopicPartition, int], wanted: dict[str, Any], error: type[Exception], line: str
) -> None:
    """Offsets and partitions that are not there, a log that is another one, a span that holds nothing."""
    with pytest.raises(error, match=line):
        await spans(reached, **wanted)
