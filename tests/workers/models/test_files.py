"""A package's files: hashed before they are believed, and never from outside its directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.workers.models.conftest import SmallPackage
from workers.models import ModelError, load_model
from workers.models.files import is_plain_name, read_file


def test_one_changed_byte_is_noticed(package: SmallPackage) -> None:
    """The hash in the manifest decides, whatever the file says."""
    path = package.path / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    text = package.mistake()
    assert "weights.safetensors has sha256" in text and "manifest.json says" in text and "fleet model pack" in text


def test_files_nobody_uses_are_hashed_too(package: SmallPackage) -> None:
    """What the manifest lists is all there and as it was."""
    package.edit(files=package.manifest["files"] | {"labels.txt": "0" * 64})
    assert "labels.txt is missing" in package.mistake()
    (package.path / "labels.txt").write_text("left right")
    assert "labels.txt has sha256" in package.mistake()


def test_a_missing_file_is_named(package: SmallPackage) -> None:
    """Weights that were not copied along."""
    (package.path / "weights.safetensors").unlink()
    assert "weights.safetensors is missing" in package.mistake()


def test_a_link_out_of_the_package_is_refused(package: SmallPackage, tmp_path: Path) -> None:
    """Same bytes, right hash: still not part of the package."""
    weights = package.path / "weights.safetensors"
    elsewhere = weights.rename(tmp_path / "elsewhere.safetensors")
    weights.symlink_to(elsewhere)
    assert "leads outside its package" in package.mistake()


def test_a_link_that_stays_inside_is_followed(package: SmallPackage) -> None:
    """Kubernetes mounts a ConfigMap as links into a sibling folder, and the package itself may be a link."""
    inner = package.path / "..data"
    inner.mkdir()
    for path in list(package.path.glob("*.*")):
        if path.is_file():
            path.rename(inner / path.name)
            path.symlink_to(Path("..data") / path.name)
    current = package.path.parent / "current"
    current.symlink_to(package.path)
    assert load_model(current).manifest.name == "small"


def test_what_is_no_file_is_refused(package: SmallPackage) -> None:
    """A directory, a loop of links, a pipe that would block for ever."""
    weights = package.path / "weights.safetensors"
    weights.unlink()
    weights.mkdir()
    assert "not a regular file" in package.mistake()
    weights.rmdir()
    weights.symlink_to(weights)
    assert "cannot be read" in package.mistake()
    weights.unlink()
    os.mkfifo(weights)
    assert "not a regular file" in package.mistake()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "C:x", ".hidden", "a\nb", "\0"])
def test_only_plain_names_are_names(name: str, tmp_path: Path) -> None:
    """No path in a manifest leads anywhere."""
    assert not is_plain_name(name)
    with pytest.raises(ModelError, match="is refused"):
        read_file(tmp_path, name)
