"""What happens to a recording that a disk, a power cut or a client's clock has spoilt."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard
from mcap.data_stream import RecordBuilder
from mcap.records import Chunk
from typer.testing import CliRunner

from tests.tools.recording.test_round_trip import ABOUT, START_MS, read_back, recorded, written
from tools.recording.check import check
from tools.recording.cli import app
from tools.recording.layout import opened
from tools.recording.read import Recording
from tools.recording.recorded import Recorded, RecordingError
from tools.recording.recover import Mended, recover
from tools.recording.write import RecordingWriter


@pytest.mark.slow
def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    """`check` tells each one, wherever it is: in records, metadata, indexes, the summary or the footer."""
    path = written(tmp_path / "a.mcap", [recorded(at) for at in range(20)])
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            assert not check(Recording.open(path)).sound, f"byte {at} of {len(whole)}"
        except RecordingError as error:
            assert str(path) in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("timestamp_ms", [-(1 << 63), -1, 1_700_000_000_000_000, (1 << 63) - 1])
def test_a_time_that_no_calendar_has_harms_nothing(tmp_path: Path, timestamp_ms: int) -> None:
    """A client that took µs for ms must not end the recording of all others; its record keeps its time."""
    records = [recorded(0), recorded(1)._replace(timestamp_ms=timestamp_ms), recorded(2)]
    path = written(tmp_path / "a.mcap", records)
    assert sorted(read_back(path)) == sorted(records)
    for words in (["info"], ["info", "--json"], ["check"]):
        result = CliRunner().invoke(app, [*words, str(path)], catch_exceptions=False)
        assert result.exit_code == 0, result.output


def test_a_backlog_is_read_in_order_without_holding_it(tmp_path: Path) -> None:
    """Partitions read one ahead of the other by hours: chunks are split by partition, so few are held at a time."""
    hour_ms = 3_600_000
    writer = RecordingWriter(tmp_path / "a.mcap", ABOUT, compression="none")
    for first in range(0, 8000, 200):
        for partition, ahead in ((0, 0), (1, 2000), (2, 5000)):
            writer.add(
                [
                    Recorded("demo.actions", partition, at, START_MS + at * hour_ms // 1000, 0, b"a", bytes(300), ())
                    for at in range(first + ahead, first + ahead + 200)
                ]
            )
    writer.finish()
    opened = Recording.open(tmp_path / "a.mcap")
    held = [len(stretch.contents) for stretch in opened.stretches()]
    chunks = len(opened.files[0].chunks)
    assert chunks > 15 and max(held) <= 6, f"{max(held)} of {chunks} chunks"
    times = [record.timestamp_ms for part in opened.records() for record in part]
    assert times == sorted(times) and len(times) == 24_000


@pytest.mark.parametrize("ended", [True, False])
def test_damage_in_the_middle_costs_that_chunk_alone(tmp_path: Path, ended: bool) -> None:
    """Reading tells it and does not go on in silence; mended, the rest is there and the loss is noted as a gap."""
    records = [recorded(at) for at in range(60)]
    path = written(tmp_path / "a.mcap", records)
    third = Recording.open(path).files[0].chunks[2]
    damaged = bytearray(path.read_bytes())
    damaged[third.at + 60] ^= 255
    path.write_bytes(damaged if ended else damaged[:-1])
    with pytest.raises(RecordingError, match=r"--recover"):
        read_back(path)
    assert len(check(Recording.open(path)).damage) == 1
    assert recover(path, damaged=True) == [Mended(path, 1)]
    assert read_back(path) == records[:20] + records[30:]
    found = check(Recording.open(path))
    lost = {(hole.partition, offset) for hole in found.holes for offset in range(hole.begin, hole.end)}
    assert found.sound and lost == {record[1:3] for record in records[20:30]}
    assert all("damaged" in hole.why for hole in found.holes)


def test_a_sound_recording_is_left_alone(tmp_path: Path) -> None:
    """Mending touches only what needs it."""
    path = written(tmp_path / "a.mcap", [recorded(at) for at in range(20)])
    assert recover(path, damaged=True) == []


def test_each_chunk_can_be_read_alone(tmp_path: Path) -> None:
    """Whatever happened to the chunk in which a partition came first."""
    path = written(tmp_path / "a.mcap", [recorded(at) for at in range(30)])
    damaged = bytearray(path.read_bytes()[:-1])
    damaged[Recording.open(path).files[0].chunks[0].at + 60] ^= 255
    path.write_bytes(damaged)
    (file,) = Recording.open(path).files
    assert sum(sum(chunk.counts.values()) for chunk in file.chunks) == 20


def test_zeros_at_the_end_are_what_a_lost_power_leaves(tmp_path: Path) -> None:
    """The records before them are read."""
    path = written(tmp_path / "a.mcap", [recorded(at) for at in range(30)])
    path.write_bytes(path.read_bytes()[:-30] + bytes(5000))
    assert len(read_back(path)) == 30


def test_a_chunk_that_unpacks_to_more_than_it_says_is_not_unpacked(tmp_path: Path) -> None:
    """A bomb of a few KiB takes no memory."""
    bomb = zstandard.compress(bytes(50 << 20))
    chunk = Chunk("zstd", bomb, 0, 0, 0, 1000)
    builder = RecordBuilder()
    chunk.write(builder)
    with pytest.raises(RecordingError, match="sizes contradict"):
        opened(builder.end()[9:], "x.mcap")


def test_out_of_order_times_make_no_holes(tmp_path: Path) -> None:
    """A cut is in the order of times, which need not be that of offsets; nothing is missing or twice for that."""
    records = [recorded(at)._replace(partition=0, offset=at ^ 1) for at in range(40)]
    found = check(Recording.open(written(tmp_path / "a.mcap", records + records[:4])))
    assert (found.holes, found.repeated) == ([], 4)
