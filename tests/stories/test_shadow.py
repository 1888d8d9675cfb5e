"""A candidate decides beside the live fleet: the same states, a topic of its own, and no agent notices."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stories.fleet import Fleet, states
from tests.stories.models import write_package
from topics.provision import ensure_topics
from topics.records import State
from topics.wire import encode_state

pytestmark = pytest.mark.broker


async def test_a_shadow_answers_to_its_own_topic_alone(fleet: Fleet, probe: Path, tmp_path: Path) -> None:
    """From when it joined, each state once, also bad ones; live answers, letters and offsets are as without it."""
    live = await fleet.worker(probe).ready()
    before = await fleet.ask(states(5, 2))
    await fleet.answers(before)
    beside = Fleet(fleet.settings.model_copy(update={"shadow": True}), tmp_path / "shadow")
    (tmp_path / "shadow").mkdir()
    await ensure_topics(beside.settings)
    shadow = await beside.worker(candidate(tmp_path), FLEET_SHADOW="true").ready()
    try:
        first = await fleet.ask(states(50, 1))
        while not await beside.answers(first, 0.5):  # its positions are known a moment after it has joined
            first |= await fleet.ask(states(50, 1))
        sent = [*states(20, 3), ("bad", encode_state(State(np.zeros(5, np.float32), seq=9)))]
        asked = await fleet.ask(sent)
        answered, shadowed = await fleet.answers(asked), await beside.answers(asked, extra_s=1.0)
        assert asked.keys() <= shadowed.keys() and not before.keys() & shadowed.keys()
        assert not shadowed.doubled
        for correlation in asked:
            (ours,), (theirs,) = answered[correlation], shadowed[correlation]
            assert (ours.outcome, ours.seq) == (theirs.outcome, theirs.seq)
            assert answered.keys_of[correlation] == shadowed.keys_of[correlation]
        models = {action.model for actions in shadowed.values() for action in actions}
        assert models == {"probe v2"}
        assert {action.model for actions in answered.values() for action in actions} == {"probe v1"}
        assert len(await fleet.dead_letters(1)) == 1, "the live worker's; a shadow writes none"
        compared = await compared_live(fleet)
        assert compared["agreement"] == 1.0 and compared["pairs"] >= 40, compared
        assert compared["models"] == [["probe v1"], ["probe v2"]]
        assert shadow.events("assigned") and not live.events("revoked"), "its groups are its own"
    finally:
        beside.close()


def candidate(folder: Path) -> Path:
    """The probe, as its next version."""
    path = write_package(folder / "candidate")
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": "1"', '"version": "2"'))
    return path


async def compared_live(fleet: Fleet) -> dict[str, Any]:
    """What `fleet diff --live` finds while states come."""
    words = ["diff", "--live", "--seconds", "6", "--json", "--fleet", fleet.settings.name]
    servers = fleet.settings.kafka.bootstrap_servers
    command = [sys.executable, "-c", "from tools.cli import main; main()", *words, "--bootstrap-servers", servers]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    ended = asyncio.ensure_future(process.communicate())
    while not ended.done():
        await fleet.ask(states(20, 1))
        await asyncio.sleep(0.2)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(ended.result()[0])
    return found
