"""The proof: the same seeds, played locally with the same model package, come out the same to the last digit."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.demo.child import Child, ProcessEnded, stop, uninterrupted
from tools.demo.played import Played
from topics.errors import FleetError

MOST_PROCESSES: Final = 8
DECISIONS_WORTH_A_PROCESS: Final = 50_000
"""1 s of play; importing torch takes 2 s."""
POLL_S: Final = 0.05

Share = list[dict[str, Any]]
"""Groups (agents, steps) that one process plays."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the comparison found."""

    equal: bool
    agents: int
    episodes: int
    """Finished ones."""
    decisions: int
    seconds: float
    mismatch: str = ""
    """The first agent that differs, in words."""


def prove(plan: dict[str, Any], played: Sequence[Played], folder: Path, on_progress: Callable[[int], None]) -> Proof:
    """Play again what `played` says, on all cores. `plan`: environment, model, seed.

    `on_progress` hears how many decisions have been played so far.

    Raises:
        FleetError: a process ended without a result.
    """
    began_s = time.monotonic()
    shares = share_out(played, processes(sum(one.steps for one in played)))
    children: list[Child] = []
    try:
        with uninterrupted():
            for n, share in enumerate(shares, start=1):
                words = ["-m", "tools.demo.play_local", json.dumps({**plan, "groups": share})]
                children.append(Child(f"local-{n}", words, folder / f"local-{n}.log"))
        local = _gathered(children, on_progress)
    finally:
        stop(children, within_s=1.0)
    return compare(played, local, time.monotonic() - began_s)


def processes(decisions: int) -> int:
    """As many as we may use cores and as are worth the import of torch, within reason."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, MOST_PROCESSES, decisions // DECISIONS_WORTH_A_PROCESS + 1)


def share_out(played: Sequence[Played], shares: int) -> list[Share]:
    """Agents with equally many steps play together; each share gets about as many of each kind."""
    by_steps: dict[int, list[int]] = {}
    for one in played:
        by_steps.setdefault(one.steps, []).append(one.agent)
    return [
        [{"agents": part, "steps": steps} for steps, agents in by_steps.items() if (part := agents[at::shares])]
        for at in range(min(shares, max(map(len, by_steps.values()), default=1)))
    ]


def compare(played: Sequence[Played], local: Sequence[Played], seconds: float) -> Proof:
    """Agent by agent."""
    there = {one.agent: one for one in local}
    mismatch = next((text for one in played if (text := difference(one, there.get(one.agent)))), "")
    return Proof(
        equal=not mismatch and bool(played),
        agents=len(played),
        episodes=sum(len(one.returns) for one in played),
        decisions=sum(one.steps for one in played),
        seconds=seconds,
        mismatch=mismatch or ("" if played else "nothing was played"),
    )


def difference(fleet: Played, local: Played | None) -> str:
    """Where the two differ first, in words; empty if they do not."""
    if local is None:
        return f"agent {fleet.agent} was not played locally"
    for number, (ours, theirs) in enumerate(zip(fleet.returns, local.returns, strict=False), 1):
        if ours != theirs:
            return f"agent {fleet.agent}, episode {number}: return {ours:g} through Kafka, {theirs:g} locally"
    if len(fleet.returns) != len(local.returns):
        return f"agent {fleet.agent}: {len(fleet.returns)} episodes through Kafka, {len(local.returns)} locally"
    if fleet.unfinished != local.unfinished:
        found = f"{fleet.unfinished:g} through Kafka, {local.unfinished:g} locally"
        return f"agent {fleet.agent}, unfinished episode {len(fleet.returns) + 1}: return {found}"
    if fleet != local:
        return f"agent {fleet.agent}: equal returns, but other actions"
    return ""


def _gathered(children: Sequence[Child], on_progress: Callable[[int], None]) -> list[Played]:
    """Everybody's groups, once all are done."""
    decisions = dict.fromkeys((child.name for child in children), 0)
    waiting, played = list(children), []
    while waiting:
        for child in list(waiting):
            has_ended = child.exit_code is not None  # looked at before reading, so that nothing it told is missed
            for told in child.heard():
                decisions[child.name] = told.get("decisions", decisions[child.name])
                if "groups" in told:
                    played += [Played.of_dict(one) for group in told["groups"] for one in group]
                    waiting.remove(child)
                elif "error" in told:
                    raise FleetError(f"local play ended: {told['error']}")
            if has_ended and child in waiting:
                raise ProcessEnded(child)
        on_progress(sum(decisions.values()))
        time.sleep(POLL_S)
    return played
