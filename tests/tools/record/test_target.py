"""A recording that is continued: how far it has read, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka.structs import TopicPartition

from tools.dead.filters import WrongCall
from tools.record.spans import Spans
from tools.record.target import Target, reached, require_cluster
from tools.recording.read import Recording
from tools.recording.recorded import Recorded, RecordingError
from tools.recording.write import RecordingWriter
from topics.settings import FleetSettings

A, B, C = (TopicPartition("demo.actions", number) for number in range(3))
SETTINGS = FleetSettings(name="demo")


def writer(path: Path, begins: dict[TopicPartition, int], filters: str = "") -> RecordingWriter:
    return Target(path, filters).writer(SETTINGS, "cluster-1", Spans({"demo.actions": 3}, begins))


def records(place: TopicPartition, *offsets: int) -> list[Recorded]:
    return [Recorded(*place, offset, 1000 + offset, 0, b"agent", b"value", ()) for offset in offsets]


def found(path: Path, filters: str = "", fleet: str = "demo") -> tuple[Recording | None, list[str]]:
    told: list[str] = []
    return Target(path, filters).found(fleet, told.append), told


def test_a_recording_is_read_as_far_as_it_holds_passed_or_began(tmp_path: Path) -> None:
    """The last record of each partition, what was noted behind it, or where the run began; over all runs."""
    first = writer(tmp_path / "r", {A: 5, B: 7, C: 9})
    first.add(records(A, 5, 6))
    first.gap(*B, 7, 12, "left out by filters")
    first.finish()
    second = writer(tmp_path / "r", {A: 7, B: 12, C: 9})
    second.add(records(C, 30))
    second.finish()
    recording, told = found(tmp_path / "r")
    assert recording is not None and not told
    assert reached(recording) == {A: 7, B: 12, C: 31}
    assert recording.about.cluster_id == "cluster-1" and recording.about.settings["delivery"] == "at_least_once"


def test_a_killed_recorders_file_is_mended_and_goes_on_behind_its_last_chunk(tmp_path: Path) -> None:
    """What was not flushed is read from Kafka again."""
    killed = writer(tmp_path / "r", {A: 5, B: 7})
    killed.add(records(A, 5, 6))
    killed.flush()
    killed.add(records(A, 7))
    with pytest.raises(RecordingError, match="is being written: stop its recorder first"):
        found(tmp_path / "r")
    del killed  # closes its file, as the end of its process does
    recording, told = found(tmp_path / "r")
    assert recording is not None and recording.complete
    assert told == [f"mended {tmp_path}/r/000000.mcap: its recorder was killed"]
    assert reached(recording) == {A: 7, B: 7}


def test_nothing_there_is_a_new_recording(tmp_path: Path) -> None:
    """Also an empty folder, and a file that is not there yet."""
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new", "new.mcap"):
        assert found(tmp_path / name) == (None, [])


def test_what_would_mix_two_recordings_is_refused(tmp_path: Path) -> None:
    """Another fleet, other filters, another cluster, a single file: one line that says what to do."""
    there = writer(tmp_path / "r", {A: 5}, "lanes high")
    there.finish()
    with pytest.raises(RecordingError, match="is a recording of fleet demo, not other: name another path"):
        found(tmp_path / "r", "lanes high", "other")
    with pytest.raises(WrongCall, match="was recorded with lanes high, now no filters: say the same"):
        found(tmp_path / "r")
    recording, _ = found(tmp_path / "r", "lanes high")
    assert recording is not None
    require_cluster(recording, "cluster-1")
    with pytest.raises(RecordingError, match="was recorded on cluster cluster-1, this one is cluster-2"):
        require_cluster(recording, "cluster-2")
    writer(tmp_path / "one.mcap", {A: 5}).finish()
    with pytest.raises(RecordingError, match=r"one.mcap is there already: only a folder is continued"):
        found(tmp_path / "one.mcap")
