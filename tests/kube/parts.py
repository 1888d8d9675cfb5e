"""What has to hold on a cluster, one function for each part of `make kube`. Each leaves the release as it found it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from helm_python import HelmError

from tests.kube.traffic import Traffic
from tests.kube.world import CHART, NAMESPACE, RELEASE, World
from topics.provision import find_differences

RATE_PER_S = 500.0
MIX: Mapping[Any, float] = {"high": 0.1 * RATE_PER_S, "normal": 0.7 * RATE_PER_S, "low": 0.2 * RATE_PER_S}
SETTLE_S = 3.0


@dataclass(slots=True)
class Found:
    """What a part saw: figures for the reader, and the checks that failed."""

    figures: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def check(self, what: str, holds: bool) -> None:
        if not holds:
            self.failed.append(what)

    def answered(self, traffic: Traffic) -> None:
        """Every state has one terminal answer, and it is an action."""
        outcomes: dict[str, int] = {}
        for sent in traffic.sent.values():
            for outcome, number in sent.outcomes.items():
                outcomes[outcome] = outcomes.get(outcome, 0) + number
        self.figures |= {"states": traffic.total, "unanswered": traffic.waiting, "outcomes": outcomes}
        self.figures["p99_ms"] = {lane: round(sent.p99_ms() or 0, 1) for lane, sent in traffic.sent.items()}
        self.check("every state is answered", traffic.waiting == 0 and traffic.total > 0)
        self.check("by an action", set(outcomes) == {"action"})

    def drained(self, world: World, before: Set[str]) -> None:
        """Who was stopped since ended by itself, inside its grace."""
        stops = [stop for name, stop in world.stops().items() if name not in before]
        self.figures["drains_s"] = sorted(took for took, _ in stops)
        self.check("somebody was stopped", bool(stops))
        self.check("every drain ends inside its grace", all(took < grace for took, grace in stops))


async def install(world: World) -> Found:
    """The chart installs into a restricted namespace, `helm test` gets decisions, and states are answered."""
    found = Found()
    await world.install(world.values(replicas=3))
    found.check("three workers are ready", len(world.ready("main")) == 3)
    found.check("the topics are in order", not await find_differences(world.settings))
    try:
        await asyncio.to_thread(world.helm.test, RELEASE, timeout=120)
    except HelmError as error:
        found.check(f"helm test: {error}", False)
    async with Traffic(world.settings, MIX) as traffic:
        await asyncio.sleep(5)
    found.answered(traffic)
    events = world.lab.kubectl("get", "events", "-n", NAMESPACE, "-o", "jsonpath={.items[*].message}")
    found.check("nothing violates restricted pod security", "violates PodSecurity" not in events)
    return found


async def upgrade(world: World) -> Found:
    """A new model version and new settings while 500 states a second come, and back again."""
    found, stops = Found(), world.stops().keys()
    found.check("version 1 serves", world.models() == {"cartpole v1"})
    async with Traffic(world.settings, MIX) as traffic:
        await asyncio.sleep(SETTLE_S)
        new = world.values("2", replicas=3)
        new["workers"]["pools"]["main"]["settings"]["batch"]["max_wait_ms"] = 5
        await world.upgrade(new)
        found.check("version 2 serves", world.models() == {"cartpole v2"})
        await asyncio.sleep(SETTLE_S)
        await world.rollback()
        found.check("after the rollback version 1 serves", world.models() == {"cartpole v1"})
        await asyncio.sleep(SETTLE_S)
    found.answered(traffic)
    found.drained(world, stops)
    return found


async def drain(world: World) -> Found:
    """A node is drained while states come: the budget lets one worker go at a time, and others take over."""
    found, stops = Found(), world.stops().keys()
    (name,) = {pod["spec"]["nodeName"] for pod in world.pods()[:1]}
    async with Traffic(world.settings, MIX) as traffic:
        await asyncio.sleep(SETTLE_S)
        arguments = ["drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=180s"]
        await asyncio.to_thread(world.lab.kubectl, *arguments)
        await world.until("three workers elsewhere", lambda: len(world.ready()) == 3)
        await asyncio.sleep(SETTLE_S)
    found.check("none is left on the node", all(pod["spec"]["nodeName"] != name for pod in world.pods()))
    await asyncio.to_thread(world.lab.kubectl, "uncordon", name)
    found.answered(traffic)
    found.drained(world, stops)
    return found


async def kill(world: World) -> Found:
    """A worker's process is killed −9 while states come: it comes back, and nothing is lost."""
    found = Found()
    victim = world.ready()[0]
    async with Traffic(world.settings, MIX) as traffic:
        await asyncio.sleep(SETTLE_S)
        processes = world.processes(victim)
        found.check("the victim runs", bool(processes))
        for process in processes:
            os.kill(process, signal.SIGKILL)
        await world.until("one worker less", lambda: victim not in world.ready())
        await world.until("it is back", lambda: victim in world.ready())
        await asyncio.sleep(SETTLE_S)
    found.answered(traffic)
    return found


async def secret(world: World) -> Found:
    """A Secret that is not there is named where people look: in the Pod's status."""
    found = Found()
    values = world.values(replicas=1)
    values["kafka"] |= {"securityProtocol": "SASL_PLAINTEXT", "existingSecret": {"name": "not-there"}}
    values["topics"] |= {"provision": "none"}
    values["fullnameOverride"] = "broken"
    values["recorder"] = {"enabled": False}
    helm = world.helm
    release = "broken"
    await asyncio.to_thread(helm.install, str(CHART), release, values, namespace=NAMESPACE, timeout=60)

    def told() -> bool:
        states = [
            one["state"].get("waiting", {}).get("message", "")
            for pod in world.pods()
            if pod["metadata"]["labels"]["app.kubernetes.io/instance"] == release
            for one in pod["status"].get("containerStatuses", ())
        ]
        return any("secret 'not-there' not found" in message for message in states)

    await world.until("the Pod's status names the Secret", told)
    await asyncio.to_thread(helm.uninstall, release, timeout=60)
    return found


async def uninstall(world: World) -> Found:
    """Workers go; topics with their states and the recording stay."""
    found, stops = Found(), world.stops().keys()
    await world.uninstall()
    found.drained(world, stops)
    found.check("the topics are there", not await find_differences(world.settings))
    claims = world.lab.kubectl("get", "pvc", "-n", NAMESPACE, "-o", "name")
    found.check("the recording's claim is there", "recorder" in claims)
    recording = world.lab.folder / "claims" / f"{RELEASE}-decision-fleet-recorder"
    sizes = [path.stat().st_size for path in recording.rglob("*.mcap")]
    found.figures["recording_bytes"] = sum(sizes)
    found.check("the recording has states in it", sum(sizes) > 10_000)
    return found


Part = Callable[[World], Awaitable[Found]]
