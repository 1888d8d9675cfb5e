"""Spans of the states that somebody traces, after OpenTelemetry's conventions for messaging. Beside the path.

A state whose `traceparent` is sampled gets a span *process* (from its receipt to its acknowledged answer) with three
children: *wait*, *predict* (linked to the span of its batch) and *send*, whose context its answer carries. The batch
has a span of its own, linked to each of them. Spans are made from the times that the path takes anyway, per batch. A
state without the header costs one comparison, and without `tracing.enabled` nothing here runs.

https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from topics.errors import SettingsError
from topics.headers import CORRELATION_ID, TRACEPARENT, Echoed
from topics.names import FleetNames
from topics.trace import SAMPLED, Parent, parse, traceparent
from workers.clock import from_unix_us
from workers.requests import Batch, Predicted, Refusal, Request

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

SCOPE: Final = "decision-fleet"
FLUSH_S: Final = 2.0
"""Of a drain, for the spans that are left."""
QUIET_S: Final = 60.0
"""Between two complaints of the exporter: a collector that is away is told once a minute."""


def make_tracing(names: FleetNames, worker: str) -> tuple[Tracing, TracerProvider]:
    """Spans to wherever OTEL_EXPORTER_OTLP_… variables say.

    Raises:
        SettingsError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        text = f"tracing.enabled needs {error.name}, which is not installed: pip install 'decision-fleet[otel]'"
        raise SettingsError(text) from error
    resource = Resource.create({"service.name": SCOPE, "service.namespace": names.fleet, "service.instance.id": worker})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    seldom = Seldom(QUIET_S)
    for name in [one for one in logging.root.manager.loggerDict if one.startswith("opentelemetry.")]:
        logging.getLogger(name).addFilter(seldom)
    return Tracing(provider.get_tracer(SCOPE), names), provider


async def flush(provider: TracerProvider) -> None:
    """Send the spans that are left, for `FLUSH_S` at most: an exporter tries longer, and its thread ends with us."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        provider.force_flush()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, daemon=True).start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FLUSH_S):
            await done.wait()


class Seldom(logging.Filter):
    """Lets one record through in so many seconds."""

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_s, self._clock, self._last_s = every_s, clock, float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this one is let through."""
        now_s = self._clock()
        if now_s - self._last_s < self._every_s:
            return False
        self._last_s = now_s
        return True


@dataclass(frozen=True, slots=True)
class Traced:
    """The open spans of one state."""

    process: Span
    send: Span


