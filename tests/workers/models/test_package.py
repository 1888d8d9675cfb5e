"""The manifest: what it gives, and one line for everything that can be wrong with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workers.models.conftest import SmallPackage
from topics.tensors import DTYPES, Array, TensorSpec
from workers.models import ModelError, read_manifest

OBSERVATION = {"name": "observation", "dtype": "float32", "shape": [4]}
ACTION = {"name": "action", "dtype": "int64", "shape": []}


def test_a_manifest_says_what_the_model_takes_and_gives(package: SmallPackage) -> None:
    """All a worker needs to check a state is there without torch or weights."""
    manifest = read_manifest(package.path)
    assert (manifest.name, manifest.version, str(manifest)) == ("small", "3", "small v3")
    assert manifest.inputs == (TensorSpec("observation", "float32", (4,)),)
    assert [spec.name for spec in manifest.outputs] == ["action", "logits"]
    assert manifest.buckets == (2, 8)
    assert manifest.finite and not manifest.allow_nan
    assert set(manifest.files) == {"weights.safetensors", "golden.safetensors"}


def test_reading_a_manifest_does_not_import_torch(package: SmallPackage) -> None:
    """`fleet model show` answers at once."""
    code = (
        "import sys; from pathlib import Path; from workers.models import read_manifest;"
        f"read_manifest(Path({str(package.path)!r})); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_defaults_are_the_careful_ones(package: SmallPackage) -> None:
    """Whoever says nothing gets finite outputs enforced, NaN refused, and buckets for every batch size in
    use."""
    manifest = read_manifest(package.edit(buckets=None, finite=None, allow_nan=None, compute=None).path)
    assert manifest.buckets[0] == 1 and manifest.buckets[-1] >= 64
    assert manifest.finite and not manifest.allow_nan and manifest.compute is None


@pytest.mark.parametrize(
    ("fallback", "output", "action"),
    [
        ("zeros", {"dtype": "float32", "shape": [2]}, np.zeros(2, np.float32)),
        ([0.5, -1], {"dtype": "float32", "shape": [2]}, np.array([0.5, -1], np.float32)),
        (3, {"dtype": "int8", "shape": []}, np.array(3, np.int8)),
        (True, {"dtype": "bool", "shape": []}, np.array(True)),
        (0.5, {"dtype": "bfloat16", "shape": []}, np.array(0.5, DTYPES["bfloat16"])),
        (None, {"dtype": "int64", "shape": []}, None),
    ],
)
def test_a_fallback_is_an_action_of_the_model(
    package: SmallPackage, fallback: object, output: dict[str, Any], action: Array | None
) -> None:
    """In its dtype and shape; without the key there is none."""
    found = read_manifest(
        package.edit(outputs=[{"name": "action", **output}], fallback=fallback).path
    ).fallback_action()
    assert (found is None) == (action is None)
    if found is not None and action is not None:
        assert found.dtype == action.dtype and found.tolist() == action.tolist()


def test_a_fallback_that_is_not_finite_is_refused_like_any_such_action(package: SmallPackage) -> None:
    """1e300 is no float32."""
    outputs = [{"name": "action", "dtype": "float32", "shape": []}]
    with pytest.raises(ModelError, match=r"fallback is 1e\+300, expected .* a finite number in float32"):
        read_manifest(package.edit(outputs=outputs, fallback=1e300).path)
    found = read_manifest(package.edit(outputs=outputs, fallback=1e300, finite=False).path).fallback_action()
    assert found is not None and np.isinf(found)


def test_the_digest_names_the_whole_package(package: SmallPackage) -> None:
    """Other weights, other hash in the manifest, other digest."""
    before = read_manifest(package.path).digest
    package.put("weights.safetensors", b"other")
    assert read_manifest(package.path).digest != before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nmae": "x"}, 'unknown key "nmae"; did you mean "name"?'),
        ({"zzz": 1}, 'unknown key "zzz"; known are'),
        ({"format": 2}, "format is 2, expected 1"),
        ({"name": None}, '"name" is missing, expected a string'),
        ({"name": "a b"}, 'name is "a b", expected'),
        ({"version": 3}, "version is 3, expected a string"),
        ({"inputs": []}, "inputs is [], expected at least one tensor"),
        ({"inputs": "observation"}, 'inputs is "observation", expected a list'),
        ({"inputs": [OBSERVATION, OBSERVATION]}, "each with a name of its own"),
        ({"inputs": [OBSERVATION | {"dtype": "float31"}]}, 'inputs[0].dtype is "float31", expected one of float32'),
        ({"inputs": [OBSERVATION | {"dtype": "object"}]}, 'inputs[0].dtype is "object"'),
        ({"inputs": [OBSERVATION | {"shape": [0]}]}, "inputs[0].shape is [0], expected up to 8 whole numbers > 0"),
        ({"inputs": [OBSERVATION | {"shape": [True]}]}, "inputs[0].shape is [true]"),
        ({"inputs": [OBSERVATION | {"shape": [1 << 40]}]}, "numbers in a row"),
        ({"inputs": [OBSERVATION | {"scale": 2}]}, 'inputs[0]: unknown key "scale"'),
        ({"inputs": [7]}, "inputs[0]: found 7, expected an object"),
        ({"outputs": [ACTION | {"name": "move"}]}, 'outputs is "move", expected "action" as the name'),
        ({"buckets": []}, "buckets is [], expected up to 256 ascending batch"),
        ({"buckets": [8, 2]}, "buckets is [8, 2], expected up to 256 ascending batch"),
        ({"buckets": [0, 2]}, "expected up to 256 ascending batch sizes between 1 and"),
        ({"buckets": [1e3]}, "buckets is [1000.0]"),
        ({"compute": "int8"}, 'compute is "int8", expected one of float32'),
        ({"finite": "yes"}, 'finite is "yes", expected true or false'),
        ({"allow_nan": 1}, "allow_nan is 1, expected true or false"),
        ({"files": {}}, 'the sha256 of "weights.safetensors" as well'),
        ({"files": {"../weights.safetensors": "0" * 64}}, 'files is "../weights.safetensors", expected plain names'),
        ({"files": {"weights.safetensors": "ab"}}, "expected a sha256 in 64 lower-case hex digits"),
        ({"files": {"weights.safetensors": 7}}, "files.weights.safetensors is 7, expected a sha256"),
        ({"backend": {"kind": "torch"}}, 'backend: "factory" is missing'),
        ({"backend": {"kind": "torch", "factory": "mlp", "code": "x"}}, 'backend: unknown key "code"'),
        ({"golden": {"file": "golden.safetensors", "rtol": "1"}}, 'golden.rtol is "1", expected a number'),
        ({"golden": {"file": "golden.safetensors", "rtol": -1}}, "golden.rtol is -1, expected a finite number ≥ 0"),
        ({"golden": {"file": "golden.safetensors", "atol": 10**400}}, "expected a finite number ≥ 0"),
        ({"buckets": list(range(1, 300))}, "expected up to 256 ascending batch sizes"),
        ({"environment": "a\nb"}, 'environment is "a\\nb", expected at most 200 printable characters'),
        ({"backend": {"kind": "torch", "factory": "x" * 201}}, "expected at most 200 printable characters"),
        ({"golden": {"file": "other.safetensors"}}, 'the sha256 of "other.safetensors" as well'),
        ({"environment": 5}, "environment is 5, expected a string"),
        ({"training": []}, "training is [], expected an object"),
        ({"fallback": "stay"}, 'fallback is "stay", expected "zeros" or an action int64[]'),
        ({"fallback": [0, 1]}, "fallback is [0, 1], expected"),
        ({"fallback": [0, 1]}, "action has shape [2], expected []"),
        ({"fallback": 0.5}, "action has dtype float64, expected int64"),
        ({"fallback": 1 << 70}, "fallback is 1180591620717411303424, expected"),
        ({"fallback": {"nd": True}}, 'fallback is {"nd": true}, expected'),
        ({"fallback": True}, "fallback is true, expected"),
    ],
)  # fmt: skip  # as a table
def test_a_mistake_in_the_manifest_names_its_place(package: SmallPackage, changes: dict[str, Any], said: str) -> None:
    """The author reads what was found, what was expected and where, in one line."""
    text = package.edit(**changes).mistake()
    assert said in text
    assert "manifest.json" in text


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "is not JSON: Expecting value at line 1, column 1"),
        (b'{"format": 1,\n "name"}', "at line 2, column 8"),
        (b"[1]", "found [1], expected an object"),
        (b"\xff\xfe", "is not readable JSON in UTF-8"),
        (b'{"format": 1, "format": 1}', 'key "format" is given twice'),
        (b'{"format": NaN}', "NaN is not JSON"),
        (b"[" * 200_000, "is not readable JSON"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "nests deeper than 32 levels"),
        (b'{"format": 1, "golden": {"rtol": 1e999}}', '"name" is missing'),
        (b" " * (1 << 20) + b"{}", "expected at most 1048576"),
    ],
)
def test_bad_json_is_one_line(package: SmallPackage, raw: bytes, said: str) -> None:
    """Whatever lies in manifest.json, the answer is a sentence and never a stack trace."""
    (package.path / "manifest.json").write_bytes(raw)
    assert said in package.mistake()


def test_an_infinite_tolerance_is_refused(package: SmallPackage) -> None:
    """JSON's 1e999 is infinity, and would let any weights pass for the golden ones."""
    path = package.edit(golden={"file": "golden.safetensors", "rtol": 12345}).path / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"12345", b"1e999"))
    assert "golden.rtol is Infinity, expected a finite number ≥ 0" in package.mistake()


def test_a_manifest_of_keys_alone_is_read_at_once(package: SmallPackage) -> None:
    """Looking for keys given twice took the square of their number: minutes for 1 MiB."""
    keys = ",".join(f'"{number}":1' for number in range(90_000))
    (package.path / "manifest.json").write_text(f"{{{keys}}}")
    assert '"format" is missing' in package.mistake()


def test_no_package_there(tmp_path: Path) -> None:
    """A path that is no directory, and a directory without a manifest."""
    (tmp_path / "file").write_text("x")
    for path, said in (
        (tmp_path / "missing", "found nothing, expected a directory with manifest.json"),
        (tmp_path / "file", "found a file, expected a directory"),
        (tmp_path, "manifest.json is missing"),
    ):
        with pytest.raises(ModelError, match=said):
            read_manifest(path)
