"""Which states there are, and which worker gets them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from tools.recording.about import About
from tools.recording.recorded import Recorded
from tools.recording.write import RecordingWriter
from tools.tune.traffic import busiest, poisson, recorded
from topics.errors import SettingsError
from topics.partitions import Partitioner


def test_poisson_traffic_has_the_rates_that_were_asked_for() -> None:
    """Each lane with agents of its own, times ascending and within the stretch."""
    traffic = poisson({"high": 50, "normal": 400}, agents=16)
    lanes = np.array(traffic.arrivals.lanes)
    assert traffic.seconds == 60
    assert (lanes == "high").sum() == pytest.approx(3000, rel=0.1)
    assert (lanes == "normal").sum() == pytest.approx(24_000, rel=0.05)
    assert (np.diff(traffic.arrivals.at_s) >= 0).all() and traffic.arrivals.at_s[-1] < 60
    assert set(traffic.arrivals.agents[lanes == "high"]) == set(range(16))
    assert len(traffic.keys) == 32


@pytest.mark.parametrize("workers", [1, 2, 5, 12])
def test_workers_get_the_partitions_that_kafka_gives_them(workers: int) -> None:
    """As aiokafka's own Range assignor deals them out; every state belongs to one worker, the busiest is first."""
    traffic, partition_of = poisson({"normal": 500}, agents=64), Partitioner(12)
    parts = traffic.parts(workers, 12)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(traffic.arrivals)))
    assert [len(part) for part in parts] == sorted((len(part) for part in parts), reverse=True)
    seen = {
        frozenset(partition_of(traffic.keys[agent]) for agent in set(traffic.arrivals.agents[part])) for part in parts
    }
    assert seen == assigned(workers)


def assigned(workers: int) -> set[frozenset[int]]:
    class Cluster:
        @staticmethod
        def partitions_for_topic(topic: str) -> set[int]:
            return set(range(12))

    members = {f"w{number:02d}": RangePartitionAssignor.metadata(["t"]) for number in range(workers)}
    shares = RangePartitionAssignor.assign(Cluster(), members)
    return {frozenset(share.assignment[0][1]) for share in shares.values()}


def test_traffic_goes_on_from_its_beginning() -> None:
    """Where a run is longer than what there is; the rate stays."""
    traffic = poisson({"normal": 100}, agents=4).times(10)
    assert traffic.seconds == 6 and traffic.rate_per_s == {"normal": 1000}
    longer = traffic.until(15)
    assert 14 < longer.at_s[-1] < 15 and (np.diff(longer.at_s) >= 0).all()
    n = len(traffic.arrivals)
    assert longer.at_s[n] == pytest.approx(6 + traffic.arrivals.at_s[0])
    assert longer.agents[n] == traffic.arrivals.agents[0]
    assert len(longer.lanes) == len(longer) == len(longer.at_s)


def test_the_busiest_stretch_is_taken() -> None:
    """Its times begin at 0."""
    at_s = np.concatenate([np.arange(0, 100, 1.0), np.arange(100, 110, 0.1), np.arange(110, 150, 1.0)])
    found = busiest(at_s, np.zeros(len(at_s), np.intp), ["normal"] * len(at_s), 10)
    assert found.at_s[0] == 0 and len(found) == pytest.approx(100, abs=1)


def test_recorded_states_come_as_they_came(tmp_path: Path) -> None:
    """Their lanes, their agents under their own keys, their times from the first one on; answers are no states."""
    file = tmp_path / "some.mcap"
    writer = RecordingWriter(file, About(fleet="f"))
    rows = [("high", b"ann", 0), ("normal", b"bob", 40), ("normal", b"ann", 60)]
    records = [
        Recorded(f"f.states.{lane}", 0, number, 1_000_000 + ms, 0, key, b"", ())
        for number, (lane, key, ms) in enumerate(rows)
    ]
    writer.add([*records, Recorded("f.actions", 0, 9, 1_000_020, 0, b"ann", b"", ())])
    writer.finish()
    found = recorded(file)
    assert found.arrivals.at_s.tolist() == pytest.approx([0, 0.04, 0.06])
    assert found.arrivals.lanes == ["high", "normal", "normal"]
    assert [found.keys[agent] for agent in found.arrivals.agents] == [b"ann", b"bob", b"ann"]
    assert found.rate_per_s == pytest.approx({"high": 1 / 0.061, "normal": 2 / 0.061})


def test_a_recording_without_traffic_is_refused(tmp_path: Path) -> None:
    """One state has no rate."""
    writer = RecordingWriter(tmp_path / "one.mcap", About(fleet="f"))
    writer.add([Recorded("f.states.high", 0, 0, 1_000_000, 0, b"ann", b"", ())])
    writer.finish()
    with pytest.raises(SettingsError, match="has 1 states"):
        recorded(tmp_path / "one.mcap")
