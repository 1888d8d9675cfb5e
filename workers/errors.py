"""Errors of the worker's process: each ends it, so that the supervisor starts it anew and others take over."""

from __future__ import annotations

from topics.errors import FleetError


class PredictorBroken(FleetError):
    """A batch could not be formed, run or answered by a fault of ours, so its states are in limbo."""


class PredictorsHang(FleetError):
    """No predictor serves, and none could be replaced."""

    exit_code = 5


class TwinRunning(FleetError):
    """Another worker of this name serves the fleet already."""

    exit_code = 6


class TakeOverFailed(FleetError):
    """Partitions could not be fenced, or what their last owner answered is unknown: running on would answer twice."""


class PartitionTaken(FleetError):
    """Another producer has the transactional ID of a partition that the group still gives to us."""


class ReceiveFailed(FleetError):
    """Kafka refuses to give us records, and asking again would not help."""
