"""`fleet recording`: what it says about a recording, and the recordings that it makes of others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.tools.recording.test_round_trip import ABOUT, START_MS, read_back, recorded, written
from tools.dead.filters import WrongCall
from tools.recording.about import About
from tools.recording.cli import app, parse_selection, words
from tools.recording.info import arrivals, states_over_time
from tools.recording.plan import plan
from tools.recording.read import Recording
from tools.recording.recorded import Recorded, RecordingError
from tools.recording.selection import Selection
from tools.recording.write import RecordingWriter
from topics.records import Action, State
from topics.wire import encode_action, encode_state


def ran(*words: str) -> str:
    """What a command prints. An error of ours comes through."""
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        Selection(kinds=("states",)),
        Selection(agents=("agent-1",)),
        Selection(sample=0.5),
        Selection(since_us=(START_MS + 333) * 1000, until_us=(START_MS + 777) * 1000),
    ],
)
def test_a_plan_counts_what_reading_gives(tmp_path: Path, selection: Selection) -> None:
    """From the indexes alone, and exactly, also at the edges of a stretch of time."""
    records = [recorded(at) for at in range(100)] + [recorded(at, "demo.actions") for at in range(100)]
    opened = Recording.open(written(tmp_path / "a", records))
    found, there = plan(opened, selection), [record for part in opened.records(selection) for record in part]
    assert found.exact and found.total == len(there)
    assert found.counts.get(("states", "high"), 0) == sum(one.topic == "demo.states.high" for one in there)
    if selection.since_us is None:
        assert found.agents == len({one.key for one in there})


def test_a_plan_by_agent_and_time_says_that_it_is_no_count(tmp_path: Path) -> None:
    """It takes agents to be spread evenly over their file, and is near."""
    records = [recorded(at) for at in range(1000)]
    selection = Selection(agents=("agent-1",), since_us=(START_MS + 5000) * 1000)
    found = plan(Recording.open(written(tmp_path / "a", records)), selection)
    assert not found.exact and found.total == pytest.approx(100, abs=10)


def test_info_tells_topics_rates_and_gaps(tmp_path: Path) -> None:
    """For people and for programs."""
    writer = RecordingWriter(tmp_path / "a.mcap", ABOUT)
    writer.add([recorded(at) for at in range(100)])
    writer.gap("demo.states.high", 0, 40, 50, "deleted by retention")
    writer.finish()
    text = ran("info", str(tmp_path / "a.mcap"))
    assert "demo.states.high" in text and "100 records" in text and "deleted by retention" in text
    found = json.loads(ran("info", str(tmp_path / "a.mcap"), "--json"))
    (topic,) = found["topics"]
    assert (topic["records"], topic["agents"], topic["partitions"]) == (100, 5, 3)
    assert found["begin"].endswith("+00:00") and found["seconds"] == pytest.approx(0.99)
    assert found["gaps"][0]["begin"] == 40
    assert found["arrivals_ms"]["10–20"] == 99


def test_rates_add_up_to_the_records(tmp_path: Path) -> None:
    """However chunks and stretches of time lie."""
    opened = Recording.open(written(tmp_path / "a", [recorded(at) for at in range(500)]))
    rates = states_over_time(opened)
    assert np.mean(rates) * 4.99 == pytest.approx(500, rel=0.01)
    assert dict(arrivals(opened))["10–20"] > 100


def test_check_reads_every_byte(tmp_path: Path) -> None:
    """A sound one says so; a hole has its reason; damage is told and ends with 1."""
    writer = RecordingWriter(tmp_path / "a.mcap", ABOUT)
    writer.add([recorded(at) for at in range(30)])
    writer.add([Recorded("demo.states.high", 0, 25, START_MS + 999, 0, b"a", b"", ())])
    writer.gap("demo.states.high", 0, 10, 25, "deleted by retention")
    writer.finish()
    text = ran("check", str(tmp_path / "a.mcap"))
    assert "offsets 10–24: deleted by retention" in text and "31 records read: sound" in text
    data = bytearray((tmp_path / "a.mcap").read_bytes())
    at = data.index(b"zstd") + 40
    data[at] ^= 255
    (tmp_path / "b.mcap").write_bytes(data)
    result = CliRunner().invoke(app, ["check", str(tmp_path / "b.mcap"), "--json"])
    assert result.exit_code == 1
    found = json.loads(result.output)
    assert not found["sound"] and "b.mcap" in found["damage"][0]


def test_a_cut_is_a_recording_that_says_what_it_is(tmp_path: Path) -> None:
    """Records untouched, filters in its metadata; an existing target is left alone."""
    records = [recorded(at) for at in range(50)]
    source = written(tmp_path / "a", records)
    target = tmp_path / "b.mcap"
    ran("cut", str(source), str(target), "--agent", "agent-1", "--compression", "lz4")
    assert read_back(target) == [one for one in records if one.key == b"agent-1"]
    assert Recording.open(target).about.filters == "agents agent-1"
    with pytest.raises(RecordingError, match="never overwritten"):
        ran("cut", str(source), str(target))


def test_merged_parts_are_the_whole(tmp_path: Path) -> None:
    """What is in both comes once; recordings of other fleets and clusters are refused."""
    records = [recorded(at) for at in range(60)] + [recorded(at, "demo.actions") for at in range(60)]
    first, second = written(tmp_path / "a.mcap", records[:80]), written(tmp_path / "b.mcap", records[40:])
    ran("merge", str(first), str(second), "--into", str(tmp_path / "c.mcap"))
    assert sorted(read_back(tmp_path / "c.mcap")) == sorted(records)
    other = RecordingWriter(tmp_path / "d.mcap", About("demo", "c2"))
    other.finish()
    with pytest.raises(RecordingError, match="c1, c2"):
        ran("merge", str(first), str(tmp_path / "d.mcap"), "--into", str(tmp_path / "e.mcap"))


def test_parquet_has_the_decoded_fields_beside_the_bytes(tmp_path: Path) -> None:
    """Times in UTC; what cannot be decoded is null and keeps its bytes."""
    parquet = pytest.importorskip("pyarrow.parquet")
    state = encode_state(State(np.array([1, 2], np.float32), seq=7, kind="walk", deadline_us=START_MS * 1000))
    action = encode_action(Action("action", 7, action=np.array([3]), model="cartpole v1"))
    records = [
        Recorded("demo.states.low", 0, 0, START_MS, 0, b"a", state, (("h", None),)),
        Recorded("demo.states.low", 0, 1, START_MS, 0, b"\xff", b"\xc1", ()),
        Recorded("demo.actions", 0, 0, START_MS, 0, b"a", action, ()),
    ]
    ran("to-parquet", str(written(tmp_path / "a.mcap", records)), str(tmp_path / "columns"))
    states = parquet.read_table(tmp_path / "columns" / "states.parquet")
    good, bad = states.to_pylist()
    assert str(states.schema.field("timestamp").type) == "timestamp[ms, tz=UTC]"
    assert (good["seq"], good["task_kind"], good["observation"], good["lane"]) == (7, "walk", [1.0, 2.0], "low")
    assert good["value"] == state and good["timestamp"].timestamp() * 1000 == START_MS
    assert (bad["seq"], bad["observation"], bad["value"], bad["agent"]) == (None, None, b"\xc1", "\\xff")
    (answer,) = parquet.read_table(tmp_path / "columns" / "actions.parquet").to_pylist()
    assert (answer["outcome"], answer["action"], answer["model"]) == ("action", [3.0], "cartpole v1")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"kinds": ["state"]}, "--kind is 'state', expected one of states, actions, dead"),
        ({"lanes": ["urgent"]}, "--lane is 'urgent', expected one of high, normal, low"),
        ({"sample": 0.0}, "--sample is 0, expected a share above 0 up to 1"),
        ({"since": "1h", "until": "2h"}, "--since 1h must be before --until 2h"),
        ({"since": "yesterday"}, "--since is 'yesterday'"),
    ],
)
def test_a_wrong_flag_is_one_line(flags: dict[str, object], expected: str) -> None:
    """What was found, what was expected."""
    given: dict[str, object] = {
        "kinds": None,
        "lanes": None,
        "agents": None,
        "since": None,
        "until": None,
        "sample": 1.0,
    }
    with pytest.raises(WrongCall, match=expected):
        parse_selection(**(given | flags))  # type: ignore[arg-type]


def test_a_selection_reads_as_words() -> None:
    """So that a recording can say what was left out of it."""
    selection = Selection(("states",), ("low",), ("a*",), START_MS * 1000, None, 0.5)
    assert words(selection) == "states; lanes low; agents a*; from 2023-11-14T22:13:20.000+00:00; 0.5 of the agents"
    assert words(Selection()) == ""
