"""Settings that agents, workers and tools share: the fleet's name, its cluster, its topics, its rules.

Read from flags, `FLEET_…` variables (`FLEET_KAFKA__BOOTSTRAP_SERVERS`), `fleet.toml` and these defaults, in
that order. Everything is frozen and checked when it is read; a mistake is one line (`SettingsError`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from topics.errors import SettingsError
from topics.names import FleetNames, Lane, ShadowNames
from topics.settings_layers import LayeredSettings, Section, Shown, describe, load_settings
from topics.settings_mistakes import Contradiction, must_be_below

__all__ = [
    "Contradiction",
    "FleetSettings",
    "KafkaSettings",
    "PriorityRule",
    "PrioritySettings",
    "PriorityWhen",
    "Section",
    "Shown",
    "TopicSettings",
    "describe",
    "load_settings",
    "must_be_below",
]

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:,\[\]/]+)(:\d{1,5})?")
_KIB, _MIB = 1024, 1024 * 1024
_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000

# A record batch's header is 61 bytes and a record's own lengths at most 40; headers and key have the rest.
BATCH_OVERHEAD_BYTES = 1 * _KIB
# Kafka's own default. Other clients fill batches up to about 1 MB (librdkafka: 1,000,000) however small their
# records are, so a lower limit on the topic would refuse batches of legal records.
KAFKA_MAX_MESSAGE_BYTES = 1_048_588


Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Retention = Annotated[float, Field(ge=0.001, le=1_000_000)]
"""In any unit: some ms at least, as 0 ms would delete everything, and a number that Kafka can hold."""


def _joined(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


class KafkaSettings(Section):
    """How to reach the cluster, and the limits of the clients (reasons: docs/decisions/0002)."""

    bootstrap_servers: Annotated[str, BeforeValidator(_joined)] = "127.0.0.1:9092"
    """host:port, several separated by commas (or a list in fleet.toml)."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_cafile: str | None = None
    """PEM file with the authorities to trust; without it the system's."""
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_key_password: SecretStr | None = None
    ssl_check_hostname: bool = True

    connect_timeout_s: Positive = 10.0
    """A client that is not connected by then gives up with one line."""
    request_timeout_ms: Count = 40_000
    retry_backoff_ms: Count = 100
    metadata_max_age_ms: Count = 30_000
    connections_max_idle_ms: Count = 540_000

    session_timeout_ms: Count = 10_000
    heartbeat_interval_ms: Count = 500
    rebalance_timeout_ms: Count = 30_000
    """How long the group waits for a worker to finish its batches before it moves partitions."""
    max_poll_interval_ms: Count = 300_000

    fetch_max_wait_ms: Count = 20
    """Longest wait of the broker for records; it bounds what a partition that was drained late waits more."""
    fetch_min_bytes: Count = 1
    fetch_max_bytes: Count = 8 * _MIB
    max_partition_fetch_bytes: Count = 256 * _KIB

    linger_ms: Natural = 0
    max_batch_bytes: Count = 256 * _KIB
    """Largest record batch that a producer of ours fills."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"

    @field_validator("bootstrap_servers")
    @classmethod
    def _addresses(cls, value: str) -> str:
        addresses = [address.strip() for address in value.split(",")]
        if not all(_ADDRESS.fullmatch(address) for address in addresses):
            raise ValueError("host:port, several separated by commas")
        return ",".join(addresses)

    @model_validator(mode="after")
    def _times_fit(self) -> KafkaSettings:
        must_be_below(self, "heartbeat_interval_ms", "session_timeout_ms")
        must_be_below(self, "rebalance_timeout_ms", "request_timeout_ms")
        must_be_below(self, "fetch_max_wait_ms", "request_timeout_ms")
        return self

    @model_validator(mode="after")
    def _security_fits(self) -> KafkaSettings:
        protocol = f"security_protocol={self.security_protocol}"
        if self.security_protocol.startswith("SASL"):
            for key in ("sasl_username", "sasl_password"):
                if getattr(self, key) is None:
                    raise Contradiction(f"{protocol} needs {key}", "security_protocol")
        else:
            for key in ("sasl_username", "sasl_password"):
                if getattr(self, key) is not None:
                    text = f"{key} is set but {protocol} does not log in: use SASL_SSL or SASL_PLAINTEXT"
                    raise Contradiction(text, key, "security_protocol")
        if not self.security_protocol.endswith("SSL"):
            for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
                if getattr(self, key) is not None:
                    raise Contradiction(f"{key} is set but {protocol} has no TLS", key, "security_protocol")
        if self.ssl_keyfile and not self.ssl_certfile:
            raise Contradiction("ssl_keyfile needs ssl_certfile", "ssl_keyfile")
        return self


class TopicSettings(Section):
    """What the fleet's topics look like. `fleet topics apply` makes the cluster agree."""

    partitions: Count = 12
    """Of each lane and of the actions: 2–4 × the largest number of workers. Never grown on a live fleet."""
    dead_partitions: Count = 1
    replication_factor: Count = 1
    min_insync_replicas: Count = 1
    retention_high_h: Retention = 2.0
    retention_normal_h: Retention = 6.0
    retention_low_h: Retention = 24.0
    retention_actions_min: Retention = 30.0
    retention_dead_d: Retention = 14.0
    max_record_bytes: Annotated[int, Field(ge=1 * _KIB, le=64 * _MIB)] = 1 * _MIB
    """Largest state or action, key and headers included."""

    @model_validator(mode="after")
    def _replicas_fit(self) -> TopicSettings:
        if self.min_insync_replicas > self.replication_factor:
            raise Contradiction(
                f"min_insync_replicas={self.min_insync_replicas} must be at most "
                f"replication_factor={self.replication_factor}",
                "min_insync_replicas",
                "replication_factor",
            )
        return self

    @property
    def max_message_bytes(self) -> int:
        """The topics' `max.message.bytes`: the largest record fits, and so do other clients' full batches."""
        return max(self.max_record_bytes + BATCH_OVERHEAD_BYTES, KAFKA_MAX_MESSAGE_BYTES)

    def retention_ms(self, lane: Lane) -> int:
        """How long the states of a lane are kept, in ms."""
        hours: float = getattr(self, f"retention_{lane}_h")
        return round(hours * _HOUR_MS)

    @property
    def actions_retention_ms(self) -> int:
        """How long actions are kept, in ms."""
        return round(self.retention_actions_min * _MINUTE_MS)

    @property
    def dead_retention_ms(self) -> int:
        """How long dead letters are kept, in ms."""
        return round(self.retention_dead_d * 24 * _HOUR_MS)


