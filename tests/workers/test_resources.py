"""Cores and threads: the quota counts, the event loop keeps a core, nobody pins cores that others use too."""

from __future__ import annotations

from pathlib import Path

import pytest

from topics.errors import SettingsError
from workers.resources import Cpus, oversubscribed, read_cpus, share
from workers.settings import PredictorSettings

EIGHT = Cpus(tuple(range(8)), machine=64)
SHARED = Cpus(tuple(range(8)), machine=8)
HEAVY, LIGHT = 100 << 20, 40_000


def predictors(*fields: dict[str, object]) -> list[PredictorSettings]:
    return [PredictorSettings(**one) for one in fields]  # type: ignore[arg-type]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_quota_of_cgroup_v2_is_the_tightest_on_the_way_up(tmp_path: Path) -> None:
    """A pod's limit counts also when its container has none."""
    write(tmp_path / "proc/self/cgroup", "0::/pod/container\n")
    write(tmp_path / "sys/fs/cgroup/pod/cpu.max", "150000 100000\n")
    write(tmp_path / "sys/fs/cgroup/pod/container/cpu.max", "max 100000\n")
    assert read_cpus(tmp_path).quota == 1.5


def test_a_quota_of_cgroup_v1_is_read_where_the_container_sees_it(tmp_path: Path) -> None:
    """Its group lies at the mount, whatever path the host knows it by."""
    write(tmp_path / "proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n1:memory:/docker/abc\n")
    write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n")
    write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert read_cpus(tmp_path).quota == 4


def test_without_cgroups_or_a_quota_the_affinity_counts(tmp_path: Path) -> None:
    """A laptop, a Mac's virtual machine."""
    assert read_cpus(tmp_path).quota is None
    write(tmp_path / "proc/self/cgroup", "0::/\n")
    write(tmp_path / "sys/fs/cgroup/cpu.max", "max 100000\n")
    assert read_cpus(tmp_path).quota is None
    assert read_cpus(tmp_path).usable == len(read_cpus(tmp_path).cores)


def test_a_small_model_has_one_thread_and_a_large_one_all_cores_but_the_loops() -> None:
    """Shared by the predictors that run at the same time."""
    assert [part.threads for part in share(predictors({}), LIGHT, EIGHT)] == [1]
    assert [part.threads for part in share(predictors({}), HEAVY, EIGHT)] == [7]
    assert [part.threads for part in share(predictors({}, {}), HEAVY, EIGHT)] == [3, 3]
    assert [part.threads for part in share(predictors({}, {"standby": True}), HEAVY, SHARED)] == [7, 7]


def test_a_quota_counts_like_cores() -> None:
    """2.5 cores of 64: one for the loop, one for the model."""
    cpus = Cpus(tuple(range(64)), machine=64, quota=2.5)
    assert [part.threads for part in share(predictors({}), HEAVY, cpus)] == [1]
    assert oversubscribed(predictors({}), share(predictors({}), HEAVY, cpus), cpus) is None


def test_what_is_set_is_kept_and_too_much_is_said() -> None:
    """In one line that names both numbers."""
    ours = predictors({"threads": 8}, {"device": "cuda:0"})
    shares = share(ours, LIGHT, SHARED)
    assert [part.threads for part in shares] == [8, 1]
    assert "8 threads of predictors and the event loop share 8 cores" in (oversubscribed(ours, shares, SHARED) or "")


def test_cores_are_bound_only_where_they_are_ours() -> None:
    """Several workers on a machine see all of its cores, and would all bind to the first ones."""
    assert [part.cores for part in share(predictors({}, {}), HEAVY, EIGHT)] == [(1, 2, 3), (4, 5, 6)]
    assert [part.cores for part in share(predictors({}, {}), HEAVY, SHARED)] == [(), ()]
    assert [part.cores for part in share(predictors({}), HEAVY, EIGHT)] == [()], "alone, any will do"


def test_cores_that_this_process_may_not_use_are_refused() -> None:
    """At start, not as an error of the operating system in a thread."""
    with pytest.raises(SettingsError, match=r"names \[9\], this process may use \[0, 1"):
        share(predictors({"cores": [0, 9]}), LIGHT, SHARED)
