"""Where each partition's reading begins and ends, asked of the cluster before the first record is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from tools.dead.filters import WrongCall
from tools.offsets import Offsets, begins_of, ends_of, offsets_at, partition_counts
from tools.record.source import Deleted, LogShrank, shrank
from tools.record.wanted import BEGINNING, PRESENT, Slice, Wanted


@dataclass(slots=True)
class Spans:
    """Offsets [begin, end) of each partition; a partition without an end is read until somebody stops it."""

    partitions: dict[str, int]
    """How many each topic has."""
    begins: Offsets
    ends: Offsets = field(default_factory=dict)
    deleted: list[Deleted] = field(default_factory=list)
    """What was asked for or not yet recorded, and is gone."""


async def find_spans(
    reader: AIOKafkaConsumer, wanted: Wanted, reached: Mapping[TopicPartition, int], now: float
) -> Spans:
    """`reached`: where a recording that is continued stands. `now` in Unix seconds.

    Raises:
        WrongCall: `--offsets` names a partition or an offset that is not there, or `--until` leaves nothing.
        LogShrank: a partition ends in front of what is recorded of it.
        TopicMissing, BrokerUnavailable: as they say.
    """
    over = wanted.until_us is not None and wanted.until_us <= now * 1_000_000
    if over and wanted.since_us is None and not wanted.slices and not reached:
        raise WrongCall("--until is not after the present, where a new recording begins: say from when by --since")
    partitions = await partition_counts(reader, wanted.topics)
    places = _places(wanted, partitions)
    oldest, newest = await begins_of(reader, places), await ends_of(reader, places)
    if reached:  # a partition that it does not know is newer than it
        begins = {place: reached.get(place, oldest[place]) for place in places}
    else:
        begins = await _begins(reader, wanted, oldest, newest)
    spans = Spans(partitions, begins, await _ends(reader, wanted, newest, over=over))
    for place, begin in begins.items():
        if begin > newest[place]:
            raise _beyond(place, begin, newest[place], continued=place in reached)
        if begin < oldest[place]:
            spans.deleted.append(Deleted(place.topic, place.partition, begin, oldest[place]))
            begins[place] = oldest[place]
    return spans


def _places(wanted: Wanted, counts: Mapping[str, int]) -> list[TopicPartition]:
    for one in wanted.slices:
        if one.partition is not None and one.partition >= counts[one.topic]:
            last = counts[one.topic] - 1
            raise WrongCall(f"--offsets: {one.topic} has partitions 0 to {last}, found {one.partition}")
    every = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    return [place for place in every if not wanted.slices or _slice_of(place, wanted.slices)]


async def _begins(reader: AIOKafkaConsumer, wanted: Wanted, oldest: Offsets, newest: Offsets) -> Offsets:
    if wanted.slices:
        found = {place: _slice_of(place, wanted.slices) for place in newest}
        return {place: oldest[place] if one is None or one.begin is None else one.begin for place, one in found.items()}
    if wanted.since_us is None:
        return dict(newest)
    return dict(oldest) if wanted.since_us == BEGINNING else await offsets_at(reader, newest, wanted.since_us)


async def _ends(reader: AIOKafkaConsumer, wanted: Wanted, newest: Offsets, *, over: bool) -> Offsets:
    ends: Offsets = {}
    if over and wanted.until_us is not None:
        ends = dict(newest) if wanted.until_us == PRESENT else await offsets_at(reader, newest, wanted.until_us)
    for place in newest:
        one = _slice_of(place, wanted.slices)
        if one is not None and one.end is not None:
            ends[place] = min(one.end, ends.get(place, one.end))
    return ends


def _slice_of(place: TopicPartition, slices: Sequence[Slice]) -> Slice | None:
    return next((one for one in slices if one.topic == place.topic and one.partition in (None, place.partition)), None)


def _beyond(place: TopicPartition, begin: int, end: int, *, continued: bool) -> LogShrank | WrongCall:
    if continued:
        return LogShrank(shrank(place, begin, end))
    return WrongCall(f"--offsets: {place.topic} partition {place.partition} ends at offset {end}, found {begin}")