Texts = str | tuple[str, ...]
Plain = str | bool | int | float


class PriorityWhen(Section):
    """Conditions of a rule; all that are given must hold. A list means: one of these."""

    kind: Texts | None = None
    """The state's `kind`."""
    attribute: Mapping[str, Plain | tuple[Plain, ...]] | None = None
    """Attributes of the agent, by name."""
    deadline_below_ms: Positive | None = None
    """The time left for the answer is shorter than this."""
    after_timeout: bool | None = None
    """The agent's last state got no answer in time (or, if false, did)."""
    after_outcome: Texts | None = None
    """Outcome of the agent's last state: action, expired, superseded, rejected or failed."""

    @model_validator(mode="after")
    def _has_a_condition(self) -> PriorityWhen:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError("at least one condition; what no rule matches goes to priority.default")
        return self


class PriorityRule(Section):
    """`when` these conditions hold, the state goes to this `lane`."""

    when: PriorityWhen
    lane: Lane


class PrioritySettings(Section):
    """How a state gets its lane when the agent's author names none: the first rule that matches decides."""

    rules: tuple[PriorityRule, ...] = ()
    default: Lane = "normal"


class FleetSettings(LayeredSettings):
    """What an agent needs to know of its fleet; the worker's `Settings` adds the rest."""

    # Agents and workers read one fleet.toml: the worker's tables are not a mistake here.
    OTHER_SECTIONS: ClassVar[frozenset[str]] = frozenset(
        {
            "worker",
            "model",
            "serve",
            "lanes",
            "batch",
            "predictors",
            "hang",
            "reply",
            "commit",
            "drain",
            "http",
            "log",
            "tracing",
        }
    )

    name: str = "fleet"
    """Prefix of every topic and group of the fleet."""
    shadow: bool = False
    """The workers of a candidate: they read the live states as groups of their own and answer no agent."""
    delivery: Literal["at_least_once", "exactly_once"] = "at_least_once"
    """`exactly_once`: answers, dead letters and offsets in Kafka transactions; slower, the same for the whole fleet."""
    kafka: KafkaSettings = KafkaSettings()
    topics: TopicSettings = TopicSettings()
    priority: PrioritySettings = PrioritySettings()

    @field_validator("name")
    @classmethod
    def _is_a_topic_prefix(cls, value: str) -> str:
        try:
            FleetNames(value)
        except SettingsError as err:
            raise ValueError(f"a legal topic prefix: {err}") from None
        return value

    @property
    def names(self) -> FleetNames:
        """Names of the fleet's topics and groups."""
        return ShadowNames(self.name) if self.shadow else FleetNames(self.name)
