"""Arguments of `decide_many` that are one value for all rows, or one per row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from topics.client.agents import Agent


def per_row(value: Any, size: int, name: str) -> Any:
    """A list [size], or the single value that holds for every row (None, a string, a number, a map).

    Raises:
        ValueError: a list of another length.
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        return value
    if len(value) != size:
        raise ValueError(f"{name} has {len(value)} entries for {size} agents")
    return list(value)


def seqs_for(agents: Iterable[Agent], given: Sequence[int] | int | None) -> list[int]:
    """The step counters of states that are about to leave, one per agent and in this order."""
    if given is None:
        seqs = []
        for agent in agents:  # the loop that every state pays for: no call per row
            seqs.append(agent.seq)
            agent.seq += 1
        return seqs
    if isinstance(given, Sequence):
        return [agent.next_seq(int(seq)) for agent, seq in zip(agents, given, strict=True)]
    return [agent.next_seq(int(given)) for agent in agents]
