"""What Kafka is told."""

from __future__ import annotations

from pathlib import Path

from tools.broker.properties import NodePlan, server_properties


def settings_of(nodes: int) -> dict[str, str]:
    plans = [NodePlan(n, 9090 + n, 20000 + n, Path(f"/data/node-{n}")) for n in range(1, nodes + 1)]
    return dict(line.split("=", 1) for line in server_properties(plans[0], plans).splitlines())


def test_one_node_replicates_nothing() -> None:
    """The internal topics must not wait for brokers that do not exist."""
    settings = settings_of(1)
    for key in ("offsets.topic.replication.factor", "transaction.state.log.min.isr", "min.insync.replicas"):
        assert settings[key] == "1"


def test_three_nodes_replicate_three_times_with_two_in_sync() -> None:
    """One node may be killed, and writes go on."""
    settings = settings_of(3)
    assert settings["default.replication.factor"] == settings["offsets.topic.replication.factor"] == "3"
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == "2"


def test_every_node_votes() -> None:
    """The controllers' quorum survives one of three."""
    voters = "1@127.0.0.1:20001,2@127.0.0.1:20002,3@127.0.0.1:20003"
    assert settings_of(3)["controller.quorum.voters"] == voters


def test_nobody_outside_this_machine_can_connect() -> None:
    """There is no password, so it listens on the loopback interface only."""
    listeners = settings_of(1)["listeners"].split(",")
    assert all("://127.0.0.1:" in listener for listener in listeners)


def test_topics_are_not_created_by_mistake() -> None:
    """A misspelt topic is an error."""
    assert settings_of(1)["auto.create.topics.enable"] == "false"
