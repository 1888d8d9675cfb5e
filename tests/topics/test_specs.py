"""What the topics must look like."""

from __future__ import annotations

from topics.names import LANES
from topics.settings import FleetSettings, TopicSettings
from topics.specs import specs_of

HOUR_MS, MINUTE_MS = 3_600_000, 60_000


def test_all_lanes_and_the_actions_have_the_same_partitions() -> None:
    """Then one worker owns the same numbers in every lane, and an agent's state lives in one place."""
    settings = FleetSettings(topics=TopicSettings(partitions=24))
    keyed = [spec for spec in specs_of(settings) if spec.keyed]
    assert {spec.partitions for spec in keyed} == {24}
    assert [spec.name for spec in keyed] == [*map(settings.names.states, LANES), settings.names.actions]


def test_every_topic_of_the_fleet_has_a_spec() -> None:
    """Nothing is left to automatic creation."""
    settings = FleetSettings()
    assert tuple(spec.name for spec in specs_of(settings)) == settings.names.all_topics()


def test_records_are_kept_as_long_as_they_are_worth_something() -> None:
    """high 1–6 h, low 24 h, actions 10–60 min, dead letters 14 d."""
    kept = {spec.name: int(spec.configs["retention.ms"]) for spec in specs_of(FleetSettings(name="f"))}
    assert HOUR_MS <= kept["f.states.high"] <= 6 * HOUR_MS
    assert kept["f.states.low"] == 24 * HOUR_MS
    assert 10 * MINUTE_MS <= kept["f.actions"] <= HOUR_MS
    assert kept["f.dead"] == 14 * 24 * HOUR_MS


def test_segments_close_early_enough_for_the_retention_to_count() -> None:
    """Kafka deletes closed segments only; by default one stays open for 7 days."""
    for spec in specs_of(FleetSettings()):
        assert int(spec.configs["segment.ms"]) * 4 <= int(spec.configs["retention.ms"])


def test_a_state_of_the_largest_size_fits_as_a_dead_letter() -> None:
    """Payload plus the headers that say what was wrong."""
    sizes = {spec.name: int(spec.configs["max.message.bytes"]) for spec in specs_of(FleetSettings(name="f"))}
    assert sizes["f.dead"] > sizes["f.states.high"] > FleetSettings().topics.max_record_bytes


def test_a_shadow_needs_its_answers_topic_and_no_dead_letters() -> None:
    """As many partitions as the live one, so that answers lie side by side."""
    live, shadow = specs_of(FleetSettings(name="arena")), specs_of(FleetSettings(name="arena", shadow=True))
    assert [spec.name for spec in shadow] == [*(spec.name for spec in live[:3]), "arena.actions.shadow"]
    assert shadow[3].partitions == live[3].partitions and shadow[3].configs == live[3].configs
