"""Who may be written to without --yes."""

from __future__ import annotations

from typing import Any

import pytest

from tools.replay.target import Target, refusal


def target(**changes: Any) -> Target:
    return Target(
        **({"fleet": "t", "cluster": "c", "partitions": {}, "ends": {}, "members": 0, "others_states": 0} | changes)
    )


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (target(fleet="own", cluster="own"), "own is the fleet that was recorded (no worker is at work)"),
        (target(fleet="own", cluster="own", members=3), "(its groups have 3 members)"),
        (target(fleet="own", members=3), "own is the fleet that was recorded"),
        (target(members=3, others_states=2), "t is live: its groups have 3 members, and agents published 2 states"),
    ],
)
def test_the_recorded_fleet_and_a_live_one_are_refused(found: Target, text: str) -> None:
    """With what was found and what to do."""
    why = refusal(found, "own", "own")
    assert why is not None and text in why and "--yes" in why


@pytest.mark.parametrize("found", [target(), target(members=6), target(others_states=5), target(fleet="own")])
def test_nobody_is_disturbed_elsewhere(found: Target) -> None:
    """A test fleet with workers of its own; the fleet's name on a cluster where nobody works."""
    assert refusal(found, "own", "own") is None
