"""`fleet bench peers`, small: the figures mean nothing, everything else does. Only where an environment is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.bench.peers.environment import COMPLETE
from tools.bench.peers.systems import chosen
from tools.broker import Cluster
from tools.broker.paths import cache_folder


def peers(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tools.cli import main; main()", "bench", "peers", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=110, check=False, env=os.environ | environment
    )


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize(("name", "benchmark"), [("faststream", "drain"), ("mosec", "closed")])
def test_a_system_does_the_job(broker: Cluster, tmp_path: Path, name: str, benchmark: str) -> None:
    """One pair: it answers, the worker answers, and the promised keys are there."""
    if not (cache_folder() / "peers" / chosen(name)[0].folder / COMPLETE).exists():
        pytest.skip(f"fleet bench peers --only {name} makes its environment")
    file = tmp_path / "peers.json"
    words = ("--only", name, "--rounds", "1", "--records", "6000", "--seconds", "1", "--agents", "32")
    found = peers(*words, "--json", str(file), FLEET_KAFKA__BOOTSTRAP_SERVERS=broker.bootstrap_servers)
    assert found.returncode == 0, found.stderr
    figures = json.loads(file.read_text())[benchmark][name]
    assert "failed" not in figures, figures
    assert {"decisions_per_s", "ratio", "ratio_min", "ratio_max", "fleet_decisions_per_s", "version"} <= set(figures)
    assert name in found.stdout


def test_an_unknown_system_is_named_before_anything_starts() -> None:
    """One line, exit code 2."""
    found = peers("--only", "triton")
    assert found.returncode == 2, found.stderr
    assert "--only has 'triton'" in found.stderr
