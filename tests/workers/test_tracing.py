"""Spans of traced states: their tree, their times, and that nobody else pays."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from aiokafka.structs import ConsumerRecord
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from topics.headers import CORRELATION_ID, TRACEPARENT
from topics.names import FleetNames
from topics.trace import current, parse, traceparent
from workers.clock import now_us
from workers.offsets import PartitionOffsets
from workers.requests import Batch, Fault, Predicted, Refusal, Request
from workers.tracing import Seldom, Tracing

TRACE = 0xABCD
NAMES = FleetNames("arena")


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(spans: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return Tracing(provider.get_tracer("test"), NAMES)


def request(at: int, header: bytes | None) -> Request:
    """A state received 5 ms ago."""
    headers: Any = [(CORRELATION_ID, b"%016d" % at), *([(TRACEPARENT, header)] if header else ())]
    record = ConsumerRecord(NAMES.states("high"), 3, at, 0, 0, b"agent", b"", None, 5, 0, tuple(headers))
    return Request(
        record, PartitionOffsets(3, 0), "high", b"agent", now_us() - 5000, now_us(), NAMES.actions, 3, headers
    )


def ran(*requests: Request, **faults: Fault) -> Predicted:
    began_us = now_us() - 3000
    rows = {int(row.removeprefix("row")): fault for row, fault in faults.items()}
    return Predicted(
        Batch(0, list(requests), began_us), {"action": np.zeros(len(requests))}, began_us, began_us + 2000, rows
    )


def by_name(spans: InMemorySpanExporter) -> dict[str, Any]:
    found = spans.get_finished_spans()
    assert len({span.name for span in found}) == len(found)
    return {span.name: span for span in found}


def test_a_traced_state_has_a_tree_in_its_agents_trace(tracing: Tracing, spans: InMemorySpanExporter) -> None:
    """With the conventions' attributes; the answer carries the context of sending; stages add up."""
    state = request(7, traceparent(TRACE, 0x11, 1))
    batch = ran(request(6, None), state)
    tracing.ran(batch)
    echoed = parse(dict(state.headers)[TRACEPARENT])
    tracing.answered([batch], [], now_us())
    found = by_name(spans)
    process, send = found["process arena.states.high"], found["send arena.actions"]
    assert set(found) == {"process arena.states.high", "send arena.actions", "wait", "predict", "batch"}
    assert (process.context.trace_id, process.parent.span_id, process.kind) == (TRACE, 0x11, SpanKind.CONSUMER)
    assert {found[name].parent.span_id for name in ("wait", "predict", "send arena.actions")} == {
        process.context.span_id
    }
    assert echoed is not None and (echoed.trace_id, echoed.span_id) == (TRACE, send.context.span_id)
    assert process.attributes["messaging.system"] == "kafka"
    assert process.attributes["messaging.destination.partition.id"] == "3"
    assert process.attributes["messaging.consumer.group.name"] == "arena.high"
    assert process.attributes["messaging.kafka.offset"] == 7 and process.attributes["fleet.outcome"] == "action"
    assert send.kind == SpanKind.PRODUCER and send.attributes["messaging.operation.type"] == "send"
    stages = [found[name] for name in ("wait", "predict", "send arena.actions")]
    assert sum(stage.end_time - stage.start_time for stage in stages) == process.end_time - process.start_time


def test_a_batch_and_its_states_are_linked_both_ways(tracing: Tracing, spans: InMemorySpanExporter) -> None:
    """The batch belongs to no state's trace."""
    batch = ran(*[request(at, traceparent(TRACE + at, 1, 1)) for at in range(3)], request(9, None))
    tracing.ran(batch)
    tracing.answered([batch], [], now_us())
    finished = spans.get_finished_spans()
    (found,) = [span for span in finished if span.name == "batch"]
    processes = {span.context.span_id for span in finished if span.name.startswith("process")}
    assert found.parent is None and found.attributes["messaging.batch.message_count"] == 4
    assert {link.context.span_id for link in found.links} == processes
    for predict in (span for span in finished if span.name == "predict"):
        assert [link.context.span_id for link in predict.links] == [found.context.span_id]


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"00-xyz",
        traceparent(TRACE, 1, 0),
        traceparent(0, 1, 1),
        traceparent(TRACE, 0, 1),
        b"ff" + traceparent(TRACE, 1, 1)[2:],
        b"\xff" * 55,
    ],
)
def test_others_have_no_spans_and_keep_their_headers(
    header: bytes | None, tracing: Tracing, spans: InMemorySpanExporter
) -> None:
    """Not sampled, broken, or none."""
    state = request(1, header)
    before, batch = list(state.headers), ran(state)
    tracing.ran(batch)
    tracing.answered([batch], [Refusal(request(2, header), "expired", "too late")], now_us())
    assert not spans.get_finished_spans() and state.headers == before


def test_a_state_that_failed_is_an_error_with_its_reason(tracing: Tracing, spans: InMemorySpanExporter) -> None:
    """Whether it ran or was refused before."""
    state, late = request(1, traceparent(TRACE, 1, 1)), request(2, traceparent(TRACE, 1, 1))
    batch = ran(state, row0=Fault("failed", "model_error", "boom"))
    tracing.ran(batch)
    failed = Refusal(state, "failed", "boom", dead="model_error")
    tracing.answered([batch], [failed, Refusal(late, "expired", "too late")], now_us())
    processes = [span for span in spans.get_finished_spans() if span.name.startswith("process")]
    outcomes = {span.attributes["fleet.outcome"]: span for span in processes}
    assert outcomes["failed"].status.status_code == StatusCode.ERROR
    assert outcomes["failed"].attributes["error.type"] == "model_error"
    assert outcomes["expired"].status.status_code == StatusCode.UNSET
    assert repr(tracing) == "<Tracing 0 states with open spans>"


def test_the_callers_span_becomes_a_header() -> None:
    """And without a span there is none."""
    assert current() == ()
    with TracerProvider().get_tracer("test").start_as_current_span("step") as span:
        ((name, value),) = current()
    found = parse(value)
    assert name == TRACEPARENT and found is not None
    assert (found.trace_id, found.span_id) == (span.get_span_context().trace_id, span.get_span_context().span_id)


def test_a_collector_that_is_away_is_told_once_a_minute() -> None:
    """Not once a batch of spans."""
    now_s = [0.0]
    seldom = Seldom(60, lambda: now_s[0])
    record = logging.LogRecord("x", logging.WARNING, "", 0, "", None, None)
    told = []
    for moment in (0.0, 1.0, 59.0, 61.0, 62.0):
        now_s[0] = moment
        told.append(seldom.filter(record))
    assert told == [True, False, False, True, False]
