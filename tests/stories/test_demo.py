"""The demo as a newcomer runs it: real agents, real workers, a real broker, and a proof that holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tools.broker import Cluster

pytestmark = [pytest.mark.broker]
FLEET = [sys.executable, "-c", "from tools.cli import main; main()"]


@pytest.fixture
def environment(broker: Cluster) -> dict[str, str]:
    """The session's broker is the user's cluster."""
    return {**os.environ, "FLEET_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers}


def test_every_lane_answers_and_the_proof_holds(environment: dict[str, str], tmp_path: Path) -> None:
    """32 agents, 3 s, two workers: nothing unanswered, and the same as without Kafka."""
    found = tmp_path / "demo.json"
    flags = ["demo", "--seconds", "3", "--agents", "32", "--json", str(found)]
    done = subprocess.run([*FLEET, *flags], env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(found.read_text())
    assert result["returns_equal"] is True
    assert result["unanswered"] == 0
    assert result["decisions_per_s"] > 0
    assert all(result["lanes"][lane]["answered"] > 0 for lane in ("high", "normal", "low")), result["lanes"]
    assert [worker["state"] for worker in result["workers"]] == ["drained", "drained"]
    assert sum(worker["decisions"] for worker in result["workers"]) >= result["decisions"]
    assert "equal those played locally" in done.stdout
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_every_process_within_5_s(environment: dict[str, str]) -> None:
    """By pid, wherever the demo is; the exit code is that of an interrupted command."""
    command = [*FLEET, "demo", "--seconds", "60", "--agents", "16", "--workers", "1"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as demo:
        children = _children_once_there(demo.pid, 2)
        began_s = time.monotonic()
        demo.send_signal(signal.SIGINT)
        output, _ = demo.communicate(timeout=30)
        assert time.monotonic() - began_s < 5
    assert demo.returncode == 130, output
    assert "Traceback" not in output
    assert not [child for child in children if child.is_running()]


def test_attached_to_a_fleet_that_is_not_there_it_says_so(environment: dict[str, str], fleet_name: str) -> None:
    """One line that names what is missing."""
    command = [*FLEET, "demo", "--attach", "--fleet", fleet_name, "--agents", "4"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert f"topic {fleet_name}.states.high (and 3 more) is missing" in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def _children_once_there(pid: int, count: int) -> list[psutil.Process]:
    give_up_at = time.monotonic() + 30
    while time.monotonic() < give_up_at:
        children = psutil.Process(pid).children()
        if len(children) >= count:
            return children
        time.sleep(0.05)
    raise AssertionError(f"{count} children did not come")
