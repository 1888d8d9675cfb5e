"""Where the demo plays: the cluster it is told to use, a broker that already runs here, or one of its own.

A broker of its own is thrown away at the end. On any other cluster the demo makes a fleet with a fresh name and deletes
that fleet's topics at the end; it never touches anything else there.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass

from aiokafka.errors import KafkaError

from tools.broker import DEFAULT_PORT, Cluster, find_broker, start_broker
from tools.broker.paths import data_folder
from tools.demo.options import Options
from topics.errors import FleetError
from topics.kafka import make_admin, quiet_library_logs, started
from topics.provision import ensure_topics
from topics.settings import FleetSettings, describe, load_settings

STOP_WITHIN_S = 2.0
"""Its data is thrown away, so it need not be stopped gently."""
DELETE_WITHIN_S = 3.0
PARTITIONS_PER_WORKER = 2
"""Unless configured. All of the demo's agents are here and its fleet never grows; every partition of a call costs a
record batch on each hop (with 12 instead of 4, a decision took twice the CPU of workers and broker)."""


@dataclass(slots=True)
class Place:
    """A cluster and the name of the fleet on it."""

    settings: FleetSettings
    kind: str
    """For people: whose cluster this is."""
    is_ours: bool = False
    """The broker is started by the demo; its address is known only then."""
    delete_topics: bool = False
    cluster: Cluster | None = None

    @property
    def servers(self) -> str:
        return self.settings.kafka.bootstrap_servers

    def start(self) -> None:
        """Start the broker, if it is ours. Raises BrokerFault."""
        if self.is_ours:
            self.cluster = start_broker(quiet=False)
            kafka = self.settings.kafka.model_copy(update={"bootstrap_servers": self.cluster.bootstrap_servers})
            self.settings = self.settings.model_copy(update={"kafka": kafka})

    def make_topics(self) -> None:
        """Create the fleet's topics. Raises FleetError."""
        quiet_library_logs()
        asyncio.run(ensure_topics(self.settings))

    def leave(self) -> None:
        """Stop our own broker; delete our topics on a cluster that stays. Never raises: what stays harms nobody."""
        with contextlib.suppress(FleetError, KafkaError, OSError, TimeoutError):
            if self.cluster is not None:
                self.cluster.stop(within_s=STOP_WITHIN_S)
            elif self.delete_topics:
                asyncio.run(_delete_topics(self.settings))


def choose_place(options: Options) -> Place:
    """By the flags and the settings. Raises SettingsError."""
    given = load_settings(FleetSettings, overrides={"name": options.fleet})
    servers = given.kafka.bootstrap_servers
    if options.attach:
        return Place(given, "running fleet")
    configured = {one.key for one in describe(given) if one.source != "default"}
    partitions = None if "topics.partitions" in configured else options.workers * PARTITIONS_PER_WORKER
    if "kafka.bootstrap_servers" in configured:
        return _fresh_fleet(options, servers, partitions, "your cluster")
    running = find_broker(data_folder(DEFAULT_PORT))
    if running is not None and running.is_alive:
        return _fresh_fleet(options, running.bootstrap_servers, partitions, "running broker")
    return Place(_settings(options.fleet or "demo", servers, partitions), "broker of its own", is_ours=True)


def _fresh_fleet(options: Options, servers: str, partitions: int | None, kind: str) -> Place:
    name = options.fleet or f"demo-{secrets.token_hex(3)}"
    return Place(_settings(name, servers, partitions), kind, delete_topics=options.fleet is None)


def _settings(name: str, servers: str, partitions: int | None) -> FleetSettings:
    overrides = {"name": name, "kafka": {"bootstrap_servers": servers}, "topics": {"partitions": partitions}}
    return load_settings(FleetSettings, overrides=overrides)


async def _delete_topics(settings: FleetSettings) -> None:
    admin = make_admin(settings.kafka, client_id=f"{settings.name}-demo")
    async with asyncio.timeout(DELETE_WITHIN_S), started(admin, settings.kafka):
        await admin.delete_topics(list(settings.names.all_topics()))
