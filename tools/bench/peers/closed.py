"""closed.<system>: agents that wait for their answers, behind HTTP and through a fleet, in turns.

Every agent asks for itself on both sides: one request each, one `decide` each. The servers batch what comes together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tools.bench.children import START_WITHIN_S, ChildFailed, last_words
from tools.bench.peers.job import Place
from tools.bench.peers.load import answers, play, request
from tools.bench.peers.process import running
from tools.bench.peers.results import Pairs
from tools.bench.peers.systems import System
from tools.bench.results import Run
from tools.bench.rig import Rig
from tools.bench.serving import WARM_S, Window, asking, serving
from tools.bench.show import Show
from tools.bench.states import agent_ids, observations
from tools.broker.ports import free_ports
from topics.client import AgentClient
from topics.client.errors import ReplyTimeout
from topics.tensors import Array


async def closed_pair(
    rig: Rig, system: System, python: Path, agents: int, seconds: float, show: Show, pairs: Pairs
) -> None:
    """One run of the system and one of the worker, added to `pairs`.

    Raises:
        ChildFailed, BadAnswer: one of them ended, or answered something else.
    """
    seen = observations(rig.observation, agents, 1)
    with show.bar(system.name, seconds) as on_second:
        theirs = await _theirs(rig, system, python, seen, seconds, on_second)
    async with serving(rig, "fleet") as child, asking(rig) as client:
        with show.bar(f"worker, beside {system.name}", seconds) as on_second:
            pairs.add(theirs, await _ours(client, seen, Window([child], seconds), on_second))


async def _theirs(
    rig: Rig, system: System, python: Path, seen: Array, seconds: float, on_second: Callable[[float], None]
) -> Run:
    port = free_ports(1)[0]
    rows = [[row] if system.rows else row for row in seen.tolist()]
    questions = [request(row, port, binary=system.binary) for row in rows]
    with running(system, python, Place(rig.settings.model.path, port=port)) as peer:
        give_up_at = time.monotonic() + START_WITHIN_S
        while not await answers(port, questions[0]):
            peer.require_alive()
            if time.monotonic() > give_up_at:
                said = last_words(peer.log)
                raise ChildFailed(f"{system.name} gives no action after {START_WITHIN_S:g} s: {said} (log: {peer.log})")
            await asyncio.sleep(0.2)
        return await play(port, questions, Window([peer], seconds), WARM_S, on_second)


async def _ours(client: AgentClient, seen: Array, window: Window, on_second: Callable[[float], None]) -> Run:
    latencies_s: list[float] = []
    async with asyncio.TaskGroup() as group:
        for agent, observation in zip(agent_ids(len(seen)), seen, strict=True):
            group.create_task(_ask_again_and_again(client, agent, observation, window, latencies_s))
        await window.run(WARM_S, on_second)
    run = Run()
    run.lane("normal").add(np.array(latencies_s))
    return window.finish(run)


async def _ask_again_and_again(
    client: AgentClient, agent: str, observation: Array, window: Window, latencies_s: list[float]
) -> None:
    while not window.is_over:
        asked_s = time.monotonic()
        try:
            await client.decide(agent, observation, lane="normal")
            latency_s = time.monotonic() - asked_s
        except ReplyTimeout:
            latency_s = np.nan
        if window.is_open:
            latencies_s.append(latency_s)
