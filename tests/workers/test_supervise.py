"""Supervisor: what stands still is told to the probes, and forgiven when it moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from topics.names import LANES
from workers.health import Health
from workers.lanes import Lanes
from workers.metrics import Metrics
from workers.offsets import LaneOffsets
from workers.resources import Cpus, Share, share
from workers.settings import PredictorSettings, Settings
from workers.supervise import LAYER_BOUND_S, LOOK_AT_CPUS_S, Supervisor


class Bench:
    """A supervisor over real state, its clock moved by hand."""

    def __init__(self, predictors: Any = None) -> None:
        self.shares: list[Share] = []
        self.health = Health()
        self.offsets = {lane: LaneOffsets(f"f.states.{lane}") for lane in LANES}
        self.lanes = Lanes({"high": 8, "normal": 8, "low": 8})
        self.replies = SimpleNamespace(waiting=False, flushes=0)
        worker: Any = SimpleNamespace(
            offsets=self.offsets, lanes=self.lanes, available=1, predicted=None, broke=None, replies=self.replies,
            metrics=Metrics(max_batch=8),
        )  # fmt: skip
        for lane in LANES:
            self.offsets[lane].assign([0])
        self.supervisor = Supervisor(
            Settings(),
            worker,
            predictors or [],
            LANES,
            lambda _: pytest.fail("no predictor"),
            lambda: self.shares,
            self.health,
        )

    def stuck(self, now_s: float) -> list[str]:
        self.supervisor._look_at_layers(now_s)
        return sorted(self.health.stalls)


def test_threads_follow_the_quota() -> None:
    """It is looked at every few seconds, and a predictor hears of what has changed."""
    predictors = [SimpleNamespace(name=name, threads=3, deliver=lambda *_: None) for name in ("cpu#0", "cpu#1")]
    bench = Bench(predictors)
    bench.shares = [Share((), 3, "its part"), Share((), 1, "its part")]
    bench.supervisor._follow_cpus(100)
    assert [predictor.threads for predictor in predictors] == [3, 1]
    bench.shares = [Share((), 5, "its part"), Share((), 5, "its part")]
    bench.supervisor._follow_cpus(100 + LOOK_AT_CPUS_S / 2)
    assert [predictor.threads for predictor in predictors] == [3, 1]
    bench.supervisor._follow_cpus(100 + LOOK_AT_CPUS_S)
    assert [predictor.threads for predictor in predictors] == [5, 5]


def test_cores_that_are_gone_change_no_threads() -> None:
    """That some of those named in the settings are taken away is no reason to end a worker that serves."""
    predictor = SimpleNamespace(name="cpu", threads=3, deliver=lambda *_: None)
    bench = Bench([predictor])
    cpus = Cpus((0, 1), machine=4)
    bench.supervisor._look_at_cpus = lambda: share([PredictorSettings(cores=(3,))], 1 << 30, cpus)
    bench.supervisor._follow_cpus(100)
    assert predictor.threads == 3


def test_records_that_are_not_fetched_although_there_is_room_turn_livez_red() -> None:
    """aiokafka can fall silent without an error; the reason names the lane."""
    bench = Bench()
    owned = bench.offsets["high"].get(0)
    assert owned is not None
    owned.received([0])
    owned.finished(0)
    owned.committed((1, ""))
    bench.offsets["high"].measure_lag({0: 50}, {0: 0})
    assert bench.stuck(0) == []
    assert bench.stuck(LAYER_BOUND_S + 1) == ["receive high"]
    ok, reason = bench.health.livez(0)
    assert not ok and "receive high" in reason
    owned.received([1])
    owned.finished(1)
    owned.committed((2, ""))
    assert bench.stuck(LAYER_BOUND_S + 2) == []
    assert bench.health.livez(0).ok


def test_a_slow_batch_is_no_silence_of_kafka() -> None:
    """All records are received and in flight: nothing is wrong with receiving, however long the model takes."""
    bench = Bench()
    owned = bench.offsets["normal"].get(0)
    assert owned is not None
    owned.received([0, 1])
    owned.committed((0, ""))
    bench.offsets["normal"].measure_lag({0: 2}, {})
    bench.stuck(0)
    assert bench.stuck(1000) == []


def test_a_join_that_never_ends_is_told() -> None:
    """Longer than the group may take for a rebalance, and then some; also where only a refused commit told that the
    assignment is gone. One of no partitions is an assignment, too."""
    bench = Bench()
    bench.offsets["low"].revoke()
    bench.offsets["high"].assign([])
    bench.stuck(0)
    assert bench.stuck(LAYER_BOUND_S + 1) == []
    assert bench.stuck(1000) == ["join low"]


def test_commits_that_do_not_come_through_are_told() -> None:
    """There is something to commit and no commit is acknowledged."""
    bench = Bench()
    owned = bench.offsets["low"].get(0)
    assert owned is not None
    owned.received([0])
    owned.finished(0)
    bench.stuck(0)
    assert bench.stuck(LAYER_BOUND_S + 1) == ["commit low"]


def test_answers_that_are_not_acknowledged_are_told_before_the_worker_gives_up() -> None:
    """`/livez` names the layer while the worker still waits for `reply.timeout_s`, and forgets it when it moves."""
    bench = Bench()
    bench.replies.waiting = True
    bench.stuck(0)
    assert bench.stuck(14) == []
    assert bench.stuck(16) == ["reply"]
    bench.replies.flushes = 1
    assert bench.stuck(17) == []
