"""Processes of the demo: heard line by line, stopped by pid, their last words understood."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.demo.child import STOPPING, Child, ProcessEnded, stop, uninterrupted


def _child(code: str, tmp_path: Path) -> Child:
    return Child("worker 1", ["-c", code], tmp_path / "child.log")


def _ended(child: Child) -> Child:
    give_up_at = time.monotonic() + 20
    while child.exit_code is None:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    return child


def test_it_waits_for_its_turn_and_is_heard(tmp_path: Path) -> None:
    """The address comes in as a line, JSON comes out, also when it is more than a pipe holds."""
    code = "import json, sys; print(json.dumps({'servers': sys.stdin.readline().strip(), 'long': 'x' * 300_000}))"
    child = _child(code, tmp_path)
    assert child.heard() == []
    child.give_turn("broker:1")
    heard = []
    while child.exit_code is None or not heard:
        heard += child.heard()
    assert [(told["servers"], len(told["long"])) for told in heard] == [("broker:1", 300_000)]


def test_the_line_for_people_is_its_last_error(tmp_path: Path) -> None:
    """Not the JSON logs before it."""
    code = "import sys; sys.stderr.write('{\"event\": 1}\\nerror: no model at x\\n'); sys.exit(1)"
    child = _ended(_child(code, tmp_path))
    assert str(ProcessEnded(child)) == f"worker 1 ended: no model at x (log: {tmp_path / 'child.log'})"


def test_without_an_error_line_it_says_how_it_ended(tmp_path: Path) -> None:
    """A killed process says nothing any more."""
    child = _child("import time; time.sleep(60)", tmp_path)
    child.signal(signal.SIGKILL)
    assert _ended(child).last_words() == "killed by SIGKILL"


def test_who_does_not_stop_is_killed_in_time(tmp_path: Path) -> None:
    """A worker that hangs must not keep the demo from ending."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{}', flush=True); time.sleep(60)"
    child = _child(deaf, tmp_path)
    while not child.heard():
        time.sleep(0.01)
    assert stop([child], within_s=0.1) == [child]
    assert _ended(child).exit_code == -signal.SIGKILL


def test_ctrl_c_waits_until_what_was_started_is_written_down() -> None:
    """Else the process would be nobody's: the interrupt comes behind the block, once, and not before."""
    started: list[str] = []
    before = [signal.getsignal(number) for number in STOPPING]
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        started.append("worker")
    assert started == ["worker"]
    assert [signal.getsignal(number) for number in STOPPING] == before


def test_a_process_started_in_such_a_block_still_hears_signals() -> None:
    """A mask or SIG_IGN would be inherited; then SIGTERM could not drain a worker."""
    with uninterrupted():
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    sleeper.send_signal(signal.SIGTERM)
    assert sleeper.wait(10) == -signal.SIGTERM
