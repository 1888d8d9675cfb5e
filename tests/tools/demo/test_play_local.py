"""Local play: as many steps as asked for, in batches that the model takes."""

from __future__ import annotations

import io
import json

import pytest

from tools.demo import play_local
from tools.demo.packages import find_package
from tools.demo.played import Played


def test_more_agents_than_the_largest_batch_are_played_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups with equally many steps are merged, so one can be larger than any batch of the model."""
    monkeypatch.setattr("sys.stdout", told := io.StringIO())
    groups = [{"agents": list(range(300)), "steps": 3}, {"agents": [300], "steps": 5}]
    plan = {"environment": "CartPole-v1", "model": str(find_package("CartPole-v1")), "seed": 0, "groups": groups}
    play_local.main(plan)
    lines = [json.loads(line) for line in told.getvalue().splitlines()]
    played = [Played.of_dict(one) for group in lines[-1]["groups"] for one in group]
    assert {one.agent: one.steps for one in played} == dict.fromkeys(range(300), 3) | {300: 5}
    assert lines[0]["decisions"] > 0, "it tells how it gets on"
