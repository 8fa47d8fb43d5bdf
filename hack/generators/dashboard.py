"""The Grafana dashboard of the chart, as a table of panels."""

import json
from typing import Any, NamedTuple

PREFIX = "${metricPrefix}_"
"""Placeholder for the prefix of metric names under the API group of the installation."""


WAIT_BUCKETS = f"rate({PREFIX}admission_wait_time_seconds_bucket[15m])"


class Panel(NamedTuple):
    """One graph: its title, unit, and queries with their legends."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


PANELS = (
    Panel(
        "Pending workloads",
        "short",
        ((f"sum by (cluster_queue, status) ({PREFIX}pending_workloads)", "{{cluster_queue}} {{status}}"),),
    ),
    Panel(
        "Admitted workloads",
        "short",
        ((f"sum by (cluster_queue) ({PREFIX}admitted_active_workloads)", "{{cluster_queue}}"),),
    ),
    Panel(
        "Admissions per second",
        "ops",
        (
            (
                f"sum by (cluster_queue) (rate({PREFIX}admitted_workloads_total[5m]))",
                "{{cluster_queue}}",
            ),
        ),
    ),
    Panel(
        "Evictions per second",
        "ops",
        (
            (
                f"sum by (cluster_queue, reason) (rate({PREFIX}evicted_workloads_total[5m]))",
                "{{cluster_queue}} {{reason}}",
            ),
        ),
    ),
    Panel(
        "Preemptions per second",
        "ops",
        (
            (
                f"sum by (preempting_cluster_queue, reason) (rate({PREFIX}preempted_workloads_total[5m]))",
                "{{preempting_cluster_queue}} {{reason}}",
            ),
        ),
    ),
    Panel(
        "Weighted shares",
        "short",
        ((f"sum by (cluster_queue) ({PREFIX}cluster_queue_weighted_share)", "{{cluster_queue}}"),),
    ),
    Panel(
        "Wait until admission, 90th percentile",
        "s",
        (
            (
                f"histogram_quantile(0.9, sum by (cluster_queue, le) ({WAIT_BUCKETS}))",
                "{{cluster_queue}}",
            ),
        ),
    ),
    Panel(
        "Why workloads wait",
        "short",
        ((f"sum by (underlying_cause) ({PREFIX}unadmitted_workloads)", "{{underlying_cause}}"),),
    ),
    Panel(
        "Admission attempts per second",
        "ops",
        ((f"sum by (result) (rate({PREFIX}admission_attempts_total[5m]))", "{{result}}"),),
    ),
    Panel(
        "Requests to the API server per second",
        "ops",
        ((f"sum by (verb, code) (rate({PREFIX}api_requests_total[5m]))", "{{verb}} {{code}}"),),
    ),
)

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, COLUMNS = 12, 8, 2


def dashboard() -> str:
    """Return the dashboard as JSON text, with placeholders for the names of metrics."""
    document: dict[str, Any] = {
        "title": "admitq",
        "uid": "admitq",
        "tags": ["admitq"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }
    return json.dumps(document, indent=2) + "\n"


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": DATASOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "datasource": DATASOURCE}
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }
