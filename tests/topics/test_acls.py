"""The rights of each role."""

from __future__ import annotations

import shlex

import pytest

from topics.acls import ROLES, Acl, Role, acls_of, kafka_acls_commands
from topics.names import FleetNames, ShadowNames

NAMES = FleetNames("game")
NAMES_OF_LANES = ("high", "normal", "low")
LANES = ("game.states.high", "game.states.normal", "game.states.low")


def rights(role: Role, *reply_topics: str) -> set[tuple[str, str, str]]:
    """(kind, name, operation) of a role."""
    return {tuple(acl[1:]) for acl in acls_of(role, "User:me", NAMES, reply_topics)}  # type: ignore[misc]


def test_an_agent_writes_states_and_reads_actions() -> None:
    """Nothing else."""
    assert rights("agent") == {("topic", lane, "Write") for lane in LANES} | {("topic", "game.actions", "Read")}


def test_an_agent_with_a_reply_topic_of_its_own_reads_that_one_only() -> None:
    """The others' actions do not concern it."""
    assert rights("agent", "mine") == {("topic", lane, "Write") for lane in LANES} | {("topic", "mine", "Read")}


def test_a_worker_reads_states_in_its_groups_and_writes_answers() -> None:
    """It creates nothing, and cannot read what it wrote."""
    assert rights("worker", "other") == {
        *(("topic", lane, "Read") for lane in LANES),
        *(("topic", name, "Write") for name in ("game.actions", "other", "game.dead")),
        *(("group", f"game.{lane}", "Read") for lane in ("high", "normal", "low")),
    }


def test_a_worker_with_exactly_once_may_use_its_transactional_ids() -> None:
    """One of each partition of each lane; nobody else gets any."""
    more = {role: {*acls_of(role, "User:me", NAMES, (), 2)} - {*acls_of(role, "User:me", NAMES)} for role in ROLES}
    expected = {f"game.{lane}.{partition}" for lane in ("high", "normal", "low") for partition in (0, 1)}
    assert {acl[1:] for acl in more["worker"]} == {("transactional-id", name, "Write") for name in expected}
    assert not more["agent"] and not more["tools"]


def test_tools_forge_no_action_and_move_no_group() -> None:
    """They redrive dead letters and look after the topics."""
    written = {name for kind, name, operation in rights("tools") if operation == "Write"}
    assert written == {*LANES, "game.dead"}
    assert {operation for kind, _, operation in rights("tools") if kind == "group"} == {"Describe"}


@pytest.mark.parametrize("role", ROLES)
def test_no_role_may_delete_or_touch_other_fleets(role: Role) -> None:
    """Every right is on one resource with its whole name, none on the cluster."""
    for kind, name, operation in rights(role):
        assert kind in ("topic", "group") and name.startswith("game.")
        assert operation not in ("Delete", "All", "ClusterAction", "IdempotentWrite")


def test_commands_say_the_same() -> None:
    """Read back word by word, they give the ACLs again; a name cannot slip a word in."""
    acls = [acl for role in ROLES for acl in acls_of(role, f"User:CN={role}, O=it's", NAMES)]
    read_back = []
    for line in kafka_acls_commands(acls, "a:9092,b:9092"):
        words = shlex.split(line)
        assert words[:6] == ["kafka-acls.sh", "--bootstrap-server", "a:9092,b:9092", *words[3:5], "--add"]
        (principal, operation), resources = words[7:10:2], words[10:]
        for flag, name in zip(resources[::2], resources[1::2], strict=True):
            read_back.append(Acl(principal, flag.removeprefix("--"), name, operation))  # type: ignore[arg-type]
    assert sorted(read_back) == sorted(acls)


def test_a_shadow_may_write_its_answers_alone() -> None:
    """It cannot answer an agent, write a letter or move a live group, whatever goes wrong in it."""
    acls = acls_of("worker", "User:candidate", ShadowNames("arena"))
    assert [acl.name for acl in acls if acl.operation == "Write"] == ["arena.actions.shadow"]
    assert {acl.name for acl in acls if acl.resource == "group"} == {
        f"arena.shadow.{lane}" for lane in ("high", "normal", "low")
    }
