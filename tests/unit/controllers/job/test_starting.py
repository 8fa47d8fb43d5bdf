"""The start of admitted jobs."""

from typing import Any

import pytest

from admitq.controllers.job.workload_slices import may_children_run
from admitq.controllers.plan import Patch
from admitq.workloads.template_injection import InjectedMarks
from admitq_api.json_objects import value_at, with_value
from tests.unit.controllers.builders import (
    ADMISSION,
    ADMITTED,
    NAMES,
    RESERVED,
    TEMPLATE,
    admitted,
    condition,
    condition_of,
    job,
    reserved,
    workload,
)
from tests.unit.controllers.job.decisions import (
    FLAVOR,
    RUNNING_TEMPLATE,
    actions_of,
    apply_plan,
    events_of,
    plan_for,
)
from tests.unit.controllers.job.elastic_jobs import EVICTED


def test_admitted_job_is_started_with_node_selector_and_tolerations_of_flavors() -> None:
    plan = plan_for(job(), admitted())
    assert events_of(plan) == [("Started", "Admitted by clusterQueue cq")]
    started = apply_plan(job(), plan)["spec"]
    assert started["suspend"] is False
    labels = {
        key: value for key, value in RUNNING_TEMPLATE["metadata"]["labels"].items() if key != "controller-uid"
    }
    assert started["template"]["metadata"]["labels"] == labels
    assert started["template"]["spec"] == RUNNING_TEMPLATE["spec"]


def test_admitted_job_that_its_user_unsuspended_is_stopped_first() -> None:
    plan = plan_for(job({"suspend": False}), admitted())
    assert events_of(plan) == [("Stopped", "Started before it was admitted")]
    assert apply_plan(job({"suspend": False}), plan)["spec"]["suspend"] is True


def test_running_job_that_an_importer_admitted_is_not_stopped() -> None:
    imported = [condition(type_, True, "Imported", "Imported") for type_ in ("QuotaReserved", "Admitted")]
    assert plan_for(job({"suspend": False}), workload(*imported, admission=ADMISSION)).actions == ()


def test_job_start_is_one_patch_with_changed_fields_only() -> None:
    [patch, _] = plan_for(job(), admitted(), settings={"marks": InjectedMarks(False, False, False)}).actions
    assert isinstance(patch, Patch)
    assert [step.patch for step in patch.steps] == [
        {
            "spec": {
                "suspend": False,
                "template": {
                    "metadata": {"labels": {NAMES.podset: "main"}},
                    "spec": {
                        "nodeSelector": {"pool": "spot"},
                        "tolerations": FLAVOR["spec"]["tolerations"],
                    },
                },
            }
        }
    ]


def _placed() -> dict[str, Any]:
    return with_value(admitted(), (*_ASSIGNMENT, "topologyAssignment"), {"levels": ["host"], "slices": [{}]})


_ASSIGNMENT = ("status", "admission", "podSetAssignments", 0)
_GATES = ("spec", "template", "spec", "schedulingGates")
_OWN_GATE = {"name": "example.com/own"}


@pytest.mark.parametrize(
    ("obj", "before", "after"),
    [
        (_placed(), [], [NAMES.topology_gate]),
        (_placed(), [_OWN_GATE], ["example.com/own", NAMES.topology_gate]),
        (admitted(), [_OWN_GATE], ["example.com/own"]),
        # The Workload was deleted while the job ran, so the templates could not be restored.
        (_placed(), [{"name": NAMES.topology_gate}], [NAMES.topology_gate]),
        (admitted(), [{"name": NAMES.topology_gate}], []),
    ],
)
def test_started_job_has_topology_gate_only_with_topology_assignment(
    obj: dict[str, Any], before: list[Any], after: list[str]
) -> None:
    waiting = with_value(job(), _GATES, before) if before else job()
    started = apply_plan(waiting, plan_for(waiting, obj))
    assert [gate["name"] for gate in value_at(started, _GATES) or ()] == after


