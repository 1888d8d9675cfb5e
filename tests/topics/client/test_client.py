"""AgentClient on a real broker, with a worker of the test's own at the other end."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.topics.client.echo import Arrived, echo, running
from topics import kafka as clients
from topics.client import AgentClient, ClientClosed, NoAction, ReplyTimeout, correlation
from topics.errors import BrokerUnavailable, FleetError, InputError, SettingsError, TooLarge, TopicMissing
from topics.headers import CORRELATION_ID, MSGPACK
from topics.partitions import Partitioner
from topics.settings import FleetSettings, KafkaSettings, PriorityRule, PriorityWhen
from topics.wire import DEFAULT_LIMITS

pytestmark = pytest.mark.broker

IDS = [f"agent-{n}" for n in range(32)]
OBSERVATIONS = np.arange(len(IDS) * 4, dtype=np.float32).reshape(-1, 4)
SUMS = OBSERVATIONS.sum(axis=1)


async def until(holds: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait until `holds()`; fail after `within_s`."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_one_agent_gets_its_decision(fleet: FleetSettings) -> None:
    """The state arrives with everything its author said, under the agent's key; the reply says who decided."""
    async with running(fleet) as worker, AgentClient(settings=fleet) as agents:
        reply = await agents.decide(
            "agent-7", OBSERVATIONS[1], lane="high", deadline_ms=2000, kind="urgent", episode=3, options={"t": 1}
        )
        assert (reply.action, type(reply.action)) == (22, np.int64)
        assert (reply.agent_id, reply.model, reply.lane, reply.worker, reply.seq) == (
            "agent-7",
            "echo-1",
            "high",
            "w1",
            0,
        )
        assert 0 < reply.latency_s < 5
        (seen,) = worker.seen
        assert (seen.agent, seen.lane, seen.partition) == ("agent-7", "high", Partitioner(4)(b"agent-7"))
        assert (seen.state.kind, seen.state.episode, seen.state.options) == ("urgent", 3, {"t": 1})
        assert seen.state.deadline_us is not None and seen.state.sent_us is not None
        assert seen.state.deadline_us - seen.state.sent_us == 2_000_000
        np.testing.assert_array_equal(seen.state.observation, OBSERVATIONS[1])


async def test_many_agents_get_theirs_in_one_call(fleet: FleetSettings) -> None:
    """Each row is its own agent's answer, call after call; the lanes are those that were asked for."""
    async with running(fleet) as worker, AgentClient(settings=fleet) as agents:
        lanes = ["high", "normal", "low", "normal"] * 8
        for step in range(3):
            replies = await agents.decide_many(IDS, OBSERVATIONS, lane=lanes)
            np.testing.assert_array_equal(replies.actions, SUMS + step)
            assert replies.ok.all()
            assert (replies.latency_s > 0).all()
        assert {(seen.agent, seen.lane) for seen in worker.seen} == set(zip(IDS, lanes, strict=True))
        assert agents.stats.answered == agents.stats.states_sent == 96
        assert agents.stats.calls == 3


async def test_single_calls_of_one_turn_travel_together(fleet: FleetSettings) -> None:
    """Every coroutine gets the answer of its own agent; to the client they are one call."""
    async with running(fleet), AgentClient(settings=fleet) as agents:
        await agents.decide_many(IDS, OBSERVATIONS)
        replies = await asyncio.gather(*(agents.decide(name, row) for name, row in zip(IDS, OBSERVATIONS, strict=True)))
        assert [reply.action for reply in replies] == (SUMS + 1).tolist()
        assert [reply.agent_id for reply in replies] == IDS
        assert agents.stats.calls == 2


async def test_states_of_an_agent_arrive_in_order(fleet: FleetSettings) -> None:
    """Whether they are sent one by one, in calls that overlap, or twice in one call."""
    async with running(fleet) as worker, AgentClient(settings=fleet) as agents:
        singles = [agents.decide("a", OBSERVATIONS[0]) for _ in range(20)]
        many = [agents.decide_many(["a", "b", "a"], OBSERVATIONS[:3]) for _ in range(10)]
        await asyncio.gather(*singles, *many)
        assert [seen.state.seq for seen in worker.seen if seen.agent == "a"] == list(range(40))


