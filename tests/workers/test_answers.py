"""Answers: what is counted was sent, and everything that ended makes room in its lane."""

from __future__ import annotations

import numpy as np

from tests.workers.build import TOPIC, request
from workers.answers import count_answers
from workers.metrics import Metrics
from workers.offsets import PartitionOffsets
from workers.requests import Batch, Predicted, Refusal


def test_what_a_lost_assignment_had_makes_room_and_counts_as_no_answer() -> None:
    """It was not sent: the next owner answers, and counts. An alert on answers or dead letters must not see two."""
    lost = PartitionOffsets(TOPIC, 0)
    lost.revoke()
    requests = [request("ours"), request("lost", offsets=lost)]
    metrics = Metrics(max_batch=8)
    ran = Predicted(Batch(0, requests, 0), {"action": np.zeros(2)}, 1, 2)
    refusals = [Refusal(one, "rejected", "bad", dead="wrong_input") for one in requests]
    assert count_answers([ran], refusals, 1000, metrics) == {"normal": 4}
    counters = metrics.snapshot().counters
    counted = {labels: n for labels, n in counters["fleet_replies_total"].items() if n}
    assert counted == {("normal", "action"): 1, ("normal", "rejected"): 1}
    assert counters["fleet_dead_letters_total"] == {("wrong_input",): 1}


def test_the_parts_of_a_decisions_time_add_up_to_all_of_it() -> None:
    """Transit, wait, model and reply, in each lane."""
    metrics = Metrics(max_batch=8)
    requests = [request(f"agent-{at}") for at in range(5)]
    for at, one in enumerate(requests):
        one.sent_us, one.received_us, one.lane = 1000 + 10 * at, 3000 + 7 * at, "high" if at % 2 else "normal"
    ran = Predicted(Batch(0, requests, 0), {"action": np.zeros(5)}, 6000, 9500)
    count_answers([ran], [], 12_000, metrics)
    snapshot = metrics.snapshot()
    for lane in ("high", "normal"):
        parts = {part: n for (of, part), n in snapshot.counters["fleet_decision_seconds_total"].items() if of == lane}
        assert set(parts) == {"transit", "wait", "predict", "reply"} and min(parts.values()) > 0
        assert np.isclose(sum(parts.values()), snapshot.distribution("fleet_end_to_end_seconds", lane).total)
