"""What a person asked the demo for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

WARM_UP_S: Final = 1.0
"""Before the clock runs the agents ask without acting: a broker that was just started is slow at first."""


@dataclass(frozen=True, slots=True)
class Options:
    """The flags of `fleet demo`."""

    agents: int = 512
    seconds: float = 30.0
    workers: int = 2
    environment: str = "CartPole-v1"
    seed: int = 0
    attach: bool = False
    """Use a cluster and workers that already run."""
    fleet: str | None = None
    model: Path | None = None
    """Package directory; None: the shipped one for the environment."""
    json_file: Path | None = None
