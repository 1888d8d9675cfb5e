"""`pack` completes what someone wrote by hand, and leaves a package that cannot load as it was."""

from __future__ import annotations

import numpy as np
import pytest

from tests.workers.models.conftest import MakePackage, SmallPackage, weights
from workers.models import ModelError, load_model, read_manifest
from workers.models.golden import read_golden
from workers.models.pack import GOLDEN_PAIRS, pack


def golden_inputs(package: SmallPackage) -> np.ndarray:
    manifest = read_manifest(package.path)
    name = "golden.safetensors"
    return read_golden(package.path, manifest, name, manifest.files[name]).inputs["observation"]


def test_a_draft_becomes_a_package(make_package: MakePackage) -> None:
    """Manifest without hashes and weights are enough."""
    package = make_package()
    assert len(golden_inputs(package)) == GOLDEN_PAIRS
    assert load_model(package.path)


def test_packing_twice_changes_nothing(package: SmallPackage) -> None:
    """Same weights, same golden pairs, same bytes."""
    before = {path.name: path.read_bytes() for path in package.path.iterdir()}
    pack(package.path)
    assert {path.name: path.read_bytes() for path in package.path.iterdir()} == before


def test_new_weights_are_taken_over(package: SmallPackage) -> None:
    """After retraining: the hash is wrong, `pack` makes it right and plays the same golden inputs again."""
    observations = np.full((3, 4), 0.25, np.float32)
    pack(package.path, inputs={"observation": observations})
    package.put_weights({name: tensor * 2 for name, tensor in weights().items()})
    assert "golden pair 0" in package.mistake()
    pack(package.path)
    assert load_model(package.path)
    np.testing.assert_array_equal(golden_inputs(package), observations)


def test_golden_inputs_that_no_longer_fit_are_replaced(package: SmallPackage) -> None:
    """Another observation, other pairs."""
    package.edit(inputs=[{"name": "observation", "dtype": "float32", "shape": [5]}])
    package.put_weights(weights((5, 16, 3)))
    pack(package.path)
    assert golden_inputs(package).shape == (GOLDEN_PAIRS, 5)


def test_tolerances_and_further_files_are_kept(package: SmallPackage) -> None:
    """What the author set stays; what the author listed is hashed."""
    (package.path / "labels.txt").write_text("left right")
    package.edit(golden={"file": "golden.safetensors", "rtol": 0.5, "atol": 0.25})
    package.edit(files={"labels.txt": "to be filled in"})
    manifest = pack(package.path)
    assert manifest.golden is not None and (manifest.golden.rtol, manifest.golden.atol) == (0.5, 0.25)
    assert set(manifest.files) == {"labels.txt", "weights.safetensors", "golden.safetensors"}


def test_what_cannot_load_is_left_alone(package: SmallPackage) -> None:
    """No half-packed directory after a mistake."""
    (package.path / "weights.safetensors").write_bytes(b"junk")
    before = {path.name: path.read_bytes() for path in package.path.iterdir()}
    with pytest.raises(ModelError, match="is not a whole safetensors file"):
        pack(package.path)
    assert {path.name: path.read_bytes() for path in package.path.iterdir()} == before


def test_a_golden_file_outside_is_never_written(package: SmallPackage) -> None:
    """Packing a directory writes into that directory."""
    package.edit(golden={"file": "../golden.safetensors"})
    with pytest.raises(ModelError, match="expected plain names"):
        pack(package.path)
    assert not (package.path.parent / "golden.safetensors").exists()
