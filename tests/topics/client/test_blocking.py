"""The blocking façade behaves like Stable-Baselines3's `predict`, and leaves no thread behind."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.topics.client.echo import Arrived, EchoWorker, echo, running
from topics.client import ClientClosed, NoAction, ReplyTimeout, SyncAgentClient
from topics.errors import TopicMissing
from topics.settings import FleetSettings, KafkaSettings

pytestmark = pytest.mark.broker

ONE = np.arange(4, dtype=np.float32)
THREE = np.arange(12, dtype=np.float32).reshape(3, 4)


def policy(arrived: Arrived) -> list[bytes]:
    """Silent for `silent`, late for `late`, else the echo."""
    if arrived.agent == "silent":
        return []
    return [arrived.refused("expired", "too late")] if arrived.agent == "late" else echo(arrived)


@pytest.fixture
def worker(fleet: FleetSettings) -> Iterator[EchoWorker]:
    """A worker on a loop of its own, since the tests block theirs."""
    ready, stop = threading.Event(), threading.Event()
    found: list[EchoWorker] = []

    async def serve() -> None:
        async with running(fleet, policy) as ours:
            found.append(ours)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(20)
    yield found[0]
    stop.set()
    thread.join(20)


def test_one_observation_gives_one_action(worker: EchoWorker, fleet: FleetSettings) -> None:
    """With the state handed back as it is."""
    with SyncAgentClient(settings=fleet) as agents:
        for step in range(3):
            action, state = agents.predict(ONE, state="untouched")
            assert (action, state) == (6 + step, "untouched")
        assert len({seen.agent for seen in worker.seen}) == 1


def test_a_vector_of_observations_gives_a_vector_of_actions(worker: EchoWorker, fleet: FleetSettings) -> None:
    """One agent per row, the same from call to call; the row of one agent alone is a vector too."""
    with SyncAgentClient(settings=fleet) as agents:
        for step in range(2):
            actions, _ = agents.predict(THREE)
            assert actions.tolist() == (THREE.sum(axis=1) + step).tolist()
        actions, _ = agents.predict(THREE[:1])
        assert actions.shape == (1,)
        assert len({seen.agent for seen in worker.seen}) == 3


def test_the_shape_tells_an_image_from_a_vector(worker: EchoWorker, fleet: FleetSettings) -> None:
    """Named by the caller, for arrays and for maps; anything else is refused with both shapes."""
    with SyncAgentClient(settings=fleet, observation_shape=(3, 4)) as agents:
        action, _ = agents.predict(THREE)
        assert np.shape(action) == ()
        actions, _ = agents.predict(THREE[None].repeat(2, axis=0))
        assert np.shape(actions) == (2,)
        with pytest.raises(ValueError, match=r"shape \[4\], expected \(3, 4\) or \[n, \*\(3, 4\)\]"):
            agents.predict(ONE)


def test_episodes_and_options_travel(worker: EchoWorker, fleet: FleetSettings) -> None:
    """`episode_start` counts the agent's episodes, `deterministic=False` is an option of the state."""
    with SyncAgentClient(settings=fleet, agent_ids=["a", "b"]) as agents:
        agents.predict(THREE[:2], episode_start=np.array([True, True]))
        agents.predict(THREE[:2], episode_start=np.array([False, True]))
        agents.predict(ONE, episode_start=True, deterministic=False, lane="high")
        seen = [(s.agent, s.state.episode) for s in worker.seen]
        assert sorted(seen[:4]) == [("a", 0), ("a", 0), ("b", 0), ("b", 1)]
        assert (seen[4], worker.seen[4].lane, worker.seen[4].state.options) == (
            ("a", 1),
            "high",
            {"deterministic": False},
        )


def test_what_has_no_action_raises(worker: EchoWorker, fleet: FleetSettings) -> None:
    """A blocking loop cannot go on without one: time-out and other outcomes are errors there."""
    with SyncAgentClient(settings=fleet, agent_ids=["late", "silent"]) as agents:
        with pytest.raises(NoAction, match=r"late .*expired \(too late\)"):
            agents.predict(ONE)
        with pytest.raises(ReplyTimeout, match="silent"):
            agents.predict(THREE[:2], timeout_s=1)
        with pytest.raises(ValueError, match="3 observations, but agent_ids names only 2"):
            agents.predict(THREE)
        replies = agents.decide_many(["x", "late"], THREE[:2])
        assert replies.outcomes.tolist() == ["action", "expired"]
        assert agents.decide("x", ONE).action == 7
        assert agents.stats.timed_out == 1


def test_other_threads_get_their_answers(worker: EchoWorker, fleet: FleetSettings) -> None:
    """One client serves several blocking loops."""
    with SyncAgentClient(settings=fleet) as agents:
        found: dict[str, list[int]] = {}

        def play(name: str) -> None:
            found[name] = [int(agents.decide(name, ONE).action) for _ in range(5)]

        threads = [threading.Thread(target=play, args=(f"t{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert found == {f"t{n}": [6, 7, 8, 9, 10] for n in range(4)}


def test_closing_ends_the_thread_and_waiting_calls(fleet: FleetSettings) -> None:
    """A call of another thread ends with ClientClosed; so does every later one."""
    agents = SyncAgentClient(settings=fleet)
    (thread,) = [t for t in threading.enumerate() if t.name == "agent-client"]
    ended: list[BaseException] = []

    def wait() -> None:
        with contextlib.suppress(ClientClosed):
            agents.decide("a", ONE, timeout_s=30)
        ended.append(ClientClosed())

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.3)
    agents.close()
    waiting.join(5)
    assert ended
    assert not thread.is_alive()
    with pytest.raises(ClientClosed):
        agents.predict(ONE)
    agents.close()


def test_a_client_that_cannot_open_leaves_no_thread(kafka: KafkaSettings, fleet_name: str) -> None:
    """The error is the one of `AgentClient.start`."""
    with pytest.raises(TopicMissing, match=fleet_name):
        SyncAgentClient(fleet_name, bootstrap_servers=kafka.bootstrap_servers)
    assert not [t for t in threading.enumerate() if t.name == "agent-client"]


def test_a_program_that_forgets_to_close_ends_quietly(worker: EchoWorker, fleet: FleetSettings) -> None:
    """Exit code 0 and not a word on stderr."""
    program = textwrap.dedent(f"""
        import numpy as np
        from topics.client import SyncAgentClient
        agents = SyncAgentClient({fleet.name!r}, bootstrap_servers={fleet.kafka.bootstrap_servers!r})
        assert agents.predict(np.ones(4, np.float32))[0] == 4
    """)
    done = subprocess.run([sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
