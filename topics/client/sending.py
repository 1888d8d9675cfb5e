"""States on their way to the broker: one record batch per partition, filled while the last one travels.

At most one batch per partition is in flight, so the order of an agent's states is kept, no partition waits for
another broker, and under load whatever comes in the meantime leaves together. A call never waits for the
acknowledgement; a refusal is told to the calls whose states it hit.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from topics.client.calls import Call
from topics.client.errors import NotSent
from topics.headers import Headers

MAX_WAITING_BYTES = 64 << 20
"""States that wait for a broker that does not answer. Above, a call is refused at once (`NotSent`)."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A call's records, one per row."""

    keys: Sequence[bytes]
    values: Sequence[bytes]
    headers: Sequence[Headers]


OnRefused = Callable[[Call, Sequence[int], NotSent], None]


def _nothing() -> None: ...


class Shipment:
    """One record batch, and the rows of the calls that are in it."""

    __slots__ = ("batch", "loads")

    def __init__(self, batch: Any) -> None:
        self.batch = batch
        self.loads: list[tuple[Call, Sequence[int]]] = []


class Route:
    """What goes to one partition: at most one shipment in flight, and those that wait behind it."""

    __slots__ = ("in_flight", "partition", "topic", "waiting")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.in_flight: Shipment | None = None
        self.waiting: deque[Shipment] = deque()

    def __repr__(self) -> str:
        return f"<Route {self.topic}/{self.partition} {len(self.waiting)} wait, {bool(self.in_flight)} in flight>"


class StateSender:
    """Takes states with `put`; `run` sends them until cancelled. `on_refused` hears of rows that the broker refused."""

    def __init__(self, producer: AIOKafkaProducer, on_refused: OnRefused) -> None:
        self._producer = producer
        self._on_refused = on_refused
        self._routes: dict[tuple[str, int], Route] = {}
        self._ready: list[Route] = []
        self._wake = asyncio.Event()
        self._waiting_bytes = 0
        self.before_departure: Callable[[], None] = _nothing
        """Called whenever the sender has been woken, to `put` what has gathered elsewhere."""

    def wake(self) -> None:
        """Let `run` come round when the running turn of the loop ends."""
        self._wake.set()

    def put(self, topic: str, partition: int, call: Call, rows: Sequence[int], columns: Columns) -> None:
        """Append these rows of `columns`, the states of `call`. They leave when the running turn of the loop ends.

        Raises:
            NotSent: more than `MAX_WAITING_BYTES` wait already.
        """
        if self._waiting_bytes > MAX_WAITING_BYTES:
            raise NotSent(
                f"{self._waiting_bytes >> 20} MiB of states wait for the broker of {topic}/{partition}: "
                "it does not answer, or takes them slower than they are made"
            )
        route = self._routes.get((topic, partition))
        if route is None:
            route = self._routes[topic, partition] = Route(topic, partition)
        if not route.waiting and not route.in_flight:
            self._ready.append(route)
            self._wake.set()
        self._fill(route, call, rows, columns)

    def _fill(self, route: Route, call: Call, rows: Sequence[int], columns: Columns) -> None:
        keys, values, headers = columns.keys, columns.values, columns.headers
        now_ms = time.time_ns() // 1_000_000
        shipment = route.waiting[-1] if route.waiting else self._next(route)
        append, before, start = shipment.batch.append, shipment.batch.size(), 0
        for at, row in enumerate(rows):
            if append(timestamp=now_ms, key=keys[row], value=values[row], headers=headers[row]) is not None:
                continue
            shipment.loads.append((call, rows[start:at]))  # full; a new batch takes any first record
            self._waiting_bytes += shipment.batch.size() - before
            shipment = self._next(route)
            append, before, start = shipment.batch.append, shipment.batch.size(), at
            append(timestamp=now_ms, key=keys[row], value=values[row], headers=headers[row])
        shipment.loads.append((call, rows[start:]))
        self._waiting_bytes += shipment.batch.size() - before

    def _next(self, route: Route) -> Shipment:
        shipment = Shipment(self._producer.create_batch())
        self._waiting_bytes += shipment.batch.size()
        route.waiting.append(shipment)
        return shipment

    async def run(self) -> None:
        """Send what is ready, for ever."""
        while True:
            await self._wake.wait()
            self.before_departure()
            self._wake.clear()
            ready, self._ready = self._ready, []
            for route in ready:
                await self._depart(route)

    async def _depart(self, route: Route) -> None:
        """Hand the next shipment to the producer; none of this partition is in flight, so it does not wait for one."""
        shipment = route.in_flight = route.waiting.popleft()
        self._waiting_bytes -= shipment.batch.size()
        try:
            done = await self._producer.send_batch(shipment.batch, route.topic, partition=route.partition)
        except (KafkaError, AssertionError) as error:  # aiokafka asserts that the partition is known
            self._refused(route, shipment, error)
            self._arrived(route)
        else:
            done.add_done_callback(partial(self._acknowledged, route, shipment))

    def _acknowledged(self, route: Route, shipment: Shipment, done: asyncio.Future[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._refused(route, shipment, error)
        self._arrived(route)

    def _arrived(self, route: Route) -> None:
        route.in_flight = None
        if route.waiting:
            self._ready.append(route)
            self._wake.set()

    def _refused(self, route: Route, shipment: Shipment, error: BaseException) -> None:
        why = NotSent(f"the broker refused states to {route.topic}/{route.partition}: {error!r}")
        for call, rows in shipment.loads:
            self._on_refused(call, rows, why)

    def unacknowledged(self, call: Call) -> list[str]:
        """Topics whose broker has not acknowledged states of `call`."""
        late = set()
        for route in self._routes.values():
            shipments = [*route.waiting, *([route.in_flight] if route.in_flight else [])]
            if any(call is load[0] for shipment in shipments for load in shipment.loads):
                late.add(route.topic)
        return sorted(late)

    def __repr__(self) -> str:
        return f"<StateSender {len(self._routes)} routes, {self._waiting_bytes} bytes wait>"
