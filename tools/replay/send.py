"""The sender: states go to the producer when they are due, batch by batch, and their acknowledgements are counted.

Takes pieces of outgoing states in their order, gives the lateness of each state at the hand-over to the producer and at
the broker's acknowledgement. One record batch per partition is being filled while the one before it travels. Never
retries by itself: the idempotent producer does, in order and once. A refusal or a silent broker ends the run.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tools.replay.lateness import Lateness
from tools.replay.rewrite import Headers
from topics.outbox import Place, SendFailed

MAX_UNACKNOWLEDGED: Final = 50_000
"""States. Above, the sender waits: at full speed this bounds memory, with a schedule it makes states late."""
SILENT_AFTER_S: Final = 60.0
"""Longer than a broker's restart and a leader's election."""
LOOK_EVERY_S: Final = 0.5


@dataclass(slots=True)
class Piece:
    """Some outgoing states, columns of equal length, in the order of their due times (µs since the run's beginning)."""

    numbers: list[int] = field(default_factory=list)
    dues_us: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """Indices into the sender's places."""
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)


class Shipment:
    """One record batch: `first` is the lowest number in it."""

    __slots__ = ("batch", "dues_us", "first")

    def __init__(self, batch: Any, first: int) -> None:
        self.batch = batch
        self.first = first
        self.dues_us: list[int] = []


class Route:
    """What goes to one partition. The last of `waiting` is being filled; the first may be on its way into the producer,
    which takes it when the one before it has left."""

    __slots__ = ("next_offset", "place", "waiting", "wake")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.waiting: deque[Shipment] = deque()
        self.wake = asyncio.Event()
        self.next_offset: int | None = None
        """Behind the last acknowledged state; None before the first."""

    def __repr__(self) -> str:
        return f"<Route {self.place[0]}/{self.place[1]} {len(self.waiting)} batches wait>"


