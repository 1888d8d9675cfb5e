"""`python -m tests.chaos [storm rebalances faults flood]`: the chaos suite with its report; exit 1 if a check fails."""

from __future__ import annotations

import asyncio
import importlib
import sys
import tempfile
from pathlib import Path

from tests.chaos.report import Report
from tests.chaos.sizes import sizes_of
from tools.broker import start_broker
from topics.kafka import quiet_library_logs

SCENARIOS = ("storm", "rebalances", "faults", "flood")


def main() -> int:
    """Run the named scenarios, or all."""
    sizes = sizes_of()
    report = Report(sizes.seed)
    print(f"CHAOS_SEED={sizes.seed}\n{sizes}", flush=True)
    quiet_library_logs()
    with tempfile.TemporaryDirectory(prefix="fleet-chaos-") as folder:
        for name in sys.argv[1:] or SCENARIOS:
            run = getattr(importlib.import_module(f"tests.chaos.{name}"), name)
            cluster = start_broker(nodes=sizes.nodes if name == "storm" else 1)
            try:
                asyncio.run(run(cluster, Path(folder) / name, sizes, report))
            finally:
                cluster.stop()
    print(f"CHAOS_SEED={sizes.seed}: {len(report.failures)} check(s) failed")
    for failure in report.failures:
        print(f"  FAIL {failure}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
