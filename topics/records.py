"""The records of a fleet as Python objects: what an agent sends (State) and what it gets (Action).

Bytes become these in `topics.wire`; nothing here knows MessagePack or Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

Outcome = Literal["action", "expired", "superseded", "rejected", "failed"]
"""How a state ended. Every state gets exactly one of these (DESIGN §5)."""

OUTCOMES: Final[tuple[Outcome, ...]] = ("action", "expired", "superseded", "rejected", "failed")


@dataclass(slots=True)
class State:
    """What an agent sees at one step.

    `observation` is a tensor (numpy array), a map of tensors by input name, or plain numbers and lists.
    `deadline_us` and `sent_us` are Unix times in µs; `seq` is the agent's own step counter, from 0.
    """

    observation: Any
    seq: int = 0
    episode: int | str | None = None
    kind: str | None = None
    deadline_us: int | None = None
    sent_us: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Timing:
    """Where the time of one decision went: µs in the lane, µs of the forward pass, rows in its batch."""

    wait_us: int = 0
    predict_us: int = 0
    batch_size: int = 0


@dataclass(slots=True)
class Origin:
    """Where a state without a correlation ID was read: its reply names it by this."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Action:
    """The terminal answer to one state.

    `action` is one step, or a chunk of steps `[horizon, …]`. Other outcomes carry a `reason` and have none, but that an
    `expired` state may have the fallback of the model package.
    `seq` echoes the state's; None where the state could not be read.
    """

    outcome: Outcome
    seq: int | None
    action: Any = None
    reason: str | None = None
    model: str = ""
    lane: str = ""
    worker: str = ""
    timing: Timing = field(default_factory=Timing)
    extras: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    epoch: int | None = None
    """Which assignment of the lane's partitions it was, as the worker counts them."""
