"""Reads a whole recording and says what is wrong: damage, files that were not ended, offsets that are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tools.recording.read import Gap, Recording, RecordingFile
from tools.recording.recorded import RecordingError
from tools.recording.write import Place


@dataclass(slots=True)
class Hole:
    """Offsets [begin, end) of a partition between two records; `why` from the recorder, empty: it did not know."""

    topic: str
    partition: int
    begin: int
    end: int
    why: str


@dataclass(slots=True)
class Findings:
    """`damage`: lines for people. `repeated`: records that are there twice."""

    records: int = 0
    damage: list[str] = field(default_factory=list)
    not_ended: list[str] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    repeated: int = 0

    @property
    def sound(self) -> bool:
        """Whether every byte is as it was written, and every file ended."""
        return not self.damage and not self.not_ended


def check(recording: Recording, progress: Callable[[int, int], None] = lambda _done, _of: None) -> Findings:
    """Every chunk's checksum, every record's form, every partition's offsets."""
    found, next_offset = Findings(), dict[Place, int]()
    done, total = 0, sum(len(file.chunks) for file in recording.files)
    gaps = [gap for file in recording.files for gap in file.gaps]
    for file in recording.files:
        if not file.complete:
            found.not_ended.append(str(file.path))
        for chunk in file.chunks:
            try:
                records = file.read(chunk)
            except RecordingError as error:
                found.damage.append(str(error))
                for place in _places(file, chunk.counts):
                    next_offset.pop(place, None)  # what follows a damaged chunk is no hole of the recorder's
                records = []
            found.records += len(records)
            for record in records:
                _follow(found, next_offset, gaps, record[:2], record.offset)
            done += 1
            progress(done, total)
    return found


def _places(file: RecordingFile, numbers: Mapping[int, int]) -> list[Place]:
    return [(channel.topic, channel.partition) for number, channel in file.channels.items() if number in numbers]


def _follow(found: Findings, next_offset: dict[Place, int], gaps: list[Gap], place: Place, offset: int) -> None:
    expected = next_offset.get(place, offset)
    if offset > expected:
        reasons = [
            gap.why for gap in gaps if (gap.topic, gap.partition) == place and gap.begin < offset and gap.end > expected
        ]
        found.holes.append(Hole(*place, expected, offset, "; ".join(dict.fromkeys(reasons))))
    elif offset < expected:
        found.repeated += 1
    next_offset[place] = max(expected, offset + 1)
