"""Reads a whole recording and says what is wrong: damage, files that were not ended, offsets that are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tools.recording.read import Recording
from tools.recording.read_file import Gap, Progress, RecordingFile, data_is_whole, no_progress
from tools.recording.recorded import Place, Recorded, RecordingError
from tools.recording.runs import Runs, holes, joined, runs_in


@dataclass(slots=True)
class Findings:
    """`damage`: lines for people. `holes`: offsets between two records; `why` is empty where nobody knows. `repeated`:
    records that are there twice."""

    records: int = 0
    damage: list[str] = field(default_factory=list)
    not_ended: list[str] = field(default_factory=list)
    holes: list[Gap] = field(default_factory=list)
    repeated: int = 0

    @property
    def sound(self) -> bool:
        """Whether every byte is as it was written, and every file ended."""
        return not self.damage and not self.not_ended


def check(recording: Recording, progress: Progress = no_progress) -> Findings:
    """Every byte's checksum, every record's form, every partition's offsets."""
    found, runs = Findings(), dict[Place, list[Runs]]()
    lost: set[Place] = set()
    done, total = 0, sum(len(file.chunks) for file in recording.files)
    for file in recording.files:
        before = len(found.damage)
        for records in _chunks(found, file, lost):
            found.records += len(records)
            for place, offsets in by_place(records).items():
                runs.setdefault(place, []).append(runs_in(np.array(offsets, np.int64)))
            done += 1
            progress(done, total)
        if not file.complete:
            found.not_ended.append(str(file.path))
        elif len(found.damage) == before and not data_is_whole(file.path):
            found.damage.append(f"{file.path} is damaged outside of its records, which are whole")
    gaps = [gap for file in recording.files for gap in file.gaps]
    for place in sorted(runs):
        whole = joined(runs[place])
        unknown = "a damaged chunk" if place in lost else ""
        found.holes += [Gap(*place, *hole, _why(gaps, place, hole) or unknown) for hole in holes(whole)]
        found.repeated += _length(np.concatenate(runs[place])) - _length(whole)
    return found


def by_place(records: Sequence[Recorded]) -> dict[Place, list[int]]:
    """Offsets by topic and partition."""
    found: dict[Place, list[int]] = {}
    for record in records:
        found.setdefault((record.topic, record.partition), []).append(record.offset)
    return found


def _chunks(found: Findings, file: RecordingFile, lost: set[Place]) -> Iterator[Sequence[Recorded]]:
    found.damage += file.damage
    if file.damage:
        lost |= {(channel.topic, channel.partition) for channel in file.channels.values()}
    for chunk in file.chunks:
        try:
            records: Sequence[Recorded] = file.read(chunk)
        except RecordingError as error:
            found.damage.append(str(error))
            lost |= {(channel.topic, channel.partition) for n, channel in file.channels.items() if n in chunk.counts}
            records = ()
        yield records


def _why(gaps: Sequence[Gap], place: Place, hole: tuple[int, int]) -> str:
    reasons = [
        gap.why for gap in gaps if (gap.topic, gap.partition) == place and gap.begin < hole[1] and gap.end > hole[0]
    ]
    return "; ".join(dict.fromkeys(reasons))


def _length(runs: Runs) -> int:
    return int((runs[:, 1] - runs[:, 0]).sum())
