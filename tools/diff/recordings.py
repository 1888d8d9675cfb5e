"""Compares two recordings a part of their agents at a time, so that memory stays bounded whatever their size."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tools.diff.answers import Answers, Collector
from tools.diff.compare import Comparison
from tools.diff.distance import Tolerance
from tools.recording.plan import plan
from tools.recording.read import Recording
from tools.recording.recorded import RecordingError
from tools.recording.selection import Selection
from topics.names import FleetNames

AT_ONCE: Final = 500_000
"""Answers of both sides that are held together: some 0.5 KB each."""


def compare(
    reference: Recording,
    other: Recording,
    selection: Selection,
    tolerance: Tolerance,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Comparison:
    """The answers of `reference` beside those of `other`. Time conditions hold for the reference alone.

    Raises:
        RecordingError: one of them is damaged, or the reference has no answers.
    """
    of_other = replace(selection, since_us=None, until_us=None)
    answers = plan(reference, replace(selection, kinds=("actions",))).total
    others = plan(other, replace(of_other, kinds=("actions",))).total
    if not answers:
        raise RecordingError(f"{reference.path} has no answers that match: nothing to compare")
    parts = -(-(answers + others) // AT_ONCE)
    found, steps = Comparison(tolerance), parts * 2
    for part in range(parts):
        sides = []
        for side, (recording, wanted) in enumerate(((reference, selection), (other, of_other))):
            sides.append(collected(recording, wanted, part, parts))
            progress(part * 2 + side + 1, steps)
        _keep_asked(sides, selection)
        found.add(*sides)
    return found


def collected(recording: Recording, selection: Selection, part: int, parts: int) -> Answers:
    """The answers of one of `parts` parts of the agents."""
    names = FleetNames(recording.about.fleet)
    collector = Collector(names.state_topics())
    wanted = replace(selection, kinds=("states", "actions"), lanes=())
    for records in recording.records(wanted):
        if parts > 1:
            records = [record for record in records if zlib.crc32(record.key or b"") % parts == part]
        collector.add(records)
    return collector.answers


def _keep_asked(sides: list[Answers], selection: Selection) -> None:
    """Lanes are a condition on answers here. With a stretch of time, the other side's answers to what lies outside of
    it are no surplus."""
    if selection.lanes:
        for side in sides:
            side.by_step = {step: one for step, one in side.by_step.items() if one.lane in selection.lanes}
    if selection.since_us is not None or selection.until_us is not None:
        reference, other = sides
        other.by_step = {step: one for step, one in other.by_step.items() if step in reference.by_step}
