"""Puts a worker together from its settings: predictors, steps, and the gauges that watch them.

Run once at start. `lifecycle` decides when; nothing here serves records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from topics.columns import ActionColumns
from topics.errors import FleetError, SettingsError
from topics.names import LANES, Lane
from topics.outbox import Outbox
from topics.wire import Limits as WireLimits
from workers.admit import Admission, ReplyTopics
from workers.commit import Commit, CommitWithAnswers
from workers.dead_letters import DeadLetters
from workers.lanes import LaneQueue, Lanes
from workers.metrics import Metrics
from workers.models.load import load_model
from workers.models.model import Model
from workers.models.package import Manifest, read_manifest
from workers.models.simulated import SIMULATED, Device, load_simulated
from workers.offsets import LaneOffsets
from workers.predictors.predictor import LoadModel, Predictor
from workers.receive import OnRevoked, Receive
from workers.reply import Encoder, Replies, WayOut
from workers.resources import LookAtCpus, Share, read_cpus, share
from workers.schedule import Schedule
from workers.settings import PredictorSettings, Settings
from workers.slots import Limits, Slot
from workers.transactions import Transactions
from workers.worker import Worker

REPLY_OVERHEAD_BYTES = 4096
"""Room for everything in an action record besides its tensors: names, timing, headers."""


@dataclass(frozen=True, slots=True)
class Intake:
    """One lane's consumer with what belongs to its assignment."""

    consumer: AIOKafkaConsumer
    receive: Receive
    commit: Commit


def make_predictors(settings: Settings, metrics: Metrics) -> list[Predictor]:
    """A predictor per `[[predictors]]` table, named after its device; not started."""
    predictors = [make_predictor(settings, number, metrics) for number in range(len(settings.predictors))]
    for predictor in predictors:
        metrics.add_predictor(predictor.name)
    return predictors


def make_predictor(settings: Settings, number: int, metrics: Metrics) -> Predictor:
    """Predictor `number` of the settings; not started."""
    ours, part = settings.predictors[number], shares(settings)[number]
    name = ours.device if len(settings.predictors) == 1 else f"{ours.device}#{number}"
    alone_on_cpu = ours.device == "cpu" and not ours.cores and len(settings.predictors) == 1
    quick_rows = settings.batch.max_batch if alone_on_cpu and not ours.own_thread else None
    return Predictor(name, _loader(settings, ours, part.threads), metrics, part.cores, quick_rows, part.threads)


def shares(settings: Settings) -> Sequence[Share]:
    """Cores and threads of every predictor. `SettingsError` where they cannot be had."""
    return following_shares(settings)()


def following_shares(settings: Settings) -> LookAtCpus:
    """The same, for looking again and again: reads the package once, and then only what the process may use."""
    path = settings.model.path
    weights = path / read_manifest(path).backend.weights
    weights_bytes = weights.stat().st_size if weights.is_file() else 0
    return lambda: share(settings.predictors, weights_bytes, read_cpus())


def _loader(settings: Settings, ours: PredictorSettings, threads: int) -> LoadModel:
    path, factories = settings.model.path, settings.model.factories
    if ours.device == SIMULATED:
        device = Device(**ours.simulated.model_dump())
        return lambda: load_simulated(path, device)
    return lambda: load_model(path, device=ours.device, factories=factories, threads=threads)


def check_fits(settings: Settings, manifest: Manifest) -> None:
    """`SettingsError` where model and settings contradict each other."""
    if settings.batch.max_batch > manifest.buckets[-1]:
        found = f"batch.max_batch={settings.batch.max_batch}"
        raise SettingsError(f"{found} must be at most {manifest.buckets[-1]}, the largest batch bucket of {manifest}")
    reply = sum(spec.nbytes for spec in manifest.outputs) + REPLY_OVERHEAD_BYTES
    if reply > settings.topics.max_record_bytes:
        found = f"topics.max_record_bytes={settings.topics.max_record_bytes}"
        raise SettingsError(f"{found} must be at least {reply}, the size of an answer of {manifest}")


def make_limits(settings: Settings, manifest: Manifest) -> Limits:
    """The bounds of a batch."""
    return Limits(
        max_batch=settings.batch.max_batch,
        max_wait_us=round(settings.batch.max_wait_ms * 1000),
        low_max_age_us=settings.lanes.low.max_age_ms * 1000,
        buckets=manifest.buckets,
        fast_pass_wait_us=round(settings.batch.fast_pass_wait_ms * 1000),
    )


