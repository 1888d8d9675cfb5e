"""The same agents, seeds and model without Kafka: each group plays as many steps as it did through the fleet.

Started by `proof`, one process per core, as `python -m tools.demo.play_local <JSON>`; tells `steps` now and then and
`groups` at the end. One forward pass per step of a group, as full as
the model takes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tools.demo.group import Group
from tools.demo.lines import run_process, tell
from tools.demo.played import Played
from workers.models import Model, load_model

TELL_EVERY_S: Final = 0.2


def main(plan: Mapping[str, Any]) -> None:
    """`plan`: environment, model (path), seed, and `groups`: agents and steps of each."""
    model = load_model(Path(plan["model"]), threads=1)
    model.warm_up()
    progress = Progress()
    groups = [
        play(model, plan["environment"], plan["seed"], agents, group["steps"], progress)
        for group in plan["groups"]
        for agents in batched(group["agents"], model.manifest.buckets[-1])
    ]
    tell(groups=[[played.as_dict() for played in group] for group in groups])


def play(model: Model, environment: str, seed: int, agents: list[int], steps: int, progress: Progress) -> list[Played]:
    """These agents' records after `steps` steps each."""
    (spec,) = model.manifest.inputs
    group = Group(environment, agents, seed, spec)
    for _ in range(steps):
        group.step(model.predict({spec.name: group.observations})["action"])
        progress.add(len(group))
    return group.played()


def batched(agents: list[int], most: int) -> list[list[int]]:
    """In parts of at most `most`: what one forward pass takes."""
    return [agents[at : at + most] for at in range(0, len(agents), most)]


class Progress:
    """Tells how many decisions have been played, a few times a second."""

    def __init__(self) -> None:
        self._played = 0
        self._next_s = 0.0

    def add(self, decisions: int) -> None:
        self._played += decisions
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + TELL_EVERY_S
            tell(decisions=self._played)


if __name__ == "__main__":
    sys.exit(run_process(main))
