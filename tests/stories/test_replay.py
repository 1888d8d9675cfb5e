"""`fleet replay` on a real broker: recorded states arrive again, in full and once, and their answers are recorded."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.stories.fleet import Fleet, observation
from tests.tools.replay.build import record
from tools.broker import start_broker
from tools.recording.read import Recording
from tools.recording.recorded import Recorded
from tools.recording.selection import Selection
from topics.names import LANES, Lane
from topics.provision import ensure_topics
from topics.records import State
from topics.settings import FleetSettings, KafkaSettings
from topics.wire import decode_action, decode_state, encode_state

pytestmark = pytest.mark.broker

COMMAND = [sys.executable, "-c", "from tools.cli import main; main()", "replay"]
SLOW = ("--max-late-ms", 5000)
"""The tests' machine is busy."""
RECORDED_MS = 1_700_000_000_000


def states(number: int, gap_ms: int, agents: int = 7) -> list[tuple[Lane, str, int, bytes]]:
    """(lane, agent, timestamp in ms, value), one state every `gap_ms`."""
    found: list[tuple[Lane, str, int, bytes]] = []
    for at in range(number):
        at_ms = RECORDED_MS + at * gap_ms
        state = State(observation(at), seq=at, sent_us=at_ms * 1000, deadline_us=at_ms * 1000 + 3_600_000_000)
        found.append((LANES[at % 3], f"agent-{at % agents}", at_ms, encode_state(state)))
    return found


def start(fleet: FleetSettings, *words: object) -> subprocess.Popen[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FLEET_")}
    at = ("--fleet", fleet.name, "--bootstrap-servers", fleet.kafka.bootstrap_servers)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *map(str, words), *at], env=variables | {"COLUMNS": "200"}, **pipes)


async def replay(fleet: FleetSettings, *words: object, code: int = 0) -> str:
    """What it says, errors too."""
    process = start(fleet, *words)
    out, err = await asyncio.to_thread(process.communicate, timeout=90)
    assert process.returncode == code, (out, err)
    return out + err


def read(path: Path) -> list[Recorded]:
    return [one for records in Recording.open(path).records(Selection()) for one in records]


def bookmarks(folder: Path) -> list[Path]:
    return list(folder.glob("*.resume"))


def sent_in(records: Sequence[Recorded]) -> list[Recorded]:
    return [one for one in records if ".states." in one.topic]


async def in_lanes(fleet: Fleet) -> list[Any]:
    """Every record of the fleet's lanes."""
    found: list[Any] = []
    async with fleet.reader(fleet.names.state_topics()) as consumer:
        while polled := await consumer.getmany(timeout_ms=1500):
            found += [record for records in polled.values() for record in records]
    return found


