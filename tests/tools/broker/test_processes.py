"""Processes are known by pid and start time, and end with us unless they are detached."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.broker.processes import NO_PROCESS, Process, launch

SLEEP = ["sleep", "60"]


def wait_for(file: Path) -> str:
    give_up_at = time.monotonic() + 20
    while not (file.exists() and file.read_text().strip()):
        assert time.monotonic() < give_up_at, f"{file} is not written"
        time.sleep(0.02)
    return file.read_text()


def test_a_started_process_is_alive_until_it_is_killed(tmp_path: Path) -> None:
    """The simple life of a process, without a zombie at its end."""
    process = launch(SLEEP, tmp_path / "log", detached=False)
    assert process.is_alive
    assert process.kill()
    assert not process.is_alive


def test_a_recycled_pid_is_another_process() -> None:
    """The pid lives, but it began at another time: it is not ours, and no signal goes to it."""
    stranger = Process(os.getpid(), "some-other-time")
    assert not stranger.is_alive
    assert not stranger.signal(0)


def test_no_process_is_not_alive() -> None:
    """Pid 0 would mean our own process group."""
    assert not NO_PROCESS.is_alive
    assert not NO_PROCESS.signal(0)


def test_waiting_is_bounded(tmp_path: Path) -> None:
    """A process that does not end is reported, not waited for."""
    process = launch(SLEEP, tmp_path / "log", detached=False)
    assert not process.wait(within_s=0.1)
    assert process.kill()


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    """Both streams, in one file."""
    process = launch(["sh", "-c", "echo out; echo err >&2"], tmp_path / "log", detached=True)
    assert process.wait(10)
    assert (tmp_path / "log").read_text() == "out\nerr\n"


STARTER = """
import os, sys
from pathlib import Path
from tools.broker.processes import launch
process = launch(["sleep", "60"], Path(sys.argv[1], "log"), detached=sys.argv[2] == "detached")
Path(sys.argv[1], "pid").write_text(f"{process.pid} {process.began}")
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's end")
@pytest.mark.parametrize("how", ["attached", "detached"])
def test_a_process_outlives_its_killed_starter_only_when_detached(tmp_path: Path, how: str) -> None:
    """Even SIGKILL of a test run leaves no broker behind; `fleet broker start` does leave one."""
    starter = subprocess.Popen([sys.executable, "-c", STARTER, tmp_path, how], stdin=subprocess.PIPE)
    pid, began = wait_for(tmp_path / "pid").split()
    process = Process(int(pid), began)
    assert process.is_alive
    starter.kill()
    starter.communicate()
    assert process.wait(within_s=5.0 if how == "attached" else 0.3) == (how == "attached")
    process.kill()
