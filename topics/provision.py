"""Makes a cluster's topics agree with the specs: reads, creates, alters, grows; never deletes or shrinks.

Takes a started admin client. Decides nothing: `drift.compare` says what differs and what may be done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from topics.drift import Difference, Fix, TopicFound, compare
from topics.errors import BrokerUnavailable, FleetError
from topics.kafka import ACLS, make_admin, started
from topics.settings import FleetSettings
from topics.specs import TopicSpec, specs_of

# A loaded single broker was seen to need more than a second.
SHOWN_WITHIN_S = 30.0
_LOOK_AGAIN_S = 0.1
# DescribeConfigs' source of a value that was set on the topic itself, not inherited from the cluster.
_SET_ON_TOPIC = 1

SAFE: tuple[Fix, ...] = ("create", "alter", "grow")
"""What `apply` does without being told."""


class Applied(NamedTuple):
    """What `apply` came to."""

    done: tuple[Difference, ...]
    left: tuple[Difference, ...]
    """For a person, or for `--allow-remap`."""


class ProvisionError(FleetError):
    """The cluster refuses to create or change a topic."""


async def ensure_topics(settings: FleetSettings, *, allow_remap: bool = False) -> Applied:
    """Connect, `apply` and close, for callers that have no admin client."""
    admin = make_admin(settings.kafka, client_id=f"{settings.name}-topics")
    async with started(admin, settings.kafka):
        return await apply(admin, specs_of(settings), allow_remap=allow_remap)


async def find_differences(settings: FleetSettings) -> tuple[Difference, ...]:
    """Connect, compare and close; changes nothing."""
    specs = specs_of(settings)
    admin = make_admin(settings.kafka, client_id=f"{settings.name}-topics")
    async with started(admin, settings.kafka):
        return compare(specs, await read_cluster(admin, [spec.name for spec in specs]))


async def read_cluster(admin: AIOKafkaAdminClient, names: Iterable[str]) -> dict[str, TopicFound]:
    """The topics among `names` that are there.

    Raises:
        ProvisionError: the cluster does not let us read their configurations.
        BrokerUnavailable: the cluster stopped answering.
    """
    with _translated():
        # Asked by name, a broker with auto.create.topics.enable creates what is missing: ask for all.
        listed = {topic["topic"]: topic["partitions"] for topic in await admin.describe_topics()}
        configs = await _read_configs(admin, [name for name in names if listed.get(name)])
    return {
        name: TopicFound(
            partitions=len(listed[name]),
            replication_factor=min(len(partition["replicas"]) for partition in listed[name]),
            configs={entry[0]: entry[1] for entry in configs[name]},
            own_configs={
                entry[0]: entry[1] for entry in configs[name] if entry[3] == _SET_ON_TOPIC and entry[1] is not None
            },
        )
        for name in configs
    }


async def apply(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec], *, allow_remap: bool = False) -> Applied:
    """Do what may be done, and wait until the cluster shows it.

    Growing a topic whose partitions agents' keys pick is done with `allow_remap` only.

    Raises:
        ProvisionError: too few brokers, or the cluster refuses a change; what was done before stays.
        BrokerUnavailable: the cluster stopped answering.
    """
    found = await read_cluster(admin, [spec.name for spec in specs])
    differences = compare(specs, found)
    doable: tuple[Fix, ...] = (*SAFE, "remap") if allow_remap else SAFE
    todo = tuple(item for item in differences if item.fix in doable)
    by_name = {spec.name: spec for spec in specs}
    altered = {item.topic for item in todo if item.fix == "alter"}
    with _translated():
        await _create(admin, [by_name[item.topic] for item in todo if item.fix == "create"])
        await _grow(admin, {item.topic: int(item.wanted) for item in todo if item.fix in ("grow", "remap")})
        await _alter(admin, {name: {**found[name].own_configs, **by_name[name].configs} for name in altered})
    return Applied(done=todo, left=await _settled(admin, specs, todo))


async def _settled(
    admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec], done: Sequence[Difference]
) -> tuple[Difference, ...]:
    """What still differs once the cluster shows what was done: brokers learn of it later than the controller."""
    settling = {(item.topic, item.what) for item in done}
    give_up_at = asyncio.get_running_loop().time() + SHOWN_WITHIN_S
    while True:
        left = compare(specs, await read_cluster(admin, [spec.name for spec in specs]))
        missing = [f"{item.what} of {item.topic}" for item in left if (item.topic, item.what) in settling]
        if not missing:
            return left
        if asyncio.get_running_loop().time() > give_up_at:
            raise ProvisionError(
                f"the cluster accepted {missing[0]} but does not show it after {SHOWN_WITHIN_S:g} s: "
                "run `fleet topics apply` again"
            )
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _create(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> None:
    if not specs:
        return
    await _refuse_too_few_brokers(admin, specs)
    response = await admin.create_topics(
        [
            NewTopic(spec.name, spec.partitions, spec.replication_factor, topic_configs=dict(spec.configs))
            for spec in specs
        ]
    )
    for name, code, text in response.topic_errors:
        # Somebody else created it in between: the next look will say whether it is as wanted.
        if code and for_code(code) is not TopicAlreadyExistsError:
            raise ProvisionError(f"topic {name} cannot be created: {_refusal(code, text)}")


async def _refuse_too_few_brokers(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> None:
    brokers = len((await admin.describe_cluster())["brokers"])
    needed = max(spec.replication_factor for spec in specs)
    if brokers < needed:
        raise ProvisionError(
            f"topics.replication_factor={needed} needs {needed} brokers, the cluster has {brokers}: "
            f"start more, or set FLEET_TOPICS__REPLICATION_FACTOR={brokers}"
        )


async def _grow(admin: AIOKafkaAdminClient, counts: dict[str, int]) -> None:
    for name, partitions in counts.items():
        try:
            await admin.create_partitions({name: NewPartitions(partitions)})
        except KafkaError as err:
            raise ProvisionError(f"topic {name} cannot grow to {partitions} partitions: {err}") from err


async def _alter(admin: AIOKafkaAdminClient, configs: dict[str, dict[str, str]]) -> None:
    """Set the configurations of topics; `configs` must hold everything that was set on them before.

    aiokafka 0.14 has only Kafka's old AlterConfigs, which resets to its default whatever it does not name.
    """
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, entries) for name, entries in configs.items()]
    if not resources:
        return
    for response in await admin.alter_configs(resources):
        for code, text, _, name in response.resources:
            if code:
                raise ProvisionError(f"topic {name} cannot be altered: {_refusal(code, text)}")


async def _read_configs(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
    """name → entries (key, value, read only, source, …)."""
    if not names:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    configs = {}
    for response in await admin.describe_configs(resources):
        for code, text, _, name, entries in response.resources:
            if for_code(code) is UnknownTopicOrPartitionError:
                continue  # another broker answered, and does not know the topic yet
            if code:
                raise ProvisionError(f"configuration of topic {name} cannot be read: {_refusal(code, text)}")
            configs[name] = entries
    return configs


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as err:
        raise BrokerUnavailable(f"the cluster does not answer about its topics ({err!r}): look at its brokers") from err


def _refusal(code: int, text: str | None) -> str:
    error = for_code(code)
    said = " ".join((text or error.__name__).split())
    denied = issubclass(error, TopicAuthorizationFailedError | ClusterAuthorizationFailedError)
    return f"{said}; {ACLS}" if denied else said