class Tracing:
    """Called by the worker once per batch that ran, and once per acknowledged flush; on the event loop alone."""

    def __init__(self, tracer: Tracer, names: FleetNames) -> None:
        self._tracer = tracer
        self._names = names
        self._open: dict[Request, Traced] = {}

    def ran(self, ran: Predicted) -> None:
        """A batch ran: its traced states get their spans, and their answers carry the span of sending."""
        parents = traced(ran.batch.requests)
        if not parents:
            return
        to_unix_us = -from_unix_us()
        started_ns, ended_ns = (1000 * (us + to_unix_us) for us in (ran.started_us, ran.ended_us))
        processes = [self._process(request, parent, to_unix_us) for request, parent in parents]
        batch = self._batch(ran.batch, processes, started_ns)
        batch.end(ended_ns)
        for (request, _), process in zip(parents, processes, strict=True):
            within = _within(process)
            wait = self._tracer.start_span("wait", within, start_time=1000 * (request.received_us + to_unix_us))
            wait.end(started_ns)
            link = _link(batch)
            self._tracer.start_span("predict", within, links=[link], start_time=started_ns).end(ended_ns)
            send = self._send(request, within, ended_ns)
            request.headers = _with(request.headers, send)
            self._open[request] = Traced(process, send)

    def answered(self, predicted: Sequence[Predicted], refusals: Sequence[Refusal], now_us: int) -> None:
        """Answers were acknowledged; those without a model get their spans only now."""
        if not (self._open or any(len(refusal.request.headers) > 1 for refusal in refusals)):
            return
        to_unix_us = -from_unix_us()
        now_ns = 1000 * (now_us + to_unix_us)
        reasons = {refusal.request: refusal for refusal in refusals}
        for request, parent in traced([refusal.request for refusal in refusals if refusal.request not in self._open]):
            process = self._process(request, parent, to_unix_us)
            self._open[request] = Traced(process, self._send(request, _within(process), now_ns))
        for request in [*(one for ran in predicted for one in ran.batch.requests), *reasons]:
            if (found := self._open.pop(request, None)) is not None:
                self._end(found, reasons.get(request), now_ns)

    def _end(self, found: Traced, refusal: Refusal | None, now_ns: int) -> None:
        from opentelemetry.trace import StatusCode

        outcome = "action" if refusal is None else refusal.outcome
        found.process.set_attribute("fleet.outcome", outcome)
        if refusal is not None and outcome in ("failed", "rejected"):
            found.process.set_status(StatusCode.ERROR, refusal.reason)
            found.process.set_attribute("error.type", refusal.dead or outcome)
        found.send.end(now_ns)
        found.process.end(now_ns)

    def _process(self, request: Request, parent: Parent, to_unix_us: int) -> Span:
        from opentelemetry.trace import SpanKind

        record = request.record
        attributes = {
            **self._messaging(record.topic, "process", "process"),
            "messaging.destination.partition.id": str(record.partition),
            "messaging.kafka.offset": record.offset,
            "messaging.kafka.message.key": request.agent.decode(errors="replace"),
            "messaging.consumer.group.name": self._names.group(request.lane),
            "fleet.lane": request.lane,
        }
        if correlation := dict(request.headers).get(CORRELATION_ID):
            attributes["messaging.message.conversation_id"] = correlation.hex()
        return self._tracer.start_span(
            f"process {record.topic}", _remote(parent), SpanKind.CONSUMER, attributes,
            start_time=1000 * (request.received_us + to_unix_us),
        )  # fmt: skip

    def _send(self, request: Request, within: Context, from_ns: int) -> Span:
        from opentelemetry.trace import SpanKind

        attributes = self._messaging(request.reply_topic, "send", "send")
        return self._tracer.start_span(
            f"send {request.reply_topic}", within, SpanKind.PRODUCER, attributes, start_time=from_ns
        )

    def _batch(self, batch: Batch, processes: Sequence[Span], started_ns: int) -> Span:
        """A trace of its own: it belongs to many."""
        from opentelemetry.context import Context

        attributes = {"messaging.batch.message_count": len(batch), "fleet.predictor": batch.predictor}
        links = [_link(process) for process in processes]
        return self._tracer.start_span("batch", Context(), attributes=attributes, links=links, start_time=started_ns)

    @staticmethod
    def _messaging(topic: str, name: str, kind: str) -> dict[str, Any]:
        return {
            "messaging.system": "kafka",
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
            "messaging.destination.name": topic,
        }

    def __repr__(self) -> str:
        return f"<Tracing {len(self._open)} states with open spans>"


def traced(requests: Sequence[Request]) -> list[tuple[Request, Parent]]:
    """Those whose sender traces them. The usual state has one header, and is passed over at once."""
    found = []
    for request in requests:
        if len(request.headers) > 1:
            for name, value in request.headers:
                if name == TRACEPARENT and (parent := parse(value)) is not None and parent.flags & SAMPLED:
                    found.append((request, parent))
    return found


def _remote(parent: Parent) -> Context:
    from opentelemetry import trace

    flags = trace.TraceFlags(parent.flags)
    return trace.set_span_in_context(
        trace.NonRecordingSpan(trace.SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)),
    )


def _within(span: Span) -> Context:
    from opentelemetry.trace import set_span_in_context

    return set_span_in_context(span)


def _link(span: Span) -> Any:
    from opentelemetry.trace import Link

    return Link(span.get_span_context())


def _with(headers: Echoed, span: Span) -> Echoed:
    """The same headers, with this span's context in place of the state's."""
    context = span.get_span_context()
    ours = traceparent(context.trace_id, context.span_id, int(context.trace_flags))
    return [(name, ours if name == TRACEPARENT else value) for name, value in headers]
