"""Least privilege: what each role of a fleet must be allowed on the cluster, and nothing else.

Pure: names in, ACLs out. `fleet topics acls` prints them; tests/stories/test_security.py proves on a broker that denies
by default that they are enough, and what they do not allow. Read and Write include Describe; the right to write a topic
includes idempotent writing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, product
from typing import Literal, NamedTuple, get_args

from topics.names import LANES, FleetNames

Role = Literal["agent", "worker", "tools"]
ROLES: tuple[Role, ...] = get_args(Role)

Resource = Literal["topic", "group", "transactional-id"]
Operation = Literal["Read", "Write", "Describe", "Create", "Alter", "DescribeConfigs", "AlterConfigs"]

ADMIN_FILE = "admin.properties"
"""The file with the login of whoever may change ACLs, as Kafka's own tools take it."""


class Acl(NamedTuple):
    """`principal` may do `operation` on the resource of that very name, from any host."""

    principal: str
    """As Kafka writes it: `User:name`."""
    resource: Resource
    name: str
    operation: Operation


def acls_of(
    role: Role, principal: str, names: FleetNames, reply_topics: Sequence[str] = (), transactional: int = 0
) -> tuple[Acl, ...]:
    """What `principal` needs in that role.

    `reply_topics`: for a worker those that states may name (`reply.topics`); for an agent the one that it names,
    which it then reads in place of the fleet's actions. `transactional`: partitions of each lane whose transactional
    IDs a worker uses, 0 unless `delivery = "exactly_once"`.
    """
    rights = [*{"agent": _agent, "worker": _worker, "tools": _tools}[role](names, reply_topics)]
    if role == "worker":
        rights += [
            ("transactional-id", names.transactional_id(*at), "Write") for at in product(LANES, range(transactional))
        ]
    return tuple(Acl(principal, *right) for right in rights)


Right = tuple[Resource, str, Operation]


def _agent(names: FleetNames, reply_topics: Sequence[str]) -> Iterator[Right]:
    for lane in LANES:
        yield "topic", names.states(lane), "Write"
    for topic in reply_topics or [names.actions]:
        yield "topic", topic, "Read"


def _worker(names: FleetNames, reply_topics: Sequence[str]) -> Iterator[Right]:
    for lane in LANES:
        yield "topic", names.states(lane), "Read"
    for topic in (*names.written, *reply_topics):
        yield "topic", topic, "Write"
    for lane in LANES:
        yield "group", names.group(lane), "Read"


def _tools(names: FleetNames, _reply_topics: Sequence[str]) -> Iterator[Right]:
    """Create and alter topics, read them all, see how far the groups are, redrive dead letters; delete nothing."""
    operations: tuple[Operation, ...] = ("Create", "Alter", "DescribeConfigs", "AlterConfigs", "Read")
    for operation in operations:
        for topic in names.all_topics():
            yield "topic", topic, operation
    for topic in (
        *map(names.states, LANES),
        names.dead,
    ):  # a redrive sends states, and keeps its notes with the letters
        yield "topic", topic, "Write"
    for lane in LANES:
        yield "group", names.group(lane), "Describe"


def kafka_acls_commands(acls: Iterable[Acl], bootstrap_servers: str) -> list[str]:
    """The same as commands of Kafka's own `kafka-acls.sh`: one per principal, kind of resource and operation."""
    commands = []
    for (principal, resource, operation), group in groupby(acls, lambda acl: (acl.principal, acl.resource, acl[3])):
        words = ["kafka-acls.sh", "--bootstrap-server", bootstrap_servers, "--command-config", ADMIN_FILE, "--add"]
        words += ["--allow-principal", principal, "--operation", operation]
        for acl in group:
            words += [f"--{resource}", acl.name]
        commands.append(shlex.join(words))
    return commands
