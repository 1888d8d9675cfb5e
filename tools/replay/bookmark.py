"""The bookmark: a small file from which a replay that was cut off, at whatever instant, goes on.

It holds what the replay was asked for, how far it is acknowledged, and offsets of the target behind which everything
else of it must lie. So a resumed run finds what had arrived by reading from there (`arrived`), and sends only the rest.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from tools.dead.filters import WrongCall
from tools.dead.read import read_through
from tools.offsets import begins_of, ends_of
from tools.replay.outgoing import Done
from topics.errors import FleetError
from topics.headers import CORRELATION_ID
from topics.names import Lane
from topics.outbox import Place

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Job:
    """What a replay was asked for; everything that must stay the same when it goes on."""

    recording: str
    run: str
    """8 random bytes, hexadecimal: the beginning of all correlation IDs."""
    fleet: str
    cluster: str
    """The target's; "" where it is not known."""
    speed: float | None = 1.0
    """None: as fast as the brokers take them."""
    loops: int = 1
    copies: int = 1
    rekey: bool = False
    lanes: tuple[Lane, ...] = ()
    agents: tuple[str, ...] = ()
    since_us: int | None = None
    until_us: int | None = None
    sample: float = 1.0
    out: str | None = None
    """The recording of states and answers; None: nobody waits for answers."""
    answers_within_s: float = 30.0
    max_late_ms: float = 5.0


@dataclass(frozen=True, slots=True)
class Bookmark:
    """`done_below`: every state with a lower number is acknowledged; all others lie at or behind `offsets`."""

    job: Job
    begin: Mapping[Place, int]
    """Offsets of all the target's partitions, of its actions too, when the run began."""
    offsets: Mapping[Place, int]
    """Of the states' partitions."""
    done_below: int = 0


class BookmarkFile:
    """The file, locked while a run has it: two runs of one replay would send everything twice."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path, *, new: bool) -> Self:
        """Raises `FleetError`: another run has it, it is there already (`new`), or it is not there."""
        try:
            descriptor = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if new else 0), 0o644)
        except FileExistsError:
            raise FleetError(f"{path} is there: go on with `fleet replay --resume {path}`, or delete it") from None
        except OSError as error:
            raise FleetError(f"bookmark {path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise FleetError(f"the replay of {path} is running: wait for it or stop it first") from None
        return cls(path, descriptor)

    def read(self) -> Bookmark:
        """What was written last. Raises `FleetError` for anything that is no bookmark."""
        try:
            return _decode(json.JSONDecoder().raw_decode(os.pread(self._descriptor, 1 << 24, 0).decode())[0])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise FleetError(f"{self.path} is no bookmark of a replay: name the file that the replay named") from None

    def write(self, mark: Bookmark) -> None:
        """Replace the contents with one write, so that a killed process leaves the old or the new ones.

        Raises `FleetError`: the disk is full.
        """
        text = json.dumps(_encode(mark)).encode() + b"\n"
        try:
            os.pwrite(self._descriptor, text, 0)
            os.ftruncate(self._descriptor, len(text))
        except OSError as error:
            raise FleetError(f"bookmark {self.path} cannot be written: {error.strerror}") from None

    def remove(self) -> None:
        """The replay is complete."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let others have it."""
        os.close(self._descriptor)


class Marker:
    """Moves the bookmark: a number may only go with offsets that were taken when no higher number had been sent.

    `arrived` are numbers that earlier runs have sent: they lie at the first offsets, which stay until all are passed.
    """

    def __init__(self, mark: Bookmark, arrived: Collection[int] = ()) -> None:
        self._mark = mark
        self._from = max(arrived, default=-1) + 1
        self._offsets: Mapping[Place, int] = {}

    def __repr__(self) -> str:
        return f"<Marker below {self._mark.done_below}, moves at {self._from}>"

    def move(self, done_below: int, next_number: int, offsets: Mapping[Place, int]) -> Bookmark:
        """`offsets` are behind what each partition has acknowledged now, `next_number` behind what was taken."""
        if done_below >= self._from:
            below = max(done_below, self._mark.done_below)
            self._mark = replace(self._mark, done_below=below, offsets={**self._mark.offsets, **self._offsets})
            self._from, self._offsets = next_number, dict(offsets)
        return self._mark


async def arrived(consumer: AIOKafkaConsumer, mark: Bookmark) -> Done:
    """What the target holds of this replay already. `consumer` gets another assignment.

    Raises:
        FleetError: retention has deleted what would tell.
    """
    places = {TopicPartition(*place): offset for place, offset in mark.offsets.items()}
    begins = await begins_of(consumer, [*places])
    for place, offset in places.items():
        if begins[place] > offset:
            raise FleetError(
                f"{place.topic}/{place.partition} begins at offset {begins[place]} now, the replay was cut off at "
                f"{offset}: nobody can tell what it sent; begin anew"
            )
    ends = await ends_of(consumer, [*places])
    run, found = bytes.fromhex(mark.job.run), set()
    async for records in read_through(consumer, {place: (offset, ends[place]) for place, offset in places.items()}):
        found |= {number for record in records if (number := number_in(run, record.headers)) is not None}
    return Done(mark.done_below, frozenset(number for number in found if number >= mark.done_below))


def number_in(run: bytes, headers: Any) -> int | None:
    """The number of a state of this run, from its own or its answer's headers; None for all other records."""
    for name, value in headers:
        if name == CORRELATION_ID and value is not None and len(value) == len(run) + 8 and value.startswith(run):
            return int.from_bytes(value[len(run) :], "big")
    return None


def _encode(mark: Bookmark) -> dict[str, Any]:
    return {
        "version": VERSION,
        "done_below": mark.done_below,
        "job": asdict(mark.job),
        "begin": [[*place, offset] for place, offset in mark.begin.items()],
        "offsets": [[*place, offset] for place, offset in mark.offsets.items()],
    }


def _decode(fields: dict[str, Any]) -> Bookmark:
    if fields["version"] != VERSION:
        raise WrongCall(f"the bookmark has version {fields['version']!r:.20}, this program reads {VERSION}")
    job = fields["job"]
    return Bookmark(
        Job(**(job | {"lanes": tuple(job["lanes"]), "agents": tuple(job["agents"])})),
        {(topic, number): offset for topic, number, offset in fields["begin"]},
        {(topic, number): offset for topic, number, offset in fields["offsets"]},
        int(fields["done_below"]),
    )
