"""What people read of the chart: its README, the notes after an installation, the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.helm.conftest import FIRST_RUN, HELM, SCENARIOS, Render, merged
from tools.chart_readme import readme, rows

EXAMPLES = HELM / "examples"


def test_the_readme_is_current() -> None:
    """`python -m tools.chart_readme helm` writes it."""
    assert (HELM / "README.md").read_text() == readme(HELM)


def test_every_value_has_a_comment() -> None:
    """Every leaf of values.yaml, or the map above it where users fill the map."""
    text = (HELM / "values.yaml").read_text()
    commented = {key for key, _ in rows(text)}

    def leaves(tree: dict[str, Any], path: str = "") -> list[str]:
        found: list[str] = []
        for key, value in tree.items():
            name = f"{path}.{key}".removeprefix(".")
            inner = isinstance(value, dict) and value and name not in commented
            found += leaves(value, name) if inner else [name]
        return found

    assert [leaf for leaf in leaves(yaml.safe_load(text)) if leaf not in commented and "pools" not in leaf] == []


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name)
def test_the_notes_render(path: Path, chart: Any) -> None:
    """For every scenario, with the commands that come next."""
    notes = chart.render(yaml.safe_load(path.read_text()), name="fleet", namespace="ns")[
        "decision-fleet/templates/NOTES.txt"
    ]
    assert "helm test fleet -n ns" in notes and "Pool " in notes and "<no value>" not in notes


@pytest.mark.parametrize(
    ("values", "warns"),
    [
        ({}, "serves the demo model cartpole"),
        ({}, "topics have one copy"),
        ({"topics": {"provision": "none"}}, "nobody creates the topics"),
        ({"workers": {"pools": {"main": {"device": "cuda", "gpus": 1}}}}, "needs a free GPU for each rollout"),
        ({"workers": {"pools": {"main": {"replicas": 8}, "more": {"replicas": 8}}}}, "may have 16 workers together"),
    ],
)
def test_the_notes_warn(values: dict[str, Any], warns: str, chart: Any) -> None:
    """Of what works and will hurt."""
    notes = chart.render(merged(FIRST_RUN, values), name="fleet", namespace="ns")["decision-fleet/templates/NOTES.txt"]
    assert warns in notes


def test_the_examples_are_valid(render: Render) -> None:
    """Plain manifests against Kubernetes, values against the chart."""
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        if path.name.endswith("values.yaml"):
            assert render(yaml.safe_load(path.read_text()))
        else:
            for found in yaml.safe_load_all(path.read_text()):
                kubernetes_validate.validate(found, "1.32", strict=True)
