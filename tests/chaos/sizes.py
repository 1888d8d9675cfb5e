"""How large a chaos run is: a full and a short form, each number replaceable by a `CHAOS_…` variable."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Sizes:
    """One run. Durations in seconds; `seed` decides who is killed when, and which agent asks what."""

    seed: int
    agents: int = 512
    workers: int = 3
    nodes: int = 3
    states: int = 200_000
    """States of the kill storm, asked over `storm_s`."""
    storm_s: float = 120.0
    kill_every_s: float = 8.0
    rebalances: int = 200
    pause_s: float = 8.0
    """How long the broker is stopped by SIGSTOP."""
    away_s: float = 5.0
    """How long the broker's process is gone."""
    flood_s: float = 60.0
    drain_s: float = 20.0
    """`drain.timeout_s` of the workers that are told to go while the broker is away."""
    thorough: bool = True
    """Broker away at a drain in both ways (paused and gone), not in one."""


_SHORT = {
    "agents": 128,
    "nodes": 1,
    "states": 5_000,
    "storm_s": 8.0,
    "kill_every_s": 2.5,
    "rebalances": 10,
    "pause_s": 2.0,
    "away_s": 1.0,
    "flood_s": 10.0,
    "drain_s": 5.0,
    "thorough": False,
}


def sizes_of(environment: Mapping[str, str] = os.environ, *, form: str | None = None) -> Sizes:
    """`form` "full" or "short" (else `CHAOS_FORM`, else full), then what single variables replace."""
    form = form or environment.get("CHAOS_FORM", "full")
    seed = int(environment.get("CHAOS_SEED") or secrets.randbelow(1 << 31))
    sizes = Sizes(seed) if form == "full" else replace(Sizes(seed), **_SHORT)  # type: ignore[arg-type]
    given = {
        field.name: type(getattr(sizes, field.name))(found)
        for field in fields(Sizes)
        if field.name not in ("seed", "thorough") and (found := environment.get(f"CHAOS_{field.name.upper()}"))
    }
    return replace(sizes, **given)
