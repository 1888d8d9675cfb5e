"""The reading process: the same pieces as without it, a damaged recording in one line, an end when nobody reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.replay.build import PARTITIONS, record
from tools.recording.read import Recording
from tools.recording.selection import Selection
from tools.replay.outgoing import Outgoing, Places
from tools.replay.pieces import PiecesProcess
from topics.errors import FleetError
from topics.names import Lane

LANES: tuple[Lane, ...] = ("high", "normal", "low")


def outgoing() -> Outgoing:
    topics = {f"old.states.{lane}": f"new.states.{lane}" for lane in LANES}
    places = Places(topics, dict.fromkeys(topics.values(), PARTITIONS), rekey=False)
    return Outgoing(b"run-----", places, 1.0, 1, 1, 1000)


def recording(folder: Path, states: int) -> Path:
    """Every thousandth state is larger than its topic takes."""
    values = [b"v" * (2000 if at % 1000 == 999 else 300) for at in range(states)]
    record(folder / "a.mcap", "old", [("low", "agent", at, value) for at, value in enumerate(values)])
    return folder / "a.mcap"


def test_pieces_come_as_they_are_made_and_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    """Whatever the process that made them."""
    path, here = recording(tmp_path, 5000), outgoing()
    expected = [*here.pieces(lambda: Recording.open(path).records(), 7)]
    reading = PiecesProcess(path, Selection(kinds=("states",)), outgoing())
    try:
        reading.wait_ready()
        assert [*reading.pieces(7)] == expected
        assert reading.total == here.total == 5000
        assert reading.unsendable == here.unsendable and len(here.unsendable) == 5
    finally:
        reading.close()


def test_a_damaged_recording_is_one_line_after_what_is_good(tmp_path: Path) -> None:
    """The states before the damage are sent."""
    path = recording(tmp_path, 20_000)
    chunk = Recording.open(path).files[0].chunks[-1]
    with path.open("r+b") as file:
        file.seek(chunk.at + chunk.length // 2)
        file.write(b"\0" * 64)
    reading = PiecesProcess(path, Selection(kinds=("states",)), outgoing())
    try:
        reading.wait_ready()
        good = 0
        with pytest.raises(FleetError, match="is damaged"):
            for piece in reading.pieces(7):
                good += len(piece.numbers)
        assert 0 < good < 20_000
    finally:
        reading.close()


def test_who_stops_early_leaves_no_process_behind(tmp_path: Path) -> None:
    """It is waiting in a full pipe then."""
    reading = PiecesProcess(recording(tmp_path, 20_000), Selection(kinds=("states",)), outgoing())
    reading.wait_ready()
    next(reading.pieces(7))
    reading.close()
    assert reading._process.exitcode == 0
