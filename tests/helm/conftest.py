"""The chart, rendered by Helm itself (as a library)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

helm = pytest.importorskip("helm_python", reason="needs helm-python-sdk, of the extra dev")

HELM = Path(__file__).parents[2] / "helm"
SCENARIOS = sorted((HELM / "ci").glob("*-values.yaml"))
FIRST_RUN = {"kafka": {"bootstrapServers": "kafka:9092"}}

Object = dict[str, Any]
Render = Callable[[dict[str, Any]], list[Object]]


@pytest.fixture(scope="session")
def chart() -> Any:
    return helm.Chart.load(HELM)


@pytest.fixture(scope="session")
def render(chart: Any) -> Render:
    """The objects that a release `fleet` in namespace `ns` has with these values."""

    def rendered(values: dict[str, Any]) -> list[Object]:
        chart.validate_schema(values)
        texts = chart.render(values, name="fleet", namespace="ns")
        return [
            found
            for path, text in sorted(texts.items())
            if not path.endswith("NOTES.txt")
            for found in yaml.safe_load_all(text)
            if found
        ]

    return rendered


@pytest.fixture(scope="session")
def scenarios(render: Render) -> dict[str, list[Object]]:
    """What each file in helm/ci renders, by its name."""
    return {path.name.removesuffix("-values.yaml"): render(yaml.safe_load(path.read_text())) for path in SCENARIOS}


def merged(*trees: dict[str, Any]) -> dict[str, Any]:
    """Later values over earlier ones, as Helm merges them."""
    result: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            old = result.get(key)
            result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result
