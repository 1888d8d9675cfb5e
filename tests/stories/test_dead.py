"""`fleet dead` on a real broker: letters are found, sent again exactly once, and a second failure is seen as such."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.stories.fleet import Fleet, observation
from tests.stories.models import write_package
from tools.dead.notes import Note, encode_note
from topics.kafka import make_producer, started
from topics.letters import NOTE, PREFIX, decode_history
from topics.outbox import Outbox
from topics.records import State
from topics.wire import encode_state

pytestmark = pytest.mark.broker

COMMAND = [sys.executable, "-c", "from tools.cli import main; main()", "dead"]


def start(fleet: Fleet, *words: str) -> subprocess.Popen[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FLEET_")}
    at = ("--fleet", fleet.settings.name, "--bootstrap-servers", fleet.settings.kafka.bootstrap_servers)
    environment = variables | {"COLUMNS": "200"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *words, *at], env=environment, **pipes)


async def dead(fleet: Fleet, *words: str, code: int = 0) -> str:
    """What `fleet dead …` prints; its stderr if it should fail."""
    process = start(fleet, *words)
    out, err = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == code, (out, err)
    return out if code == 0 else err


async def lines(fleet: Fleet, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await dead(fleet, *words, "--json")).splitlines()]


async def write_letters(fleet: Fleet, number: int, lane: str = "low") -> None:
    """Letters as a worker writes them, for lanes that no worker reads."""
    topic = f"{fleet.settings.name}.states.{lane}"
    async with started(make_producer(fleet.settings.kafka, client_id="story"), fleet.settings.kafka) as producer:
        outbox = Outbox(producer)
        for at in range(number):
            facts = {"reason": "model_error", "topic": topic, "partition": "0", "offset": str(at), "attempts": "1"}
            ours = [(PREFIX + name, text.encode()) for name, text in facts.items()]
            headers = [("kafka_correlationId", b"%08d" % at), *ours]
            value = encode_state(State(observation(at), seq=at))
            outbox.add(fleet.names.dead, 0, b"agent-%d" % (at % 7), value, headers)
        await outbox.flush(30.0)


async def in_lane(fleet: Fleet, lane: str = "low") -> list[Any]:
    """Every record of a lane."""
    found: list[Any] = []
    async with fleet.reader([f"{fleet.settings.name}.states.{lane}"]) as consumer:
        while polled := await consumer.getmany(timeout_ms=1500):
            found += [record for records in polled.values() for record in records]
    return found


async def test_a_letter_is_redriven_fails_again_and_is_answered_by_a_model_that_can(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Poison, a second failure with its history, then a redrive to a worker with a better model."""
    failing = await fleet.worker(write_package(tmp_path / "failing", raises_on=-666.0)).ready()
    asked = await fleet.ask(
        [
            ("guilty", State(observation(-666.0), seq=5)),
            ("broken", b"\xc1 not a state"),
            ("good", State(observation(1))),
        ]
    )
    await fleet.answers(asked)
    listed = {line["agent"]: line for line in await lines(fleet, "list")}
    assert listed.keys() == {"guilty", "broken"}
    assert (listed["guilty"]["reason"], listed["guilty"]["attempts"]) == ("model_error", 1)

    assert [line["outcome"] for line in await lines(fleet, "redrive", "--agent", "guil*", "--dry-run")] == [
        "would_send"
    ]
    assert await lines(fleet, "redrive", "--agent", "guil*") == [
        {
            "letter": listed["guilty"]["letter"],
            "outcome": "sent",
            "agent": "guilty",
            "reason": "model_error",
            "attempts": 1,
            "topic": fleet.names.states("normal"),
            "partition": listed["guilty"]["partition"],
        }
    ]
    records = await fleet.dead_letters(6)  # three letters, and the notes begin, sending, end
    second = [record for record in records if record.key == b"guilty"][-1]
    headers = dict(second.headers)
    assert headers["fleet_dead-attempts"] == b"2" and headers["kafka_correlationId"] in asked
    (before,) = decode_history(headers["fleet_dead-history"])
    assert (before.reason, before.offset) == ("model_error", listed["guilty"]["offset"])
    failing.kill()

    await fleet.worker(write_package(tmp_path / "well")).ready()
    again = {line["letter"]: line for line in await lines(fleet, "list", "--agent", "guilty")}
    assert [line["redriven"] for line in again.values()] == [True, False]
    assert "guilty" in await dead(fleet, "show", f"{second.partition}:{second.offset}")
    said = await dead(fleet, "redrive", "--reason", "model_error")
    assert "sent 1 letters again" in said and "left out 1 that were redriven" in said
    guilty = next(correlation for correlation, agent in asked.items() if agent == "guilty")
    give_up = time.monotonic() + 30
    while (found := (await fleet.answers({guilty: "guilty"}))[guilty])[-1].outcome != "action":
        assert time.monotonic() < give_up, found
    assert found[-1].action.tolist() == observation(-666.0).tolist() and found[-1].seq == 5
    (broken, *_) = await lines(fleet, "count", "--reason", "undecodable")
    assert broken == {"reason": "undecodable", "lane": "normal", "letters": 1, "redriven": 0}


