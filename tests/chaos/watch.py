"""Samples the committed offsets of all lanes during a run: they must never go back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiokafka.errors import KafkaError

from tests.chaos.rig import committed
from topics.kafka import make_admin, started
from topics.names import LANES, Lane
from topics.settings import FleetSettings

EVERY_S = 0.3


class OffsetsWatch:
    """What the samples showed."""

    def __init__(self) -> None:
        self.samples = 0
        self.failed = 0
        self.backwards: list[str] = []
        self._highest: dict[tuple[Lane, int], int] = {}

    def saw(self, lane: Lane, offsets: dict[int, int]) -> None:
        """One sample of one lane."""
        self.samples += 1
        for partition, offset in offsets.items():
            before = self._highest.get((lane, partition), 0)
            if offset < before:
                self.backwards.append(f"{lane}[{partition}] {before} → {offset}")
            self._highest[lane, partition] = offset


@contextlib.asynccontextmanager
async def watching(settings: FleetSettings) -> AsyncIterator[OffsetsWatch]:
    """Sample while the block runs."""
    watch = OffsetsWatch()
    async with started(make_admin(settings.kafka, client_id="chaos-watch"), settings.kafka) as admin:
        task = asyncio.ensure_future(_sample(watch, settings, admin))
        try:
            yield watch
        finally:
            task.cancel()
            await asyncio.wait([task])


async def _sample(watch: OffsetsWatch, settings: FleetSettings, admin: object) -> None:
    while True:
        for lane in LANES:
            try:
                async with asyncio.timeout(5):
                    watch.saw(lane, await committed(settings, lane, admin))
            except (KafkaError, OSError, TimeoutError):
                watch.failed += 1  # a broker is away
        await asyncio.sleep(EVERY_S)
