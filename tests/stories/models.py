"""Model packages for stories: what comes out tells which state went in, and how the model was treated.

Workers of a story run with `FLEET_MODEL__FACTORIES='["tests.stories.models:probe"]'`.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

FACTORY = "tests.stories.models:probe"


class Probe(nn.Module):
    """action = the observation itself; sleeps `seconds` per batch, raises where the first number is `raises_on`, never
    returns where it is `hangs_on`. It takes nothing at all while the file `lost_while` is there, like a device that
    fell off its bus."""

    def __init__(self, seconds: float, raises_on: float | None, hangs_on: float | None, lost_while: str | None) -> None:
        super().__init__()
        self.unit = nn.Parameter(torch.ones(1))
        self._seconds = seconds
        self._raises_on = raises_on
        self._hangs_on = hangs_on
        self._lost_while = Path(lost_while) if lost_while else None

    def forward(self, observation: Tensor) -> tuple[Tensor]:
        time.sleep(self._seconds)
        if self._lost_while is not None and self._lost_while.exists():
            raise RuntimeError("the device is lost")
        if self._raises_on is not None and bool((observation[:, 0] == self._raises_on).any()):
            raise RuntimeError("the probe was told to raise")
        while self._hangs_on is not None and bool((observation[:, 0] == self._hangs_on).any()):
            time.sleep(1.0)
        return (observation * self.unit,)


def probe(
    _inputs: Any,
    _outputs: Any,
    *,
    seconds: float = 0.0,
    raises_on: float | None = None,
    hangs_on: float | None = None,
    lost_while: str | None = None,
) -> Probe:
    """The factory that manifests of stories name."""
    return Probe(seconds, raises_on, hangs_on, lost_while)


def write_package(path: Path, **arguments: Any) -> Path:
    """A package of the probe: observation float32 [4] → action float32 [4]."""
    path.mkdir(parents=True)
    save_file({"unit": torch.ones(1)}, path / "weights.safetensors")
    spec = {"dtype": "float32", "shape": [4]}
    manifest = {
        "format": 1,
        "name": "probe",
        "version": "1",
        "inputs": [{"name": "observation", **spec}],
        "outputs": [{"name": "action", **spec}],
        "buckets": [1, 8, 64],
        "files": {"weights.safetensors": hashlib.sha256((path / "weights.safetensors").read_bytes()).hexdigest()},
        "backend": {"kind": "torch", "factory": FACTORY, "arguments": arguments, "weights": "weights.safetensors"},
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path
