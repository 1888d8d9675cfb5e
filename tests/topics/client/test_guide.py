"""The programs in docs/agents.md run as they stand."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import msgpack
import numpy as np
import pytest

from tests.topics.client.echo import Arrived, running
from topics.settings import FleetSettings

GUIDE = Path(__file__).parents[3] / "docs" / "agents.md"
PROGRAMS = dict(re.findall(r"^## ([^\n]*)\n(?:(?!^## ).)*?^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S))


def cartpole(arrived: Arrived) -> list[bytes]:
    """An action that CartPole takes: plain for agents that are."""
    return [arrived.action(1 if isinstance(arrived.state.observation, list) else np.array(1))]


def test_the_guide_has_its_programs() -> None:
    """A heading that was renamed must not switch its test off."""
    assert sorted(PROGRAMS) == [
        "A blocking loop",
        "Any other Kafka client",
        "Many agents: vector environments",
        "One agent",
    ]


@pytest.mark.broker
@pytest.mark.parametrize("title", sorted(PROGRAMS))
async def test_a_program_of_the_guide_runs(fleet: FleetSettings, title: str, tmp_path: Path) -> None:
    """Only the fleet's name and address are put in; exit code 0, nothing on stderr."""
    if "gymnasium" in PROGRAMS[title]:
        pytest.importorskip("gymnasium")
    servers = fleet.kafka.bootstrap_servers
    program = PROGRAMS[title].replace("127.0.0.1:9092", servers).replace('"cartpole"', repr(fleet.name))
    environment = os.environ | {"FLEET_KAFKA__BOOTSTRAP_SERVERS": servers, "PYTHONPATH": str(GUIDE.parents[1])}

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)

    async with running(fleet, cartpole) as worker:
        done = await asyncio.to_thread(run)
        assert (done.returncode, done.stderr) == (0, "")
        assert worker.seen
    if title == "Any other Kafka client":
        assert done.stdout.splitlines() == ["action 1 None"] * 3


def test_the_guides_tensor_is_ours() -> None:
    """The last snippet of the guide writes what the wire reads."""
    from topics.wire import decode_state

    snippet = GUIDE.read_text().rsplit("```python\n", 1)[1].split("```")[0]
    names: dict[str, object] = {}
    exec(snippet, names)
    state = decode_state(names["value"])  # type: ignore[arg-type]
    np.testing.assert_array_equal(state.observation, np.zeros(4, np.float32))
    assert msgpack.unpackb(names["value"], strict_map_key=False)["v"] == 1  # type: ignore[arg-type]
