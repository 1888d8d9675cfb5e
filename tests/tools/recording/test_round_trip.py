"""What is written into a recording comes back as it was, whatever happens to the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader

from tools.recording.about import About
from tools.recording.check import check
from tools.recording.read import Recording
from tools.recording.read_file import Span
from tools.recording.recorded import Recorded, RecordingError
from tools.recording.recover import Mended, recover
from tools.recording.selection import Selection
from tools.recording.write import RecordingWriter

ABOUT = About("demo", "c1", {"demo.states.high": 3}, versions={"decision-fleet": "0.1.0"})
START_MS = 1_700_000_000_000


def recorded(at: int, topic: str = "demo.states.high", agent: str = "", value: bytes | None = b"v") -> Recorded:
    """Record number `at`, every third in the same partition, 10 ms apart."""
    key = (agent or f"agent-{at % 5}").encode()
    headers = (("kafka_correlationId", b"%d" % at), ("empty", None))
    return Recorded(topic, at % 3, at // 3, START_MS + 10 * at, 0, key, value, headers)


def written(path: Path, records: list[Recorded], **options: int) -> Path:
    """A finished recording of `records`, a chunk for each ten."""
    writer = RecordingWriter(path, ABOUT, **options)
    for at in range(0, len(records), 10):
        writer.add(records[at : at + 10])
        writer.flush()
    writer.finish()
    return path


def read_back(path: Path, selection: Selection | None = None) -> list[Recorded]:
    """All that is meant, in the order in which it comes."""
    opened = Recording.open(path)
    return [record for part in opened.records(selection or Selection()) for record in part]


def test_every_field_comes_back(tmp_path: Path) -> None:
    """Keys, values and headers may be missing or any bytes; times before 1970 are kept."""
    odd = [
        Recorded("demo.states.low", 0, 1 << 40, 5, 1, None, None, ()),
        Recorded("demo.dead", 2, 7, -1, 0, b"\xff\x00", b"", (("", b""), ("twice", b"1"), ("twice", b"2"))),
    ]
    assert sorted(read_back(written(tmp_path / "a.mcap", odd))) == sorted(odd)


def test_records_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    """Also where chunks and topics were written out of that order; equal times keep each partition's order."""
    records = [recorded(at) for at in range(60)] + [recorded(at, "demo.actions") for at in range(60)]
    found = read_back(written(tmp_path / "a", records))
    assert [one.timestamp_ms for one in found] == sorted(one.timestamp_ms for one in records)
    assert sorted(found) == sorted(records)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(kinds=("actions",)), {"demo.actions": 30}),
        (Selection(lanes=("low",)), {"demo.actions": 30}),
        (Selection(agents=("agent-1", "*-2")), {"demo.states.high": 12, "demo.actions": 12}),
        (Selection(since_us=(START_MS + 200) * 1000), {"demo.states.high": 10, "demo.actions": 10}),
        (Selection(until_us=(START_MS + 200) * 1000), {"demo.states.high": 20, "demo.actions": 20}),
        (Selection(since_us=(START_MS + 200) * 1000 + 1), {"demo.states.high": 9, "demo.actions": 9}),
        (Selection(), {"demo.states.high": 30, "demo.actions": 30}),
    ],
)
def test_a_selection_takes_what_it_names(tmp_path: Path, selection: Selection, expected: dict[str, int]) -> None:
    """By topic, agent and time; a lane is a condition on states alone."""
    records = [recorded(at) for at in range(30)] + [recorded(at, "demo.actions") for at in range(30)]
    found = read_back(written(tmp_path / "a", records), selection)
    assert {topic: sum(one.topic == topic for one in found) for topic in expected} == expected
    assert len(found) == sum(expected.values())


def test_a_sample_takes_whole_agents() -> None:
    """About the share that was asked for, and the same agents each time."""
    agents = [b"agent-%d" % at for at in range(2000)]
    taken = [key for key in agents if Selection(sample=0.25).takes_key(key)]
    assert 400 < len(taken) < 600
    assert all(Selection(sample=0.5).takes_key(key) for key in taken)