async def test_plain_numbers_and_maps_travel_too(fleet: FleetSettings) -> None:
    """Lists stay lists, maps stay maps, and plain answers stay plain."""

    def plain(arrived: Arrived) -> list[bytes]:
        return [arrived.action([1.5, 2])]

    async with running(fleet, plain) as worker, AgentClient(settings=fleet) as agents:
        reply = await agents.decide("a", [1, 2.5, 3])
        await agents.decide("b", {"camera": np.zeros((2, 2), np.uint8), "speed": 3})
        await agents.decide_many(["c", "d"], {"speed": np.array([1.0, 2.0])})
        assert reply.action == [1.5, 2]
        observations = {seen.agent: seen.state.observation for seen in worker.seen}
        assert observations["a"] == [1, 2.5, 3]
        assert observations["b"]["camera"].shape == (2, 2)
        assert (observations["c"]["speed"], observations["d"]["speed"]) == (1.0, 2.0)


async def test_other_outcomes_are_replies(fleet: FleetSettings) -> None:
    """An expired or rejected state raises only when its action is read."""

    def refuse(arrived: Arrived) -> list[bytes]:
        if arrived.agent == "agent-1":
            return [arrived.refused("expired", "3 ms too late")]
        return echo(arrived)

    async with running(fleet, refuse), AgentClient(settings=fleet) as agents:
        reply = await agents.decide("agent-1", OBSERVATIONS[0], deadline_ms=1)
        assert (reply.outcome, reply.reason, reply.ok) == ("expired", "3 ms too late", False)
        with pytest.raises(NoAction, match="agent-1"):
            _ = reply.action
        replies = await agents.decide_many(IDS, OBSERVATIONS)
        assert replies.outcomes.tolist().count("expired") == 1
        assert replies.answered.all()
        assert replies.actions_or(-1)[1] == -1


async def test_a_call_that_times_out_keeps_what_came(fleet: FleetSettings) -> None:
    """The rows that came are answered, the others say why; late answers are counted and dropped."""

    def slow(arrived: Arrived) -> list[bytes]:
        return [] if arrived.agent in ("agent-3", "agent-5") else echo(arrived)

    async with running(fleet, slow), AgentClient(settings=fleet) as agents:
        await agents.decide_many(IDS[:1], OBSERVATIONS[:1])
        replies = await agents.decide_many(IDS, OBSERVATIONS, timeout_s=1.5)
        missing = [row for row, came in enumerate(replies.answered) if not came]
        assert missing == [3, 5]
        assert np.isnan(replies.latency_s[missing]).all()
        np.testing.assert_array_equal(np.delete(replies.actions, missing), np.delete(SUMS, missing) + ([1] + [0] * 29))
        text = r"no answer for agent-3 and 1 other agents \(lane normal\) within 1\.\d+ s: the broker took the state"
        assert re.match(text, str(replies.error))
        with pytest.raises(ReplyTimeout):
            replies.raise_for_missing()
        assert agents.stats.timed_out == 2


async def test_a_single_call_times_out_with_a_reason(fleet: FleetSettings) -> None:
    """No worker runs: the error names agent, lane, the time waited and what to look at."""
    async with AgentClient(settings=fleet) as agents:
        with pytest.raises(ReplyTimeout, match=r"no answer for a \(lane low\) within [\d.]+ s: .*`fleet worker`"):
            await agents.decide("a", OBSERVATIONS[0], lane="low", timeout_s=0.5)
        assert agents.stats.timed_out == 1


async def test_late_and_repeated_answers_are_dropped(fleet: FleetSettings) -> None:
    """A worker that answers twice, and one that answers after the time-out, change nothing but the counters."""
    kept: list[Arrived] = []

    def policy(arrived: Arrived) -> list[bytes]:
        if arrived.agent == "late" and not kept:
            kept.append(arrived)
            return []
        return [arrived.action(), arrived.action(-1)]

    async with running(fleet, policy) as worker, AgentClient(settings=fleet) as agents:
        with pytest.raises(ReplyTimeout):
            await agents.decide("late", OBSERVATIONS[0], timeout_s=0.7)
        reply_to = Partitioner(4)(b"late")
        await worker._producer.send(
            fleet.names.actions,
            kept[0].action(),
            key=b"late",
            partition=reply_to,
            headers=list(kept[0].routing.echoed),
        )
        await until(lambda: agents.stats.late == 1)
        replies = await agents.decide_many(IDS, OBSERVATIONS)
        np.testing.assert_array_equal(replies.actions, SUMS)
        await until(lambda: agents.stats.duplicates == len(IDS))


