"""One trace from the agent through Kafka and the worker and back, received by a real OTLP endpoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider

from tests.stories.fleet import Fleet
from topics.client import AgentClient

pytestmark = pytest.mark.broker


class Collector(ThreadingHTTPServer):
    """Keeps the spans that come by OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.spans: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        sent = ExportTraceServiceRequest()
        sent.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
        for resource in sent.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on the tests' screen."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


async def test_a_trace_goes_from_the_agent_through_the_worker(fleet: Fleet, probe: Path, collector: Collector) -> None:
    """What is not traced leaves no span; a drain sends the last ones."""
    variables = {"FLEET_TRACING__ENABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    worker = await fleet.worker(probe, **variables).ready()
    tracer = TracerProvider().get_tracer("agent")
    async with AgentClient(settings=fleet.settings) as agents:
        await agents.decide("quiet", np.zeros(4, np.float32))
        with tracer.start_as_current_span("step") as step:
            reply = await agents.decide("traced", np.zeros(4, np.float32), lane="high")
            many = await agents.decide_many(["a", "b"], np.zeros((2, 4), np.float32))
    assert reply.ok and all(many.ok)
    worker.process.terminate()
    assert await worker.ended() == 0
    context = step.get_span_context()
    processes = [span for span in collector.spans if span.name.startswith("process")]
    assert len(processes) == 3, "the quiet state is not traced"
    assert {span.trace_id for span in processes} == {context.trace_id.to_bytes(16, "big")}
    assert {span.parent_span_id for span in processes} == {context.span_id.to_bytes(8, "big")}
    assert {span.name for span in collector.spans} >= {
        "batch",
        "wait",
        "predict",
        f"send {fleet.settings.names.actions}",
    }


async def test_a_collector_that_is_away_stops_nobody(fleet: Fleet, probe: Path) -> None:
    """Answers come, the worker drains in time, and the log has one line."""
    variables = {"FLEET_TRACING__ENABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    worker = await fleet.worker(probe, **variables, OTEL_BSP_SCHEDULE_DELAY="100").ready()
    tracer = TracerProvider().get_tracer("agent")
    async with AgentClient(settings=fleet.settings) as agents:
        for _ in range(20):
            with tracer.start_as_current_span("step"):
                assert (await agents.decide("traced", np.zeros(4, np.float32))).ok
    began_s = time.monotonic()
    worker.process.terminate()
    assert await worker.ended() == 0
    assert time.monotonic() - began_s < 6
    assert len(worker.events("library")) <= 1
