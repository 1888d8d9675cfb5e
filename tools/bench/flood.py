"""A flood in the low lane, a process of its own: what is measured in `high` shares no event loop with it.

Ends when the last state has its answer, and says on its last line how that went (JSON).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
from typing import Any, Final

from tools.bench.arrivals import Stream, merged
from tools.bench.open_loop import Load
from tools.bench.rig import FLOOD_READY, Rig, served
from tools.bench.serving import asking
from tools.bench.traffic import summary
from topics.errors import FleetError
from topics.kafka import quiet_library_logs
from topics.settings import load_settings
from workers.settings import Settings

AGENTS: Final = 256
TURN_S: Final = 0.02
"""What falls due within that time travels in one call, as background work does."""
PATIENCE_S: Final = 120.0
"""At 200 % `low` waits for as long as the flood lasted; every state is answered all the same."""


async def flood(rig: Rig, rate_per_s: float, seconds: float) -> dict[str, Any]:
    """Poisson arrivals in `low`; percentiles of the latency from the moment a state was due, in ms."""
    arrivals = merged([Stream("low", "poisson", rate_per_s, 0, seconds)], AGENTS, seed=2)
    async with asking(rig, PATIENCE_S) as client:
        load = Load(client, rig, arrivals, TURN_S)
        await load.meet()
        gc.collect()
        gc.freeze()
        sys.stderr.write(FLOOD_READY + "\n")
        sys.stderr.flush()
        await load.send()
    return summary(load.latencies_s)


def main() -> None:
    """Settings come from where a worker's come from."""
    parser = argparse.ArgumentParser(description="A flood in the low lane, for `fleet bench lanes`.")
    parser.add_argument("rate_per_s", type=float)
    parser.add_argument("seconds", type=float)
    asked = parser.parse_args()
    quiet_library_logs()
    try:
        settings = load_settings(Settings)
        found = asyncio.run(flood(Rig(settings, served(settings)), asked.rate_per_s, asked.seconds))
    except FleetError as error:
        sys.exit(f"error: {error}")
    sys.stderr.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