def test_the_summary_says_what_is_inside(tmp_path: Path) -> None:
    """Counts, offsets and times by partition, agents and gaps, without reading a record."""
    writer = RecordingWriter(tmp_path / "a.mcap", ABOUT)
    writer.add([recorded(at) for at in range(30)])
    writer.gap("demo.states.high", 1, 10, 15, "deleted by retention")
    writer.finish()
    opened = Recording.open(tmp_path / "a.mcap")
    (file,) = opened.files
    assert opened.complete and opened.about == ABOUT
    assert opened.counts == {("demo.states.high", number): 10 for number in range(3)}
    assert opened.spans["demo.states.high", 1] == Span(0, 9, START_MS + 10, START_MS + 280)
    assert opened.span_us == (START_MS * 1000, (START_MS + 290) * 1000)
    assert file.agents is not None and sum(sum(agents.values()) for agents in file.agents.values()) == 30
    assert [(gap.begin, gap.end, gap.why) for gap in file.gaps] == [(10, 15, "deleted by retention")]


def test_a_folder_is_continued_and_read_as_one(tmp_path: Path) -> None:
    """A second writer begins the next file; rotation by size begins more."""
    first = [recorded(at) for at in range(30)]
    second = [recorded(at) for at in range(30, 60)]
    written(tmp_path / "a", first)
    written(tmp_path / "a", second, rotate_bytes=500)
    assert len(Recording.open(tmp_path / "a").files) > 3
    assert read_back(tmp_path / "a") == first + second


def test_other_readers_see_topic_partition_and_time(tmp_path: Path) -> None:
    """With the reader of the `mcap` package, its checksums on."""
    written(tmp_path / "a.mcap", [recorded(4)])
    with (tmp_path / "a.mcap").open("rb") as stream:
        ((schema, channel, message),) = make_reader(stream, validate_crcs=True).iter_messages()
    assert schema is not None and schema.encoding == "jsonschema"
    assert (channel.topic, channel.message_encoding) == ("demo.states.high", "msgpack")
    assert channel.metadata == {"partition": "1", "kind": "states", "lane": "high", "fleet": "demo"}
    assert message.log_time == message.publish_time == (START_MS + 40) * 1_000_000


@settings(deadline=None, max_examples=60)
@given(share=st.floats(0, 1))
def test_a_cut_off_file_is_readable_up_to_its_last_whole_chunk(
    tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    """Whatever is cut off: a prefix of what was written in the order of writing, or one clear line; then recovered."""
    folder = tmp_path_factory.mktemp("cut")
    records = [recorded(at) for at in range(100)]
    whole = written(folder / "a.mcap", records).read_bytes()
    cut = folder / "b.mcap"
    cut.write_bytes(whole[: int(len(whole) * share)])
    try:
        opened = Recording.open(cut)
    except RecordingError as error:
        assert str(cut) in str(error) and "\n" not in str(error)
        assert share < 0.5
        return
    found = read_back(cut)
    assert found == records[: len(found)] and len(found) % 10 == 0
    if not opened.complete:
        assert recover(cut) == [Mended(cut, 0)]
    assert Recording.open(cut).complete and read_back(cut) == found


@settings(deadline=None, max_examples=100)
@given(share=st.floats(0, 0.999), flip=st.integers(1, 255))
def test_a_damaged_byte_is_told_or_harmless(tmp_path_factory: pytest.TempPathFactory, share: float, flip: int) -> None:
    """One wrong byte gives one clear line, or records that are all as they were; `check` finds it anyway."""
    folder = tmp_path_factory.mktemp("damaged")
    records = [recorded(at) for at in range(50)]
    whole = bytearray(written(folder / "a.mcap", records).read_bytes())
    whole[int(len(whole) * share)] ^= flip
    damaged = folder / "b.mcap"
    damaged.write_bytes(whole)
    try:
        assert not check(Recording.open(damaged)).sound
        found = read_back(damaged)
    except RecordingError as error:
        assert str(damaged) in str(error) and "\n" not in str(error)
        return
    assert found == records[: len(found)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"\x89MC", "has no metadata"),
        (b"not a recording", "is not an MCAP file"),
        (b"\x89MCAP0\r\n", "has no metadata"),
    ],
)
def test_what_is_no_recording_is_told_in_one_line(tmp_path: Path, data: bytes, words: str) -> None:
    """Empty, foreign, cut off in the first bytes."""
    path = tmp_path / "x.mcap"
    path.write_bytes(data)
    with pytest.raises(RecordingError, match=words):
        Recording.open(path)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A file that is there stays as it is."""
    path = written(tmp_path / "a.mcap", [recorded(0)])
    before = path.read_bytes()
    with pytest.raises(RecordingError, match="never overwritten"):
        written(path, [recorded(1)])
    assert path.read_bytes() == before