@pytest.mark.parametrize("flags", [(), pytest.param(("--again",), marks=pytest.mark.slow)])
async def test_a_redrive_that_is_killed_in_the_middle_goes_on_and_sends_every_letter_once(
    fleet: Fleet, flags: tuple[str, ...]
) -> None:
    """SIGKILL at a moment that nobody chose; then the same command."""
    await write_letters(fleet, 300)
    process = start(fleet, "redrive", "--rate", "100/s", "--json", *flags)
    assert process.stdout is not None
    for _ in range(60):
        await asyncio.to_thread(process.stdout.readline)
    process.kill()
    await asyncio.to_thread(process.communicate)
    assert 0 < len(await in_lane(fleet)) < 300
    said = await dead(fleet, "redrive", *flags)
    sent = Counter(dict(record.headers)["kafka_correlationId"] for record in await in_lane(fleet))
    assert sent == {b"%08d" % at: 1 for at in range(300)}
    assert "again" in said
    assert all(line["redriven"] is True for line in await lines(fleet, "list"))
    assert "sent 0 letters again" in await dead(fleet, "redrive")


async def test_letters_keep_their_bytes_their_order_and_their_own_headers(fleet: Fleet) -> None:
    """What goes back to the lane is what came from it."""
    await write_letters(fleet, 50)
    await dead(fleet, "redrive", "--limit", "40", "--rate", "1000")
    letters = {dict(one.headers)["kafka_correlationId"]: one for one in await fleet.dead_letters(50) if one.key}
    sent = await in_lane(fleet)
    assert len(sent) == 40
    for record in sent:
        letter = letters[record.headers[0][1]]
        assert (record.key, record.value) == (letter.key, letter.value)
        assert [name for name, _ in record.headers if name.startswith(PREFIX)] == [
            "fleet_dead-attempts",
            "fleet_dead-history",
            "fleet_dead-letter",
            "fleet_dead-run",
        ]
    for partition in {record.partition for record in sent}:
        order = [record.headers[0][1] for record in sent if record.partition == partition]
        assert order == sorted(order)


