"""The Grafana dashboards of the chart, as JSON: `python -m tools.dashboards helm/files/dashboards` writes them.

Three of them: the fleet at a glance, one worker, and the side of Kafka. Plain dictionaries; a test keeps the files
current and looks for every metric in the worker.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

WIDTH: Final = 24
"""Columns of Grafana's grid."""
HEIGHT: Final = 8
SCHEMA_VERSION: Final = 39
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
OURS: Final = '{instance=~"$instance"}'

Query = tuple[str, str]
"""PromQL and the legend."""
Panel = tuple[str, str, Sequence[Query]]
"""Title, unit, queries."""


def quantile(q: float, metric: str, by: str, where: str = "") -> str:
    """A quantile over all workers."""
    return f"histogram_quantile({q:g}, sum by (le, {by}) (rate({metric}_bucket{where}[$__rate_interval])))"


def rate(metric: str, by: str, where: str = "") -> str:
    """Per second, summed."""
    return f"sum by ({by}) (rate({metric}{where}[$__rate_interval]))"


DECIDED: Final = '{outcome="action"}'
EXPIRED: Final = '{outcome="expired"}'
OVERVIEW: Final[Mapping[str, Sequence[Panel]]] = {
    "Are agents answered in time?": (
        (
            "p50 and p99 from send to answer",
            "s",
            (
                (quantile(0.5, "fleet_end_to_end_seconds", "lane", DECIDED), "{{lane}} p50"),
                (quantile(0.99, "fleet_end_to_end_seconds", "lane", DECIDED), "{{lane}} p99"),
            ),
        ),
        ("answers by outcome", "ops", ((rate("fleet_replies_total", "outcome"), "{{outcome}}"),)),
        (
            "where the time of a decision goes, mean",
            "s",
            (
                (
                    "sum by (part) (rate(fleet_decision_seconds_total[$__rate_interval])) / ignoring (part)"
                    ' group_left () sum(rate(fleet_end_to_end_seconds_count{outcome="action"}[$__rate_interval]))',
                    "{{part}}",
                ),
            ),
        ),
        (
            "where the time of a decision goes, mean",
            "s",
            (
                (
                    "sum by (part) (rate(fleet_decision_seconds_total[$__rate_interval])) / ignoring (part)"
                    ' group_left () sum(rate(fleet_end_to_end_seconds_count{outcome="action"}[$__rate_interval]))',
                    "{{part}}",
                ),
            ),
        ),
        (
            "share that expired",
            "percentunit",
            ((rate("fleet_replies_total", "lane", EXPIRED) + " / " + rate("fleet_replies_total", "lane"), "{{lane}}"),),
        ),
        ("decisions", "ops", ((rate("fleet_replies_total", "lane", DECIDED), "{{lane}}"),)),
    ),
    "Is there capacity enough?": (
        ("lag", "short", (("sum by (lane) (fleet_lag_records)", "{{lane}}"),)),
        ("seconds behind", "s", (("max by (lane) (fleet_received_age_seconds)", "{{lane}}"),)),
        (
            "predictors busy",
            "percentunit",
            (("avg(fleet_predictor_busy_fraction)", "mean"), ("max(fleet_predictor_busy_fraction)", "busiest")),
        ),
        (
            "batch fill",
            "percentunit",
            (
                (
                    "sum(rate(fleet_batch_fill_ratio_sum[$__rate_interval]))"
                    " / sum(rate(fleet_batch_fill_ratio_count[$__rate_interval]))",
                    "mean",
                ),
            ),
        ),
        (
            "wait for a batch",
            "s",
            (
                (quantile(0.99, "fleet_queue_wait_seconds", "lane"), "{{lane}} p99"),
                ("max by (lane) (fleet_queue_wait_worst_seconds)", "{{lane}} worst"),
            ),
        ),
        ("workers", "short", (("sum(fleet_ready)", "ready"), ("count(fleet_ready)", "all"))),
    ),
    "Is anything stuck?": (
        ("standstill", "s", (("max by (layer) (fleet_standstill_seconds) > 0", "{{layer}}"),)),
        ("rebalances", "short", (("sum by (lane) (increase(fleet_rebalances_total[$__rate_interval]))", "{{lane}}"),)),
        ("in flight", "short", (("sum by (lane) (fleet_in_flight)", "{{lane}}"),)),
        (
            "dead letters",
            "short",
            (("sum by (reason) (increase(fleet_dead_letters_total[$__rate_interval]))", "{{reason}}"),),
        ),
    ),
    "Is the model right?": (
        (
            "versions",
            "short",
            (
                (
                    "count by (model, model_version, golden) (fleet_worker_info)",
                    "{{model}} v{{model_version}}, golden pairs {{golden}}",
                ),
            ),
        ),
        ("actions, whole numbers", "percentunit", (("avg by (action) (fleet_action_share)", "{{action}}"),)),
        ("actions, means", "short", (("avg by (number) (fleet_action_mean)", "{{number}}"),)),
        ("actions, deviations", "short", (("avg by (number) (fleet_action_deviation)", "{{number}}"),)),
    ),
}
WORKER: Final[Mapping[str, Sequence[Panel]]] = {
    "Lanes": (
        ("p99 from send to answer", "s", ((quantile(0.99, "fleet_end_to_end_seconds", "lane", OURS), "{{lane}}"),)),
        (
            "depth, of its capacity",
            "percentunit",
            ((f"fleet_lane_depth{OURS} / fleet_lane_capacity{OURS}", "{{lane}}"),),
        ),
        (
            "received and admitted",
            "ops",
            (
                (rate("fleet_received_records_total", "lane", OURS), "{{lane}} received"),
                (rate("fleet_admitted_total", "lane", OURS), "{{lane}} admitted"),
            ),
        ),
        ("answered by the last owner", "ops", ((rate("fleet_skipped_total", "lane", OURS), "{{lane}}"),)),
    ),
    "Predictors": (
        ("busy", "percentunit", ((rate("fleet_predictor_busy_seconds_total", "predictor", OURS), "{{predictor}}"),)),
        (
            "a batch takes",
            "s",
            (
                (quantile(0.5, "fleet_batch_seconds", "predictor", OURS), "{{predictor}} p50"),
                (quantile(0.99, "fleet_batch_seconds", "predictor", OURS), "{{predictor}} p99"),
            ),
        ),
        (
            "batch size",
            "short",
            (
                (
                    f"rate(fleet_batch_size_sum{OURS}[$__rate_interval])"
                    f" / rate(fleet_batch_size_count{OURS}[$__rate_interval])",
                    "{{predictor}}",
                ),
            ),
        ),
        ("rows for nothing", "ops", ((rate("fleet_batch_padding_rows_total", "predictor", OURS), "{{predictor}}"),)),
        (
            "serving, largest batch",
            "short",
            (
                (f"fleet_predictor_serving{OURS}", "{{predictor}} serving"),
                (f"fleet_predictor_largest_batch{OURS}", "{{predictor}} largest"),
            ),
        ),
        (
            "failed batches",
            "short",
            ((f"increase(fleet_batch_failures_total{OURS}[$__rate_interval])", "{{predictor}}"),),
        ),
    ),
    "The process": (
        (
            "cost of a step, per record",
            "s",
            (
                (
                    f"rate(fleet_stage_seconds_sum{OURS}[$__rate_interval])"
                    f" / on (instance, stage) rate(fleet_stage_records_total{OURS}[$__rate_interval])",
                    "{{stage}}",
                ),
            ),
        ),
        (
            "event loop late, p99",
            "s",
            ((quantile(0.99, "fleet_event_loop_lag_seconds", "instance", OURS), "{{instance}}"),),
        ),
        ("CPU", "short", ((f"rate(process_cpu_seconds_total{OURS}[$__rate_interval])", "cores"),)),
        ("memory", "bytes", ((f"process_resident_memory_bytes{OURS}", "resident"),)),
    ),
}
KAFKA: Final[Mapping[str, Sequence[Panel]]] = {
    "Consuming": (
        ("lag by worker", "short", (("sum by (instance, lane) (fleet_lag_records)", "{{instance}} {{lane}}"),)),
        (
            "partitions by worker",
            "short",
            (('sum by (instance) (fleet_assigned_partitions{lane="high"})', "{{instance}}"),),
        ),
        ("bytes received", "Bps", ((rate("fleet_received_bytes_total", "lane"), "{{lane}}"),)),
        ("polls", "ops", ((rate("fleet_polls_total", "lane"), "{{lane}}"),)),
    ),
    "Committing": (
        ("a commit takes, p99", "s", ((quantile(0.99, "fleet_commit_seconds", "lane"), "{{lane}}"),)),
        (
            "commits that failed",
            "short",
            (("sum by (lane) (increase(fleet_commit_failures_total[$__rate_interval]))", "{{lane}}"),),
        ),
        ("not committable yet", "short", (("sum by (lane) (fleet_incomplete_offsets)", "{{lane}}"),)),
        (
            "fenced partitions",
            "short",
            (("sum by (lane) (increase(fleet_fenced_total[$__rate_interval]))", "{{lane}}"),),
        ),
    ),
    "Groups": (
        (
            "rebalances by worker",
            "short",
            (
                (
                    'sum by (instance) (increase(fleet_rebalances_total{kind="assigned"}[$__rate_interval]))',
                    "{{instance}}",
                ),
            ),
        ),
        (
            "standstill by worker",
            "s",
            (("max by (instance, layer) (fleet_standstill_seconds)", "{{instance}} {{layer}}"),),
        ),
    ),
}
DASHBOARDS: Final = {
    "fleet": ("Fleet", OVERVIEW),
    "worker": ("Fleet: one worker", WORKER),
    "kafka": ("Fleet: Kafka", KAFKA),
}


