"""The agents' process: makes the environments, waits for its turn, plays through Kafka, tells how it goes and what
came out.

Started by the demo as `python -m tools.demo.agents <JSON>`; says `ready`, then twice a second `window`, at last `done`
(or `error`), each a JSON line on standard output.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.demo.group import Group
from tools.demo.lines import run_process, tell, wait_for_turn
from tools.demo.lineup import Seats, line_up
from tools.demo.options import WARM_UP_S
from tools.demo.play_kafka import Play
from tools.demo.tally import Tally
from topics.client import AgentClient, ReplyTimeout
from topics.errors import FleetError
from topics.names import LANES
from topics.settings import FleetSettings, load_settings
from workers.models.package import Manifest, read_manifest

WINDOW_S: Final = 0.5
ASK_FIRST_WITHIN_S: Final = 10.0
"""The first state of all: whoever does not answer it is not there."""

Groups = Sequence[tuple[Seats, Group]]


def main(plan: Mapping[str, Any]) -> None:
    """`plan`: environment, model (path), agents, seed, seconds, fleet."""
    manifest = read_manifest(Path(plan["model"]))
    (spec,) = manifest.inputs
    groups = [
        (seats, Group(plan["environment"], seats.agents, plan["seed"], spec)) for seats in line_up(plan["agents"])
    ]
    gc.freeze()  # the environments stay: no need to look at their thousands of objects again and again
    tell(ready=True)
    if servers := wait_for_turn():
        overrides = {"name": plan["fleet"], "kafka": {"bootstrap_servers": servers}}
        settings = load_settings(FleetSettings, overrides=overrides)
        asyncio.run(play(settings, manifest, groups, plan))


async def play(settings: FleetSettings, manifest: Manifest, groups: Groups, plan: Mapping[str, Any]) -> None:
    """Connect, see that somebody answers, warm up, play, tell the result."""
    tally = Tally()
    async with AgentClient(settings=settings) as client:
        await ask_first(client, manifest, groups[0][1], plan)
        clock = asyncio.get_running_loop().time
        rehearsal = Play(client, plan["environment"], tally, 0.0, clock)
        await rehearsal.rehearse(groups, clock() + WARM_UP_S)
        began_s, began_cpu_s = clock(), time.process_time()
        run = Play(client, plan["environment"], tally, began_s + plan["seconds"], clock)
        telling = asyncio.create_task(keep_telling(tally, groups, began_s))
        try:
            await run.run(groups)
        finally:
            telling.cancel()
        cpu_s = time.process_time() - began_cpu_s
        tell(done={"cpu_s": cpu_s, **result(run, tally, groups, clock() - began_s)}, stats=_numbers(client))


async def ask_first(client: AgentClient, manifest: Manifest, group: Group, plan: Mapping[str, Any]) -> None:
    """One state in every lane, before the clock runs.

    Raises:
        FleetError: nobody answers, the answer is no action, or another model serves this fleet.
    """
    fleet, servers = client.settings.name, client.settings.kafka.bootstrap_servers
    try:
        asked = [
            client.decide("first", group.observations[0], lane=lane, timeout_s=ASK_FIRST_WITHIN_S) for lane in LANES
        ]
        reply, *_ = await asyncio.gather(*asked)
    except ReplyTimeout as error:
        raise FleetError(
            f"nobody answers in fleet {fleet} at {servers}: "
            f"start a worker with `fleet worker --fleet {fleet} --model {plan['model']}`"
        ) from error
    if not reply.ok:
        raise FleetError(
            f"fleet {fleet} does not play {plan['environment']}: the first state was {reply.outcome}, {reply.reason}"
        )
    if reply.model != str(manifest):
        raise FleetError(
            f"fleet {fleet} is served by {reply.model}, the demo would compare with {manifest}: "
            "name the same package with --model, or the environment it plays with --env"
        )


async def keep_telling(tally: Tally, groups: Groups, began_s: float) -> None:
    """How it goes, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(WINDOW_S)
        tell(window={"at_s": loop.time() - began_s, "lanes": tally.window(), **_so_far(tally, groups)})


def result(run: Play, tally: Tally, groups: Groups, seconds: float) -> dict[str, Any]:
    """Everything at the end of play."""
    return {
        "seconds": seconds,
        "lanes": tally.lanes(),
        "failure": run.failure,
        **_so_far(tally, groups),
        "groups": [[played.as_dict() for played in group.played()] for _, group in groups],
    }


def _so_far(tally: Tally, groups: Groups) -> dict[str, Any]:
    means = [(group.episodes, group.mean_return()) for _, group in groups]
    episodes = sum(n for n, _ in means)
    return {
        "decisions": tally.outcomes["action"],
        "outcomes": dict(tally.outcomes),
        "asked_again": tally.asked_again,
        "unanswered": tally.unanswered,
        "episodes": episodes,
        "mean_return": sum(n * mean for n, mean in means if mean is not None) / episodes if episodes else None,
        "workers": tally.workers(),
    }


def _numbers(client: AgentClient) -> dict[str, int]:
    stats = client.stats
    return {name: getattr(stats, name) for name in ("states_sent", "answered", "timed_out", "late", "duplicates")}


if __name__ == "__main__":
    sys.exit(run_process(main))