def make_worker(
    settings: Settings,
    manifest: Manifest,
    predictors: Sequence[Predictor],
    reply_topics: ReplyTopics,
    metrics: Metrics,
) -> Worker:
    """The steps up to prediction; `make_replies` adds the rest."""
    lanes = Lanes(settings.max_depths())
    offsets = {lane: LaneOffsets(settings.names.states(lane)) for lane in LANES}
    slots = [
        Slot(reserved_for=ours.reserved_for, standby=ours.standby, warm_us=predictor.warm_us)
        for ours, predictor in zip(settings.predictors, predictors, strict=True)
    ]
    schedule = Schedule(lanes, slots, make_limits(settings, manifest))
    for predictor, slot in zip(predictors, slots, strict=True):
        metrics.watch("fleet_predictor_serving", partial(getattr, slot, "available"), predictor=predictor.name)
        metrics.watch("fleet_predictor_largest_batch", partial(getattr, slot, "max_batch"), predictor=predictor.name)
    wire_limits = WireLimits(max_bytes=settings.topics.max_record_bytes)
    admission = Admission(manifest.inputs, reply_topics, wire_limits)
    _watch(lanes, offsets, metrics)
    return Worker(lanes, offsets, admission, schedule, predictors, metrics)


def _watch(lanes: Lanes, offsets: dict[Lane, LaneOffsets], metrics: Metrics) -> None:
    """Gauges are read by the probes' thread; each reads a length or an attribute."""
    for queue in lanes:
        _watch_lane(queue, offsets[queue.lane], metrics)


def _watch_lane(queue: LaneQueue, offsets: LaneOffsets, metrics: Metrics) -> None:
    lane = queue.lane
    metrics.watch("fleet_lane_depth", lambda: len(queue), lane=lane)
    metrics.watch("fleet_lane_capacity", lambda: queue.max_depth, lane=lane)
    metrics.watch("fleet_in_flight", lambda: queue.in_flight, lane=lane)
    metrics.watch("fleet_assigned_partitions", lambda: len(offsets.partitions), lane=lane)
    metrics.watch("fleet_incomplete_offsets", lambda: offsets.incomplete, lane=lane)
    metrics.watch("fleet_lag_records", lambda: offsets.lag, lane=lane)


def make_replies(
    settings: Settings,
    manifest: Manifest,
    worker: Worker,
    replies: AIOKafkaProducer,
    dead: AIOKafkaProducer,
    dead_partitions: int,
) -> WayOut:
    """The reply step. Dead letters have a producer of their own, so that neither waits for the other's retries; with
    `delivery = "exactly_once"` both go through the producer of their partition."""
    version = str(manifest)

    def letters(outbox: Outbox) -> DeadLetters:
        names, timeout_s = settings.names, settings.reply.timeout_s
        topic = names.dead if names.dead in names.written else None
        return DeadLetters(outbox, topic, dead_partitions, settings.worker, version, timeout_s)

    columns = ActionColumns(manifest.outputs, version, settings.worker)
    encoder = Encoder(
        columns, [spec.name for spec in manifest.outputs], version, settings.worker, manifest.fallback_action()
    )
    if settings.delivery == "exactly_once":
        return Transactions(settings, letters, encoder, worker.lanes, worker.answered, worker.metrics)
    timeout_s = settings.reply.timeout_s
    return Replies(Outbox(replies), letters(Outbox(dead)), encoder, worker.answered, timeout_s, worker.metrics)


def make_intake(
    settings: Settings,
    lane: Lane,
    consumer: AIOKafkaConsumer,
    worker: Worker,
    on_revoked: OnRevoked,
    metrics: Metrics,
) -> Intake:
    """Receive and commit of one lane."""
    offsets, queue = worker.offsets[lane], worker.lanes[lane]
    max_poll = getattr(settings.lanes, lane).max_poll
    once = worker.replies if isinstance(worker.replies, Transactions) else None
    receive = Receive(consumer, queue, offsets, max_poll, worker.polled, on_revoked, worker.progress, metrics, once)
    timeout_s = settings.commit.timeout_s
    if once is None:
        return Intake(consumer, receive, Commit(consumer, queue, offsets, timeout_s, metrics))
    return Intake(consumer, receive, CommitWithAnswers(consumer, queue, offsets, timeout_s, metrics, once.nudge))


async def start_predictors(predictors: Sequence[Predictor]) -> Model:
    """Load and warm up one after the other: side by side they would only share the same cores and disk.

    One that does not start is `broken`, which the supervisor mends; raises the first error if none does.
    """
    models: list[Model] = []
    errors: list[FleetError] = []
    for predictor in predictors:
        try:
            models.append(await predictor.start())
        except FleetError as error:
            predictor.broken = str(error)
            errors.append(error)
    if not models:
        raise errors[0]
    return models[0]
