"""Every metric of a worker, and the calls with which the steps report to them.

Beside the path: steps call in once per poll or per batch, never per record; the HTTP thread of
`workers.health` reads. Takes plain numbers (seconds on the monotonic clock, bytes, counts), gives Prometheus
metrics and snapshots. Never reads a clock, never waits, takes no lock (`workers.series` says why that is
right).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric

from topics.names import LANES, Lane
from topics.records import OUTCOMES, Outcome
from topics.tensors import Array
from workers.actions_seen import ActionsSeen
from workers.busy import Busy
from workers.series import Counters, Family, Gauges, Histograms, Values
from workers.snapshot import Snapshot
from workers.worst import Worst

Stage = Literal["admit", "predict", "reply", "commit"]
"""The steps that report where time goes; a label value is the step's file name."""

RebalanceKind = Literal["assigned", "revoked"]

SECONDS_BOUNDS = (
    *(0.0001, 0.00025, 0.0005, 0.00075),
    *(0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075),
    *(0.010, 0.015, 0.020, 0.025, 0.030, 0.040, 0.050, 0.075),
    *(0.100, 0.150, 0.250, 0.500, 1.0, 2.0),
)
"""Upper limits of all histograms of seconds.

OpenTelemetry's defaults put everything below 5 ms into one bucket and all of 25–50 ms into the next but two:
useless where a decision takes 1–20 ms. Here each step from 0.5 ms to 50 ms is at most 1.5 times the one
before, so that a quantile is off by a quarter of its value at worst; max_wait (20 ms) and the promises (20 ms
high, 50 ms normal) are limits themselves, so the share of answers within them is exact; below 0.5 ms lie the
forward pass of a small model and the steps of the loop; above 2 s only the fact matters. 25 limits keep a
worker's scrape below 1,000 lines.
"""

