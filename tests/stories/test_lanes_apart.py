"""Pools of workers for some lanes each, as the chart makes them, and `fleet ask` that looks whether all answer."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from tests.stories.fleet import Fleet
from tools.demo.packages import find_package

CARTPOLE = find_package("CartPole-v1")
pytestmark = pytest.mark.broker


async def asked(fleet: Fleet, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and answers of `fleet ask`."""
    words = ["ask", "--json", "--model", str(CARTPOLE), "--fleet", fleet.settings.name, *arguments]
    words += ["--bootstrap-servers", fleet.settings.kafka.bootstrap_servers]
    command = [sys.executable, "-c", "from tools.cli import main; main()", *words]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return process.returncode or 0, json.loads(out)


async def test_each_worker_answers_its_lanes_and_no_other(fleet: Fleet) -> None:
    """A lane that nobody serves waits, and is answered once a worker for it has come."""
    await fleet.worker(CARTPOLE, FLEET_WORKER="urgent", FLEET_SERVE='["high"]').ready()
    code, answers = await asked(fleet, "--timeout", "1")
    assert code == 1
    assert [(answer["lane"], answer["right"]) for answer in answers] == [
        ("high", True),
        ("normal", False),
        ("low", False),
    ]
    assert answers[1]["reason"] == "no answer within 1 s"
    await fleet.worker(CARTPOLE, FLEET_WORKER="rest", FLEET_SERVE='["low", "normal"]').ready()
    code, answers = await asked(fleet)
    assert code == 0
    assert [(answer["lane"], answer["worker"]) for answer in answers] == [
        ("high", "urgent"),
        ("normal", "rest"),
        ("low", "rest"),
    ]
