"""`fleet topics acls`: the rights that agents, workers and tools need on a cluster with access control.

Prints; asks no cluster and changes none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tools.options import Config, Fleet, Shadow
from topics.acls import ADMIN_FILE, ROLES, Acl, Role, acls_of, kafka_acls_commands
from topics.errors import SettingsError
from topics.settings import load_settings
from workers.settings import Settings

Principals = Annotated[
    list[str] | None,
    typer.Option(
        "--principal",
        help="ROLE=NAME, once per user: agent=game-7. Then only those are listed (default: users named as the roles).",
        show_default=False,
    ),
]
ReplyTopics = Annotated[
    list[str] | None,
    typer.Option("--reply-topic", help="Topic that agents read in place of the fleet's actions.", show_default=False),
]


def acls(
    principal: Principals = None,
    reply_topic: ReplyTopics = None,
    config: Config = None,
    fleet: Fleet = None,
    shadow: Shadow = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
    as_commands: Annotated[bool, typer.Option("--kafka-acls", help="Print commands of Kafka's kafka-acls.sh.")] = False,
) -> None:
    """List the least rights of each role. Changes nothing.

    Example: fleet topics acls --principal agent=game-7 --principal worker=gpu --kafka-acls
    """
    settings = load_settings(Settings, config=config, overrides={"name": fleet, "shadow": shadow or None})
    transactional = settings.topics.partitions if settings.delivery == "exactly_once" else 0
    found = [
        acl
        for role, user in map(_role_and_user, principal or [f"{role}={role}" for role in ROLES])
        for acl in acls_of(role, user, settings.names, _reply_topics(role, settings, reply_topic or []), transactional)
    ]
    if as_json:
        sys.stdout.write(json.dumps([acl._asdict() for acl in found], indent=2) + "\n")
    elif as_commands:
        commands = kafka_acls_commands(found, settings.kafka.bootstrap_servers)
        lines = [f"# {ADMIN_FILE}: the login of a user who may alter ACLs", *commands]
        sys.stdout.write("\n".join(lines) + "\n")
    else:
        Console().print(_table(settings.name, found))


def _role_and_user(text: str) -> tuple[Role, str]:
    name, _, user = text.partition("=")
    role = next((role for role in ROLES if role == name), None)
    if role is None or not user:
        raise SettingsError(f"--principal is {text!r}, expected ROLE=NAME with one of the roles {', '.join(ROLES)}")
    return role, user if user.startswith("User:") else f"User:{user}"


def _reply_topics(role: Role, settings: Settings, of_agents: Sequence[str]) -> Sequence[str]:
    return of_agents if role == "agent" else () if settings.shadow else settings.reply.topics


def _table(fleet: str, acls: Sequence[Acl]) -> Table:
    table = Table(title=f"rights in fleet {fleet}", title_justify="left")
    for column in ("who", "may", "kind", "name"):
        table.add_column(column, overflow="fold")
    rights: dict[tuple[str, str, str], list[str]] = {}
    for acl in acls:
        rights.setdefault((acl.principal, acl.resource, acl.name), []).append(acl.operation)
    for (principal, resource, name), operations in rights.items():
        table.add_row(principal, ", ".join(operations), resource, name)
    return table