BATCH_SIZE_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""The usual batch buckets of a model package are powers of two."""

FILL_BOUNDS = (0.125, 0.25, 0.5, 0.75, 0.9, 1.0)
"""0.9 is the promise at saturation (DESIGN §9); the others tell half-empty batches from nearly empty ones."""

FamilyT = TypeVar("FamilyT", Counters, Histograms, Gauges)


class Metrics:
    """The metrics of one worker, in a registry of their own.

    Args:
        max_batch: records at which a batch is full; `fleet_batch_fill_ratio` is the size divided by it.
    """

    def __init__(self, *, max_batch: int) -> None:
        self.registry = CollectorRegistry()
        self._max_batch = max_batch
        self._busy = Busy()
        self._worst = Worst()
        self._ages = Worst()
        self._actions = ActionsSeen()
        self._families: dict[str, Counters | Histograms | Gauges] = {}
        self._declare_path()
        self._declare_batches()
        self._declare_kafka()
        self._declare_worker()
        self._start_at_zero()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def __repr__(self) -> str:
        answered = sum(counter.read() for _, counter in self._replies.series())
        return f"<Metrics {len(self._families)} metrics, {answered:.0f} answered, {self._busy!r}>"

    def _add(self, family: FamilyT) -> FamilyT:
        self._families[family.name] = family
        return family

    def _declare_path(self) -> None:
        add, lane = self._add, ("lane",)
        self._polls = add(Counters("fleet_polls_total", "Polls that brought records.", lane))
        self._records = add(Counters("fleet_received_records_total", "Records received.", lane))
        self._bytes = add(
            Counters("fleet_received_bytes_total", "Bytes of received states, without keys and headers.", lane)
        )
        self._admitted = add(Counters("fleet_admitted_total", "Requests let into a lane.", lane))
        ages = add(
            Gauges(
                "fleet_received_age_seconds",
                "Seconds behind: age of the oldest state when it was received, worst of the last 20-40 s.",
                lane,
            )
        )
        for name in LANES:
            ages.watch(partial(self._ages.read, name), name)
        self._skipped = add(
            Counters("fleet_skipped_total", "Records that the partition's last owner had answered.", lane)
        )
        self._waits = add(
            Histograms("fleet_queue_wait_seconds", "From admission until its batch left.", SECONDS_BOUNDS, lane)
        )
        worst = add(
            Gauges("fleet_queue_wait_worst_seconds", "Longest wait for a batch that began in the last 20-40 s.", lane)
        )
        for name in LANES:
            worst.watch(partial(self._worst.read, name), name)
        self._replies = add(Counters("fleet_replies_total", "Acknowledged terminal answers.", ("lane", "outcome")))
        self._end_to_end = add(
            Histograms(
                "fleet_end_to_end_seconds",
                "From the agent's send (its clock) until the answer was acknowledged.",
                SECONDS_BOUNDS,
                ("lane", "outcome"),
            )
        )
        self._spent = add(
            Counters(
                "fleet_decision_seconds_total",
                "Time of actions by part; the parts add up to the sum of fleet_end_to_end_seconds.",
                ("lane", "part"),
            )
        )
        self._stages = add(Histograms("fleet_stage_seconds", "Time of one call of a step.", SECONDS_BOUNDS, ("stage",)))
        self._stage_records = add(
            Counters("fleet_stage_records_total", "Records that went through a step.", ("stage",))
        )

    def _declare_batches(self) -> None:
        add, predictor = self._add, ("predictor",)
        self._batch_seconds = add(
            Histograms("fleet_batch_seconds", "One batch on a predictor.", SECONDS_BOUNDS, predictor)
        )
        self._batch_size = add(Histograms("fleet_batch_size", "Requests in a batch.", BATCH_SIZE_BOUNDS, predictor))
        self._batch_fill = add(
            Histograms("fleet_batch_fill_ratio", "Requests in a batch / max_batch.", FILL_BOUNDS, predictor)
        )
        self._padding = add(
            Counters("fleet_batch_padding_rows_total", "Rows added to reach a batch bucket.", predictor)
        )
        self._batch_failures = add(Counters("fleet_batch_failures_total", "Batches that raised.", predictor))
        self._busy_seconds = add(Counters("fleet_predictor_busy_seconds_total", "Time that batches took.", predictor))
        self._busy_fraction = add(
            Gauges("fleet_predictor_busy_fraction", "Busy share of the last 10 s, 0-1.", predictor)
        )

        add(Gauges("fleet_predictor_serving", "1 while it serves, 0 while its model is loaded anew.", predictor))
        add(Gauges("fleet_predictor_largest_batch", "Requests that a batch may have; falls without memory.", predictor))

    def _declare_kafka(self) -> None:
        add, lane = self._add, ("lane",)
        self._commits = add(Histograms("fleet_commit_seconds", "One acknowledged commit.", SECONDS_BOUNDS, lane))
        self._commit_failures = add(Counters("fleet_commit_failures_total", "Commits that failed or timed out.", lane))
        self._fenced = add(
            Counters("fleet_fenced_total", "Partitions that another worker took before the group said so.", lane)
        )
        self._rebalances = add(Counters("fleet_rebalances_total", "Assignments and revocations.", ("kind", "lane")))
        self._dead_letters = add(Counters("fleet_dead_letters_total", "Acknowledged dead letters.", ("reason",)))
        add(Gauges("fleet_assigned_partitions", "Partitions that this worker owns.", lane))
        add(Gauges("fleet_incomplete_offsets", "Offsets received and not yet committable.", lane))
        add(
            Gauges(
                "fleet_lag_records",
                "End of the owned partitions minus what is answered, at most a commit interval ago.",
                lane,
            )
        )

    def _declare_worker(self) -> None:
        add, lane = self._add, ("lane",)
        add(Gauges("fleet_lane_depth", "Requests that wait in a lane.", lane))
        add(Gauges("fleet_lane_capacity", "Requests that fit into a lane.", lane))
        add(Gauges("fleet_in_flight", "Requests with a predictor or whose answer is not acknowledged.", lane))
        self._loop_lag = add(
            Histograms("fleet_event_loop_lag_seconds", "How late the event loop ran its beat.", SECONDS_BOUNDS)
        )
        add(
            Gauges(
                "fleet_standstill_seconds",
                "How long a layer that has work has not moved; 0 while it moves.",
                ("layer",),
            )
        )
        self._declare_actions()
        add(Gauges("fleet_ready", "1 while /readyz says so, else 0."))
        info_labels = ("fleet", "golden", "model", "model_version", "worker")
        text = "Always 1; what this worker serves, and whether its golden pairs were checked."
        self._info = add(Gauges("fleet_worker_info", text, info_labels))

    def _declare_actions(self) -> None:
        add, seen = self._add, self._actions
        text = "Share of each whole-numbered action in the last thousands of decisions, 0-1."
        add(Gauges("fleet_action_share", text, ("action",))).watch_each(lambda: seen.shares)
        text = "Mean of each number of other actions, in the last thousands of decisions."
        add(Gauges("fleet_action_mean", text, ("number",))).watch_each(lambda: seen.means)
        text = "Standard deviation of each number of other actions, in the last thousands of decisions."
        add(Gauges("fleet_action_deviation", text, ("number",))).watch_each(lambda: seen.deviations)

    def _start_at_zero(self) -> None:
        """A counter that appears with its first event hides that event from rate() and from alerts."""
        for lane in LANES:
            for family in (self._polls, self._records, self._bytes, self._admitted, self._commit_failures):
                family.of(lane)
            for outcome in OUTCOMES:
                self._replies.of(lane, outcome)

    # --- once per poll

    def polled(self, lane: Lane, records: int, size_bytes: int, age_s: float) -> None:
        """A poll brought `records` with values of `size_bytes` together, the oldest sent `age_s` before."""
        self._ages.observe(lane, age_s)
        self._polls.of(lane).add()
        self._records.of(lane).add(records)
        self._bytes.of(lane).add(size_bytes)

    def admitted(self, lane: Lane, n: int) -> None:
        """`n` requests went into the lane."""
        self._admitted.of(lane).add(n)

    def skipped(self, lane: Lane, n: int) -> None:
        """`n` records were answered by the partition's last owner already."""
        self._skipped.of(lane).add(n)

    def stage(self, stage: Stage, seconds: float, records: int) -> None:
        """One call of a step took `seconds` for `records`."""
        self._stages.of(stage).observe(seconds)
        self._stage_records.of(stage).add(records)

    # --- once per batch

    def queue_waits(self, lane: Lane, waits_s: Values) -> None:
        """How long the requests of a batch waited in their lane, seconds [n]."""
        self._waits.of(lane).observe_many(waits_s)
        self._worst.observe(lane, float(np.max(waits_s, initial=0.0)))

    def batch_started(self, predictor: str, now_s: float) -> None:
        """A batch begins on the predictor; called by the predictor's own thread."""
        self._busy.started(predictor, now_s)

    def batch_finished(self, predictor: str, size: int, bucket: int, seconds: float) -> None:
        """A batch of `size` requests padded to `bucket` rows is done; called by the predictor's thread."""
        self._predictor_free(predictor, seconds)
        self._batch_seconds.of(predictor).observe(seconds)
        self._batch_size.of(predictor).observe(size)
        self._batch_fill.of(predictor).observe(size / self._max_batch)
        self._padding.of(predictor).add(bucket - size)

    def decided(self, actions: Array) -> None:
        """The actions of a batch, [n, *shape]."""
        self._actions.look(actions)

    def batch_failed(self, predictor: str, seconds: float) -> None:
        """The batch raised after `seconds`; called by the predictor's own thread."""
        self._predictor_free(predictor, seconds)
        self._batch_failures.of(predictor).add()

    def _predictor_free(self, predictor: str, seconds: float) -> None:
        self._busy.finished(predictor, seconds)
        self._busy_seconds.of(predictor).add(seconds)

    def replied(self, lane: Lane, outcome: Outcome, end_to_end_s: Values) -> None:
        """Answers with this outcome were acknowledged; seconds since each state's `sent_us` [n]."""
        self._replies.of(lane, outcome).add(len(end_to_end_s))
        self._end_to_end.of(lane, outcome).observe_many(end_to_end_s)

    def spent(self, lane: Lane, *, transit_s: float, wait_s: float, predict_s: float, reply_s: float) -> None:
        """Where the time of some actions went, added up: from the agent's send to the receipt (two clocks: at least
        0), until their batch began, in the model, until the answers were acknowledged."""
        parts = {"transit": max(0.0, transit_s), "wait": wait_s, "predict": predict_s, "reply": reply_s}
        for part, seconds in parts.items():
            self._spent.of(lane, part).add(seconds)

    # --- now and then

    def committed(self, lane: Lane, seconds: float) -> None:
        """A commit was acknowledged after `seconds`."""
        self._commits.of(lane).observe(seconds)

    def commit_failed(self, lane: Lane) -> None:
        """A commit failed or ran into its time limit."""
        self._commit_failures.of(lane).add()

    def fenced(self, lane: Lane) -> None:
        """Another worker has initialised the transactional ID of a partition that we answered."""
        self._fenced.of(lane).add()

    def rebalanced(self, lane: Lane, kind: RebalanceKind) -> None:
        """Partitions of the lane were assigned or revoked."""
        self._rebalances.of(kind, lane).add()

    def dead_letter(self, reason: str, n: int = 1) -> None:
        """Dead letters were acknowledged; `reason` is that of the error's class, so there are few."""
        self._dead_letters.of(reason).add(n)

    def loop_turned(self, now_s: float, lag_s: float) -> None:
        """The event loop's beat, a few times a second: it ran `lag_s` later than asked for."""
        self._loop_lag.of().observe(max(0.0, lag_s))
        self._busy.tick(now_s)
        self._worst.tick(now_s)
        self._ages.tick(now_s)

    # --- once at start

    def watch(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """Serve `read()` as the gauge `name`. It runs in the HTTP thread: `len(x)` or an attribute, no
        iteration.

        Raises:
            KeyError: there is no gauge of that name with these labels.
        """
        family = self._families.get(name)
        if not isinstance(family, Gauges) or sorted(labels) != list(family.labels):
            raise KeyError(f"no gauge {name} with labels {sorted(labels)}")
        family.watch(read, *(labels[label] for label in family.labels))

    def watch_each(self, name: str, read: Callable[[], Mapping[str, float]]) -> None:
        """Serve `read()`, label value → number, as the gauges `name`; in the HTTP thread, as `watch`."""
        family = self._families[name]
        assert isinstance(family, Gauges) and len(family.labels) == 1
        family.watch_each(read)

    def add_predictor(self, predictor: str) -> None:
        """A predictor exists: its series start at zero."""
        for family in (self._busy_seconds, self._batch_failures, self._padding):
            family.of(predictor)
        self._busy_fraction.watch(lambda: self._busy.fraction(predictor), predictor)

    def describe_worker(self, *, fleet: str, worker: str, model: str, model_version: str, golden: bool) -> None:
        """What `fleet_worker_info` says; replaces what it said before (a new model). `golden`: the package has golden
        pairs, all of which the model gave right when it was loaded."""
        self._info.clear()
        self._info.watch(lambda: 1, fleet, "checked" if golden else "none", model, model_version, worker)

    # --- for readers

    def collect(self) -> Iterator[Metric]:
        """What prometheus-client asks the registry's collectors for."""
        for family in self._families.values():
            yield family.collect()

    def families(self) -> Sequence[Family[object]]:
        """Every metric, in the order of the path."""
        return list(self._families.values())  # type: ignore[arg-type]

    def snapshot(self) -> Snapshot:
        """All numbers since the worker's start, for the verbose probes."""
        found = self._families.values()
        return Snapshot(
            {f.name: {labels: c.read() for labels, c in f.series()} for f in found if isinstance(f, Counters)},
            {f.name: dict(f.values()) for f in found if isinstance(f, Gauges)},
            {f.name: {labels: h.read() for labels, h in f.series()} for f in found if isinstance(f, Histograms)},
        )


def table() -> str:
    """All metrics as a Markdown table, as docs/metrics.md has it; `python -m workers.metrics` prints it."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for family in Metrics(max_batch=64).families():
        labels = ", ".join(f"`{label}`" for label in family.labels) or "–"
        rows.append(f"| `{family.name}` | {family.kind} | {labels} | {family.meaning} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
