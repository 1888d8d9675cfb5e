"""The simulated device: as slow as it was told to be, the same every time, without a CPU."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from workers.models.simulated import Device, SimulatedModel, load_simulated

CARTPOLE = Path("tools/demo/models/cartpole")
ROWS = {"observation": np.arange(12, dtype=np.float32).reshape(3, 4)}


def model(device: Device) -> SimulatedModel:
    return load_simulated(CARTPOLE, device)


def test_a_batch_is_padded_to_its_bucket_and_takes_so_long() -> None:
    """As on a real device, where padding costs."""
    ours = model(Device(batch_us=2000, row_us=10))
    assert [ours.batch_us(n) for n in (1, 3, 8, 9, 64)] == [2010, 2040, 2080, 2160, 2640]


def test_the_same_seed_gives_the_same_times_within_the_jitter() -> None:
    """A run can be repeated."""
    times = [[model(Device(1000, 0, jitter=0.1, seed=seed)).batch_us(1) for _ in range(3)] for seed in (1, 1, 2)]
    assert times[0] == times[1] != times[2]
    assert all(900 <= took <= 1100 for took in times[0])


def test_it_sleeps_that_long_on_average_and_uses_no_cpu() -> None:
    """Waking up late does not add up, and the cores stay free for the rest of the worker."""
    ours, n = model(Device(batch_us=2000, row_us=0)), 100
    cpu_s, begun_s = time.thread_time(), time.monotonic()
    for _ in range(n):
        ours.predict(ROWS)
    assert time.monotonic() - begun_s >= n * 0.002 - 0.001
    assert time.thread_time() - cpu_s < 0.25 * n * 0.002


def test_outputs_have_the_manifests_shapes_and_types() -> None:
    """Zeros are an action wherever actions are numbered."""
    outputs = model(Device(0, 0)).predict(ROWS)
    assert {name: (array.dtype.name, array.shape) for name, array in outputs.items()} == {
        "action": ("int64", (3,)),
        "logits": ("float32", (3, 2)),
    }
    assert not any(array.any() for array in outputs.values())


def test_an_echo_tells_whose_row_it_was() -> None:
    """So a test sees an answer that went to the wrong agent."""
    outputs = model(Device(0, 0, outputs="echo")).predict(ROWS)
    assert outputs["action"].tolist() == [0, 4, 8]
    assert outputs["logits"].tolist() == [[0, 1], [4, 5], [8, 9]]


def test_every_bucket_reports_its_time_when_it_is_warm() -> None:
    """From which the schedule knows the device before its first batch."""
    seen: dict[int, int] = {}
    model(Device(batch_us=1000, row_us=10)).warm_up(seen.__setitem__)
    assert list(seen) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert sum(seen.values()) >= sum(1000 + 10 * rows for rows in seen) - 1000, "a late wake-up shortens the next one"
