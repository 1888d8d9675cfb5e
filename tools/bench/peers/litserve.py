"""LitServe: a LitAPI with batching in one worker behind its HTTP server.

Batches of up to 128 with a wait of 2 ms, its ZeroMQ transport (`fast_queue`), JSON, access log off.
"""

from typing import Any

import litserve
from fastapi import Request

from tools.bench.peers.job import Job, place

where = place()


class Policy(litserve.LitAPI):
    """One worker with one model."""

    def setup(self, device: str) -> None:
        """In the worker's process."""
        self._job = Job(where.model, "litserve")

    def decode_request(self, request: Request) -> Any:
        """One agent's observation. LitServe reads the annotation: a `Request` comes as its JSON."""
        return request["observation"]

    def batch(self, inputs: list[Any]) -> list[Any]:
        """As they are: the job stacks them."""
        return inputs

    def predict(self, observations: list[Any]) -> list[Any]:
        """One forward pass for all that wait."""
        return self._job.act(observations)

    def unbatch(self, actions: list[Any]) -> list[Any]:
        """One action for each."""
        return actions

    def encode_response(self, action: Any) -> dict[str, Any]:
        """One agent's answer."""
        return {"action": action}


if __name__ == "__main__":
    api = Policy(max_batch_size=128, batch_timeout=0.002, api_path="/act")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, fast_queue=True)
    server.run(host="127.0.0.1", port=where.port, log_level="warning", access_log=False, generate_client_file=False)