async def test_clients_share_partitions_without_mixing_answers(fleet: FleetSettings) -> None:
    """Two clients with the same agent IDs see each other's answers pass by and take only their own."""
    async with running(fleet), AgentClient(settings=fleet) as one, AgentClient(settings=fleet) as two:
        for step in range(3):
            mine, theirs = await asyncio.gather(
                one.decide_many(IDS, OBSERVATIONS), two.decide_many(IDS, OBSERVATIONS * 2)
            )
            np.testing.assert_array_equal(mine.actions, SUMS + step)
            np.testing.assert_array_equal(theirs.actions, SUMS * 2 + step)
        await until(lambda: one.stats.foreign > 0 and two.stats.foreign > 0)


async def test_agents_that_come_later_lose_no_answer_of_those_there(fleet: FleetSettings) -> None:
    """Every new agent may add a partition while others wait for their answers."""
    async with running(fleet), AgentClient(settings=fleet) as agents:

        async def play(name: str) -> None:
            for step in range(15):
                assert (await agents.decide(name, OBSERVATIONS[1])).action == 22 + step

        async with asyncio.TaskGroup() as group:
            for name in IDS[:12]:
                group.create_task(play(name))
                await asyncio.sleep(0.02)
        assert (agents.stats.timed_out, agents.stats.duplicates) == (0, 0)


async def test_a_place_of_its_own_is_named_in_every_state(fleet: FleetSettings) -> None:
    """All answers come to one partition, whatever the agents' keys, and no other is read."""
    async with running(fleet) as worker, AgentClient(settings=fleet, reply_partition=2) as agents:
        replies = await agents.decide_many(IDS, OBSERVATIONS)
        np.testing.assert_array_equal(replies.actions, SUMS)
        assert (await agents.decide("a", OBSERVATIONS[1])).action == 22
        assert {(seen.routing.reply_topic, seen.routing.reply_partition) for seen in worker.seen} == {(None, 2)}
        assert [agents._connection.reader.reads(partition) for partition in range(4)] == [False, False, True, False]


async def test_a_reply_topic_of_its_own(fleet: FleetSettings) -> None:
    """With or without a partition of it."""
    other = fleet.names.dead  # any topic that exists
    async with running(fleet) as worker, AgentClient(settings=fleet, reply_topic=other, reply_partition=0) as agents:
        assert (await agents.decide_many(IDS, OBSERVATIONS)).ok.all()
        assert {(seen.routing.reply_topic, seen.routing.reply_partition) for seen in worker.seen} == {(other, 0)}


async def test_rules_choose_the_lane_from_what_happened(fleet: FleetSettings) -> None:
    """After a time-out the agent's next state goes high, and back to normal once it was answered."""
    rules = [PriorityRule(when=PriorityWhen(after_timeout=True), lane="high")]
    silent = [True]

    def policy(arrived: Arrived) -> list[bytes]:
        return [] if silent[0] and arrived.agent == "agent-1" else echo(arrived)

    async with running(fleet, policy) as worker, AgentClient(settings=fleet, rules=rules) as agents:
        await agents.decide_many(IDS[:3], OBSERVATIONS[:3], timeout_s=1)
        silent[0] = False
        await agents.decide_many(IDS[:3], OBSERVATIONS[:3])
        await agents.decide("agent-1", OBSERVATIONS[1])
        assert [seen.lane for seen in worker.seen if seen.agent == "agent-1"] == ["normal", "high", "normal"]
        assert {seen.lane for seen in worker.seen if seen.agent != "agent-1"} == {"normal"}


