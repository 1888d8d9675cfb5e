"""TLS, log-in and rights, on a broker that lets nobody in without them and allows nothing by default."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme

from tests.stories.fleet import Fleet, observation
from tests.stories.models import write_package
from tests.stories.secured import Secured, commit, create, delete, may, read, secured_broker, write
from topics.acls import ROLES, Role, acls_of
from topics.client import AgentClient
from topics.errors import BrokerUnavailable
from topics.kafka import make_admin, make_consumer, make_producer, require_topics, started
from topics.names import LANES, FleetNames
from topics.provision import ensure_topics
from topics.settings import FleetSettings, TopicSettings

pytestmark = pytest.mark.broker

FLEET = [sys.executable, "-c", "from tools.cli import main; main()"]
NAMES = FleetNames("guarded")
STATES = [NAMES.states(lane) for lane in LANES]
OTHER_REPLIES = "guarded-other-replies"


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    """The broker, with the rights that `fleet topics acls` lists and no others."""
    with secured_broker(NAMES) as secured:
        yield secured


def fleet_command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`fleet …` as an operator runs it."""
    environment = {**os.environ, "FLEET_NAME": NAMES.fleet, "FLEET_TOPICS__PARTITIONS": "2", **variables}
    return subprocess.run([*FLEET, *arguments], env=environment, capture_output=True, text=True, timeout=60)


