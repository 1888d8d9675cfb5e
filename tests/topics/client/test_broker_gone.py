"""A broker that vanishes is named, blocks nobody for longer than was asked for, and is used again when it is back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.topics.client.echo import running
from tools.broker import BrokerFault, Cluster, start_broker
from topics.client import AgentClient, ReplyTimeout
from topics.provision import ensure_topics
from topics.settings import FleetSettings, KafkaSettings, TopicSettings

pytestmark = pytest.mark.broker

ONE = np.arange(4, dtype=np.float32)


@pytest.fixture(scope="module")
def second(broker: Cluster) -> Iterator[Cluster]:
    """A broker beside the session's; `broker` skips these tests on machines that cannot run one."""
    try:
        cluster = start_broker()
    except BrokerFault as fault:  # two may be too much for a small machine
        pytest.skip(str(fault))
    yield cluster
    cluster.stop(within_s=5)


@pytest.fixture
def frail(second: Cluster) -> Iterator[Cluster]:
    """That broker, up and running, whatever the test before did to it."""
    second.nodes[0].resume()
    if not second.is_alive:
        second.start()
    second.wait_ready()
    yield second
    second.nodes[0].resume()


async def fleet_on(cluster: Cluster) -> FleetSettings:
    kafka = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)
    settings = FleetSettings(name="frail", kafka=kafka, topics=TopicSettings(partitions=2))
    await ensure_topics(settings)
    return settings


async def test_a_client_survives_a_restart_of_the_broker(frail: Cluster) -> None:
    """Calls meanwhile time out and name the broker, none takes longer than it may; afterwards all is as before."""
    fleet = await fleet_on(frail)
    async with running(fleet), AgentClient(settings=fleet) as agents:
        assert (await agents.decide("a", ONE)).action == 6
        await asyncio.to_thread(frail.nodes[0].stop)
        began_s = time.monotonic()
        with pytest.raises(ReplyTimeout, match=rf"the broker at {frail.bootstrap_servers} has not"):
            await agents.decide("a", ONE, timeout_s=1)
        replies = await agents.decide_many(["a", "b"], np.stack([ONE, ONE]), timeout_s=1)
        assert time.monotonic() - began_s < 4
        assert not replies.answered.any()
        assert frail.bootstrap_servers in str(replies.error)
        await asyncio.to_thread(frail.start)
        await asyncio.to_thread(frail.wait_ready)
        async with asyncio.timeout(30):
            while not (await agents.decide_many(["a", "b"], np.stack([ONE, ONE]), timeout_s=1)).ok.all():
                pass


PROGRAM = """
    import asyncio, sys, time
    import numpy as np
    from topics.client import AgentClient, ReplyTimeout
    from topics.errors import BrokerUnavailable

    async def main():
        agents = AgentClient("frail", bootstrap_servers=sys.argv[1], close_s=2)
        await agents.start()
        try:
            await agents.decide("a", np.ones(4), timeout_s=1.5)
        except ReplyTimeout:
            print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        waiting = [asyncio.ensure_future(agents.decide("a", np.ones(4), timeout_s=60)) for _ in range(3)]
        waiting.append(asyncio.ensure_future(agents.decide_many(["a"], np.ones((1, 4)), timeout_s=60)))
        await asyncio.sleep(1)
        began_s = time.monotonic()
        await agents.close()
        print(time.monotonic() - began_s)
        print(*(type(found).__name__ for found in await asyncio.gather(*waiting, return_exceptions=True)))

    asyncio.run(main())
"""


@pytest.mark.parametrize("fault", ["pause", "kill"])
async def test_closing_without_a_broker_is_bounded_and_quiet(frail: Cluster, fault: str) -> None:
    """Dead or hanging: waiting calls end with ClientClosed, within the bound, without a word on stderr."""
    await fleet_on(frail)
    command = [sys.executable, "-W", "default", "-c", textwrap.dedent(PROGRAM), frail.bootstrap_servers]

    def play() -> tuple[str, str, int]:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            getattr(frail.nodes[0], fault)()
            out, err = program.communicate("go\n", timeout=60)
            return out, err, program.returncode

    out, err, code = await asyncio.to_thread(play)
    took_s, outcomes = out.splitlines()
    assert (code, err) == (0, "")
    assert float(took_s) < 4
    assert outcomes.split() == ["ClientClosed"] * 4