async def test_a_forgotten_agent_counts_from_the_start(fleet: FleetSettings) -> None:
    """And is still answered."""
    async with running(fleet) as worker, AgentClient(settings=fleet) as agents:
        for _ in range(2):
            await agents.decide("a", OBSERVATIONS[0])
        agents.forget(["a"])
        await agents.decide("a", OBSERVATIONS[0])
        await agents.decide("a", OBSERVATIONS[0], seq=70)
        await agents.decide("a", OBSERVATIONS[0])
        assert [seen.state.seq for seen in worker.seen] == [0, 1, 0, 70, 71]


async def test_close_ends_the_calls_that_wait(fleet: FleetSettings) -> None:
    """Single and many, also one made in the same turn; later calls say that the client is closed."""
    agents = AgentClient(settings=fleet)
    await agents.start()
    await agents.decide_many(IDS[:1], OBSERVATIONS[:1], timeout_s=0.5)
    waiting = [
        asyncio.ensure_future(agents.decide(IDS[0], OBSERVATIONS[0])),
        asyncio.ensure_future(agents.decide_many(IDS[:1], OBSERVATIONS[:1])),
    ]
    await asyncio.sleep(0.05)
    same_turn = asyncio.ensure_future(agents.decide(IDS[0], OBSERVATIONS[0]))
    await asyncio.sleep(0)
    await agents.close()
    for outcome in await asyncio.gather(*waiting, same_turn, return_exceptions=True):
        assert isinstance(outcome, ClientClosed)
    with pytest.raises(ClientClosed, match="the client is closed"):
        await agents.decide("a", OBSERVATIONS[0])
    await agents.close()


async def test_a_cancelled_call_leaves_its_neighbours_alone(fleet: FleetSettings) -> None:
    """The caller's own time limit ends one wait; its answer is dropped without a word."""
    gate = asyncio.Event()

    def policy(arrived: Arrived) -> list[bytes]:
        return echo(arrived) if gate.is_set() or arrived.agent != "slow" else []

    async with running(fleet, policy), AgentClient(settings=fleet) as agents:
        await agents.decide_many(["slow", "quick"], OBSERVATIONS[:2], timeout_s=0.7)

        async def impatient() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await agents.decide("slow", OBSERVATIONS[0])

        _, reply = await asyncio.gather(impatient(), agents.decide("quick", OBSERVATIONS[1]))
        assert reply.ok


async def test_an_empty_call_is_answered_at_once(fleet: FleetSettings) -> None:
    """A vector environment may have no agent alive."""
    async with AgentClient(settings=fleet) as agents:
        assert len(await agents.decide_many([], np.empty((0, 4)))) == 0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda a: a.decide("a", OBSERVATIONS[0], lane="urgent"), ValueError, "lane is 'urgent'"),
        (lambda a: a.decide_many(IDS, OBSERVATIONS, lane=["high", "low"]), ValueError, "2 entries for 32 agents"),
        (lambda a: a.decide_many(IDS, OBSERVATIONS[:4]), ValueError, "4 rows for 32 agents"),
        (lambda a: a.decide("a", np.zeros(3, complex)), InputError, "complex128"),
        (lambda a: a.decide("a", object()), TypeError, "object cannot travel"),
        (lambda a: a.decide("a", np.zeros(DEFAULT_LIMITS.max_bytes)), TooLarge, "max_record_bytes"),
        (lambda a: a.decide_many(["a"], np.zeros((1, DEFAULT_LIMITS.max_bytes))), TooLarge, "max_record_bytes"),
        (lambda a: a.decide(7, OBSERVATIONS[0]), TypeError, "agent ID 7 is a int"),
    ],
)
async def test_a_wrong_argument_is_told_to_its_caller(
    fleet: FleetSettings, call: Callable[[AgentClient], Any], error: type[Exception], text: str
) -> None:
    """At once, while others of the same turn are served."""
    async with running(fleet), AgentClient(settings=fleet) as agents:
        wrong, right = await asyncio.gather(call(agents), agents.decide("b", OBSERVATIONS[1]), return_exceptions=True)
        assert isinstance(wrong, error)
        assert text in str(wrong)
        assert right.action == 22


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is not there at once is missing."""
    monkeypatch.setattr(clients, "TOPIC_APPEARS_WITHIN_S", 0.0)


@pytest.mark.usefixtures("impatient")
async def test_a_missing_topic_is_named(kafka: KafkaSettings, fleet_name: str) -> None:
    """Before anything is sent, and without creating it."""
    for _ in range(2):
        with pytest.raises(TopicMissing, match=rf"{fleet_name}\.states\.high .*is missing.*fleet topics apply"):
            async with AgentClient(fleet_name, bootstrap_servers=kafka.bootstrap_servers):
                pass


@pytest.mark.usefixtures("impatient")
async def test_a_missing_reply_topic_or_partition_is_named(fleet: FleetSettings) -> None:
    """A client that could never hear an answer does not open."""
    with pytest.raises(TopicMissing, match="nowhere is missing"):
        async with AgentClient(settings=fleet, reply_topic="nowhere"):
            pass
    with pytest.raises(SettingsError, match=r"reply_partition=4 does not exist: .* has 4 partitions"):
        async with AgentClient(settings=fleet, reply_partition=4):
            pass


async def test_an_absent_broker_is_named() -> None:
    """One line with the address, and soon."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BrokerUnavailable, match=address) as found:
            async with AgentClient("nobody", bootstrap_servers=[address]):
                pass
    assert "\n" not in str(found.value)


