"""`python -m tests.chaos [scenario …]`: the chaos suite, or some of it, with its report; exit 1 if a check fails."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.disk import broker_on_small_disk, can_mount
from tests.chaos.report import Report
from tests.chaos.sizes import Sizes, sizes_of
from tools.broker import Cluster, start_broker
from topics.kafka import quiet_library_logs

SCENARIOS = ("storm", "storm_once", "rebalances", "faults", "brokers", "disk", "flood")
MANY_BROKERS = ("storm", "storm_once", "brokers")


def main() -> int:
    """Run the named scenarios, or all."""
    sizes = sizes_of()
    report = Report(sizes.seed)
    print(f"CHAOS_SEED={sizes.seed}\n{sizes}", flush=True)
    quiet_library_logs()
    with tempfile.TemporaryDirectory(prefix="fleet-chaos-") as folder:
        for name in sys.argv[1:] or SCENARIOS:
            run = getattr(importlib.import_module(f"tests.chaos.{name.removesuffix('_once')}"), name)
            if name == "disk" and not can_mount():
                report.title("the disk scenario is left out: it mounts a small file system, which takes root")
                continue
            with _cluster_for(name, sizes, Path(folder)) as cluster:
                asyncio.run(run(cluster, Path(folder) / name, sizes, report))
    print(f"CHAOS_SEED={sizes.seed}: {len(report.failures)} check(s) failed")
    for failure in report.failures:
        print(f"  FAIL {failure}")
    return 1 if report.failures else 0


@contextlib.contextmanager
def _cluster_for(name: str, sizes: Sizes, folder: Path) -> Iterator[Cluster]:
    """A cluster of its own for each scenario."""
    if name == "disk":
        with broker_on_small_disk(folder / "small-disk") as cluster:
            yield cluster
        return
    cluster = start_broker(nodes=sizes.nodes if name in MANY_BROKERS else 1)
    try:
        yield cluster
    finally:
        cluster.stop()


if __name__ == "__main__":
    sys.exit(main())
