"""The CUDA backend against the CPU one. Needs a CUDA device: `tests/gpu/run` on a machine that has one."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from tools.demo.packages import shipped_packages
from workers.models import ModelError, load_model
from workers.models.invariance import measure_invariance
from workers.models.samples import sample_inputs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

PACKAGES = sorted(shipped_packages().values())


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_device_answers_what_the_cpu_answers(package: Path) -> None:
    """Loading checks the golden pairs on the device; every batch size then agrees with the CPU."""
    cpu, cuda = load_model(package), load_model(package, device="cuda")
    assert cuda.device == "cuda:0"
    for n in (1, 2, 63, 64, 65, cpu.manifest.buckets[-1]):
        inputs = sample_inputs(cpu.manifest, n, seed=n)
        ours, theirs = cuda.predict(inputs), cpu.predict(inputs)
        np.testing.assert_array_equal(ours["action"], theirs["action"])
        np.testing.assert_allclose(ours["logits"], theirs["logits"], rtol=1e-6)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_rows_answer_is_the_same_at_every_place_in_every_bucket(package: Path) -> None:
    """As on the CPU: the demo's proof must not depend on the device."""
    assert measure_invariance(load_model(package, device="cuda")).exact


def test_outputs_belong_to_the_caller() -> None:
    """The pinned buffers are used again, what was handed out is not."""
    model = load_model(PACKAGES[0], device="cuda")
    first = model.predict(sample_inputs(model.manifest, 64, seed=1))
    kept = {name: array.copy() for name, array in first.items()}
    model.predict(sample_inputs(model.manifest, 64, seed=2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name])


def test_a_batch_waits_for_its_own_stream_only() -> None:
    """Work queued elsewhere on the device does not have to finish first, and nothing goes to the default
    stream."""
    model = load_model(PACKAGES[0], device="cuda")
    model.warm_up()
    inputs = sample_inputs(model.manifest, 64, seed=1)
    expected = model.predict(inputs)
    other = torch.cuda.Stream()
    busy = torch.cuda.Event()
    with torch.cuda.stream(other):
        torch.cuda._sleep(2_000_000_000)  # cycles: about a second
        busy.record(other)
    given = model.predict(inputs)
    assert not busy.query()
    torch.cuda.synchronize()
    np.testing.assert_array_equal(given["logits"], expected["logits"])


def test_two_predictors_share_a_device() -> None:
    """Each with a model and a thread of its own, as in a worker."""
    models = [load_model(package, device="cuda") for package in (PACKAGES[0], PACKAGES[0])]
    inputs = sample_inputs(models[0].manifest, 64, seed=1)
    expected = models[0].predict(inputs)["logits"]
    wrong: list[int] = []

    def predictor(number: int) -> None:
        models[number].warm_up()
        for _ in range(200):
            if not np.array_equal(models[number].predict(inputs)["logits"], expected):
                wrong.append(number)

    threads = [threading.Thread(target=predictor, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not wrong


def test_a_device_too_many_is_one_line() -> None:
    """The error says how many there are."""
    with pytest.raises(ModelError, match=f"torch sees {torch.cuda.device_count()} CUDA devices here"):
        load_model(PACKAGES[0], device="cuda:99")
