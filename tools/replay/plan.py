"""The plan: what a replay would send where, how fast, and what changes in each record. From the recording's index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tools.recording.about import utc
from tools.recording.plan import Plan as Counted
from tools.recording.plan import plan as counted
from tools.recording.read import Recording
from tools.replay.bookmark import Job
from tools.replay.rewrite import CHANGES
from tools.replay.run import selection_of
from tools.replay.target import Target, refusal


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be sent. `refusal`: why it would not, without --yes."""

    job: Job
    target: Target
    recorded_fleet: str
    counted: Counted
    is_complete: bool
    """Whether the recording was ended by its recorder."""
    refusal: str | None

    @property
    def states(self) -> int:
        """With copies and loops."""
        return self.counted.total * self.job.copies * self.job.loops

    @property
    def seconds(self) -> float | None:
        """How long it takes; None: as fast as the brokers take it."""
        return None if self.job.speed is None else self.counted.seconds * self.job.loops / self.job.speed

    def lines(self) -> Iterator[str]:
        """For people."""
        found, job = self.counted, self.job
        about = "" if found.exact else "about "
        lanes = ", ".join(f"{lane} {n:,}" for (_, lane), n in found.counts.items())
        yield f"from {job.recording}: {about}{found.total:,} states of fleet {self.recorded_fleet} ({lanes or 'none'})"
        if found.begin_ms is not None and found.end_ms is not None:
            yield f"  recorded from {utc(found.begin_ms * 1000)} to {utc(found.end_ms * 1000)}"
        if found.agents is not None:
            yield f"  {found.agents:,} agents"
        if not self.is_complete:
            yield "  its recorder was killed: `fleet record --recover` completes it"
        where = "partitions by key" if job.rekey else "recorded partitions"
        yield f"to fleet {self.target.fleet} on cluster {self.target.cluster or '?'}, {where}"
        yield f"  {self.target.members} members in its groups"
        yield f"would send {about}{self.states:,} states (×{job.copies} agents, ×{job.loops} loops) {self._pace()}"
        yield "changed in each record, and nothing else:"
        yield from (f"  {change}" for change in CHANGES)
        if self.refusal is not None:
            yield f"would refuse: {self.refusal}"

    def _pace(self) -> str:
        if self.seconds is None:
            return "as fast as the brokers take them"
        rate = f", {self.states / self.seconds:,.0f}/s on average" if self.seconds else ""
        return f"in {self.seconds:,.1f} s{rate}"

    def line(self) -> dict[str, Any]:
        """For programs."""
        found = self.counted
        return {
            "recording": self.job.recording,
            "recorded_fleet": self.recorded_fleet,
            "complete": self.is_complete,
            "recorded": {lane: n for (_, lane), n in found.counts.items()},
            "begin": None if found.begin_ms is None else utc(found.begin_ms * 1000),
            "end": None if found.end_ms is None else utc(found.end_ms * 1000),
            "agents": found.agents,
            "exact": found.exact,
            "states": self.states,
            "seconds": self.seconds,
            "target": {"fleet": self.target.fleet, "cluster": self.target.cluster, "members": self.target.members},
            "changes": list(CHANGES),
            "refusal": self.refusal,
            "job": asdict(self.job),
        }


def plan(recording: Recording, job: Job, target: Target) -> Plan:
    """Ask the recording's indexes. Raises `RecordingError`."""
    about = recording.about
    found = counted(recording, selection_of(job))
    return Plan(job, target, about.fleet, found, recording.complete, refusal(target, about.fleet, about.cluster_id))
