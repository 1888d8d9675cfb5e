"""A worker's settings: what cannot work is refused at start."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from workers.settings import PredictorSettings, Settings


@pytest.mark.parametrize(
    ("predictors", "said"),
    [
        ([{"reserved_for": "high"}, {"standby": True}], "normal and low would never run"),
        ([{}, {"reserved_for": "high", "standby": True}], "reserved_for=high and standby=true"),
    ],
)
def test_predictors_that_would_leave_a_lane_alone_are_refused(predictors: list[dict[str, object]], said: str) -> None:
    """A reserved one runs high only, a standby nothing while others serve."""
    with pytest.raises(ValidationError, match=said):
        Settings(predictors=tuple(PredictorSettings(**fields) for fields in predictors))  # type: ignore[arg-type]


def test_a_drain_must_fit_between_two_polls() -> None:
    """Who drains does not poll; the group would give its partitions away meanwhile."""
    with pytest.raises(ValidationError, match=r"drain\.timeout_s=400 must be below kafka\.max_poll_interval_ms=300000"):
        Settings.model_validate({"drain": {"timeout_s": 400}})


def test_handing_over_must_fit_into_a_rebalance() -> None:
    """Batches that run, the commit after them, and closing producers: the group waits for all of it, or throws us out
    and gives away what we are about to commit."""
    with pytest.raises(ValidationError) as raised:
        Settings.model_validate({"drain": {"revoke_timeout_s": 24}})
    for said in (
        "drain.revoke_timeout_s=24 + commit.timeout_s=5 + 2",
        "must be below kafka.rebalance_timeout_ms=30000",
    ):
        assert said in str(raised.value)
    assert Settings.model_validate({"drain": {"revoke_timeout_s": 22}}).hand_over_s == 27
