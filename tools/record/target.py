"""The recording that a run writes into: a new one, or one that is continued where it ends.

A recording says itself how far it has read: where each run began, the last offset of each partition, and the offsets
behind that which held nothing that was wanted.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from aiokafka.structs import TopicPartition

from tools.dead.filters import WrongCall
from tools.offsets import Offsets
from tools.record.spans import Spans
from tools.recording.about import About
from tools.recording.layout import Compression
from tools.recording.read import Recording
from tools.recording.recorded import RecordingError
from tools.recording.recover import recover
from tools.recording.write import RecordingWriter
from topics.settings import FleetSettings

BEGINS: Final = "begins"
"""Among a recording's settings: the offset of each partition at which the run began, as JSON."""
PACKAGES: Final = ("decision-fleet", "aiokafka", "mcap")


@dataclass(frozen=True, slots=True)
class Target:
    """`filters` in words, empty: none."""

    path: Path
    filters: str = ""
    compression: Compression = "zstd"
    rotate_bytes: int | None = None
    rotate_s: float | None = None

    def found(self, fleet: str, tell: Callable[[str], None]) -> Recording | None:
        """The recording that is there already, mended; None: there is none.

        Raises:
            RecordingError: it is one file, of another fleet, or damaged.
            WrongCall: it was recorded with other filters.
        """
        if self.path.suffix == ".mcap":
            if self.path.exists():
                raise RecordingError(f"{self.path} is there already: only a folder is continued; name another file")
            return None
        if not any(self.path.glob("*.mcap")):
            return None
        for mended in recover(self.path):
            tell(f"mended {mended}: its recorder was killed")
        recording = Recording.open(self.path)
        about = recording.about
        if about.fleet != fleet:
            raise RecordingError(f"{self.path} is a recording of fleet {about.fleet}, not {fleet}: name another path")
        if about.filters != self.filters:
            was, now = about.filters or "no filters", self.filters or "no filters"
            raise WrongCall(f"{self.path} was recorded with {was}, now {now}: say the same, or name another path")
        return recording

    def writer(self, settings: FleetSettings, cluster_id: str, spans: Spans) -> RecordingWriter:
        """Raises `RecordingError`."""
        about = About(
            settings.name,
            cluster_id,
            spans.partitions,
            self.filters,
            {
                "bootstrap_servers": settings.kafka.bootstrap_servers,
                "delivery": settings.delivery,
                BEGINS: json.dumps([[*place, offset] for place, offset in spans.begins.items()]),
            },
            {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        )
        return RecordingWriter(
            self.path,
            about,
            compression=self.compression,
            rotate_bytes=self.rotate_bytes,
            rotate_s=self.rotate_s,
        )


def reached(recording: Recording) -> Offsets:
    """The offset of each partition that comes next: all before it was written, left out or gone."""
    found: Offsets = {}
    for file in recording.files:
        begins = json.loads(file.about.settings.get(BEGINS, "[]"))
        ends = [((topic, partition), offset) for topic, partition, offset in begins]
        ends += [(place, span.last + 1) for place, span in file.spans.items()]
        ends += [((gap.topic, gap.partition), gap.end) for gap in file.gaps]
        for place, offset in ends:
            found[TopicPartition(*place)] = max(offset, found.get(TopicPartition(*place), 0))
    return found


def require_cluster(recording: Recording, cluster_id: str) -> None:
    """Offsets of another cluster mean other records. Raises `RecordingError`."""
    if recording.about.cluster_id != cluster_id:
        raise RecordingError(
            f"{recording.path} was recorded on cluster {recording.about.cluster_id}, this one is {cluster_id}: "
            "name another path"
        )