def dashboard(name: str) -> dict[str, Any]:
    """The dashboard of this file name, as Grafana imports it."""
    title, rows = DASHBOARDS[name]
    return {
        "uid": f"decision-fleet-{name}",
        "title": title,
        "tags": ["decision-fleet"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables(one_worker=name == "worker"))},
        "panels": list(_panels(rows)),
    }


def _variables(*, one_worker: bool) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    if one_worker:
        query = "label_values(fleet_ready, instance)"
        yield {
            "name": "instance",
            "type": "query",
            "datasource": SOURCE,
            "label": "worker",
            "refresh": 2,
            "query": {"query": query, "refId": "instance"},
            "definition": query,
        }


def _panels(rows: Mapping[str, Sequence[Panel]]) -> Iterator[dict[str, Any]]:
    number, y = 1, 0
    for title, panels in rows.items():
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        number, y = number + 1, y + 1
        width = WIDTH // (3 if len(panels) % 3 == 0 else 2)
        for at, panel in enumerate(panels):
            x, line = at * width % WIDTH, at * width // WIDTH
            yield _panel(number, panel, {"x": x, "y": y + line * HEIGHT, "w": width, "h": HEIGHT})
            number += 1
        y += -(-len(panels) * width // WIDTH) * HEIGHT


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    title, unit, queries = panel
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for at, (query, legend) in enumerate(queries)
        ],
    }


def text(name: str) -> str:
    """The file's content."""
    return json.dumps(dashboard(name), indent=1) + "\n"


if __name__ == "__main__":
    for one in DASHBOARDS:
        (Path(sys.argv[1]) / f"{one}.json").write_text(text(one))
