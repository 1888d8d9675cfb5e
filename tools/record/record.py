"""One recording from start to end: reads, keeps, writes; until stopped, in time, or at the end of what is wanted.

`source` reads, `keep` decides, `RecordingWriter` writes; this file knows their order and what ends it. Whatever ends
it: what was read is written, and the file is finished.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from tools.offsets import cluster_id
from tools.record.keep import Keep
from tools.record.progress import Reporter
from tools.record.source import Deleted, Source
from tools.record.spans import find_spans
from tools.record.target import Target, reached, require_cluster
from tools.record.wanted import Wanted
from tools.recording.write import RecordingWriter
from topics.settings import FleetSettings

FLUSH_EVERY_S: Final = 1.0
"""What the file lacks when a recorder is killed. Kafka has it still, and the next run reads it again."""
GONE: Final = "deleted by the cluster before it could be read"
NOTHING: Final = "nothing there that was wanted: left out by filters, or no record (transactions)"


@dataclass(frozen=True, slots=True)
class Report:
    """What one run did. `deleted`: what it should have recorded and could not."""

    records: int
    seconds: float
    lag: int
    deleted: tuple[Deleted, ...]
    offsets_without_record: int
    left_out: int
    redacted_out: int


async def record(
    settings: FleetSettings, wanted: Wanted, keep: Keep, target: Target, reporter: Reporter, seconds: float | None
) -> Report:
    """Record until SIGINT or SIGTERM, for `seconds`, or until everything wanted is written.

    Raises:
        FleetError: one of its subclasses; what was read before is in the recording all the same.
    """
    before = target.found(settings.name, reporter.tell)
    async with Source(settings.kafka, reporter.tell) as source:
        cluster = await cluster_id(source.reader)
        if before is not None:
            require_cluster(before, cluster)
        spans = await find_spans(source.reader, wanted, reached(before) if before else {}, time.time())
        writer = target.writer(settings, cluster, spans)
        source.begin(spans.begins, spans.ends)
        reporter.tell(f"recording {settings.name} into {target.path}: {len(spans.begins)} partitions")
        for gone in spans.deleted:
            source.note(gone)
        run = Run(source, keep, writer, wanted, reporter)
        begun_at = time.monotonic()
        try:
            await _until_stopped(run.read(), seconds)
        finally:
            run.finish(begun_anew=before is None)
        return Report(
            run.written,
            time.monotonic() - begun_at,
            source.lag(),
            tuple(source.deleted),
            source.without_record,
            keep.left_out,
            keep.redacted_out,
        )


class Run:
    """The loop, how many records it has written, and how far."""

    def __init__(self, source: Source, keep: Keep, writer: RecordingWriter, wanted: Wanted, reporter: Reporter) -> None:
        self._source, self._keep, self._writer = source, keep, writer
        self._wanted = wanted
        self._reporter = reporter
        self._written_to = dict(source.positions)
        self._passed = dict(source.positions)
        """As far as every record is written or left out on purpose; the source is ahead of it while it polls."""
        self._gaps_written = 0
        self.written = 0

    async def read(self) -> None:
        """Until everything wanted is written; for ever where there is no end."""
        flush_at, until_us = 0.0, self._wanted.until_us
        while not self._source.done:
            for place, records in self._keep(await self._source.poll()).items():
                self._writer.add(records)
                self._written_to[place] = records[-1].offset + 1
                self.written += len(records)
            self._passed = dict(self._source.positions)
            if (now := time.monotonic()) >= flush_at:
                flush_at = now + FLUSH_EVERY_S
                self._flush()
            if until_us is not None and not self._source.bounded and time.time() * 1e6 >= until_us:
                await self._source.end_now()

    def _flush(self) -> None:
        self._write_gaps()
        self._writer.flush()
        if not self._source.bounded and not self._wanted.slices:
            self._source.meet_new_partitions(self._wanted.topics)
        self._reporter.show(self.written, self._source.lag(), bounded=self._source.bounded)

    def _write_gaps(self) -> None:
        """What was deleted, in a file that is finished then: gaps lie at its end, where a kill would lose them."""
        for gone in (new := self._source.deleted[self._gaps_written :]):
            self._writer.gap(gone.topic, gone.partition, gone.begin, gone.end, GONE)
        self._gaps_written += len(new)
        if new and not self._writer.single:
            self._writer.finish()

    def finish(self, *, begun_anew: bool) -> None:
        """Note how far it has read, and end the file. A run that found nothing new leaves none. Raises
        `RecordingError`."""
        self._write_gaps()
        for place, position in self._passed.items():
            if position > (begin := self._written_to.get(place, 0)):
                self._writer.gap(place.topic, place.partition, begin, position, NOTHING)
        has_open_file = self._writer.size_bytes > self._writer.finished_bytes
        if has_open_file or (begun_anew and not self._writer.files):
            self._writer.finish()


async def _until_stopped(reading: Coroutine[Any, Any, None], seconds: float | None) -> None:
    """Until it ends by itself, the time is up or a signal comes. It is cancelled where it waits: nothing is torn."""
    task = asyncio.ensure_future(reading)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await asyncio.wait({task}, timeout=seconds)
        task.cancel()
        await asyncio.wait({task})
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    if not task.cancelled():
        task.result()
