"""What a comparison found: a system's runs and the worker's beside them, and what they come to. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tools.bench.peers.systems import System
from tools.bench.results import Goal, Run, named
from tools.bench.stats import latency, ratios, rounded


@dataclass(slots=True)
class Pairs:
    """Adjacent runs of a system and of the worker, or why there are none."""

    system: System
    theirs: list[Run] = field(default_factory=list)
    ours: list[Run] = field(default_factory=list)
    failed: str | None = None

    def add(self, theirs: Run, ours: Run) -> None:
        """One more pair."""
        self.theirs.append(theirs)
        self.ours.append(ours)

    def as_dict(self) -> dict[str, Any]:
        """Medians, and `ratio`, which is ours ÷ theirs, as plain values."""
        found: dict[str, Any] = {"version": self.system.version}
        if self.failed:
            found["failed"] = self.failed
        if self.theirs:
            found |= _side("", self.theirs) | _side("fleet_", self.ours)
            ours = [run.decisions_per_s for run in self.ours]
            found |= named("ratio", ratios(ours, [run.decisions_per_s for run in self.theirs]))
            found["pairs"] = len(self.ours)
        return {**found, "packages": self.system.pins()}

    def goal(self) -> Goal | None:
        """What the ratio must be."""
        least = self.system.at_least
        return Goal("ratio", "at least", least) if least else None


def _side(prefix: str, runs: Sequence[Run]) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"{prefix}decisions_per_s": median(run.decisions_per_s for run in runs),
        f"{prefix}cpu_us_per_decision": median(run.cpu_us for run in runs),
    }
    parts = [part for run in runs for part in run.lanes.values()]
    if parts:
        pooled = latency([seconds for part in parts for seconds in part.latencies_s])
        found |= {f"{prefix}p50_ms": pooled.p50_ms, f"{prefix}p99_ms": pooled.p99_ms}
        found[f"{prefix}unanswered"] = sum(part.offered - part.answered for part in parts)
    return found


def as_dict(all_pairs: Sequence[Pairs], options: Mapping[str, Any]) -> dict[str, Any]:
    """`drain.<system>` and `closed.<system>`, and the goals."""
    found: dict[str, Any] = {"benchmark": "peers", "options": dict(options)}
    for pairs in all_pairs:
        found.setdefault(pairs.system.benchmark, {})[pairs.system.name] = pairs.as_dict()
    found["goals"] = [
        {
            "key": f"{pairs.system.benchmark}/{pairs.system.name}/ratio",
            "bound": goal.bound,
            "value": goal.value,
            "found": (value := pairs.as_dict().get("ratio")),
            "met": goal.met(value),
        }
        for pairs in all_pairs
        if (goal := pairs.goal())
    ]
    plain: dict[str, Any] = rounded(found)
    return plain
