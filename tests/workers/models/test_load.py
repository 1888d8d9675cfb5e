"""From a package to a model: everything that does not fit is said before the first agent asks."""

from __future__ import annotations

import numpy as np
import pytest
import safetensors.numpy
import torch

from tests.workers.models.conftest import MakePackage, SmallPackage, weights
from workers.models import load_model


def test_a_package_in_order_answers(package: SmallPackage) -> None:
    """Load, warm up, predict."""
    model = load_model(package.path)
    seen: list[int] = []
    model.warm_up(lambda rows, _took_us: seen.append(rows))
    assert seen == [2, 8]
    given = model.predict({"observation": np.ones((3, 4), np.float32)})
    assert given["action"].shape == (3,) and given["action"].dtype == np.int64
    assert given["logits"].shape == (3, 3) and given["logits"].dtype == np.float32
    assert repr(model) == "<TorchModel small v3 on cpu, buckets 2/8>"


@pytest.mark.parametrize("keep", [0, 7, 60, -1])
def test_a_truncated_weights_file(package: SmallPackage, keep: int) -> None:
    """Right hash, half a file: someone packed a broken download."""
    whole = (package.path / "weights.safetensors").read_bytes()
    text = package.put("weights.safetensors", whole[:keep]).mistake()
    assert "weights.safetensors is not a whole safetensors file" in text


def test_a_pickle_is_no_weights_file(package: SmallPackage, tmp_path: object) -> None:
    """A torch checkpoint under the name of the weights is refused unread."""
    torch.save(weights(), package.path / "checkpoint")
    text = package.put("weights.safetensors", (package.path / "checkpoint").read_bytes()).mistake()
    assert "is not a whole safetensors file" in text


def test_weights_that_do_not_fit(package: SmallPackage) -> None:
    """A missing one, a wrong shape, one too many, one of another kind."""
    good = weights()
    without = {name: tensor for name, tensor in good.items() if name != "layers.1.bias"}
    assert 'weight "layers.1.bias" [3] is missing; it has layers.0.bias' in package.put_weights(without).mistake()
    narrow = good | {"layers.0.weight": torch.zeros(16, 5)}
    assert 'weight "layers.0.weight" has shape [16, 5], expected [16, 4]' in package.put_weights(narrow).mistake()
    extra = good | {"layers.2.bias": torch.zeros(2)}
    assert "layers.2.bias fit no part of the model; it takes layers.0" in package.put_weights(extra).mistake()
    whole = good | {"layers.1.bias": torch.zeros(3, dtype=torch.int64)}
    assert 'weight "layers.1.bias" is torch.int64, expected torch.float32' in package.put_weights(whole).mistake()
    assert "it has nothing" in package.put_weights({}).mistake()


def test_a_model_that_is_not_what_the_manifest_says(package: SmallPackage) -> None:
    """The manifest's shapes go into the factory, so they disagree with the weights."""
    three = [{"name": "observation", "dtype": "float32", "shape": [3]}]
    assert 'weight "layers.0.weight" has shape [16, 4], expected [16, 3]' in package.edit(inputs=three).mistake()


def test_other_weights_fail_the_golden_pairs(package: SmallPackage) -> None:
    """Right hash, right shapes, wrong numbers: what no hash can find."""
    other = {name: tensor * 1.5 for name, tensor in weights().items()}
    text = package.put_weights(other).mistake()
    assert 'golden pair 0: output "logits"[0] is' in text and "expected" in text and "0.0001·|expected|" in text


def test_a_wrong_action_fails_the_golden_pairs(package: SmallPackage) -> None:
    """Whole numbers must match exactly."""
    pairs = dict(safetensors.numpy.load((package.path / "golden.safetensors").read_bytes()))
    pairs["outputs.action"] = pairs["outputs.action"] + 1
    text = package.put("golden.safetensors", safetensors.numpy.save(pairs)).mistake()
    assert 'output "action"[] is' in text and "exactly" in text


def test_golden_pairs_of_another_model(package: SmallPackage) -> None:
    """Names, dtypes, shapes and row counts of the pairs are the manifest's."""
    pairs = dict(safetensors.numpy.load((package.path / "golden.safetensors").read_bytes()))

    def said(**changes: np.ndarray | None) -> str:
        kept = {name: array for name, array in (pairs | changes).items() if array is not None}
        return package.put("golden.safetensors", safetensors.numpy.save(kept)).mistake()

    assert "inputs.observation is missing" in said(**{"inputs.observation": None})
    assert "expected float32 ['pairs', 4]" in said(**{"inputs.observation": np.zeros((4, 5), np.float32)})
    assert "expected float32 ['pairs', 4]" in said(**{"inputs.observation": np.zeros((4, 4))})
    assert "outputs.value belongs to no input or output" in said(**{"outputs.value": np.zeros(4)})
    assert "rows, expected as many in every tensor" in said(**{"outputs.action": np.zeros(9, np.int64)})
    assert "is not a safetensors file" in package.put("golden.safetensors", b"junk").mistake()


def test_a_package_without_golden_pairs_loads(make_package: MakePackage) -> None:
    """They are asked for, not enforced: someone may only have the weights."""
    package = make_package()
    files = {"weights.safetensors": package.manifest["files"]["weights.safetensors"]}
    assert load_model(package.edit(golden=None, files=files).path).manifest.golden is None


def test_an_unknown_backend(package: SmallPackage) -> None:
    """The seam for later ones says which exist."""
    text = package.edit(backend=package.manifest["backend"] | {"kind": "onnx"}).mistake()
    assert 'backend.kind is "onnx", expected one of torch' in text


@pytest.mark.parametrize(
    ("device", "said"),
    [("gpu", "is unknown, expected cpu, cuda"), ("meta", "is not supported"), ("cuda:99", "torch sees ")],
)
def test_a_device_that_is_not_there(package: SmallPackage, device: str, said: str) -> None:
    """A typing mistake and a missing GPU are told apart."""
    text = package.mistake(device=device)
    assert f'device "{device}"' in text and said in text
