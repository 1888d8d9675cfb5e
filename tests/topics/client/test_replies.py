"""Replies say what an agent's author needs, and never hand out an action that is none."""

from __future__ import annotations

import numpy as np
import pytest

from topics.client.decode import ActionReader
from topics.client.errors import NoAction, ReplyTimeout
from topics.client.replies import Replies, Reply
from topics.client.stats import ClientStats
from topics.errors import FleetError
from topics.records import Action, Timing
from topics.wire import encode_action


def answer(n: int) -> bytes:
    return encode_action(
        Action(
            "action",
            n,
            np.full(2, n, np.float32),
            None,
            "m-3",
            "high",
            "w1",
            Timing(1, 2, 64),
            {"value": np.float32(n) / 2},
        )
    )


FALLBACK = encode_action(Action("expired", 4, np.array([7, 8], np.float32), reason="3 ms too late", lane="low"))
EXPIRED = encode_action(Action("expired", 4, reason="3 ms too late", lane="low"))


def replies(*values: bytes | None, error: FleetError | None = None) -> Replies:
    found = ActionReader(ClientStats()).read(values)
    return Replies([f"a{n}" for n in range(len(values))], values, found, np.arange(len(values)) / 1000, error)


def test_a_row_is_a_reply_with_the_whole_record() -> None:
    """Model, lane, worker, timing and extras are read when they are asked for."""
    reply: Reply = replies(answer(3), answer(4))[1]
    assert (reply.agent_id, reply.outcome, reply.ok, reply.seq) == ("a1", "action", True, 4)
    assert (reply.model, reply.lane, reply.worker, reply.timing) == ("m-3", "high", "w1", Timing(1, 2, 64))
    assert reply.action.tolist() == [4, 4]
    assert (reply.extras["value"], reply.latency_s, reply.reason) == (2.0, 0.001, None)


def test_an_action_that_is_none_is_not_handed_out() -> None:
    """The error names the agent, the outcome and its reason, and says what to do."""
    reply = replies(EXPIRED)[0]
    assert (reply.ok, reply.reason, reply.action_or(7)) == (False, "3 ms too late", 7)
    with pytest.raises(NoAction, match=r"a0 has no action: its state was expired \(3 ms too late\)"):
        _ = reply.action


def test_columns_tell_answers_from_actions() -> None:
    """A state that expired is answered; one without an answer is neither."""
    ours = replies(answer(1), EXPIRED, None, error=ReplyTimeout("no answer"))
    assert ours.answered.tolist() == [True, True, False]
    assert ours.ok.tolist() == [True, False, False]
    assert ours.actions.tolist() == [[1, 1], [0, 0], [0, 0]]
    assert repr(ours) == "<Replies 1 actions, 2 answers of 3>"


def test_a_fallback_is_an_action_although_the_state_expired() -> None:
    """It is handed out in place of a default; `ok` still says whether the model decided."""
    ours = replies(answer(1), FALLBACK, EXPIRED, None, error=ReplyTimeout("no answer"))
    assert ours.ok.tolist() == [True, False, False, False]
    assert ours.has_action.tolist() == [True, True, False, False]
    assert ours.actions.tolist() == [[1, 1], [7, 8], [0, 0], [0, 0]]
    assert ours.actions_or(-1).tolist() == [[1, 1], [7, 8], [-1, -1], [-1, -1]]
    assert [reply.has_action for reply in ours] == [True, True, False, False]
    reply = ours[1]
    assert (reply.outcome, reply.ok, reply.reason) == ("expired", False, "3 ms too late")
    assert reply.action.tolist() == reply.action_or(-1).tolist() == [7, 8]
    assert repr(reply) == "<Reply a1 expired (3 ms too late), fallback array([7., 8.], dtype=float32) 1.0 ms>"


def test_a_loop_that_needs_every_action_goes_on_with_fallbacks() -> None:
    """They are what the model's author wants done then."""
    assert replies(answer(1), FALLBACK).raise_for_missing().actions.tolist() == [[1, 1], [7, 8]]
    with pytest.raises(NoAction, match="1 of 2 states have no action, first a1: expired"):
        replies(FALLBACK, EXPIRED).raise_for_missing()


def test_defaults_fill_the_rows_without_an_action() -> None:
    """One action for all of them, or one per row; the rest is untouched."""
    ours = replies(answer(1), EXPIRED, None)
    assert ours.actions_or(-1).tolist() == [[1, 1], [-1, -1], [-1, -1]]
    assert ours.actions_or([8, 9]).tolist() == [[1, 1], [8, 9], [8, 9]]
    assert ours.actions_or(np.arange(6).reshape(3, 2)).tolist() == [[1, 1], [2, 3], [4, 5]]
    assert replies(None, None).actions_or(3).tolist() == [3, 3]
    assert replies(answer(1)).actions_or(-1).tolist() == [[1, 1]]


def test_loops_that_need_every_action_say_so() -> None:
    """Time-outs and other outcomes raise; complete replies pass."""
    complete = replies(answer(1))
    assert complete.raise_for_missing() is complete
    with pytest.raises(NoAction, match=r"1 of 2 states have no action, first a1: expired \(3 ms too late\)"):
        replies(answer(1), EXPIRED).raise_for_missing()
    with pytest.raises(ReplyTimeout, match="no answer came"):
        replies(answer(1), None, error=ReplyTimeout("no answer came")).raise_for_missing()


def test_rows_without_an_answer_say_why() -> None:
    """Their outcome is empty and their reason the call's error."""
    reply = replies(None, error=ReplyTimeout("nobody there"))[0]
    assert (reply.outcome, reply.reason, reply.ok) == ("", "nobody there", False)


def test_extras_are_a_column() -> None:
    """Zeros where there is none; an unknown name is an error."""
    ours = replies(answer(1), None, answer(4))
    assert ours.extra("value").tolist() == [0.5, 0.0, 2.0]
    with pytest.raises(KeyError, match="logits"):
        ours.extra("logits")


def test_it_is_a_sequence() -> None:
    """Length, negative rows, slices, iteration, and an end."""
    ours = replies(answer(1), answer(2), answer(3))
    assert [reply.seq for reply in ours] == [1, 2, 3]
    assert [reply.seq for reply in ours[1:]] == [2, 3]
    assert ours[-1].seq == 3
    with pytest.raises(IndexError):
        ours[3]


def test_an_empty_call_has_empty_columns() -> None:
    """No agents, no rows."""
    ours = replies()
    assert (len(ours), ours.ok.tolist(), ours.raise_for_missing() is ours) == (0, [], True)
