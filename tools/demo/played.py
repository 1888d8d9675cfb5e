"""What one agent did in a play: what the proof compares. Travels between processes as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Played:
    """What one agent did: the returns of its episodes, and a sha256 of all its actions in order."""

    agent: int
    steps: int
    returns: tuple[float, ...]
    """Of the finished episodes."""
    unfinished: float
    """Return so far of the episode that was cut by the end of play."""
    actions_sha256: str

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types; numbers come back exactly as they were."""
        return asdict(self)

    @classmethod
    def of_dict(cls, fields: dict[str, Any]) -> Played:
        return cls(**{**fields, "returns": tuple(fields["returns"])})
