"""What came of a replay: the judgement, the exit code, and the lines and JSON that tell it. Knows no Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tools.replay.answers import Found
from tools.replay.bookmark import Job
from tools.replay.lateness import Late
from tools.replay.outgoing import Unsendable
from tools.replay.send import Sender

INCOMPLETE: Final = 1
INVALID: Final = 4
INTERRUPTED: Final = 130
"""As the shell has it for Ctrl-C."""
MAX_LONGER: Final = 0.005
"""Share of the planned time that a valid run may take longer, besides `max_late_ms`."""
ARRIVAL_MS: Final = 250.0
"""What p99 of the acknowledgements may come after `max_late_ms`: behind slower brokers a burst is no burst any more."""
NAMED: Final = 10
"""States that are listed for people; JSON has all."""


@dataclass(slots=True)
class Outcome:
    """Filled while the replay runs; `total` is None where it did not come to the recording's end."""

    job: Job
    sent: int = 0
    sent_before: int = 0
    """By the runs that this one went on with."""
    handed_over: Late = field(default_factory=lambda: Late(0.0, 0.0, 0.0))
    arrived: Late = field(default_factory=lambda: Late(0.0, 0.0, 0.0))
    planned_s: float = 0.0
    took_s: float = 0.0
    unsendable: Sequence[Unsendable] = ()
    found: Found | None = None
    failure: str | None = None
    interrupted: bool = False
    resume_with: str | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    """What people call the states that are missing, by number."""

    def take(self, sender: Sender, unsendable: Sequence[Unsendable], sent_before: int) -> None:
        """What the sender did."""
        self.sent, self.sent_before = sender.acknowledged, sent_before
        self.handed_over, self.arrived = sender.handed_over.read(), sender.arrived.read()
        self.planned_s, self.took_s = sender.last_due_us / 1e6, sender.ended_us / 1e6
        self.unsendable = unsendable

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing to go on with."""
        return not self.interrupted and self.failure is None and (self.found is None or self.found.error is None)

    @property
    def missing(self) -> list[int]:
        """Numbers of states that are not in their topic or have no answer; not known of a run that was cut off."""
        return sorted({*self.found.unseen, *self.found.unanswered}) if self.found and self.is_complete else []

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to send."""
        return self.is_complete and not self.sent + self.sent_before + len(self.unsendable)

    def why_invalid(self) -> str | None:
        """Why the timing proves nothing; None where it was kept, or where none was asked for."""
        limit_ms = self.job.max_late_ms
        if self.job.speed is None or not self.sent:
            return None
        if self.handed_over.p99_ms > limit_ms:
            return f"99 % of the states were at most {self.handed_over.p99_ms:.1f} ms late, {limit_ms:g} ms are allowed"
        if self.arrived.p99_ms > limit_ms + ARRIVAL_MS:
            p99_ms, limit_ms = self.arrived.p99_ms, limit_ms + ARRIVAL_MS
            return f"99 % of the states were acknowledged within {p99_ms:.0f} ms, {limit_ms:g} ms are allowed"
        if self.took_s > self.planned_s * (1 + MAX_LONGER) + limit_ms / 1000:
            return f"it took {self.took_s:.3f} s, planned were {self.planned_s:.3f} s"
        return None

    @property
    def exit_code(self) -> int:
        """0: sent in time and all answered."""
        if self.interrupted:
            return INTERRUPTED
        if (
            not self.is_complete
            or self.is_empty
            or self.missing
            or self.unsendable
            or (self.found and self.found.deleted)
        ):
            return INCOMPLETE
        return INVALID if self.why_invalid() else 0

    def lines(self) -> Iterator[str]:
        """For people."""
        rate = f", {self.sent / self.took_s:,.0f} states/s" if self.took_s > 0 else ""
        longer = self.took_s - self.planned_s
        planned = f", planned {self.planned_s:.3f} s ({longer / self.planned_s:+.2%})" if self.planned_s > 0 else ""
        yield f"sent {self.sent:,} states in {self.took_s:.3f} s{planned}{rate}"
        if self.is_empty:
            yield "no state of the recording matches: nothing was sent"
        if self.sent_before:
            yield f"sent before it was cut off: {self.sent_before:,} states, not sent again"
        if self.job.speed is not None:
            yield f"late at the hand-over to the producer: {self.handed_over}"
            yield f"late at the acknowledgement: {self.arrived}"
        if self.found is not None:
            yield from self._answer_lines(self.found)
        for one in self.unsendable[:NAMED]:
            yield f"not sent: {one.state}: {one.size_bytes} bytes are more than its topic takes"
        if len(self.unsendable) > NAMED:
            yield f"not sent: {len(self.unsendable) - NAMED} more (--json names all)"
        if self.failure is not None:
            yield f"stopped: {self.failure}"
        if why := self.why_invalid():
            yield f"INVALID: not sent as recorded: {why}"
        if self.resume_with is not None:
            yield f"go on with: fleet replay --resume {self.resume_with}"

    def _answer_lines(self, found: Found) -> Iterator[str]:
        yield f"answered: {found.answered:,} of {found.states:,} states, recorded in {self.job.out}"
        for count, what in ((found.states_twice, "states"), (found.answers_twice, "answers")):
            if count:
                yield f"{count:,} {what} came more than once"
        yield from found.deleted
        if found.error is not None:
            yield f"the recording is not whole: {found.error}"
        missing = self.missing
        unseen = frozenset(found.unseen)
        for number in missing[:NAMED]:
            what = "acknowledged, but not in its topic" if number in unseen else "no answer"
            yield f"{what}: {self.names.get(number, f'state {number}')}"
        if len(missing) > NAMED:
            yield f"and {len(missing) - NAMED:,} more without an answer (--json names all)"

    def line(self) -> dict[str, Any]:
        """For programs; times in s or ms as their names say."""
        found = self.found
        return {
            "recording": self.job.recording,
            "out": self.job.out,
            "sent": self.sent,
            "sent_before": self.sent_before,
            "planned_s": self.planned_s,
            "took_s": self.took_s,
            "handed_over_late": asdict(self.handed_over),
            "acknowledged_late": asdict(self.arrived),
            "invalid": self.why_invalid(),
            "not_sent": [asdict(one) for one in self.unsendable],
            "answered": None if found is None else found.answered,
            "states_twice": None if found is None else found.states_twice,
            "answers_twice": None if found is None else found.answers_twice,
            "not_in_topic": [] if found is None or not self.is_complete else self._named(found.unseen),
            "unanswered": [] if found is None or not self.is_complete else self._named(found.unanswered),
            "deleted": [] if found is None else found.deleted,
            "error": self.failure or (found.error if found is not None else None),
            "interrupted": self.interrupted,
            "resume_with": self.resume_with,
        }

    def _named(self, numbers: Sequence[int]) -> list[str]:
        return [self.names.get(number, f"state {number}") for number in numbers]
