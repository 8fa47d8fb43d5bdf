"""The start of admitted jobs."""

from typing import Any

import pytest

from admitq.controllers.job.workload_slices import may_children_run
from admitq.controllers.plan import Patch
from admitq.workloads.pod_templates import InjectedMarks
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
from tests.unit.controllers.job.decisions import FLAVOR, RUNNING_TEMPLATE, decided, kinds, told, written


def test_an_admitted_job_is_started_with_what_its_flavors_give() -> None:
    plan = decided(job(), admitted())
    assert told(plan) == [("Started", "Admitted by clusterQueue cq")]
    started = written(job(), plan)["spec"]
    assert started["suspend"] is False
    labels = {
        key: value for key, value in RUNNING_TEMPLATE["metadata"]["labels"].items() if key != "controller-uid"
    }
    assert started["template"]["metadata"]["labels"] == labels
    assert started["template"]["spec"] == RUNNING_TEMPLATE["spec"]


def test_job_that_its_user_unsuspended_when_quota_was_reserved_is_started_anew() -> None:
    plan = decided(job({"suspend": False}), admitted())
    assert told(plan) == [("Stopped", "Started before it was admitted")]
    assert written(job({"suspend": False}), plan)["spec"]["suspend"] is True


def test_job_that_an_importer_admitted_while_it_ran_runs_on() -> None:
    imported = [condition(one, True, "Imported", "Imported") for one in ("QuotaReserved", "Admitted")]
    assert decided(job({"suspend": False}), workload(*imported, admission=ADMISSION)).actions == ()


def test_the_start_is_one_patch_that_says_only_what_changes() -> None:
    [patch, _] = decided(job(), admitted(), settings={"marks": InjectedMarks(False, False)}).actions
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


def test_a_partial_admission_sets_the_count() -> None:
    fewer = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 2, "flavors": {}}]}
    annotations = {NAMES.job_min_parallelism: "1"}
    obj = admitted(
        admission=fewer, spec={"podSets": [{"name": "main", "count": 3, "minCount": 1, "template": TEMPLATE}]}
    )
    started = written(job(annotations=annotations), decided(job(annotations=annotations), obj))
    assert (started["spec"]["parallelism"], started["spec"]["completions"]) == (2, 3)


def test_a_conflict_fails_for_good() -> None:
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "nodeSelector": {"pool": "mine"}}}
    obj = admitted()
    failed = written(obj, decided(job({"template": template}), obj))
    status, reason, message = condition_of(failed, "Finished")
    assert (status, reason) == ("True", "FailedToStart")
    assert "pool" in message


def test_deleted_flavor_is_reported_and_waited_for() -> None:
    obj = admitted(admission={"clusterQueue": "cq", "podSetAssignments": [{"flavors": {"cpu": "gone"}}]})
    obj["status"]["admission"]["podSetAssignments"][0]["count"] = 3
    plan = decided(job(), obj)
    remedy = "create it, or set spec.active of Workload ns/job-j-1 to false"
    assert told(plan) == [("ErrWorkloadCompose", f"ResourceFlavor gone not found: {remedy}")]
    assert (kinds(plan), plan.requeue_after) == ([], 1.0)


@pytest.mark.parametrize(
    ("obj", "status"),
    [
        (workload(), {}),
        (reserved(), {}),
        (admitted(spec={"active": False}), {}),
        (admitted(), {"active": 1}),
    ],
)
def test_what_may_not_run_is_not_started(obj: dict[str, Any], status: dict[str, Any]) -> None:
    assert kinds(decided(job(status=status), obj)) == []


ADMITTED_ALONE = {
    "without a condition of quota": workload(ADMITTED),
    "without a reservation": workload(
        condition("QuotaReserved", False, "Pending"), ADMITTED, admission=ADMISSION
    ),
    "without an admission": workload(RESERVED, ADMITTED),
}
"""Workloads that another program states to be admitted, though no quota is reserved for them."""


@pytest.mark.parametrize("obj", ADMITTED_ALONE.values(), ids=ADMITTED_ALONE.keys())
def test_e_job_is_not_started_when_admitted_is_stated_without_quota(obj: dict[str, Any]) -> None:
    assert "patch Job" not in kinds(decided(job(), obj))


@pytest.mark.parametrize("obj", ADMITTED_ALONE.values(), ids=ADMITTED_ALONE.keys())
def test_e_running_job_is_stopped_when_admitted_is_stated_without_quota(obj: dict[str, Any]) -> None:
    plan = decided(job({"suspend": False}, {"ready": 3}), obj)
    assert (kinds(plan), plan.stops_unadmitted) == (["patch Job"], True)
    assert told(plan) == [("Stopped", "Not admitted by cluster queue")]


@pytest.mark.parametrize("obj", ADMITTED_ALONE.values(), ids=ADMITTED_ALONE.keys())
def test_e_child_of_a_job_does_not_run_when_admitted_is_stated_without_quota(obj: dict[str, Any]) -> None:
    assert not may_children_run([obj], elastic=False)
    assert may_children_run([admitted()], elastic=False)
