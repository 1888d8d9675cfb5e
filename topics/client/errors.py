"""What can go wrong for an agent that asks for decisions, each as one line that says what to do.

An answer other than an action (`expired`, `rejected`, …) is no error: it is the reply's `outcome`.
"""

from __future__ import annotations

from topics.errors import FleetError


class ReplyTimeout(FleetError):
    """No answer came within the call's time-out. The state may still be answered later; that answer is dropped."""


class NotSent(FleetError):
    """The state did not reach the broker: refused, or too much already waits for a broker that does not answer."""


class NoAction(FleetError):
    """`reply.action` was read, but the state ended with another outcome: see `reply.outcome` and `reply.reason`."""


CLOSED = "the client is closed: make a new one"


class ClientClosed(FleetError):
    """The client was closed, before the call or while it waited."""
