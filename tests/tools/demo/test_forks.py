"""Warm processes: forked from one that has imported torch, and as good as started ones."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.demo.child import Child, ProcessEnded, stop
from tools.demo.forks import Forks
from tools.demo.packages import find_package
from workers.models import ModelError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forks")


@pytest.fixture(scope="module")
def forks(folder: Path) -> Iterator[Forks]:
    """One nursery for all tests: it imports torch."""
    forks = Forks(folder)
    yield forks
    forks.close()


def _plan(steps: int) -> list[str]:
    """The words of a local player."""
    groups = [{"agents": [0], "steps": steps}]
    plan = {"environment": "CartPole-v1", "model": str(find_package("CartPole-v1")), "seed": 0, "groups": groups}
    return ["local", json.dumps(plan)]


FOR_HOURS = 10**9


def _ended(child: Child) -> int:
    give_up_at = time.monotonic() + 20
    while (code := child.exit_code) is None:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    return code


def test_a_fork_is_a_program_of_its_own(forks: Forks, folder: Path) -> None:
    """Its own words, streams and exit code; torch is there already."""
    child = forks.start("one", "local", _plan(steps=5), folder)
    assert "libtorch" in Path(f"/proc/{child.pid}/maps").read_text()
    assert _ended(child) == 0
    assert child.heard()[-1]["groups"][0][0]["steps"] == 5


def test_ctrl_c_does_not_reach_a_fork(forks: Forks, folder: Path) -> None:
    """It has a session of its own: the demo stops it in its turn."""
    child = forks.start("apart", "local", _plan(FOR_HOURS), folder)
    give_up_at = time.monotonic() + 20
    while not child.heard():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    assert os.getsid(child.pid) == child.pid
    assert stop([child], within_s=5.0) == []


def test_a_fork_can_be_a_worker_and_ends_like_one(forks: Forks, folder: Path) -> None:
    """The same command, with its exit code and its one line."""
    words = ["fleet", "worker", "--model", "/nowhere", "--http-port", "0"]
    child = forks.start("worker", "worker", words, folder)
    assert _ended(child) == ModelError.exit_code
    assert child.last_words().startswith("model package /nowhere: found nothing")


def test_a_fork_that_breaks_leaves_its_reason(forks: Forks, folder: Path) -> None:
    """In its log, as any process."""
    child = forks.start("broken", "local", ["local", "{}"], folder)
    assert _ended(child) == 1
    assert child.last_words() == "exit code 1; KeyError: 'model'"


def test_the_death_of_a_fork_is_noticed(forks: Forks, folder: Path) -> None:
    """It is the nursery's child, not ours; others go on."""
    killed, other = (forks.start(name, "local", _plan(FOR_HOURS), folder) for name in ("killed", "other"))
    os.kill(killed.pid, signal.SIGKILL)
    assert _ended(killed) == -signal.SIGKILL
    assert killed.last_words() == "killed by SIGKILL"
    assert other.exit_code is None
    assert stop([other], within_s=5.0) == []
    assert other.exit_code == -signal.SIGTERM


def test_forks_end_with_the_nursery(folder: Path) -> None:
    """However the demo ends: the nursery ends with it, and they with the nursery."""
    forks = Forks(folder)
    child = forks.start("orphan", "local", _plan(FOR_HOURS), folder)
    forks.close()
    assert _ended(child) == -signal.SIGTERM
    give_up_at = time.monotonic() + 10
    while Path(f"/proc/{child.pid}").exists() and "Z" not in Path(f"/proc/{child.pid}/stat").read_text():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    with pytest.raises(ProcessEnded, match="nursery ended"):
        forks.start("late", "local", _plan(FOR_HOURS), folder)
