"""Mosec: one worker process with dynamic batching behind its Rust HTTP server.

Batches of up to 128 with a wait of 2 ms, MessagePack (`MsgpackMixin`), as its documents advise for arrays.
"""

from __future__ import annotations

import os
from typing import Any

from mosec import Server, Worker
from mosec.mixin import MsgpackMixin

from tools.bench.peers.job import Job, place

where = place()


class Policy(MsgpackMixin, Worker):
    """One worker with one model."""

    def __init__(self) -> None:
        super().__init__()
        self._job = Job(where.model, "mosec")

    def forward(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One forward pass for all that wait."""
        return [{"action": action} for action in self._job.act([request["observation"] for request in requests])]


if __name__ == "__main__":
    os.environ |= {"MOSEC_ADDRESS": "127.0.0.1", "MOSEC_PORT": str(where.port), "MOSEC_LOG_LEVEL": "warning"}
    server = Server()
    server.append_worker(Policy, num=1, max_batch_size=128, max_wait_time=2, route="/act")
    server.run()
