"""Every setting of a worker: one frozen tree, read once at start (flags, `FLEET_…`, `fleet.toml`, defaults)."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, field_validator, model_validator

from topics.names import LANES, Lane
from topics.settings import Contradiction, FleetSettings, Section

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]

RELEASE_S: Final = 2.0
"""For closing the producer of a partition that is given up: one without a transaction stops in a few ms, one whose
broker is away is abandoned."""


class ModelSettings(Section):
    """Which model package to serve."""

    path: Path = Path("model")
    """Directory with `manifest.json`."""
    factories: tuple[str, ...] = ()
    """Factories of your own that packages may name, as `package.module:function`."""


class LaneSettings(Section):
    """Bounds of one lane."""

    max_depth: Count = 4096
    """Requests queued and in flight together; at this bound nothing more is fetched."""
    max_poll: Count = 1024
    """Records taken from the consumer at once."""
    fetch_max_wait_ms: Annotated[int, Field(ge=1)] = 50
    """Longest wait of a broker for states; it answers at once when there are some. An idle worker asks this often."""


class HighLane(LaneSettings):
    """The high lane stays short: what would wait long here is better left to another worker."""

    max_depth: Count = 2048


class LowLane(LaneSettings):
    """The low lane's age bound keeps it from starving."""

    fetch_max_wait_ms: Annotated[int, Field(ge=1)] = 100
    max_age_ms: Count = 1000
    """Once the front has waited this long, low requests get an eighth of every batch."""


class LanesSettings(Section):
    """The three lanes."""

    high: HighLane = HighLane()
    normal: LaneSettings = LaneSettings()
    low: LowLane = LowLane()


class BatchSettings(Section):
    """The hard bounds of a micro-batch."""

    max_batch: Annotated[int, Field(ge=1, le=65_536)] = 64
    max_wait_ms: Annotated[float, Field(ge=0)] = 20.0
    """A request waits at most this long for its batch to fill, from its arrival, while all predictors run."""
    fast_pass_wait_ms: Annotated[float, Field(gt=0)] = 10.0
    """Batches without high requests are cut to take no longer, so that high waits no longer; but not where a predictor
    is reserved for high, nor where that would make a row more than twice as dear."""


class HangSettings(Section):
    """When a predictor counts as hung: its batch runs this long, and 20 times longer than any of the last 1,000."""

    after_s: Seconds = 10.0
    max_hangs: Count = 2
    """A state that was in this many batches at which a predictor hung or broke is answered `failed` and becomes a dead
    letter."""
    exit_after_s: Seconds = 60.0
    """A worker without a serving predictor for this long exits (code 5), so that its supervisor starts it anew."""


class SimulatedSettings(Section):
    """A device that does not exist: how long a batch takes there. It runs no model."""

    batch_us: Annotated[float, Field(ge=0)] = 2000.0
    row_us: Annotated[float, Field(ge=0)] = 20.0
    """For each row of the bucket that the batch is padded to."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """A batch takes up to this share more or less."""
    seed: int = 0
    outputs: Literal["zeros", "echo"] = "zeros"
    """`echo`: the first numbers of the first input."""


class PredictorSettings(Section):
    """One model instance."""

    device: str = "cpu"
    """`cpu`, `cuda`, `cuda:N` or `simulated`."""
    cores: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Cores its thread is bound to; empty: any, or its own where this process has cores of its own."""
    threads: Count | Literal["auto"] = "auto"
    """Threads of torch inside one forward pass on a CPU; `auto`: one for a small model, else its part of the cores."""
    own_thread: bool = False
    """Give it a thread even if it is quick enough to run on the event loop (a built-in model, alone on a CPU)."""
    reserved_for: Literal["high"] | None = None
    """`high`: runs nothing unless a high request waits."""
    standby: bool = False
    """Loaded and warm, and idle until a predictor that is no standby fails; until that one is back."""
    simulated: SimulatedSettings = SimulatedSettings()
    """How fast the device `simulated` is."""


class ReplySettings(Section):
    """How answers leave."""

    topics: tuple[str, ...] = ()
    """Reply topics that states may name besides `{fleet}.actions`."""
    timeout_s: Seconds = 30.0
    """A worker whose answers are not acknowledged for this long exits, so that another takes over."""
    acks: Literal["all", "leader"] = "all"
    """`leader` answers faster and may lose answers when a broker dies; the agent's time-out then asks again."""


