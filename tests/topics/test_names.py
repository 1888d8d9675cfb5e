"""Names of topics and groups."""

from __future__ import annotations

import pytest

from topics.errors import SettingsError
from topics.names import LANES, FleetNames, ShadowNames


def test_every_name_starts_with_the_fleet() -> None:
    """An operator finds everything of a fleet by its prefix."""
    names = FleetNames("cartpole")
    assert names.all_topics() == (
        "cartpole.states.high",
        "cartpole.states.normal",
        "cartpole.states.low",
        "cartpole.actions",
        "cartpole.dead",
    )
    assert [names.group(lane) for lane in LANES] == ["cartpole.high", "cartpole.normal", "cartpole.low"]


def test_a_states_topic_tells_its_lane() -> None:
    """lane_of undoes states."""
    names = FleetNames("a.b-c_d")
    assert [names.lane_of(names.states(lane)) for lane in LANES] == list(LANES)


@pytest.mark.parametrize("topic", ["cartpole.actions", "other.states.high", "cartpole.states.urgent"])
def test_other_topics_have_no_lane(topic: str) -> None:
    """A topic of another fleet or kind is a bug, not a lane."""
    with pytest.raises(ValueError, match="not a states topic"):
        FleetNames("cartpole").lane_of(topic)


@pytest.mark.parametrize("fleet", ["", "cart pole", "käse", "a/b", ".", "..", "a" * 201, "fleet\n"])
def test_names_that_kafka_refuses_are_refused_at_once(fleet: str) -> None:
    """A bad prefix fails at start with one line, not at the first publish."""
    with pytest.raises(SettingsError) as failure:
        FleetNames(fleet)
    assert "\n" not in str(failure.value)


def test_the_longest_fleet_name_gives_legal_topics() -> None:
    """Kafka's limit is 249 characters a topic."""
    assert max(map(len, FleetNames("a" * 200).all_topics())) <= 249


def test_a_shadow_shares_the_states_and_nothing_else() -> None:
    """Its groups, transactional IDs and answers are its own, and it writes nothing that the live fleet has."""
    live, shadow = FleetNames("arena"), ShadowNames("arena")
    assert shadow.state_topics() == live.state_topics()
    assert shadow.all_topics() == (*live.state_topics(), "arena.actions.shadow")
    assert not set(shadow.written) & set(live.all_topics())
    assert shadow.group("high") == "arena.shadow.high"
    assert shadow.transactional_id("low", 3) != live.transactional_id("low", 3)
