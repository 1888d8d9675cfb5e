"""One worker on a clock of its own: the real lanes, schedule and dispatch, made-up devices, states as they come.

No thread, no Kafka, no waiting. Takes the states of one worker and the settings to try; gives how long each state
waited for its answer, from arrival in the worker to the end of its batch. All times are µs.

Left out: client, broker, fetching, decoding, encoding and the event loop's own time. `live` measures those together.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from aiokafka.structs import ConsumerRecord

from tools.tune.curve import Curve
from topics.names import LANES, Lane
from workers.lanes import Lanes
from workers.offsets import PartitionOffsets
from workers.requests import NEVER, Batch, Request
from workers.schedule import Schedule
from workers.slots import Limits, Slot

REPORT_US: Final = 150
"""From the end of a batch until the event loop hears of it and hands out the next."""


@dataclass(frozen=True, slots=True)
class States:
    """n states in the order they come: µs since the start, agent and lane of each."""

    at_us: npt.NDArray[np.int64]
    agents: list[bytes]
    lanes: list[Lane]

    def __len__(self) -> int:
        return len(self.lanes)


@dataclass(slots=True)
class Device:
    """A predictor: the batches that it was handed, and what it has done so far."""

    inbox: list[Batch] = field(default_factory=list)
    running: Batch | None = None
    begun_us: int = 0
    busy_us: int = 0
    batches: int = 0


class Simulation:
    """A worker with `predictors` equal devices; `run` it once, then look at `waits_us` and the devices."""

    def __init__(
        self, states: States, curve: Curve, limits: Limits, predictors: int, depths: Mapping[Lane, int], seed: int = 1
    ) -> None:
        self._states, self._curve = states, curve
        self.devices = [Device() for _ in range(predictors)]
        self.waits_us = np.zeros(len(states), np.int64)
        """Of each state, from its arrival to the end of its batch."""
        self.now_us = self.ended_us = 0
        """The clock, and when the last batch so far ended."""
        self._lanes = Lanes(dict(depths))
        warm_us = {rows: round(curve.us(rows)) for rows in limits.buckets}
        self._schedule = Schedule(self._lanes, [Slot(warm_us=warm_us) for _ in self.devices], limits)
        self._chance = random.Random(seed)
        self._in_kafka: dict[Lane, deque[Request]] = {lane: deque() for lane in LANES}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._timer_us = NEVER
        self._offsets = PartitionOffsets("simulated", 0)
        self._record = ConsumerRecord("simulated", 0, 0, 0, 0, None, None, None, 0, 0, ())

    def run(self) -> None:
        """Every state arrives and is answered."""
        for number, at_us in enumerate(self._states.at_us.tolist()):
            self._until(at_us)
            self._arrive(number)
        self._until(NEVER)

    def _until(self, end_us: int) -> None:
        events = self._events
        while events and events[0][0] <= end_us:
            self.now_us, _, happen = heapq.heappop(events)
            happen()
        if end_us < NEVER:
            self.now_us = end_us

    def _at(self, time_us: int, happen: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (time_us, self._number, happen))

    def _arrive(self, number: int) -> None:
        """Into its lane, or where that is full into the line of those that Kafka keeps."""
        lane = self._states.lanes[number]
        request = Request(
            self._record, self._offsets, lane, self._states.agents[number], self.now_us, 0, "", 0, seq=number
        )
        if self._lanes[lane].room > 0:
            self._lanes[lane].put([request])
            self._pump()
        else:
            self._in_kafka[lane].append(request)

    def _fetch(self, lane: Lane) -> None:
        """What Kafka kept comes as soon as the lane has room."""
        line, queue = self._in_kafka[lane], self._lanes[lane]
        while line and queue.room > 0:
            request = line.popleft()
            request.received_us = self.now_us
            queue.put([request])

    def _pump(self) -> None:
        """As `Worker.pump`."""
        while batch := self._schedule.next(self.now_us):
            self.devices[batch.predictor].inbox.append(batch)
            self._begin(batch.predictor)
        wake_us = self._schedule.wake_us(self.now_us)
        if wake_us < self._timer_us or self._timer_us <= self.now_us:
            self._timer_us = wake_us
            if wake_us < NEVER // 2:
                self._at(wake_us, self._pump)

    def _begin(self, number: int) -> None:
        device = self.devices[number]
        if device.running is not None or not device.inbox:
            return
        batch = next((batch for batch in device.inbox if batch.urgent), device.inbox[0])
        device.inbox.remove(batch)
        device.running, device.begun_us = batch, self.now_us
        took_us = self._curve.us(len(batch)) * (1 + self._curve.jitter * self._chance.uniform(-1, 1))
        self._at(self.now_us + round(took_us), lambda: self._end(number, batch))

    def _end(self, number: int, batch: Batch) -> None:
        device, begun_us = self.devices[number], self.devices[number].begun_us
        device.running = None
        device.busy_us += self.now_us - begun_us
        device.batches += 1
        self.ended_us = ended_us = self.now_us
        for request in batch.requests:
            assert request.seq is not None, "every state has its number"
            self.waits_us[request.seq] = ended_us - self._states.at_us[request.seq]
        self._begin(number)
        self._at(ended_us + REPORT_US, lambda: self._report(batch, begun_us, ended_us))

    def _report(self, batch: Batch, begun_us: int, ended_us: int) -> None:
        self._schedule.finished(batch, begun_us, ended_us)
        for request in batch.requests:
            self._lanes[request.lane].answered(1)
        for lane in {request.lane for request in batch.requests}:
            self._fetch(lane)
        self._pump()

    @property
    def busy(self) -> float:
        """Of the time so far, the share that the devices ran, on average."""
        return sum(device.busy_us for device in self.devices) / max(self.ended_us, 1) / len(self.devices)

    @property
    def behind(self) -> float:
        """Share of the states that had no answer when the last one came."""
        at_us = self._states.at_us
        return float(np.mean(at_us + self.waits_us > at_us[-1])) if len(at_us) else 0.0

    @property
    def rows(self) -> float:
        """Rows of a batch, on average."""
        return len(self._states) / max(sum(device.batches for device in self.devices), 1)
