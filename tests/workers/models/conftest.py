"""Small packages to load, break and compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from workers.models import ModelError, load_model
from workers.models.pack import pack

DRAFT: dict[str, Any] = {
    "format": 1,
    "name": "small",
    "version": "3",
    "inputs": [{"name": "observation", "dtype": "float32", "shape": [4]}],
    "outputs": [
        {"name": "action", "dtype": "int64", "shape": []},
        {"name": "logits", "dtype": "float32", "shape": [3]},
    ],
    "buckets": [2, 8],
    "compute": "float64",
    "backend": {"kind": "torch", "factory": "mlp", "arguments": {"hidden": [16], "activation": "tanh"}},
}


def weights(widths: tuple[int, ...] = (4, 16, 3)) -> dict[str, torch.Tensor]:
    """Of an mlp with these widths; the same every time."""
    generator = torch.Generator().manual_seed(3)
    layers: dict[str, torch.Tensor] = {}
    for i in range(len(widths) - 1):
        layers[f"layers.{i}.weight"] = torch.randn(widths[i + 1], widths[i], generator=generator)
        layers[f"layers.{i}.bias"] = torch.randn(widths[i + 1], generator=generator)
    return layers


class SmallPackage:
    """A package on disk that a test edits; `mistake()` loads it and gives the error's one line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / "manifest.json").read_text())
        return found

    def edit(self, **changes: Any) -> SmallPackage:
        """Replace top-level keys of the manifest; None removes one."""
        kept = {key: value for key, value in (self.manifest | changes).items() if value is not None}
        (self.path / "manifest.json").write_text(json.dumps(kept))
        return self

    def put(self, name: str, data: bytes) -> SmallPackage:
        """Replace a file and its hash: what someone does who wants us to believe it."""
        (self.path / name).write_bytes(data)
        return self.edit(files=self.manifest["files"] | {name: hashlib.sha256(data).hexdigest()})

    def put_weights(self, tensors: Mapping[str, torch.Tensor]) -> SmallPackage:
        return self.put("weights.safetensors", safetensors.torch.save(dict(tensors)))

    def mistake(self, **options: Any) -> str:
        with pytest.raises(ModelError) as caught:
            load_model(self.path, **options)
        text = str(caught.value)
        assert "\n" not in text and len(text) < 600, text
        assert caught.value.exit_code == 4
        return text


MakePackage = Callable[..., SmallPackage]


@pytest.fixture
def make_package(tmp_path: Path) -> MakePackage:
    """Makes a package from `DRAFT` with top-level keys replaced, and packs it."""

    def make(
        tensors: Mapping[str, torch.Tensor] | None = None, *, factories: tuple[str, ...] = (), **changes: Any
    ) -> SmallPackage:
        path = tmp_path / "package"
        path.mkdir()
        (path / "weights.safetensors").write_bytes(
            safetensors.torch.save(dict(weights() if tensors is None else tensors))
        )
        draft = {key: value for key, value in (DRAFT | changes).items() if value is not None}
        (path / "manifest.json").write_text(json.dumps(draft))
        pack(path, factories=factories)
        return SmallPackage(path)

    return make


@pytest.fixture
def package(make_package: MakePackage) -> SmallPackage:
    """A package in order."""
    return make_package()


MakeFactory = Callable[[str], str]


@pytest.fixture
def make_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> MakeFactory:
    """Puts source code into a module that can be imported and gives the name of its function `make`."""

    def make(source: str) -> str:
        module = f"policy_of_{abs(hash(request.node.nodeid))}"
        (tmp_path / f"{module}.py").write_text(f"import torch\nfrom torch import nn\n\n{source}")
        monkeypatch.syspath_prepend(str(tmp_path))
        return f"{module}:make"

    return make
