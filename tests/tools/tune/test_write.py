"""Settings that were found become settings that a worker reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.tune.build import settings
from tools.tune.fleet import Candidate
from tools.tune.target import make_target
from tools.tune.write import as_toml, require_alike, require_free, tuned
from topics.errors import SettingsError
from topics.settings import load_settings
from workers.settings import PredictorSettings, Settings

CANDIDATE = Candidate(3, 2, 16, 2.5)
TARGET = make_target({"high": 20}, {"high": 50, "low": 100})


def test_what_is_written_is_what_a_worker_reads(tmp_path: Path) -> None:
    """Batch, predictors and model; the number of workers and the target stand above, for people."""
    chosen, file = tuned(settings(6000, 50), CANDIDATE), tmp_path / "fleet.toml"
    file.write_text(as_toml(chosen, CANDIDATE, TARGET, Path('a "model"')))
    read = load_settings(Settings, config=file)
    assert (read.batch, read.predictors) == (chosen.batch, chosen.predictors)
    assert read.batch.max_batch == 16 and read.batch.max_wait_ms == 2.5
    assert [ours.simulated.seed for ours in read.predictors] == [0, 1]
    assert read.model.path == Path('a "model"')
    assert "for 3 workers of this kind: high 50/s within 20 ms (p99), low 100/s" in file.read_text()


def test_copies_of_a_gpu_are_the_next_gpus() -> None:
    """A standby stays where it is; CPUs have no numbers."""
    gpu, standby = PredictorSettings(device="cuda:1"), PredictorSettings(standby=True)
    ours = settings().model_copy(update={"predictors": (gpu, standby)})
    assert [each.device for each in tuned(ours, CANDIDATE).predictors] == ["cuda:1", "cuda:2", "cpu"]
    ours = settings().model_copy(update={"predictors": (PredictorSettings(threads=2),)})
    assert tuned(ours, CANDIDATE).predictors == (PredictorSettings(threads=2),) * 2


@pytest.mark.parametrize(
    "others", [(PredictorSettings(),), (PredictorSettings(device="simulated", reserved_for="high"),)]
)
def test_predictors_that_differ_are_refused(others: tuple[PredictorSettings, ...]) -> None:
    """There would be no one curve to tune for."""
    ours = settings()
    with pytest.raises(SettingsError, match="fleet tune tries equal ones"):
        require_alike(ours.model_copy(update={"predictors": (*ours.predictors, *others)}))


def test_no_file_is_replaced_unless_somebody_says_so(tmp_path: Path) -> None:
    """Before anything is measured."""
    (file := tmp_path / "fleet.toml").touch()
    with pytest.raises(SettingsError, match="exists: name another file, or --force"):
        require_free(file, force=False)
    require_free(file, force=True)
    require_free(tmp_path / "new.toml", force=False)
