"""Is anything stuck although the process lives? Pure state that looks at every layer a few times a second.

aiokafka can fall silent after broker restarts without an error (aiokafka#1154, #1037, #847), a commit can fail for
ever. A layer is stuck when it has work and has not moved for its bound; the reason names the layer, and /livez turns
red so that the supervisor restarts the worker. A layer that moves again is forgiven.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Look:
    """One layer as it stands: whether it has work, and a value that changes whenever it moves."""

    layer: str
    has_work: bool
    progress: object
    bound_s: float


@dataclass(slots=True)
class _Seen:
    progress: object
    since_s: float


@dataclass(slots=True)
class Stalls:
    """Remembers since when each layer stands still. Times are seconds on the monotonic clock."""

    still_s: dict[str, float] = field(default_factory=dict)
    """How long each layer has had work and not moved, as of the last look."""
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def look(self, now_s: float, looks: Iterator[Look]) -> Mapping[str, str]:
        """layer → reason for every layer that is stuck now."""
        stuck: dict[str, str] = {}
        for look in looks:
            still_s = self.still_s[look.layer] = self._still_s(now_s, look)
            if still_s > look.bound_s:
                stuck[look.layer] = f"has work and has not moved for {still_s:.0f} s (bound {look.bound_s:g} s)"
        return stuck

    def _still_s(self, now_s: float, look: Look) -> float:
        seen = self._seen.get(look.layer)
        if seen is None or not look.has_work or seen.progress != look.progress:
            self._seen[look.layer] = _Seen(look.progress, now_s)
            return 0.0
        return now_s - seen.since_s