async def test_a_client_that_is_not_open_says_so() -> None:
    """Forgetting `async with` is the first mistake people make."""
    with pytest.raises(ClientClosed, match="use `async with AgentClient"):
        await AgentClient("cartpole").decide("a", OBSERVATIONS[0])


async def test_answers_of_spring_style_workers_are_found(fleet: FleetSettings) -> None:
    """A worker in another language may put other headers in front of the correlation ID."""
    producer = clients.make_producer(fleet.kafka, client_id="spring")
    await clients.start(producer, fleet.kafka)

    def silent(_arrived: Arrived) -> list[bytes]:
        return []

    async with running(fleet, silent) as worker, AgentClient(settings=fleet) as agents:
        waiting = asyncio.ensure_future(agents.decide("a", OBSERVATIONS[1]))
        await until(lambda: len(worker.seen) == 1)
        (seen,) = worker.seen
        found = [("content-type", MSGPACK), *(h for h in seen.routing.echoed if h[0] == CORRELATION_ID)]
        await producer.send(fleet.names.actions, seen.action(), key=b"a", partition=Partitioner(4)(b"a"), headers=found)
        assert (await waiting).action == 22
    await clients.stop(producer, 2)


async def test_a_bug_in_the_reader_ends_every_call(fleet: FleetSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a time-out, and later calls say what happened, instead of a client that hears nothing."""

    def broken(_records: object) -> None:
        raise RuntimeError("a bug")

    async with running(fleet), AgentClient(settings=fleet) as agents:
        await agents.decide("a", OBSERVATIONS[0])
        monkeypatch.setattr(correlation, "by_call", broken)
        with pytest.raises(FleetError, match="the client is broken, open a new one: RuntimeError"):
            await agents.decide("a", OBSERVATIONS[0], timeout_s=30)
        with pytest.raises(FleetError, match="the client is broken"):
            await agents.decide_many(IDS, OBSERVATIONS)


def test_what_the_constructor_names_replaces_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fleet, address and rules; the rest comes from where settings always come from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEET_KAFKA__BOOTSTRAP_SERVERS", "somewhere:9092")
    monkeypatch.setenv("FLEET_NAME", "lander")
    assert AgentClient().settings.name == "lander"
    assert AgentClient("cartpole").settings.names.actions == "cartpole.actions"
    assert AgentClient("cartpole").settings.kafka.bootstrap_servers == "somewhere:9092"
    given = FleetSettings(name="walker", kafka=KafkaSettings(bootstrap_servers="here:1"))
    ours = AgentClient("hopper", settings=given, bootstrap_servers=["a:1", "b:2"]).settings
    assert (ours.name, ours.kafka.bootstrap_servers) == ("hopper", "a:1,b:2")
    assert AgentClient(settings=given).settings is given
    with pytest.raises(SettingsError, match="fleet name"):
        AgentClient("no spaces", settings=given)
    with pytest.raises(SettingsError, match="name"):
        AgentClient("no spaces")
