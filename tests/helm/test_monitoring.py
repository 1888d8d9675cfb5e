"""Dashboards and alerts: of metrics that exist, with a runbook each, firing when they should and silent otherwise."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.conftest import FIRST_RUN, HELM, Object, Render, merged
from tools.dashboards import DASHBOARDS, text
from workers.metrics import Metrics

RULES = HELM / "files" / "rules"
RUNBOOKS = HELM.parent / "docs" / "runbooks"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool (Debian: apt install prometheus)")


def rules() -> Iterator[dict[str, Any]]:
    for path in sorted(RULES.glob("*.yaml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from group["rules"]


def known_series() -> dict[str, set[str]]:
    """Every series name of a worker, with the labels that it has."""
    found: dict[str, set[str]] = {"process_cpu_seconds_total": set(), "process_resident_memory_bytes": set()}
    for family in Metrics(max_batch=8).families():
        suffixes = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        for suffix in suffixes:
            found[family.name + suffix] = {*family.labels, *({"le"} if suffix == "_bucket" else ())}
    return found


def check_names(query: str) -> None:
    """Metrics exist, and have the labels that the query names."""
    known = known_series()
    names = re.findall(r"\b(?:fleet|process)_[a-z_]+", query)
    assert names, query
    for name in names:
        assert name in known or name == "fleet_worker_info", f"{name} in {query}"
    labels = {
        label for selector in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)\s*[=!]", selector)
    }
    labels |= {label.strip() for clause in re.findall(r"\bby \(([^)]*)\)", query) for label in clause.split(",")}
    assert labels - {"instance", ""} <= set().union(*(known[name] for name in names)), query


def test_every_panel_shows_metrics_that_exist() -> None:
    """A renamed metric leaves an empty panel, which nobody notices until the incident."""
    for name in DASHBOARDS:
        for panel in json.loads(text(name))["panels"]:
            for target in panel.get("targets", ()):
                check_names(target["expr"])


def test_every_metric_of_the_worker_is_on_a_dashboard() -> None:
    """Or it would be of no use to an operator."""
    shown = "".join(text(name) for name in DASHBOARDS)
    assert [family.name for family in Metrics(max_batch=8).families() if family.name not in shown] == []


def test_the_dashboards_in_the_chart_are_current() -> None:
    """`python -m tools.dashboards helm/files/dashboards` writes them."""
    found = {path.stem: path.read_text() for path in (HELM / "files" / "dashboards").glob("*.json")}
    assert found == {name: text(name) for name in DASHBOARDS}


def test_panels_lie_beside_each_other() -> None:
    """None covers another, none is wider than the grid."""
    for name in DASHBOARDS:
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(text(name))["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not taken & cells and max(x for x, _ in cells) < 24, panel["title"]
            taken |= cells


def test_every_alert_has_a_runbook_and_a_reason() -> None:
    """And metrics that exist, a time to settle, a severity and a summary."""
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(names)
    for rule in rules():
        check_names(rule["expr"])
        assert rule["for"] and rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"] and rule["annotations"]["runbook_url"].endswith(f"{rule['alert']}.md")
        page = (RUNBOOKS / f"{rule['alert']}.md").read_text()
        assert [line for line in page.splitlines() if line.startswith("## ")] == [
            "## What it means",
            "## How to look",
            "## What to do",
        ]


def test_the_chart_brings_rules_and_dashboards(render: Render) -> None:
    """With runbooks where the operator has put them."""
    monitoring = {
        "prometheusRule": {"enabled": True, "runbookBase": "https://run.example.org/"},
        "dashboards": {"enabled": True},
    }
    objects = render(merged(FIRST_RUN, {"monitoring": monitoring}))
    (rule,) = [one for one in objects if one["kind"] == "PrometheusRule"]
    brought = [one for group in rule["spec"]["groups"] for one in group["rules"]]
    assert [one["alert"] for one in brought] == [one["alert"] for one in rules()]
    assert brought[0]["annotations"]["runbook_url"] == f"https://run.example.org/{brought[0]['alert']}.md"
    assert [one["expr"] for one in brought] == [one["expr"] for one in rules()]
    assert dashboards(objects) == {f"{name}.json": text(name) for name in DASHBOARDS}


def dashboards(objects: list[Object]) -> dict[str, str]:
    return {
        file: content
        for one in objects
        if one["kind"] == "ConfigMap" and "grafana_dashboard" in one["metadata"]["labels"]
        for file, content in one["data"].items()
    }


@needs_promtool
def test_promtool_takes_every_expression(tmp_path: Path) -> None:
    """Rules, and the panels' queries as if they were rules."""
    panels = [
        {"record": f"panel:{number}", "expr": target["expr"].replace("$__rate_interval", "1m")}
        for number, target in enumerate(
            target
            for name in DASHBOARDS
            for panel in json.loads(text(name))["panels"]
            for target in panel.get("targets", ())
        )
    ]
    queries = tmp_path / "panels.yaml"
    queries.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": panels}]}))
    ran = subprocess.run(
        [str(PROMTOOL), "check", "rules", queries, *RULES.glob("*.yaml")], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_promtool
def test_alerts_fire_and_stay_silent_as_they_should(tmp_path: Path) -> None:
    """tests/helm/alerts.yaml has the series: one trouble for each alert, and a normal rebalance, rollout and night."""
    cases = yaml.safe_load((Path(__file__).parent / "alerts.yaml").read_text())
    alerts = {rule["alert"] for rule in rules()}
    fired = {
        expected["alertname"]
        for test in cases["tests"]
        for expected in test.get("alert_rule_test", ())
        if expected.get("exp_alerts")
    }
    assert fired == alerts, "each alert has a case in which it fires"
    cases["rule_files"] = [str(path) for path in RULES.glob("*.yaml")]
    for test in cases["tests"]:
        if test.pop("silent", False):
            test["alert_rule_test"] = [
                {"eval_time": moment, "alertname": alert, "exp_alerts": []}
                for alert in sorted(alerts)
                for moment in ("5m", "12m", "20m", "30m", "45m", "60m")
            ]
        for expected in test["alert_rule_test"]:
            for alert in expected.get("exp_alerts", ()):
                rule = next(one for one in rules() if one["alert"] == expected["alertname"])
                alert["exp_labels"] = {**alert.get("exp_labels", {}), "severity": rule["labels"]["severity"]}
                alert.setdefault("exp_annotations", {})["runbook_url"] = rule["annotations"]["runbook_url"]
    file = tmp_path / "cases.yaml"
    file.write_text(yaml.safe_dump(cases))
    ran = subprocess.run([str(PROMTOOL), "test", "rules", str(file)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
