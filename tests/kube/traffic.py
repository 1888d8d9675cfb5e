"""Agents that send states at a rate while the cluster changes below the workers, and what became of each state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from topics.client import AgentClient
from topics.names import Lane
from topics.settings import FleetSettings

TURN_S: Final = 0.02
"""States that fall due within one turn travel together."""
PATIENCE_S: Final = 240.0
"""An agent of the harness waits this long: longer than any change takes."""
AGENTS: Final = 240
OBSERVATION: Final = (4,)

Seconds = npt.NDArray[np.float64]


@dataclass(slots=True)
class Sent:
    """States of a lane: when they were sent (monotonic s), and after how many seconds the answer came (NaN: never)."""

    at_s: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def unanswered(self) -> int:
        return int(np.isnan(self.latency_s).sum())

    def p99_ms(self, from_s: float = 0.0, to_s: float = float("inf")) -> float | None:
        """Of the states sent in this time; None if there are none."""
        chosen = [ms for at, ms in zip(self.at_s, self.latency_s, strict=True) if from_s <= at < to_s and ms == ms]
        return float(np.percentile(chosen, 99)) * 1e3 if chosen else None

    def over_time(self, from_s: float, bin_s: float) -> list[tuple[float, float]]:
        """(seconds since `from_s`, p99 in ms) of each bin."""
        at, latency = np.array(self.at_s) - from_s, np.array(self.latency_s)
        bins = (at // bin_s).astype(int)
        return [
            (float(one * bin_s), float(np.nanpercentile(latency[bins == one], 99)) * 1e3)
            for one in np.unique(bins)
            if not np.isnan(latency[bins == one]).all()
        ]


class Traffic:
    """Constant rates per lane, to be changed while it runs; ends with every answer, or after the agents' patience."""

    def __init__(self, settings: FleetSettings, rates_per_s: Mapping[Lane, float]) -> None:
        self.sent: dict[Lane, Sent] = {}
        self._settings = settings
        self._rates_per_s = dict(rates_per_s)
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def rate(self, rates_per_s: Mapping[Lane, float]) -> None:
        """From now on."""
        self._rates_per_s = dict(rates_per_s)

    @property
    def waiting(self) -> int:
        """States that have no answer yet."""
        return sum(sent.unanswered for sent in self.sent.values())

    @property
    def total(self) -> int:
        return sum(len(sent.at_s) for sent in self.sent.values())

    async def __aenter__(self) -> Traffic:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        assert self._task is not None
        await self._task

    async def _run(self) -> None:
        rng = np.random.default_rng(1)
        ids = [f"agent-{number}" for number in range(AGENTS)]
        async with AgentClient(settings=self._settings, timeout_s=PATIENCE_S) as client, asyncio.TaskGroup() as group:
            owed: dict[Lane, float] = {}
            last_s, turn = time.monotonic(), 0
            while not self._stop.is_set():
                await asyncio.sleep(TURN_S)
                now_s = time.monotonic()
                for lane, rate in self._rates_per_s.items():
                    owed[lane] = owed.get(lane, 0.0) + rate * (now_s - last_s)
                    number, owed[lane] = int(owed[lane]), owed[lane] % 1
                    if number:
                        chosen = [ids[(turn + one) % AGENTS] for one in range(min(number, AGENTS))]
                        turn += number
                        seen = rng.uniform(-0.05, 0.05, (len(chosen), *OBSERVATION)).astype(np.float32)
                        group.create_task(self._ask(client, lane, chosen, seen))
                last_s = now_s

    async def _ask(self, client: AgentClient, lane: Lane, ids: Sequence[str], seen: npt.NDArray[np.float32]) -> None:
        sent = self.sent.setdefault(lane, Sent())
        rows = slice(len(sent.at_s), len(sent.at_s) + len(ids))
        sent.at_s += [time.monotonic()] * len(ids)
        sent.latency_s += [float("nan")] * len(ids)
        replies = await client.decide_many(ids, seen, lane=lane)
        sent.latency_s[rows] = list(replies.latency_s)
        for outcome in replies.outcomes:
            sent.outcomes[str(outcome)] = sent.outcomes.get(str(outcome), 0) + 1
