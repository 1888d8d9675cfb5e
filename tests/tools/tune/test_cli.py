"""`fleet tune` as people call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.broker import Cluster
from topics.settings import load_settings
from workers.settings import Settings

QUIET = ("--rate", "normal=100", "--simulated", "4000+100", "--max-predictors", "1", "--max-workers", "1")


def tune(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tools.cli import main; main()", "tune", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=110, check=False, env=os.environ | environment
    )


def test_it_writes_settings_and_json_and_a_plot(tmp_path: Path) -> None:
    """Without a broker where the round trip is given; standard output holds the JSON and nothing else."""
    file, plot = tmp_path / "fleet.toml", tmp_path / "rate.svg"
    words = ("--p99", "normal=50", *QUIET, "--round-trip-ms", "3", "--json", "--write", str(file), "--plot", str(plot))
    found = tune(*words, "--as-set")  # a search takes longer
    assert found.returncode == 0, found.stderr
    candidate = json.loads(found.stdout)["recommended"]["candidate"]
    assert load_settings(Settings, config=file).batch.max_batch == candidate["max_batch"]
    assert plot.read_text().lstrip().startswith("<?xml") or "<svg" in plot.read_text()


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("--p99", "urgent=1", "--rate", "high=1"), 2, "--p99 has 'urgent=1'"),
        (("--p99", "high=20", "--rate", "normal=100"), 2, "--p99 names high"),
        (("--p99", "high=20"), 2, "either --rate or --recording"),
        (("--p99", "high=20", "--rate", "high=9", "--simulated", "fast"), 2, "--simulated is 'fast'"),
        (("--p99", "high=20", "--rate", "high=9", "--write", "pyproject.toml"), 2, "pyproject.toml exists"),
        (("--p99", "normal=4", *QUIET), 1, "p99 of normal 4 ms is out of reach"),
        (("--p99", "normal=50", "--rate", "normal=100", "--model", "nowhere"), 4, "nowhere"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], code: int, line: str) -> None:
    """With an exit code that says what kind."""
    found = tune(*words, "--round-trip-ms", "3")
    assert found.returncode == code, found.stderr
    assert line in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.broker
def test_the_recommended_fleet_is_run_for_real(broker: Cluster) -> None:
    """The check answers every state and stands beside the prediction; whether this machine is quick enough is not the
    test's business."""
    words = ("--p99", "normal=3000", *QUIET, "--seconds", "2", "--check", "--json")
    found = tune(*words, FLEET_KAFKA__BOOTSTRAP_SERVERS=broker.bootstrap_servers)
    assert found.returncode == 0, found.stderr
    figures = json.loads(found.stdout)
    assert figures["round_trip"]["measured"] and figures["round_trip"]["cpu_us"] > 0
    assert figures["check"]["unanswered"] == 0 and figures["check"]["met"]
    assert figures["check"]["p50_ms"]["normal"] > 4
    assert "For real" in found.stderr
