"""Fields that an admission injects into the templates of elastic jobs (marks)."""

from typing import Any

from admitq_api.json_objects import with_value
from tests.unit.controllers.builders import NAMES, admitted, job
from tests.unit.controllers.job.decisions import (
    RUNNING,
    RUNNING_TEMPLATE,
    apply_plan,
    created_workload,
    plan_for,
)
from tests.unit.controllers.job.elastic_jobs import ELASTIC, EVICTED, running_job, slice_


def marked(template: dict[str, Any]) -> dict[str, Any]:
    """Return the template with all fields that an admission injects."""
    annotations = {**template["metadata"].get("annotations", {}), NAMES.workload_slice_name: "former"}
    template = with_value(template, ("spec", "schedulingGates"), [{"name": NAMES.topology_gate}])
    return with_value(template, ("metadata", "annotations"), {**annotations, "own": "kept"})


def test_b11_new_slice_of_a_running_job_keeps_no_marks_of_the_admission() -> None:
    runs = job({**RUNNING, "template": marked(RUNNING_TEMPLATE), "completions": 50}, annotations=ELASTIC)
    [pod_set] = created_workload(plan_for(runs))["spec"]["podSets"]
    assert pod_set["template"]["metadata"] == {"labels": {"app": "x"}, "annotations": {"own": "kept"}}
    assert pod_set["template"]["spec"] == RUNNING_TEMPLATE["spec"]


def test_b11_replacement_slice_keeps_no_marks_of_the_slice_that_it_replaces() -> None:
    pod_sets = [{"name": "main", "count": 3, "template": marked(RUNNING_TEMPLATE)}]
    held = with_value(slice_("first", 3), ("spec", "podSets"), pod_sets)
    [pod_set] = created_workload(plan_for(running_job(5), held))["spec"]["podSets"]
    assert pod_set["count"] == 5
    labels = {"app": "x", "controller-uid": "uid-j"}
    assert pod_set["template"]["metadata"] == {"labels": labels, "annotations": {"own": "kept"}}


def test_b11_stop_removes_marks_that_would_conflict_with_next_start() -> None:
    runs = job({**RUNNING, "template": marked(RUNNING_TEMPLATE), "completions": 50}, annotations=ELASTIC)
    spec = created_workload(plan_for(runs))["spec"]
    evicted = with_value(slice_("second", 3, admitted, EVICTED), ("spec",), spec)
    stopped = apply_plan(runs, plan_for(runs, evicted))
    metadata = stopped["spec"]["template"]["metadata"]
    assert NAMES.podset not in metadata["labels"]
    assert metadata["annotations"] == {"own": "kept"}
