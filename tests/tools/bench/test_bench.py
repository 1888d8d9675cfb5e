"""`fleet bench` on a real broker, small: the figures mean nothing, everything else does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.broker import Cluster


def bench(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tools.cli import main; main()", "bench", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=90, check=False, env=os.environ | environment
    )


@pytest.mark.broker
def test_drain_answers_everything_and_writes_its_json(broker: Cluster, tmp_path: Path) -> None:
    """One pair of runs: both sides drain the same backlog, and the promised keys are there."""
    file = tmp_path / "drain.json"
    words = ("drain", "--records", "6000", "--rounds", "1", "--json", str(file))
    found = bench(*words, FLEET_KAFKA__BOOTSTRAP_SERVERS=broker.bootstrap_servers)
    assert found.returncode == 0, found.stderr
    figures = json.loads(file.read_text())
    keys = {"decisions_per_s", "bare_decisions_per_s", "ratio", "ratio_min", "ratio_max", "cpu_us_per_decision"}
    assert keys | {"bare_cpu_us_per_decision"} <= set(figures)
    assert figures["decisions_per_s"] > 0
    assert "drain" in found.stdout


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("open", "--mix", "urgent=1"), 2, "--mix has 'urgent=1'"),
        (("open", "--arrivals", "bursty"), 2, "--arrivals is 'bursty'"),
        (("drain", "--model", "nowhere"), 4, "nowhere"),
        (("idle", "--bootstrap-servers", "127.0.0.1:1"), 3, "127.0.0.1:1"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], code: int, line: str) -> None:
    """Before anything is started, with an exit code that says what kind."""
    found = bench(*words)
    assert found.returncode == code, found.stderr
    assert line in found.stderr
    assert found.stderr.count("\n") == 1
