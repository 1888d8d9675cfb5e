"""Rights that are taken away while a worker serves: it ends with one line that says which, and nothing is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.ledger import Ledger
from tests.chaos.rig import Rig
from tests.stories.fleet import Fleet
from tests.stories.models import write_package
from tests.stories.secured import Secured, secured_broker
from topics.acls import acls_of
from topics.names import FleetNames
from topics.provision import ensure_topics
from topics.settings import FleetSettings, TopicSettings

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(240)]

NAMES = FleetNames("rights")
ENDS_WITHIN_S = 60.0
"""`reply.timeout_s` (10 s here), the next look at the cluster (0.3 s), and a drain on busy cores."""


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    """A broker on which the worker has its rights and no others."""
    with secured_broker(NAMES) as secured:
        yield secured


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("{}.actions", "not allowed to write to {}.actions"),
        ("{}.states.normal", "not allowed to read {}.states.normal"),
        ("{}.normal", "not allowed to read as group {}.normal"),
    ],
    ids=["write actions", "read states", "read as group"],
)
async def test_a_right_that_is_withdrawn_ends_the_worker_with_one_line(
    secured: Secured, tmp_path: Path, fleet_name: str, name: str, told: str
) -> None:
    """Nothing is committed for what is unanswered; with the right given back, the next worker answers it all."""
    settings = FleetSettings(
        name=fleet_name,
        kafka=secured.kafka("admin", metadata_max_age_ms=5_000),
        topics=TopicSettings(partitions=2),
    )
    await ensure_topics(settings)
    rights = acls_of("worker", "User:worker", settings.names)
    secured.grant(rights)
    withdrawn = [acl for acl in rights if acl.name == name.format(fleet_name)]
    fleet, chance, model = Fleet(settings, tmp_path), random.Random(7), write_package(tmp_path / "probe")
    ours = Rig(secured.cluster, settings, fleet, Ledger())
    variables = {
        **secured.variables("worker", tmp_path),
        "FLEET_KAFKA__METADATA_MAX_AGE_MS": "300",
        "FLEET_REPLY__TIMEOUT_S": "10",
        "FLEET_TOPICS__PARTITIONS": "2",
    }
    try:
        (worker,) = await ours.workers(model, 1, **variables)
        async with ours.reading():
            await ours.ask(100, 0.5, chance, 16)
            assert await ours.all_answered(20.0)
            secured.withdraw(withdrawn)
            await ours.ask(200, 2.0, chance, 16)
            assert await worker.ended(ENDS_WITHIN_S) == 1
            said = worker.log.read_text().strip().splitlines()[-1]
            assert told.format(fleet_name) in said and "`fleet topics acls` lists what each role needs" in said, said
            assert "Traceback" not in worker.log.read_text()
            assert await ours.committed_past_unanswered() == []
            secured.grant(withdrawn)
            await ours.workers(model, 1, **variables)
            assert await ours.all_answered(40.0), ours.ledger
        assert not ours.ledger.wrong and not ours.ledger.disordered
    finally:
        fleet.close()
