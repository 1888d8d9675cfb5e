"""The measurement itself: it sees a model whose answers depend on their batch, and one whose answers do
not."""

from __future__ import annotations

from tests.workers.models.conftest import MakeFactory, MakePackage, SmallPackage
from workers.models import load_model
from workers.models.invariance import measure_invariance

CROWD = """
class Crowd(nn.Module):
    def forward(self, observation):
        logits = observation[:, :3] + observation.mean()
        return logits.argmax(1), logits

def make(inputs, outputs):
    return Crowd()
"""


def test_an_mlp_in_float64_gives_the_same_bits_everywhere(package: SmallPackage) -> None:
    """Sums rounded at 1e-16 come out the same after the cast to float32."""
    seen = measure_invariance(load_model(package.path))
    assert seen.exact and seen.answers == 4 * (2 + 8)
    assert (seen.flips, seen.largest) == (0, 0.0)


def test_a_model_that_looks_at_its_neighbours_is_found_out(
    make_package: MakePackage, make_factory: MakeFactory
) -> None:
    """A mean over the batch is the classic: batch norm left in training mode."""
    name = make_factory(CROWD)
    package = make_package({}, factories=(name,), backend={"kind": "torch", "factory": name})
    seen = measure_invariance(load_model(package.path, factories=[name]))
    assert not seen.exact
    assert seen.differing > 0 and seen.largest > 1e-3