@pytest.mark.parametrize("arrived", [0, 1])
@pytest.mark.slow
async def test_a_batch_that_is_noted_but_not_acknowledged_is_settled_by_what_the_lane_holds(
    fleet: Fleet, arrived: int
) -> None:
    """The two sides of the only doubtful moment: killed before the letters left, or after they arrived."""
    await write_letters(fleet, 2)
    positions = {f"{fleet.names.states('low')}:{number}": 0 for number in range(12)}
    notes = [Note("begin", "dead-run"), Note("sending", "dead-run", 0, (0, 1), positions)]
    async with started(make_producer(fleet.settings.kafka, client_id="story"), fleet.settings.kafka) as producer:
        outbox = Outbox(producer)
        for note in notes:
            outbox.add(fleet.names.dead, 0, None, encode_note(note), [(NOTE, b"1")])
        for offset in range(arrived):
            marks = [(PREFIX + "letter", b"0:%d" % offset), (PREFIX + "run", b"dead-run")]
            headers = [("kafka_correlationId", b"%08d" % offset), *marks]
            outbox.add(fleet.names.states("low"), 3, b"agent", b"state", headers)
        await outbox.flush(30.0)
    assert [line["redriven"] for line in await lines(fleet, "list")] == ["perhaps", "perhaps"]
    said = await dead(fleet, "redrive")
    assert f"sent {2 - arrived} letters again" in said
    sent = Counter(record.headers[0][1] for record in await in_lane(fleet))
    assert sent == {b"00000000": 1, b"00000001": 1}


@pytest.mark.slow
async def test_two_redrives_do_not_run_at_once(fleet: Fleet) -> None:
    """The second one sees that the first lives, and says so."""
    await write_letters(fleet, 40)
    first = start(fleet, "redrive", "--rate", "2/s", "--json")
    assert first.stdout is not None
    await asyncio.to_thread(first.stdout.readline)
    said = await dead(fleet, "redrive", code=1)
    assert "error: redrive" in said and "is at work" in said
    assert first.poll() is None
    first.kill()
    await asyncio.to_thread(first.communicate)


@pytest.mark.slow
async def test_a_redrive_that_was_asleep_while_another_took_over_stops(fleet: Fleet) -> None:
    """SIGSTOP, a second redrive that does all the work, SIGCONT: the first one sends nothing more, and says why."""
    await write_letters(fleet, 30)
    first = start(fleet, "redrive", "--rate", "4/s", "--json")
    assert first.stdout is not None
    for _ in range(2):
        await asyncio.to_thread(first.stdout.readline)
    await asyncio.sleep(0.2)  # within the pause between two batches
    first.send_signal(signal.SIGSTOP)
    await dead(fleet, "redrive")
    first.send_signal(signal.SIGCONT)
    _, said = await asyncio.to_thread(first.communicate, timeout=30)
    assert first.returncode == 1 and "another one took over its work" in said, said
    sent = Counter(dict(record.headers)["kafka_correlationId"] for record in await in_lane(fleet))
    twice = [correlation for correlation, times in sent.items() if times > 1]
    assert len(sent) == 30 and (not twice or "sent twice" in said)


async def test_mistakes_are_one_line(fleet: Fleet) -> None:
    """They name what was found and what to do."""
    for words, code, line in [
        (("show", "17"), 2, "letter is '17', expected PARTITION:OFFSET"),
        (("show", "0:5"), 2, "there is no letter 0:5: partition 0 of"),
        (("show", "7:5"), 2, "has partitions 0 to 0, found 7"),
        (("list", "--since", "yesterday"), 2, "--since is 'yesterday', expected an age"),
        (("count", "--lane", "urgent"), 2, "--lane is 'urgent', expected one of high, normal, low"),
        (("redrive", "--rate", "0"), 2, "--rate is '0', expected letters per second"),
        (("list", "--fleet", "no-such-fleet"), 3, "topic no-such-fleet.dead is missing on"),
    ]:
        said = await dead_as_typed(fleet, *words, code=code)
        assert said.startswith("error: ") and said.count("\n") == 1 and line in said, said


async def dead_as_typed(fleet: Fleet, *words: str, code: int) -> str:
    if "--fleet" in words:
        fleet = Fleet(fleet.settings.model_copy(update={"name": words[-1]}), Path())
        words = words[:-2]
    return await dead(fleet, *words, code=code)