class Sender:
    """`await run(pieces)` sends; `stop()` makes it end early with everything acknowledged that was begun."""

    def __init__(self, producer: AIOKafkaProducer, places: Sequence[Place]) -> None:
        self._producer = producer
        self._routes = [Route(place) for place in places]
        self._unacknowledged: dict[int, Shipment] = {}
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failure: SendFailed | None = None
        self._heard_at = 0.0
        self.begin_s = 0.0
        """Monotonic time at which the first state is due; set by whoever starts the run."""
        self.next_number = 0
        """Behind the last state that was taken."""
        self.taken = 0
        self.acknowledged = 0
        self.handed_over = Lateness()
        """From due until the record stands in its partition's open batch, as `producer.send` leaves it."""
        self.arrived = Lateness()
        """From due to the acknowledgement."""
        self.last_due_us = 0
        self.ended_us = 0
        """When the last state was handed over, µs since the beginning."""

    def __repr__(self) -> str:
        return f"<Sender {self.acknowledged} of {self.taken} states acknowledged>"

    def stop(self) -> None:
        """Take no more states; `run` returns when what was taken is acknowledged."""
        self._stopping.set()

    @property
    def done_below(self) -> int:
        """Every state with a lower number is acknowledged (or was left out)."""
        return min((one.first for one in self._unacknowledged.values()), default=self.next_number)

    def offsets(self) -> dict[Place, int]:
        """For each partition that has acknowledged something: the offset behind it."""
        return {route.place: route.next_offset for route in self._routes if route.next_offset is not None}

    async def run(self, pieces: AsyncIterator[Piece]) -> None:
        """Send until the pieces end or `stop` is called, and until all of it is acknowledged.

        Raises:
            SendFailed: the broker refuses states, or acknowledges nothing for `SILENT_AFTER_S`.
        """
        self._heard_at = time.monotonic()
        async with asyncio.TaskGroup() as group:
            around = [group.create_task(self._carry(route)) for route in self._routes]
            around.append(group.create_task(self._watch()))
            async for piece in pieces:
                await self._send(piece)
                if self._stopping.is_set():
                    break
            await self._wait_for_room(0)
            for task in around:
                task.cancel()
        if self._failure is not None:
            raise self._failure

    async def _send(self, piece: Piece) -> None:
        """Take the states of a piece when they are due."""
        at, dues_us = 0, piece.dues_us
        while at < len(dues_us) and not self._stopping.is_set():
            now_us = self._now_us()
            if dues_us[at] > now_us:
                await self._sleep((dues_us[at] - now_us) / 1e6)
                continue
            end = at
            while end < len(dues_us) and dues_us[end] <= now_us:
                end += 1
            self._take(piece, at, end)
            at = end
            await asyncio.sleep(0)  # the couriers' turn
            await self._wait_for_room(MAX_UNACKNOWLEDGED)

    async def _sleep(self, seconds: float) -> None:
        """Until then, or until `stop`."""
        if seconds < LOOK_EVERY_S:
            await asyncio.sleep(seconds)
            return
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _take(self, piece: Piece, begin: int, end: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        routes = self._routes
        columns = (piece.numbers, piece.dues_us, piece.places, piece.keys, piece.values, piece.headers)
        for number, due_us, place, key, value, headers in zip(*(one[begin:end] for one in columns), strict=True):
            waiting = routes[place].waiting
            if not waiting or waiting[-1].batch.append(timestamp=now_ms, key=key, value=value, headers=headers) is None:
                self._open(routes[place], number).append(timestamp=now_ms, key=key, value=value, headers=headers)
            waiting[-1].dues_us.append(due_us)
        self.taken += end - begin
        self.next_number = piece.numbers[end - 1] + 1
        self.last_due_us = piece.dues_us[end - 1]
        self.ended_us = self._now_us()
        self.handed_over.add(piece.dues_us[begin:end], self.ended_us)

    def _open(self, route: Route, number: int) -> Any:
        """A new batch; it takes any first record."""
        shipment = Shipment(self._producer.create_batch(), number)
        self._unacknowledged[id(shipment)] = shipment
        route.waiting.append(shipment)
        route.wake.set()
        return shipment.batch

    async def _carry(self, route: Route) -> None:
        """Hand the batches of one partition to the producer, for ever.

        A batch may be filled until `send_batch` returns: the producer takes it at the very end, and nothing runs
        between that and the next line. After it the producer counts and packs the records: it is ours no more.
        """
        while True:
            await route.wake.wait()
            shipment = route.waiting[0]
            try:
                done = await self._producer.send_batch(shipment.batch, route.place[0], partition=route.place[1])
            except (KafkaError, AssertionError) as error:  # aiokafka asserts that the partition is known
                self._fail(_refused(route, error))
                return
            route.waiting.popleft()
            if not route.waiting:
                route.wake.clear()
            done.add_done_callback(partial(self._acknowledged, route, shipment))

    def _acknowledged(self, route: Route, shipment: Shipment, done: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is not None:
            self._fail(_refused(route, error))
            return
        count = len(shipment.dues_us)
        if done.result().offset >= 0:
            route.next_offset = done.result().offset + count
        self.arrived.add(shipment.dues_us, self._now_us())
        self.acknowledged += count
        self._heard_at = time.monotonic()
        del self._unacknowledged[id(shipment)]
        self._room.set()

    def _fail(self, why: str) -> None:
        self._failure = self._failure or SendFailed(why)
        self._room.set()
        self._stopping.set()

    async def _wait_for_room(self, most: int) -> None:
        while self._failure is None and self.taken - self.acknowledged > most:
            self._room.clear()
            await self._room.wait()

    async def _watch(self) -> None:
        """End the run when states wait and nothing is acknowledged."""
        while self._failure is None:
            await asyncio.sleep(LOOK_EVERY_S)
            if self.taken == self.acknowledged:
                self._heard_at = time.monotonic()
            elif time.monotonic() - self._heard_at > SILENT_AFTER_S:
                self._fail(f"no acknowledgement of states for {SILENT_AFTER_S:g} s: look at the brokers")

    def _now_us(self) -> int:
        return round((time.monotonic() - self.begin_s) * 1e6)


def _refused(route: Route, error: BaseException) -> str:
    return f"the broker refused states to {route.place[0]}/{route.place[1]}: {error!r:.300}; its log says why"