async def test_with_their_rights_all_roles_do_their_work_and_no_secret_is_shown(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools make the topics, a worker serves, an agent gets its decisions: configured by FLEET_KAFKA__… alone."""
    as_tools, as_worker = secured.variables("tools", tmp_path), secured.variables("worker", tmp_path)
    shown: list[str] = []
    for command, exit_code in (("plan", 0), ("apply", 0), ("check", 0)):
        ended = fleet_command("topics", command, **as_tools)
        assert ended.returncode == exit_code, ended.stderr
        shown += [ended.stdout, ended.stderr]
    settings = FleetSettings(name=NAMES.fleet, kafka=secured.kafka("admin"), topics=TopicSettings(partitions=2))
    fleet = Fleet(settings, tmp_path)
    try:
        worker = await fleet.worker(write_package(tmp_path / "probe"), FLEET_LOG__LEVEL="debug", **as_worker).ready()
        for name, value in secured.variables("agent", tmp_path).items():
            monkeypatch.setenv(name, value)
        async with AgentClient(NAMES.fleet, timeout_s=20) as client:
            for lane in LANES:
                reply = await client.decide("agent-7", observation(3.0), lane=lane)
                np.testing.assert_array_equal(reply.action, observation(3.0))
            shown += [repr(client), repr(client.settings)]
        for name in list(secured.variables("agent", tmp_path)):
            monkeypatch.delenv(name)
        shown += [worker.probe(path)[1] for path in ("/metrics", "/livez", "/readyz")]
        listed = fleet_command("settings", COLUMNS="200", **as_worker)
        assert "FLEET_KAFKA__SASL_PASSWORD_FILE" in listed.stdout
        shown += [listed.stdout, fleet_command("settings", "--json", **as_worker).stdout]
        worker.signal(15)  # type: ignore[arg-type]
        assert await worker.ended() == 0
        assert not worker.events("twins_unknown"), "the right to read as a group includes seeing its members"
        shown.append(worker.log.read_text())
    finally:
        fleet.close()
    for password in secured.security.users.values():
        assert password not in "".join(shown)


@pytest.mark.slow
async def test_exactly_once_needs_the_rights_on_its_transactional_ids_and_no_more(
    secured: Secured, topics: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them a worker says so and ends; with them it serves."""
    settings = FleetSettings(name=NAMES.fleet, kafka=secured.kafka("admin"), topics=TopicSettings(partitions=2))
    fleet, model = Fleet(settings, tmp_path), write_package(tmp_path / "probe")
    as_worker = {**secured.variables("worker", tmp_path), "FLEET_DELIVERY": "exactly_once"}
    try:
        refused = fleet.worker(model, **as_worker)
        assert await refused.ended() == 1
        says = "user 'worker' may not use transactional ID guarded."
        assert says in refused.log.read_text().splitlines()[-1]
        secured.grant(acls_of("worker", "User:worker", NAMES, (), transactional=2))
        await fleet.worker(model, **as_worker).ready()
        for name, value in secured.variables("agent", tmp_path).items():
            monkeypatch.setenv(name, value)
        async with AgentClient(NAMES.fleet, timeout_s=20) as client:
            reply = await client.decide("agent-7", observation(3.0))
            np.testing.assert_array_equal(reply.action, observation(3.0))
    finally:
        fleet.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_every_client_logs_in_by_every_mechanism(secured: Secured, mechanism: str) -> None:
    """Over TLS, with the broker's name in its certificate checked."""
    kafka = secured.kafka("worker", sasl_mechanism=mechanism)
    for make in (make_admin, make_consumer, make_producer):
        async with started(make(kafka, client_id="test"), kafka):  # type: ignore[type-var,operator]
            pass


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "password": (
        {"sasl_password": "not-the-password"},
        "refuses user 'agent' (SCRAM-SHA-512): check kafka.sasl_username and kafka.sasl_password",
    ),
    "user": ({"sasl_username": "nobody"}, "refuses user 'nobody' (SCRAM-SHA-512): check kafka.sasl_username"),
    "PLAIN password": ({"sasl_mechanism": "PLAIN", "sasl_password": "no"}, "refuses user 'agent' (PLAIN)"),
    "authority": ({"ssl_cafile": "other"}, "is not trusted ("),
    "no authority": ({"ssl_cafile": None}, "is not trusted ("),
    "host name": ({"bootstrap_servers": "localhost"}, "is not trusted (Hostname mismatch"),
    "no TLS": (
        {"security_protocol": "SASL_PLAINTEXT", "ssl_cafile": None},
        "check kafka.security_protocol=SASL_PLAINTEXT against the listener's",
    ),
    "nothing at all": (
        {"security_protocol": "PLAINTEXT", "ssl_cafile": None, "sasl_username": None, "sasl_password": None},
        "check kafka.security_protocol=PLAINTEXT against the listener's",
    ),
    "no login": (
        {"security_protocol": "SSL", "sasl_username": None, "sasl_password": None},
        "check kafka.security_protocol=SSL against the listener's",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_who_may_not_connect_is_told_in_one_line(secured: Secured, tmp_path: Path, wrong: str) -> None:
    """The address, what is wrong and what to check; never the password."""
    changes, says = WRONG[wrong]
    if changes.get("ssl_cafile") == "other":
        trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
        changes = {"ssl_cafile": str(tmp_path / "other.pem")}
    address = secured.cluster.bootstrap_servers
    if changes.get("bootstrap_servers") == "localhost":
        address = address.replace("127.0.0.1", "localhost")
        changes = {"bootstrap_servers": address}
    kafka = secured.kafka("agent", connect_timeout_s=5, **changes)
    with pytest.raises(BrokerUnavailable) as failure:
        async with started(make_producer(kafka, client_id="test"), kafka):
            pass
    line = str(failure.value)
    assert says in line and address in line and "\n" not in line, line
    assert "not-the-password" not in line and secured.security.users["agent"] not in line


def test_commands_tell_it_in_one_line_too(secured: Secured, tmp_path: Path) -> None:
    """Exit code 3, no traceback, nothing of the library's."""
    variables = secured.variables("tools", tmp_path)
    (tmp_path / "tools.password").write_text("not-the-password\n")
    for command in (("topics", "check"), ("worker",)):
        model = str(write_package(tmp_path / command[0]))
        ended = fleet_command(*command, FLEET_MODEL__PATH=model, FLEET_HTTP__PORT="0", **_probe(), **variables)
        assert ended.returncode == 3, ended.stderr
        assert "refuses user 'tools' (SCRAM-SHA-512)" in ended.stderr.splitlines()[-1]
        assert "Traceback" not in ended.stderr and "not-the-password" not in ended.stderr + ended.stdout


def _probe() -> dict[str, str]:
    return {"FLEET_MODEL__FACTORIES": '["tests.stories.models:probe"]', "FLEET_LOG__LEVEL": "error"}


WRITES: dict[Role, set[str]] = {
    "agent": {*STATES},
    "worker": {NAMES.actions, NAMES.dead},
    "tools": {*STATES, NAMES.dead},
}
READS: dict[Role, set[str]] = {
    "agent": {NAMES.actions},
    "worker": {*STATES},
    "tools": {*NAMES.all_topics()},
}


@pytest.fixture(scope="module")
def topics(secured: Secured) -> list[str]:
    """The fleet's topics and another agent's reply topic, a record in each."""
    settings = FleetSettings(name=NAMES.fleet, kafka=secured.kafka("admin"), topics=TopicSettings(partitions=2))
    found = [*NAMES.all_topics(), OTHER_REPLIES]

    async def make() -> None:
        await ensure_topics(settings)
        await create(settings.kafka, OTHER_REPLIES)
        for topic in found:
            await write(settings.kafka, topic)

    asyncio.run(make())
    return found


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_may_do_what_it_needs_and_nothing_else(secured: Secured, topics: list[str], role: Role) -> None:
    """Every topic tried in both directions: an agent forges no action and reads nobody else's answers."""
    kafka = secured.kafka(role)
    assert {topic for topic in topics if await may(write(kafka, topic))} == WRITES[role]
    assert {topic for topic in topics if await may(read(kafka, topic))} == READS[role]
    moves = {lane for lane in LANES if await may(commit(kafka, NAMES.group(lane), NAMES.states(lane)))}
    assert moves == (set(LANES) if role == "worker" else set())
    assert not await may(create(kafka, f"{NAMES.fleet}.more"))
    assert not [topic for topic in topics if await may(delete(kafka, topic))]


async def test_who_has_no_rights_is_told_so(secured: Secured, topics: list[str]) -> None:
    """And not that the topics were missing."""
    kafka = secured.kafka("stranger")
    with pytest.raises(BrokerUnavailable, match=r"user 'stranger' may write to no topic of .* `fleet topics acls`"):
        async with started(make_producer(kafka, client_id="test"), kafka):
            pass
    told = r"user 'stranger' has no rights on topic guarded\.states\.high \(and 2 more\) of .* `fleet topics acls`"
    async with started(make_producer(kafka, client_id="test", idempotent=False), kafka) as producer:
        with pytest.raises(BrokerUnavailable, match=told):
            await require_topics(producer, STATES)
