"""The bare client is a floor only while it writes and reads what an `AgentClient` does."""

from __future__ import annotations

import numpy as np
import pytest

from tools.bench.bare_client import BareClient
from topics.columns import ActionColumns, encode_states
from topics.records import State
from topics.settings import FleetSettings
from topics.tensors import TensorSpec

SEEN = TensorSpec("observation", "float32", (4,))
ACTION, VALUE = TensorSpec("action", "int64", ()), TensorSpec("value", "float32", (2,))


@pytest.fixture
def bare() -> BareClient:
    """Not connected."""
    nobody: object = None
    return BareClient(FleetSettings(), SEEN, ACTION, nobody, nobody)


def test_it_writes_the_clients_bytes(bare: BareClient) -> None:
    """State by state."""
    seen = np.arange(12, dtype=np.float32).reshape(3, 4)
    packed = [bare.packed(row, 7 + at, 1_700_000_000_000_000) for at, row in enumerate(seen)]
    assert packed == encode_states(seen, [7, 8, 9], State(None, sent_us=1_700_000_000_000_000))


def test_it_reads_the_workers_bytes(bare: BareClient) -> None:
    """The actions of a call in one array, whatever else the answers hold."""
    outputs = {"action": np.array([1, -5], np.int64), "value": np.zeros((2, 2), np.float32)}
    answers = ActionColumns([ACTION, VALUE], "m v1", "w").encode(["normal"] * 2, [3, 4], [1, 1], [0, 1], 9, outputs)
    assert bare.stacked(answers).tolist() == [1, -5]