def test_stopped_job_loses_topology_gate_and_annotation_of_implied_request() -> None:
    running = apply_plan(job(), plan_for(job(), _placed()))
    evicted = {**_placed()}
    evicted["status"] = {**evicted["status"], "conditions": [*evicted["status"]["conditions"], EVICTED]}
    template = apply_plan(running, plan_for(running, evicted))["spec"]["template"]
    assert "schedulingGates" not in template["spec"]
    assert NAMES.podset_unconstrained_topology not in template["metadata"].get("annotations", {})


def test_running_job_with_topology_still_matches_its_workload() -> None:
    running = apply_plan(job(), plan_for(job(), _placed()))
    assert actions_of(plan_for(running, _placed())) == []


def test_partially_admitted_job_is_started_with_admitted_pod_count() -> None:
    fewer = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 2, "flavors": {}}]}
    annotations = {NAMES.job_min_parallelism: "1"}
    obj = admitted(
        admission=fewer, spec={"podSets": [{"name": "main", "count": 3, "minCount": 1, "template": TEMPLATE}]}
    )
    started = apply_plan(job(annotations=annotations), plan_for(job(annotations=annotations), obj))
    assert (started["spec"]["parallelism"], started["spec"]["completions"]) == (2, 3)


def test_workload_is_finished_when_flavor_conflicts_with_node_selector_of_job() -> None:
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "nodeSelector": {"pool": "mine"}}}
    obj = admitted()
    failed = apply_plan(obj, plan_for(job({"template": template}), obj))
    status, reason, message = condition_of(failed, "Finished")
    assert (status, reason) == ("True", "FailedToStart")
    assert "pool" in message


def test_deleted_flavor_is_reported_and_retried() -> None:
    obj = admitted(admission={"clusterQueue": "cq", "podSetAssignments": [{"flavors": {"cpu": "gone"}}]})
    obj["status"]["admission"]["podSetAssignments"][0]["count"] = 3
    plan = plan_for(job(), obj)
    remedy = "create it, or set spec.active of Workload ns/job-j-1 to false"
    assert events_of(plan) == [("ErrWorkloadCompose", f"ResourceFlavor gone not found: {remedy}")]
    assert (actions_of(plan), plan.requeue_after) == ([], 1.0)


@pytest.mark.parametrize(
    ("obj", "status"),
    [
        (workload(), {}),
        (reserved(), {}),
        (admitted(spec={"active": False}), {}),
        (admitted(), {"active": 1}),
    ],
)
def test_job_is_not_started_unless_admitted_and_active_and_without_old_pods(
    obj: dict[str, Any], status: dict[str, Any]
) -> None:
    assert actions_of(plan_for(job(status=status), obj)) == []


ADMITTED_ALONE = {
    "without a condition of quota": workload(ADMITTED),
    "without a reservation": workload(
        condition("QuotaReserved", False, "Pending"), ADMITTED, admission=ADMISSION
    ),
    "without an admission": workload(RESERVED, ADMITTED),
}
"""Workloads that another program marked as admitted although they have no reserved quota."""


@pytest.mark.parametrize("obj", ADMITTED_ALONE.values(), ids=ADMITTED_ALONE.keys())
def test_e_job_is_not_started_when_admitted_is_stated_without_quota(obj: dict[str, Any]) -> None:
    assert "patch Job" not in actions_of(plan_for(job(), obj))


@pytest.mark.parametrize("obj", ADMITTED_ALONE.values(), ids=ADMITTED_ALONE.keys())
def test_e_running_job_is_stopped_when_admitted_is_stated_without_quota(obj: dict[str, Any]) -> None:
    plan = plan_for(job({"suspend": False}, {"ready": 3}), obj)
    assert (actions_of(plan), plan.stops_unadmitted) == (["patch Job"], True)
    assert events_of(plan) == [("Stopped", "Not admitted by cluster queue")]


@pytest.mark.parametrize("obj", ADMITTED_ALONE.values(), ids=ADMITTED_ALONE.keys())
def test_e_child_of_a_job_does_not_run_when_admitted_is_stated_without_quota(obj: dict[str, Any]) -> None:
    assert not may_children_run([obj], elastic=False)
    assert may_children_run([admitted()], elastic=False)
