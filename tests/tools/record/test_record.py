"""A run: what is in the files by when, however it goes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from aiokafka.structs import ConsumerRecord, TopicPartition
from rich.console import Console

from tools.record import record as module
from tools.record.keep import Keep
from tools.record.progress import Reporter
from tools.record.record import GONE, NOTHING, Run
from tools.record.redact import RedactionError
from tools.record.source import Deleted
from tools.record.spans import Spans
from tools.record.target import Target
from tools.record.wanted import Wanted
from tools.recording.read import Recording
from tools.recording.read_file import Gap
from tools.recording.recorded import Recorded
from tools.recording.selection import Selection
from topics.settings import FleetSettings

A = TopicPartition("demo.actions", 0)


class FakeSource:
    """Polls that are told beforehand: (offsets, position after them), or a function that does something first."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.positions = {A: 5}
        self.deleted: list[Deleted] = []
        self.bounded = True

    @property
    def done(self) -> bool:
        return not self.script

    async def poll(self) -> dict[TopicPartition, list[Any]]:
        step = self.script.pop(0)
        if callable(step):
            step(self)
            return {}
        offsets, self.positions[A] = step
        return {A: [ConsumerRecord(*A, offset, 1000, 0, b"k", b"v", None, 1, 1, ()) for offset in offsets]}

    def lag(self) -> int:
        return 0


def run_of(path: Path, source: FakeSource, redact: Any = None) -> Run:
    writer = Target(path).writer(FleetSettings(name="demo"), "c", Spans({"demo.actions": 1}, dict(source.positions)))
    reporter = Reporter("test", console=Console(file=io.StringIO()))
    return Run(source, Keep(Selection(), redact), writer, Wanted(("demo.actions",)), reporter)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _flushed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_EVERY_S", 0.0)


async def test_what_was_deleted_is_in_a_finished_file_while_the_run_goes_on(tmp_path: Path) -> None:
    """A recorder that is killed later has told it all the same."""
    seen: list[list[Gap]] = []

    def delete(source: FakeSource) -> None:
        source.deleted.append(Deleted(*A, 6, 9))
        source.positions[A] = 9

    def look(_: FakeSource) -> None:
        seen.append(Recording.open(tmp_path / "r").files[0].gaps)

    run = run_of(tmp_path / "r", FakeSource(([5], 6), delete, look, ([9, 10], 11)))
    await run.read()
    assert seen == [[Gap(*A, 6, 9, GONE)]]
    run.finish(begun_anew=True)
    recording = Recording.open(tmp_path / "r")
    assert (recording.complete, len(recording.files), recording.counts, run.written) == (True, 2, {A: 3}, 3)


async def test_what_lies_behind_the_last_record_is_noted_at_the_end(tmp_path: Path) -> None:
    """A run that finds nothing new leaves no file, unless it is the recording's first."""
    run = run_of(tmp_path / "r", FakeSource(([5], 8)))
    await run.read()
    run.finish(begun_anew=True)
    assert Recording.open(tmp_path / "r").files[0].gaps == [Gap(*A, 6, 8, NOTHING)]
    run_of(tmp_path / "r", FakeSource()).finish(begun_anew=False)
    assert len(Recording.open(tmp_path / "r").files) == 1
    run_of(tmp_path / "new", FakeSource()).finish(begun_anew=True)
    assert Recording.open(tmp_path / "new").counts == {}


async def test_a_redaction_function_that_fails_ends_the_run_in_front_of_what_it_has_not_seen(tmp_path: Path) -> None:
    """The next run reads on from there: what is not written is not noted as passed either."""

    def redact(record: Recorded) -> Recorded:
        if record.offset == 7:
            raise RedactionError("cannot redact")
        return record

    run = run_of(tmp_path / "r", FakeSource(([5, 6], 7), ([7, 8], 9)), redact)
    with pytest.raises(RedactionError):
        await run.read()
    run.finish(begun_anew=True)
    recording = Recording.open(tmp_path / "r")
    assert recording.counts == {A: 2} and recording.files[0].gaps == []