async def test_states_of_one_fleet_are_answered_by_another_and_both_are_recorded(
    fleet: Fleet, probe: Path, tmp_path: Path
) -> None:
    """Keys, partitions, order and all bytes but the times are those of the recording; each answer is its state's."""
    original = record(tmp_path / "a.mcap", "elsewhere", states(300, 5))
    await fleet.worker(probe).ready()
    out = tmp_path / "b.mcap"
    said = await replay(fleet.settings, tmp_path / "a.mcap", "--out", out, *SLOW, "--json")
    told = json.loads(said)
    assert (told["sent"], told["answered"], told["unanswered"], told["not_in_topic"]) == (300, 300, [], [])
    assert told["took_s"] >= told["planned_s"] == 1.495
    assert not bookmarks(tmp_path)

    records = read(out)
    sent, answers = sent_in(records), [one for one in records if one.topic == fleet.names.actions]
    by_seq = {decode_state(one.value or b"").seq: one for one in sent}
    assert len(sent) == len(by_seq) == len(answers) == 300
    for before in original:
        state = decode_state(before.value or b"")
        after = by_seq[state.seq]
        assert (after.key, after.partition) == (before.key, before.partition)
        assert after.topic == before.topic.replace("elsewhere", fleet.settings.name)
        again = decode_state(after.value or b"")
        assert again.sent_us is not None and state.sent_us is not None and again.deadline_us is not None
        moved_us = again.sent_us - state.sent_us
        assert again.deadline_us - (state.deadline_us or 0) == moved_us
        assert abs(after.timestamp_ms - again.sent_us // 1000) < 5000
        assert encode_state(State(observation(state.seq), seq=state.seq, **times(again))) == after.value
    for answer in answers:
        action = decode_action(answer.value or b"")
        assert action.action.tolist() == observation(action.seq or 0).tolist()
    assert {one.headers[0][1] for one in sent} == {one.headers[0][1] for one in answers}


def times(state: State) -> dict[str, Any]:
    return {"sent_us": state.sent_us, "deadline_us": state.deadline_us}


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
async def test_a_replay_that_is_cut_off_goes_on_and_sends_every_state_once(
    fleet: Fleet, tmp_path: Path, how: signal.Signals
) -> None:
    """Stopped cleanly or killed at a moment that nobody chose; then the command that it named."""
    record(tmp_path / "a.mcap", "elsewhere", states(600, 5))
    out = tmp_path / "b.mcap"
    process = start(fleet.settings, tmp_path / "a.mcap", "--out", out, "--wait-s", 0)
    async with fleet.reader(fleet.names.state_topics()) as consumer:
        seen = 0
        while seen < 150:
            seen += sum(map(len, (await consumer.getmany(timeout_ms=100)).values()))
            assert process.poll() is None, process.communicate()
    process.send_signal(how)
    said = "".join(await asyncio.to_thread(process.communicate, timeout=60))
    assert process.returncode == (130 if how is signal.SIGINT else -9), said
    assert how is signal.SIGKILL or f"--resume {tmp_path / 'b.resume'}" in said
    assert 150 <= len(await in_lanes(fleet)) < 600

    said = await replay(fleet.settings, "--resume", tmp_path / "b.resume", *SLOW, code=1)
    assert "no answer: agent agent-" in said and "sent before it was cut off" in said
    numbers = Counter(dict(one.headers)["kafka_correlationId"][-8:] for one in await in_lanes(fleet))
    assert numbers == {number.to_bytes(8, "big"): 1 for number in range(600)}
    assert len(sent_in(read(out))) == 600
    assert not bookmarks(tmp_path)


@pytest.mark.slow
async def test_a_live_fleet_and_the_recorded_one_are_not_written_to_unless_asked(
    fleet: Fleet, probe: Path, tmp_path: Path
) -> None:
    """By name on its own cluster, by name and members on another, by members and traffic under another name."""
    name, cluster = fleet.settings.name, "another"
    record(tmp_path / "own.mcap", name, states(3, 1), cluster=cluster)
    await replay(fleet.settings, tmp_path / "own.mcap", "--no-answers", "--out", tmp_path / "a.mcap", *SLOW)
    await fleet.worker(probe).ready()
    said = await replay(fleet.settings, tmp_path / "own.mcap", "--out", tmp_path / "b.mcap", code=1)
    assert f"{name} is the fleet that was recorded (its groups have 3 members)" in said and "--yes" in said
    assert not bookmarks(tmp_path)
    before = len(await in_lanes(fleet))
    assert before == 3
    await replay(fleet.settings, tmp_path / "own.mcap", "--out", tmp_path / "b.mcap", "--yes", *SLOW)
    assert len(await in_lanes(fleet)) == 6

    record(tmp_path / "other.mcap", "elsewhere", states(3, 1))
    asking = asyncio.create_task(keep_asking(fleet))
    said = await replay(fleet.settings, tmp_path / "other.mcap", "--out", tmp_path / "c.mcap", code=1)
    asking.cancel()
    assert f"{name} is live: its groups have 3 members, and agents published" in said


async def keep_asking(fleet: Fleet) -> None:
    while True:
        await fleet.ask([("live", State(observation(1)))])
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_broker_that_is_killed_and_comes_back_loses_and_doubles_nothing(
    tmp_path: Path, fleet_name: str
) -> None:
    """The run is late, says so, and every state is there once."""
    cluster = start_broker(data_dir=tmp_path / "broker")
    try:
        settings = FleetSettings(name=fleet_name, kafka=KafkaSettings(bootstrap_servers=cluster.bootstrap_servers))
        await ensure_topics(settings)
        fleet = Fleet(settings, tmp_path)
        record(tmp_path / "a.mcap", "elsewhere", states(3000, 2))
        process = start(settings, tmp_path / "a.mcap", "--out", tmp_path / "b.mcap", "--wait-s", 2, "--json")
        async with fleet.reader(fleet.names.state_topics()) as consumer:
            seen = 0
            while seen < 500:
                seen += sum(map(len, (await consumer.getmany(timeout_ms=100)).values()))
                assert process.poll() is None, process.communicate()
        cluster.nodes[0].kill()
        await asyncio.to_thread(cluster.nodes[0].start)
        out, err = await asyncio.to_thread(process.communicate, timeout=120)
        assert process.returncode == 1, (out, err)
        told = json.loads(out)
        assert told["sent"] == 3000 and told["not_in_topic"] == [] and len(told["unanswered"]) == 3000
        assert told["invalid"] and told["acknowledged_late"]["max_ms"] > 500
        numbers = Counter(dict(one.headers)["kafka_correlationId"][-8:] for one in await in_lanes(fleet))
        assert numbers == {number.to_bytes(8, "big"): 1 for number in range(3000)}
    finally:
        cluster.stop()
