"""The recommended settings: as a worker's settings tree, and as a TOML file of its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.tune.fleet import Candidate
from tools.tune.target import Target
from topics.errors import FleetError, SettingsError
from workers.models.simulated import SIMULATED
from workers.settings import PredictorSettings, Settings


def require_alike(settings: Settings) -> PredictorSettings:
    """The predictor that others are copies of.

    Raises:
        SettingsError: those in force differ, or one is reserved: then there is no one curve to tune for.
    """
    hot = [ours for ours in settings.predictors if not ours.standby]
    if len({ours.device.partition(":")[0] for ours in hot}) > 1 or any(ours.reserved_for for ours in hot):
        found = ", ".join(f"{ours.device}{' for high' if ours.reserved_for else ''}" for ours in hot)
        raise SettingsError(f"predictors are {found}; fleet tune tries equal ones: leave one kind, reserved for nobody")
    return hot[0]


def tuned(settings: Settings, candidate: Candidate) -> Settings:
    """`settings` with the candidate's batch and predictors; standbys stay."""
    like = require_alike(settings)
    hot = [_copy(like, number) for number in range(candidate.predictors)]
    standbys = [ours for ours in settings.predictors if ours.standby]
    bounds = {"max_batch": candidate.max_batch, "max_wait_ms": candidate.max_wait_ms}
    return settings.model_copy(
        update={"batch": settings.batch.model_copy(update=bounds), "predictors": (*hot, *standbys)}
    )


def _copy(like: PredictorSettings, number: int) -> PredictorSettings:
    """The next device of the same kind: another GPU, or a simulated device with a seed of its own."""
    if like.device == SIMULATED:
        seed = like.simulated.seed + number
        return like.model_copy(update={"simulated": like.simulated.model_copy(update={"seed": seed})})
    kind, _, first = like.device.partition(":")
    if kind == "cuda" and number:
        return like.model_copy(update={"device": f"cuda:{int(first or 0) + number}"})
    return like


def as_toml(settings: Settings, candidate: Candidate, target: Target, model: Path | None) -> str:
    """The tables that were tuned, for fleet.toml; `model` where it was named by a flag."""
    limits = ", ".join(f"{lane} {rate:g}/s{_within(target, lane)}" for lane, rate in target.rate_per_s.items())
    workers = f"{candidate.workers} worker{'s' if candidate.workers > 1 else ''}"
    lines = [f"# From fleet tune, for {workers} of this kind: {limits}."]
    if model is not None:
        lines += ["", "[model]", f"path = {json.dumps(str(model))}"]
    lines += ["", "[batch]", *_pairs(settings.batch.model_dump(mode="json"))]
    for ours in settings.predictors:
        table = {"device": ours.device} | ours.model_dump(mode="json", exclude_defaults=True)
        lines += ["", "[[predictors]]", *_pairs(table)]
    return "\n".join(lines) + "\n"


def _within(target: Target, lane: str) -> str:
    limit_ms = {str(name): ms for name, ms in target.p99_ms.items()}.get(lane)
    return f" within {limit_ms:g} ms (p99)" if limit_ms else ""


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield f"{key} = {_value(value)}"


def _value(value: Any) -> str:
    """Texts, numbers, booleans and lists are the same in JSON and TOML; tables are not."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_pairs(value)) + " }"
    return json.dumps(value, ensure_ascii=False)


def require_free(path: Path, *, force: bool) -> None:
    """Raises SettingsError where a file would be replaced and nobody said so."""
    if path.exists() and not force:
        raise SettingsError(f"--write {path} exists: name another file, or --force to replace it")


def write(path: Path, text: str, flag: str) -> None:
    """Write a file that a flag names. Raises FleetError where it cannot be."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FleetError(f"{flag} {path} cannot be written: {error.strerror}") from error
