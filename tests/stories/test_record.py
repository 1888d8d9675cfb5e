"""`fleet record` on a real broker: every record once, byte by byte, whatever happens to the recorder or the broker."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.structs import TopicPartition

from tests.stories.fleet import Fleet
from tests.stories.recorder import (
    ended,
    holding,
    ids,
    in_kafka,
    in_recording,
    kill_started,
    record,
    start,
    telling,
    write,
)
from tools.broker import start_broker
from tools.recording.read import Recording
from tools.recording.read_file import Gap
from topics.kafka import make_admin, make_producer, started
from topics.provision import ensure_topics
from topics.settings import FleetSettings, KafkaSettings

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def _nobody_is_left() -> Iterator[None]:
    yield
    kill_started()


ALL = ("--since", "beginning", "--until", "now")


async def write_transactions(fleet: Fleet) -> None:
    """One that is committed and one that is aborted, on one partition of the actions."""
    producer = make_producer(fleet.settings.kafka, client_id="story", transactional_id=fleet.settings.name)
    async with started(producer, fleet.settings.kafka):
        for value in (b"committed", b"aborted", b"committed later"):
            await producer.begin_transaction()
            await producer.send_and_wait(fleet.names.actions, value, key=b"agent-t", partition=3)
            await (producer.abort_transaction() if value == b"aborted" else producer.commit_transaction())


async def test_everything_is_recorded_byte_by_byte_and_the_same_command_goes_on(fleet: Fleet, tmp_path: Path) -> None:
    """All topics and partitions; no record of an aborted transaction; the second run adds what came since."""
    path = tmp_path / "recording"
    await write(fleet, 100)
    await write_transactions(fleet)
    summary = await record(fleet, path, *ALL)
    assert (summary["records"], summary["deleted"]) == (502, [])
    assert summary["offsets_without_record"] == 4  # three markers, and what was aborted
    assert (await record(fleet, path, *ALL))["records"] == 0
    await write(fleet, 20, first=100)
    assert (await record(fleet, path, *ALL))["records"] == 100
    held = await in_kafka(fleet)
    found = in_recording(path)
    assert ids(found) == sorted(held) and len(held) == 602
    assert all(held[one.topic, one.partition, one.offset] == one for one in found)
    assert [one.timestamp_ms for one in found] == sorted(one.timestamp_ms for one in found)
    assert Recording.open(path).complete


async def test_live_until_sigterm(fleet: Fleet, tmp_path: Path) -> None:
    """What comes after it has begun is recorded, what was before is not; nobody mends its file under its hands."""
    await write(fleet, 5)
    process = start(fleet, tmp_path / "live.mcap")
    await telling(process, "recording")
    await write(fleet, 30, first=5)
    await holding(tmp_path / "live.mcap", 150)
    _, said = await ended(start(fleet, tmp_path / "live.mcap", "--recover"), code=1)
    assert "live.mcap is being written: stop its recorder first" in said
    process.send_signal(signal.SIGTERM)
    out, _ = await ended(process)
    assert re.search(r"150 records", out)
    assert {one.value for one in in_recording(tmp_path / "live.mcap") if one.topic == fleet.names.actions} == {
        b"value %d" % at for at in range(5, 35)
    }


async def test_what_retention_deletes_meanwhile_is_told_and_is_exit_code_1(fleet: Fleet, tmp_path: Path) -> None:
    """Between two runs the cluster deletes what was not recorded yet: a gap with its offsets, never silence."""
    path = tmp_path / "recording"
    await write(fleet, 24)
    await record(fleet, path, *ALL)
    await write(fleet, 24, first=24)
    gone = TopicPartition(fleet.names.actions, 5)  # 0 and 1 are recorded, 2 and 3 are not
    async with started(make_admin(fleet.settings.kafka, client_id="story"), fleet.settings.kafka) as admin:
        await admin.delete_records({gone: RecordsToDelete(before_offset=3)})
    summary = await record(fleet, path, *ALL, code=1)
    assert summary["deleted"] == [{"topic": gone.topic, "partition": 5, "begin": 2, "end": 3}]
    assert [one.offset for one in in_recording(path) if (one.topic, one.partition) == gone] == [0, 1, 3]
    noted = [gap for file in Recording.open(path).files for gap in file.gaps]
    assert Gap(*gone, 2, 3, "deleted by the cluster before it could be read") in noted


async def test_filters_and_a_redaction_function(fleet: Fleet, tmp_path: Path) -> None:
    """The function sees what the filters leave, nothing else is written, and what was left out is not read again."""
    await write(fleet, 70)
    hook = tmp_path / "hook.py"
    hook.write_text(
        "def redact(record):\n"
        "    return None if record.value == b'value 2' else record._replace(value=b'', headers=())\n"
    )
    flags = ("--kind", "states", "--lane", "high", "--agent", "agent-[12]", "--redact", f"{hook}:redact")
    summary = await record(fleet, tmp_path / "few", *ALL, *flags)
    assert (summary["records"], summary["left_out"], summary["redacted_out"]) == (19, 50, 1)
    again = await record(fleet, tmp_path / "few", *ALL, *flags)
    assert (again["records"], again["left_out"], again["recording"]["files"]) == (0, 0, 1)
    found = in_recording(tmp_path / "few")
    assert {(one.topic, one.value, one.headers) for one in found} == {(fleet.names.states("high"), b"", ())}
    assert {one.key for one in found} == {b"agent-1", b"agent-2"}


async def test_a_recording_of_several_files_is_one_recording(fleet: Fleet, tmp_path: Path) -> None:
    """A new file after so many bytes, whichever way chunks are packed."""
    path = tmp_path / "several"
    await write(fleet, 500)
    summary = await record(fleet, path, *ALL, "--rotate-size", "100KB", "--compression", "none")
    assert summary["recording"]["files"] > 1
    assert ids(in_recording(path)) == sorted(await in_kafka(fleet))


async def test_offsets_of_single_partitions(fleet: Fleet, tmp_path: Path) -> None:
    """Both ends included; nothing else of the fleet is read."""
    await write(fleet, 60)
    asked = ("--offsets", "high:3:1-2", "--offsets", "actions:*:-0")
    await record(fleet, tmp_path / "some.mcap", *asked)
    high = [(fleet.names.states("high"), 3, offset) for offset in (1, 2)]
    first = [(fleet.names.actions, partition, 0) for partition in range(12)]
    assert ids(in_recording(tmp_path / "some.mcap")) == first + high


async def test_mistakes_are_one_line(fleet: Fleet, tmp_path: Path) -> None:
    """They name what was found and what to do."""
    await record(fleet, tmp_path / "there", *ALL)
    mistakes = [
        ("new", ("--since", "yesterday"), 2, "--since is 'yesterday', expected an age"),
        ("new", ("--until", "now"), 2, "--until is not after the present, where a new recording begins"),
        ("new", ("--offsets", "high:99:0-"), 2, "has partitions 0 to 11, found 99"),
        ("there", (*ALL, "--lane", "low"), 2, "was recorded with no filters, now lanes low: say the same"),
        ("new", ("--recover",), 1, "new does not exist"),
    ]
    processes = [start(fleet, tmp_path / path, *words) for path, words, _, _ in mistakes]
    for process, (_, _, code, line) in zip(processes, mistakes, strict=True):
        _, said = await ended(process, code)
        assert said.startswith("error: ") and said.count("\n") == 1 and line in said, said


@pytest.mark.slow
async def test_a_recorder_that_is_killed_leaves_a_readable_file_and_the_next_run_goes_on(
    fleet: Fleet, tmp_path: Path
) -> None:
    """SIGKILL twice while records come: the file can be read each time, and in the end each record is there once."""
    path = tmp_path / "recording"
    writing = asyncio.create_task(write_slowly(fleet, 4000))
    held = 0
    for _ in range(2):
        process = start(fleet, path, "--since", "beginning")
        await telling(process, "recording")
        await holding(path, held + 500)
        process.kill()
        await asyncio.to_thread(process.communicate)
        assert not Recording.open(path).complete
        held = len(in_recording(path))
    _, said = await ended(start(fleet, path, "--recover"))
    assert "mended" in said and Recording.open(path).complete
    await writing
    await record(fleet, path, *ALL)
    assert ids(in_recording(path)) == sorted(await in_kafka(fleet))


@pytest.mark.slow
async def test_a_broker_that_is_killed_and_comes_back_costs_no_record(tmp_path: Path) -> None:
    """The recorder waits, says so, and goes on where it was."""
    cluster = await asyncio.to_thread(start_broker, data_dir=tmp_path / "kafka")
    try:
        kafka = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)
        fleet = Fleet(FleetSettings(name="demo", kafka=kafka), tmp_path)
        await ensure_topics(fleet.settings)
        process = start(fleet, tmp_path / "recording", "--since", "beginning")
        await telling(process, "recording")
        await write(fleet, 50)
        await holding(tmp_path / "recording", 250)
        cluster.nodes[0].kill()
        await telling(process, "does not answer: waiting for it")
        await asyncio.to_thread(cluster.nodes[0].start)
        await asyncio.to_thread(cluster.wait_ready, 60)
        await write(fleet, 50, first=50)
        await telling(process, "the cluster answers again")
        await holding(tmp_path / "recording", 500)
        process.send_signal(signal.SIGINT)
        await ended(process)
        await record(fleet, tmp_path / "recording", "--until", "now")
        assert ids(in_recording(tmp_path / "recording")) == sorted(await in_kafka(fleet))
    finally:
        await asyncio.to_thread(cluster.stop)


async def write_slowly(fleet: Fleet, number: int) -> None:
    for first in range(0, number, 20):
        await write(fleet, 20, first=first)