class CommitSettings(Section):
    """When finished offsets are committed."""

    interval_ms: Annotated[int, Field(ge=10)] = 250
    transaction_ms: Annotated[int, Field(ge=1)] = 50
    """With delivery = "exactly_once": a partition begins a transaction at most this often."""
    timeout_s: Seconds = 5.0


class DrainSettings(Section):
    """How a worker leaves."""

    timeout_s: Seconds = 20.0
    """From SIGTERM to exit; what is not answered by then is handed back uncommitted."""
    revoke_timeout_s: Seconds = 10.0
    """How long a rebalance waits for batches that run."""


class HttpSettings(Section):
    """/livez, /readyz and /metrics."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 9464
    """0: any free port."""


class TracingSettings(Section):
    """Spans of states that somebody traces (extra `otel`); where they go, OpenTelemetry's own variables say."""

    enabled: bool = False
    """Whose state has no sampled `traceparent` has no spans, and costs nothing."""


class LogSettings(Section):
    """Structured logs on standard error."""

    format: Literal["auto", "text", "json"] = "auto"
    """`auto`: text on a terminal, JSON elsewhere."""
    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(FleetSettings):
    """Everything a worker needs."""

    OTHER_SECTIONS: ClassVar[frozenset[str]] = frozenset()

    worker: str = Field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}", min_length=1, max_length=200)
    """Name of this worker: in every reply, and the `client_id` of all its consumers."""
    model: ModelSettings = ModelSettings()
    serve: Annotated[tuple[Lane, ...], Field(min_length=1)] = LANES
    """Lanes that this worker reads. Others must be read by other workers, or their states wait."""
    lanes: LanesSettings = LanesSettings()
    batch: BatchSettings = BatchSettings()
    predictors: Annotated[tuple[PredictorSettings, ...], Field(min_length=1)] = (PredictorSettings(),)
    hang: HangSettings = HangSettings()
    reply: ReplySettings = ReplySettings()
    commit: CommitSettings = CommitSettings()
    drain: DrainSettings = DrainSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()

    @model_validator(mode="after")
    def _bounds_fit(self) -> Settings:
        if all(predictor.reserved_for or predictor.standby for predictor in self.predictors):
            text = (
                "predictors are all reserved_for=high or standby, so normal and low would never run: leave one as it is"
            )
            raise Contradiction(text, "predictors")
        if any(predictor.reserved_for and predictor.standby for predictor in self.predictors):
            text = "a predictor is reserved_for=high and standby=true: a standby takes any lane's work, choose one"
            raise Contradiction(text, "predictors")
        hand_over_ms, rebalance_ms = (self.hand_over_s + RELEASE_S) * 1000, self.kafka.rebalance_timeout_ms
        if hand_over_ms >= rebalance_ms:
            found = (
                f"drain.revoke_timeout_s={self.drain.revoke_timeout_s:g} + commit.timeout_s={self.commit.timeout_s:g}"
            )
            found = f"{found} + {RELEASE_S:g} for closing producers"
            text = f"{found} must be below kafka.rebalance_timeout_ms={rebalance_ms}, or the group gives up on us"
            raise Contradiction(text, "drain", "commit", "kafka")
        drain_ms, poll_ms = self.drain.timeout_s * 1000, self.kafka.max_poll_interval_ms
        if drain_ms >= poll_ms:
            found = f"drain.timeout_s={self.drain.timeout_s:g}"
            text = (
                f"{found} must be below kafka.max_poll_interval_ms={poll_ms}, or the group takes our partitions first"
            )
            raise Contradiction(text, "drain")
        if self.delivery == "exactly_once" and self.reply.acks != "all":
            text = (
                f"delivery=exactly_once needs reply.acks=all, found {self.reply.acks}: transactions are durable or not"
            )
            raise Contradiction(text, "delivery", "reply")
        return self

    @field_validator("serve")
    @classmethod
    def _most_urgent_first(cls, value: tuple[Lane, ...]) -> tuple[Lane, ...]:
        return tuple(lane for lane in LANES if lane in value)

    @property
    def hand_over_s(self) -> float:
        """How long a rebalance may take to finish what runs and to commit it."""
        return self.drain.revoke_timeout_s + self.commit.timeout_s

    def max_depths(self) -> dict[Lane, int]:
        """Bound of each lane."""
        return {
            "high": self.lanes.high.max_depth,
            "normal": self.lanes.normal.max_depth,
            "low": self.lanes.low.max_depth,
        }
