"""What acknowledged answers mean for offsets and metrics. Called once per flush of the reply step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from topics.names import Lane
from topics.records import Outcome
from workers.metrics import Metrics
from workers.requests import Predicted, Refusal, Request


def count_answers(
    predicted: Sequence[Predicted], refusals: Sequence[Refusal], now_us: int, metrics: Metrics
) -> Mapping[Lane, int]:
    """Finish the offsets of everything answered, record how long it took, and give per lane how many have ended.

    What belongs to a lost assignment has ended without an answer: its new owner gives that, and counts it.
    """
    counted: dict[Lane, int] = defaultdict(int)
    sent_us: dict[tuple[Lane, Outcome], list[int]] = defaultdict(list)
    waits_us: dict[Lane, list[int]] = defaultdict(list)
    for ran in predicted:
        _finish_batch(ran, counted, sent_us, waits_us, now_us, metrics)
    for refusal in refusals:
        request = refusal.request
        counted[request.lane] += 1
        if request.offsets.revoked:
            continue
        request.offsets.finished(request.record.offset)
        sent_us[request.lane, refusal.outcome].append(request.sent_us)
        if refusal.dead is not None:
            metrics.dead_letter(refusal.dead)
    for lane, waits in waits_us.items():
        metrics.queue_waits(lane, np.array(waits) / 1e6)
    for (lane, outcome), sent in sent_us.items():
        metrics.replied(lane, outcome, (now_us - np.array(sent)) / 1e6)
    return counted


def _finish_batch(
    ran: Predicted,
    counted: dict[Lane, int],
    sent_us: dict[tuple[Lane, Outcome], list[int]],
    waits_us: dict[Lane, list[int]],
    now_us: int,
    metrics: Metrics,
) -> None:
    """Rows at fault are not finished here: they come as refusals, after their dead letters."""
    started_us, answered = ran.started_us, defaultdict[Lane, list[Request]](list)
    for row, request in enumerate(ran.batch.requests):
        if row not in ran.faults:
            counted[request.lane] += 1
            if not request.offsets.revoked:
                request.offsets.finished(request.record.offset)
                answered[request.lane].append(request)
        waits_us[request.lane].append(started_us - request.received_us)
    for lane, requests in answered.items():
        sent, n = [request.sent_us for request in requests], len(requests)
        sent_us[lane, "action"] += sent
        received_us = sum([request.received_us for request in requests])
        metrics.spent(
            lane,
            transit_s=(received_us - sum(sent)) / 1e6,
            wait_s=(n * started_us - received_us) / 1e6,
            predict_s=n * (ran.ended_us - started_us) / 1e6,
            reply_s=n * (now_us - ran.ended_us) / 1e6,
        )
