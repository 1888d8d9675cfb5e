"""The chaos suite in its short form (`make chaos` is the full one); `CHAOS_SEED` repeats a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.brokers import brokers
from tests.chaos.disk import broker_on_small_disk, can_mount, disk
from tests.chaos.faults import faults
from tests.chaos.flood import flood
from tests.chaos.rebalances import rebalances
from tests.chaos.report import Report
from tests.chaos.sizes import Sizes, sizes_of
from tests.chaos.storm import storm, storm_once
from tools.broker import Cluster, start_broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def own(broker: Cluster) -> Iterator[Cluster]:
    """A broker that may be stopped; where the session has none, this skips too."""
    cluster = start_broker()
    yield cluster
    cluster.stop()


@pytest.fixture
def three(broker: Cluster) -> Iterator[Cluster]:
    """Three brokers, replication 3, min ISR 2."""
    cluster = start_broker(nodes=3)
    yield cluster
    cluster.stop()


@pytest.fixture
def sizes() -> Sizes:
    return sizes_of(form="short")


@pytest.fixture
def report(sizes: Sizes) -> Iterator[Report]:
    """Whatever failed comes with the whole report."""
    report = Report(sizes.seed)
    yield report
    assert not report.failures, f"CHAOS_SEED={sizes.seed}\n" + "\n".join(report.lines)


async def test_a_kill_storm_loses_nothing(own: Cluster, tmp_path: Path, sizes: Sizes, report: Report) -> None:
    """Workers killed −9: every state is answered, in order, to its agent; commits never go back."""
    await storm(own, tmp_path, sizes, report)


@pytest.mark.slow
async def test_a_kill_storm_answers_nobody_twice_with_exactly_once(
    own: Cluster, tmp_path: Path, sizes: Sizes, report: Report
) -> None:
    """Workers killed −9 and rebalances: one committed answer for each state, none missing."""
    await storm_once(own, tmp_path, sizes, report)


@pytest.mark.slow
async def test_rebalances_leave_nothing_in_flight(own: Cluster, tmp_path: Path, sizes: Sizes, report: Report) -> None:
    """A member joins and leaves again and again: no partition falls silent."""
    await rebalances(own, tmp_path, sizes, report)


@pytest.mark.slow
async def test_a_broker_that_comes_back_finds_the_worker(
    own: Cluster, tmp_path: Path, sizes: Sizes, report: Report
) -> None:
    """Paused or restarted; drains end in time also without it, and commit nothing that is unanswered."""
    await faults(own, tmp_path, sizes, report)


@pytest.mark.slow
async def test_brokers_that_die_or_restart_lose_nothing(
    three: Cluster, tmp_path: Path, sizes: Sizes, report: Report
) -> None:
    """One of three is killed, one restarted, leaders move: the same workers go on, in order, and nothing is lost."""
    await brokers(three, tmp_path, sizes, report)


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="mounts a small file system, which takes root")
async def test_a_full_disk_loses_nothing(broker: Cluster, tmp_path: Path, sizes: Sizes, report: Report) -> None:
    """Kafka ends; the worker waits, /livez says why, and all is answered when there is space again."""
    with broker_on_small_disk(tmp_path / "small-disk") as cluster:
        await disk(cluster, tmp_path, sizes, report)


@pytest.mark.slow
async def test_a_flood_costs_neither_memory_nor_goodput(
    own: Cluster, tmp_path: Path, sizes: Sizes, report: Report
) -> None:
    """Three times the capacity: what expires costs no model time, the rest is answered in time."""
    await flood(own, tmp_path, sizes, report)
