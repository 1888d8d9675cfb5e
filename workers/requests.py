"""What travels through the worker between the steps: requests, batches, and how each of them ended.

All times are µs on the worker's monotonic clock; a record's Unix times are translated once, at admission.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aiokafka.structs import ConsumerRecord

from topics.headers import Echoed
from topics.names import Lane
from topics.observations import Row
from topics.records import Outcome
from topics.tensors import Array
from workers.offsets import PartitionOffsets

NEVER: Final = 1 << 62
"""The deadline of a state that names none."""


@dataclass(slots=True, eq=False)
class Request:
    """A state waiting for its answer. `rows` holds one row per model input, `headers` what the reply echoes."""

    record: ConsumerRecord
    offsets: PartitionOffsets
    lane: Lane
    agent: bytes
    received_us: int
    sent_us: int
    reply_topic: str
    reply_partition: int
    headers: Echoed = field(default_factory=list)
    correlated: bool = False
    seq: int | None = None
    deadline_us: int = NEVER
    rows: tuple[Row, ...] = ()
    plain: bool = False
    rank: int = 0
    hangs: int = 0
    """Predictors that hung or broke while they ran this request, in this assignment."""


@dataclass(slots=True, eq=False)
class Refusal:
    """A request that ends without a model's action; `dead` is its dead letter's reason, None where there is no letter.
    `fallback`: an expired one gets the model package's, if it names one."""

    request: Request
    outcome: Outcome
    reason: str
    dead: str | None = None
    fallback: bool = True


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that share one forward pass on predictor number `predictor`; `urgent` (it holds high requests) overtakes
    a ready batch there."""

    predictor: int
    requests: list[Request]
    formed_us: int
    urgent: bool = False

    def __len__(self) -> int:
        return len(self.requests)


@dataclass(slots=True, eq=False)
class Fault:
    """Why one row of a batch has no action; `label` is its dead letter's reason."""

    outcome: Outcome
    label: str
    reason: str


@dataclass(slots=True, eq=False)
class Predicted:
    """A batch that ran: output name → [n, *shape], faults by row, and the monotonic µs when it started and ended."""

    batch: Batch
    outputs: dict[str, Array]
    started_us: int
    ended_us: int
    faults: dict[int, Fault] = field(default_factory=dict)
