"""BentoML: a service whose one API is batchable, so that its adaptive batching gathers requests.

One worker, batches of up to 128 (BentoML chooses size and wait within its latency limit), JSON, access log off.
"""

from __future__ import annotations

import os
import sys

import bentoml
import numpy as np

from tools.bench.peers.job import Job, place

where = place()


@bentoml.service(
    workers=1,
    traffic={"timeout": 30, "max_concurrency": 2048},
    logging={"access": {"enabled": False}},
    metrics={"enabled": False},
)
class Policy:
    """One worker with one model."""

    def __init__(self) -> None:
        self._job = Job(where.model, "bentoml")

    @bentoml.api(route="/act", batchable=True, max_batch_size=128, max_latency_ms=10_000)
    def act(self, observation: np.ndarray) -> np.ndarray:
        """One forward pass for all that wait; the first axis is the batch."""
        return np.asarray(self._job.act(observation))


if __name__ == "__main__":
    where_from = ("--host", "127.0.0.1", "--port", str(where.port))
    os.execv(sys.executable, [sys.executable, "-m", "bentoml", "serve", f"{__spec__.name}:Policy", *where_from])
