"""What a recording says of itself: the fleet, the cluster, what was recorded and with which versions.

Lies as text in a metadata record of each file, so that other MCAP readers show it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from tools.recording.recorded import RecordingError

NAME: Final = "decision_fleet"
"""Of the metadata record."""
VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class About:
    """`partitions`: how many each topic has. `filters`: what was left out, in words; empty: nothing."""

    fleet: str
    cluster_id: str = ""
    partitions: Mapping[str, int] = field(default_factory=dict)
    filters: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_metadata(self, number: int, begun_us: int) -> dict[str, str]:
        """Of file `number` of a recording, begun at `begun_us` (Unix µs)."""
        fields = {
            "version": VERSION,
            "fleet": self.fleet,
            "cluster_id": self.cluster_id,
            "partitions": json.dumps(dict(self.partitions), sort_keys=True),
            "filters": self.filters,
            "settings": json.dumps(dict(self.settings), sort_keys=True),
            "versions": json.dumps(dict(self.versions), sort_keys=True),
            "file": str(number),
            "begun": utc(begun_us),
            "time_zone": "UTC",
        }
        return fields | {"checksum": _checksum(fields)}

    @classmethod
    def from_metadata(cls, found: Mapping[str, str], where: str) -> About:
        """Raises RecordingError."""
        if (version := found.get("version")) != VERSION:
            raise RecordingError(
                f"{where} is a recording of version {version!r:.20}, this decision-fleet reads {VERSION}"
            )
        if found.get("checksum", _checksum(found)) != _checksum(found):
            raise RecordingError(f"{where} has damaged metadata: its checksum does not match")
        try:
            maps = {name: dict(json.loads(found[name])) for name in ("partitions", "settings", "versions")}
            maps["partitions"] = {str(topic): int(count) for topic, count in maps["partitions"].items()}
            return cls(found["fleet"], found["cluster_id"], filters=found["filters"], **maps)
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            raise RecordingError(
                f"{where} has damaged metadata: {error!r:.80}; was it written by `fleet record`?"
            ) from error


def utc(unix_us: int) -> str:
    """ISO 8601 with its zone, to the ms; a number of µs where no calendar reaches."""
    try:
        return datetime.fromtimestamp(unix_us / 1e6, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{unix_us} µs since 1970"


def _checksum(fields: Mapping[str, str]) -> str:
    """MCAP has none for metadata, and the fleet's name decides what each topic is."""
    text = "\0".join(f"{name}\0{fields[name]}" for name in sorted(fields.keys() - {"checksum"}))
    return f"{zlib.crc32(text.encode()):08x}"
