"""Ray Serve: `@serve.batch` in one replica behind Serve's HTTP proxy.

Batches of up to 128 with a wait of 2 ms, room for all agents at once (`max_ongoing_requests`), JSON, access log off,
Serve's settings for throughput. Not its HAProxy, which listens on all interfaces.
"""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

from starlette.requests import Request

from tools.bench.peers.job import Job, Place, place

os.environ |= {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0"}  # read at import
import ray
from ray import serve


@serve.deployment(num_replicas=1, max_ongoing_requests=2048, ray_actor_options={"num_cpus": 1})
class Policy:
    """One replica with one model."""

    def __init__(self, model: str) -> None:
        self._job = Job(Path(model), "ray")

    @serve.batch(max_batch_size=128, batch_wait_timeout_s=0.002)
    async def act(self, observations: list[list[float]]) -> list[Any]:
        """One forward pass for all that wait."""
        return self._job.act(observations)

    async def __call__(self, request: Request) -> dict[str, Any]:
        """One agent's request."""
        return {"action": await self.act((await request.json())["observation"])}


def main(where: Place) -> None:
    """Serve until a signal comes."""
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        logging_level=logging.WARNING,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    serve.start(
        http_options={"host": "127.0.0.1", "port": where.port},
        logging_config={"enable_access_log": False, "log_level": "WARNING"},
    )
    serve.run(Policy.bind(str(where.model)), route_prefix="/act")  # type: ignore[attr-defined]
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(place())
