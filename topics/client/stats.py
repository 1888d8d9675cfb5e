"""Counters of one client, plain numbers that a program may read at any time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ClientStats:
    """Counts since the client started; one state is one record."""

    calls: int = 0
    """`decide_many` calls, and turns of the event loop that held `decide` calls."""
    states_sent: int = 0
    answered: int = 0
    """States that got their one answer in time, whatever its outcome."""
    timed_out: int = 0
    """States whose call ended before an answer came."""
    not_sent: int = 0
    """States that the broker refused."""
    duplicates: int = 0
    """Further answers to a state that had one: a worker ran it again after a crash. Dropped."""
    late: int = 0
    """Answers that came after their call had timed out. Dropped."""
    foreign: int = 0
    """Answers to other clients on the partitions that this client reads. Ignored."""
    unreadable: int = 0
    """Answers whose bytes are no action record; their outcome is `failed`."""
    read_errors: int = 0
    """Polls of the reply partitions that failed; the next one is made 100 ms later."""
