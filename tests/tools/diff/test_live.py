"""Two streams become pairs, whoever comes first; what stays alone is told."""

from __future__ import annotations

import numpy as np

from tools.diff.compare import Comparison
from tools.diff.distance import Tolerance
from tools.diff.live import ALONE_S, Pairing
from tools.recording.recorded import Recorded
from topics.records import Action
from topics.wire import encode_action


def answer(agent: str, seq: int, action: int, correlation: bytes | None = None) -> Recorded:
    """One answer of either side."""
    value = encode_action(Action("action", seq, action=np.array(action), lane="low"))
    headers = () if correlation is None else (("kafka_correlationId", correlation),)
    return Recorded("t", 0, 0, 1000, 0, agent.encode(), value, headers)


def test_answers_pair_whichever_side_is_first() -> None:
    """By agent and correlation ID; the fleet's answer is the reference either way."""
    pairing = Pairing(Comparison(Tolerance()), 0.0)
    pairing.add(0, [answer("x", 1, 1, b"a"), answer("x", 1, 2, b"b"), answer("y", 1, 3, b"a")], 1.0)
    pairing.add(1, [answer("x", 1, 1, b"a"), answer("y", 1, 9, b"a")], 1.1)
    pairing.add(1, [answer("z", 5, 5)], 1.2)
    pairing.add(0, [answer("z", 5, 5)], 1.3)
    found = pairing.comparison
    assert (found.all.pairs, found.all.agreeing) == (3, 2)
    assert found.first_divergences(1)[0].step.agent == b"y"
    assert pairing.waiting == (1, 0)


def test_what_stays_alone_is_missing_or_extra() -> None:
    """After half a minute; not what came in the first half minute, whose other half may have come before."""
    pairing = Pairing(Comparison(Tolerance()), 0.0)
    pairing.add(0, [answer("early", 1, 1)], 1.0)
    pairing.add(0, [answer("x", 1, 1)], ALONE_S + 1)
    pairing.add(1, [answer("y", 1, 1)], ALONE_S + 1)
    pairing.expire(2 * ALONE_S + 0.5)
    assert (pairing.comparison.missing_count, pairing.comparison.extra_count) == (0, 0)
    pairing.expire(2 * ALONE_S + 2)
    found = pairing.comparison
    assert [step.agent for step in found.missing] == [b"x"]
    assert [step.agent for step in found.extra] == [b"y"]
    assert pairing.waiting == (0, 0)
