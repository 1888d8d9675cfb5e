"""Which cores and how many threads each predictor gets, from what this process may use. Run at start, before
loading; a few times a minute the supervisor looks again, as a container's quota may change while it runs. Threads then
follow, cores do not.

The event loop needs a core of its own: a forward pass that spreads over all of them makes every poll and answer wait.
A container's CPU quota counts like a number of cores, although torch and the operating system show all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from topics.errors import SettingsError
from workers.settings import PredictorSettings

HEAVY_BYTES: Final = 1 << 20
"""Weights from which a second thread may pay: 64 rows through 1 MiB of float32 are 34 million operations, about a ms on
one core. Below, waking threads takes a good part of the pass."""


@dataclass(frozen=True, slots=True)
class Cpus:
    """What this process may use: core numbers of `machine`, and its container's quota in cores, None without one."""

    cores: tuple[int, ...]
    machine: int
    quota: float | None = None

    @property
    def usable(self) -> float:
        """How many cores' worth of time there is."""
        return min(len(self.cores), self.quota or len(self.cores))

    @property
    def own(self) -> bool:
        """Whether somebody gave this process cores of its own; all of them it would share with its neighbours."""
        return len(self.cores) < self.machine and self.usable == len(self.cores)


@dataclass(frozen=True, slots=True)
class Share:
    """What one predictor gets: `cores` its thread is bound to (empty: any), `threads` of a forward pass, and why."""

    cores: tuple[int, ...]
    threads: int
    why: str


LookAtCpus = Callable[[], Sequence[Share]]
"""Each predictor's share of what this process may use now."""


def read_cpus(root: Path = Path("/")) -> Cpus:
    """Affinity of this process and the tightest quota above it; `root` is there for tests."""
    quotas = list(_quotas(root))
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return Cpus(cores, os.cpu_count() or len(cores), min(quotas, default=None))


def _quotas(root: Path) -> Iterator[float]:
    """In cores: cgroup v2's `cpu.max`, v1's `cpu.cfs_quota_us`, of our group and those it is in."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _upwards(root / "sys/fs/cgroup", path, ("cpu.max",))
        elif "cpu" in controllers.split(","):
            yield from _upwards(root / "sys/fs/cgroup/cpu", path, ("cpu.cfs_quota_us", "cpu.cfs_period_us"))


def _upwards(mount: Path, path: str, names: Sequence[str]) -> Iterator[float]:
    """A container sees its own group at the mount, or at the path that the host knows; whatever is there counts."""
    group = mount / path.strip("/")
    for folder in (group, *group.parents):
        try:
            quota, period = " ".join([(folder / name).read_text() for name in names]).split()
        except (OSError, ValueError):
            pass
        else:
            if quota not in ("max", "-1"):
                yield int(quota) / int(period)
        if folder == mount:
            return


def share(predictors: Sequence[PredictorSettings], weights_bytes: int, cpus: Cpus) -> list[Share]:
    """One share per predictor. `SettingsError` where cores are asked for that this process may not use."""
    on_cpu = [ours for ours in predictors if ours.device == "cpu"]
    hot = sum(not ours.standby for ours in on_cpu)
    each = max(1, int(cpus.usable - 1) // max(hot, 1))
    shares = [_threads(ours, weights_bytes, each, cpus) for ours in predictors]
    if cpus.own and len(on_cpu) > 1 and not any(ours.cores for ours in predictors):
        return _pinned(predictors, shares, cpus)
    return shares


def _threads(ours: PredictorSettings, weights_bytes: int, each: int, cpus: Cpus) -> Share:
    if missing := set(ours.cores) - set(cpus.cores):
        found = f"predictors[].cores names {sorted(missing)}"
        raise SettingsError(f"{found}, this process may use {list(cpus.cores)}: choose among those")
    if ours.device != "cpu":
        return Share(ours.cores, 1, "the device computes, its thread only waits")
    if ours.threads != "auto":
        return Share(ours.cores, ours.threads, "threads are set")
    if weights_bytes < HEAVY_BYTES:
        return Share(
            ours.cores, 1, f"weights of {weights_bytes / 2**20:.2f} MiB: more threads would cost more than help"
        )
    if ours.cores:
        return Share(ours.cores, len(ours.cores), "one thread for each of its cores")
    return Share((), each, f"its part of {cpus.usable:g} cores, one of which is the event loop's")


def _pinned(predictors: Sequence[PredictorSettings], shares: list[Share], cpus: Cpus) -> list[Share]:
    """Cores of its own for each, after the first, where they suffice."""
    left = list(cpus.cores[1:])
    if len(left) < sum(part.threads for ours, part in zip(predictors, shares, strict=True) if ours.device == "cpu"):
        return shares
    pinned = []
    for ours, part in zip(predictors, shares, strict=True):
        if ours.device == "cpu":
            cores, left = tuple(left[: part.threads]), left[part.threads :]
            part = Share(cores, part.threads, f"{part.why}; this process has cores of its own")
        pinned.append(part)
    return pinned


def oversubscribed(predictors: Sequence[PredictorSettings], shares: Sequence[Share], cpus: Cpus) -> str | None:
    """One line where the threads of predictors on the CPU and the event loop want more cores than there are."""
    pairs = zip(predictors, shares, strict=True)
    threads = sum(part.threads for ours, part in pairs if ours.device == "cpu" and not ours.standby)
    if threads + 1 <= cpus.usable:
        return None
    return (
        f"{threads} threads of predictors and the event loop share {cpus.usable:g} cores: each may wait for the others"
    )
