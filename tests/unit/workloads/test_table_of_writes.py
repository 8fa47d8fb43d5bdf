"""The table of writes of other programs is complete, and the laws that check its plays find violations."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from types import ModuleType
from typing import Any, Final

import pytest

from admitq.controllers import priority_classes
from admitq.controllers.job import (
    members,
    prebuilt_workloads,
    quota_release,
    steps,
    unadmitted_jobs,
    workload_slices,
    workload_sync,
)
from admitq.controllers.provisioning import steps as provisioning
from admitq.controllers.serving import decision as serving
from admitq.controllers.workload import steps as workload_steps
from admitq.manager import preemption_writer
from admitq.workloads import admission_patches, transitions
from admitq.workloads.transitions import StatusTransition
from admitq_api.conditions import format_time, parse_time
from admitq_api.json_objects import JsonObject
from admitq_api.labels import names_for
from tests.controlplane.further_writes import FURTHER, RETENTION
from tests.controlplane.manners import CHECK_CONTROLLER, Applied, applied, not_applicable, typed
from tests.controlplane.rest import Snapshot, find_violations
from tests.controlplane.table_of_writes import NOT_PLAYED, TABLE, Row
from tests.controlplane.workload_changes import reserve, status

NAMES = names_for()
TIME = "2026-03-01T10:00:00Z"
NOW = parse_time(TIME)

MODULES: Final[dict[str, ModuleType | type]] = {
    "transitions": StatusTransition,
    "admission_patches": admission_patches,
    "workload": workload_steps,
    "job": steps,
    "quota_release": quota_release,
    "workload_sync": workload_sync,
    "unadmitted_jobs": unadmitted_jobs,
    "members": members,
    "prebuilt_workloads": prebuilt_workloads,
    "workload_slices": workload_slices,
    "serving": serving,
    "provisioning": provisioning,
    "priority_classes": priority_classes,
}
"""The modules of the writers that the table names."""

PARTS: Final = {"set_condition", "remove_condition", "find_condition", "is_condition_true", "patch"}
"""Methods that transitions are made of. They are no transitions."""


# --- completeness ---------------------------------------------------------------------------------


def rows() -> list[Row]:
    return [row for section in (*TABLE.values(), *FURTHER.values(), RETENTION) for row in section]


def listed() -> set[str]:
    return {writer for row in rows() for writer in row.writers} | set(NOT_PLAYED)


def steps_of(module: str, functions: Iterable[Any]) -> set[str]:
    prefixes = {
        steps.__name__: "job",
        quota_release.__name__: "quota_release",
        unadmitted_jobs.__name__: "unadmitted_jobs",
        members.__name__: "members",
        prebuilt_workloads.__name__: "prebuilt_workloads",
    }
    return {f"{prefixes.get(step.__module__, module)}.{step.__name__}" for step in functions}


def test_e_table_covers_every_transition() -> None:
    attributes = vars(StatusTransition).items()
    methods = {name for name, member in attributes if callable(member) and name[0] != "_"}
    assert {f"transitions.{name}" for name in methods - PARTS} <= listed()
    assert methods >= PARTS


def test_e_table_covers_every_write_of_the_manager() -> None:
    patches = {name for name in vars(admission_patches) if name.endswith("_patch")}
    assert {f"admission_patches.{name}" for name in patches} <= listed()
    # Preemptions are written only as the transition of this name.
    assert preemption_writer.StatusTransition is transitions.StatusTransition


def test_e_table_covers_every_step_of_controllers() -> None:
    of_workload = steps_of("workload", workload_steps.STEPS)
    of_jobs = steps_of("job", (*steps.BEFORE_MATCHING, *steps.AFTER_MATCHING))
    assert (of_workload | of_jobs) - listed() == set()


def test_e_writers_of_table_exist() -> None:
    for writer in listed():
        module, _, name = writer.partition(".")
        assert callable(attrgetter(name)(MODULES[module])), writer


def test_e_names_of_table_rows_are_unique() -> None:
    names = [row.name for row in rows()]
    assert len(names) == len(set(names))


# --- ways to write --------------------------------------------------------------------------------


def condition(type_: str, value: str = "True", reason: str = "R") -> JsonObject:
    return {"type": type_, "status": value, "reason": reason, "message": "m", "lastTransitionTime": TIME}


def assignment(cpu: str = "1", count: int = 1) -> JsonObject:
    return {"name": "main", "count": count, "flavors": {"cpu": "f-ns"}, "resourceUsage": {"cpu": cpu}}


def workload_of(*conditions: JsonObject, name: str = "w", **fields: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1"}
    spec = {"queueName": "lq", "podSets": [pod_set], "active": fields.pop("active", True)}
    metadata |= fields.pop("metadata", {})
    return {"metadata": metadata, "spec": spec, "status": {"conditions": [*conditions], **fields}}


def admission(cpu: str = "1") -> JsonObject:
    return {"clusterQueue": "cq-ns", "podSetAssignments": [assignment(cpu)]}


ADMITTED = (condition("QuotaReserved"), condition("Admitted"))


def test_e_typed_update_drops_empty_fields_and_writes_canonical_quantities() -> None:
    before = workload_of(*ADMITTED, admission=admission("1000m"), admissionChecks=[], resourceRequests=None)
    before["status"]["admission"]["podSetAssignments"][0]["flavors"] = {}
    after = typed(before)
    assert "admissionChecks" not in after["status"]
    assert "resourceRequests" not in after["status"]
    expected = {"name": "main", "count": 1, "resourceUsage": {"cpu": "1"}}
    assert after["status"]["admission"]["podSetAssignments"] == [expected]


def managers(before: JsonObject, after: JsonObject) -> dict[str, Sequence[str]]:
    applies = applied(before, after, NAMES)
    return {apply.manager: sorted(apply.fields.get("status", {})) for apply in applies}


def test_e_apply_of_release_leaves_admission_out() -> None:
    before = workload_of(*ADMITTED, admission=admission(), accumulatedPastExecutionTimeSeconds=3)
    after = status(lambda transition: transition.release("Pending", "m"))(before, NOW)
    expected = {NAMES.field_manager("admission"): ["accumulatedPastExecutionTimeSeconds", "conditions"]}
    assert managers(before, after) == expected


def test_e_apply_of_one_condition_contains_only_that_condition() -> None:
    before = workload_of(*ADMITTED, admission=admission())
    after = status(lambda transition: transition.finish("Succeeded", "m"))(before, NOW)
    [apply] = applied(before, after, NAMES)
    assert apply.manager == NAMES.field_manager("job-controller-Finished")
    assert [item["type"] for item in apply.fields["status"]["conditions"]] == ["Finished"]


def test_e_apply_of_reservation_contains_admission() -> None:
    before = workload_of()
    assert managers(before, reserve(admit=True)(before, NOW)) == {
        NAMES.field_manager("admission"): ["admission", "conditions"]
    }


def test_e_apply_of_pod_fields_is_by_separate_managers() -> None:
    before = workload_of(*ADMITTED, condition("PodsReady"), admission=admission())
    after = status(lambda transition: transition.release("Pending", "m"))(before, NOW)
    assert NAMES.field_manager("job-controller-PodsReady") in managers(before, after)
    reclaimed = {**before, "status": {**before["status"], "reclaimablePods": [{"name": "main", "count": 1}]}}
    assert managers(before, reclaimed) == {NAMES.field_manager("reclaimable-pods"): ["reclaimablePods"]}


def test_e_apply_of_check_is_by_its_controller_and_contains_only_that_check() -> None:
    checks = [{"name": name, "state": "Pending"} for name in "ab"]
    before = workload_of(*ADMITTED, admissionChecks=checks)
    ready = [checks[0], {"name": "b", "state": "Ready"}]
    after = {**before, "status": {**before["status"], "admissionChecks": ready}}
    assert applied(before, after, NAMES) == [
        Applied(CHECK_CONTROLLER, {"status": {"admissionChecks": [ready[1]]}})
    ]


def test_e_apply_cannot_remove_requeue_state_or_annotations() -> None:
    before = workload_of(requeueState={"count": 1, "requeueAt": TIME}, metadata={"annotations": {"a": "b"}})
    without_time = {**before, "status": {**before["status"], "requeueState": {"count": 1}}}
    assert not_applicable(before, without_time) == {"status": {"requeueState": {"requeueAt": None}}}
    assert not_applicable(before, {**before, "status": {}}) == {"status": {"requeueState": None}}
    unmarked = {**before, "metadata": {**before["metadata"], "annotations": {}}}
    assert not_applicable(before, unmarked) == {"metadata": {"annotations": {"a": None}}}


# --- laws -----------------------------------------------------------------------------------------


def queue(cpu: str, **counters: Any) -> JsonObject:
    flavors = [{"name": "f-ns", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]
    total = [{"name": "f-ns", "resources": [{"name": "cpu", "total": cpu}]}]
    return {
        "metadata": {"name": "cq-ns", "uid": "uid-cq", "resourceVersion": "1"},
        "spec": {"resourceGroups": [{"flavors": flavors}]},
        "status": {"flavorsReservation": total, "flavorsUsage": total, **counters},
    }


def job(*, suspend: bool, active: int = 0) -> JsonObject:
    metadata = {"name": "j", "uid": "uid-j", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"suspend": suspend}, "status": {"active": active}}


OWNED = {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "uid-j", "controller": True}]}
WAITING = condition("QuotaReserved", "False", "WaitingForQuota")


def broken_laws(
    *workloads: JsonObject,
    jobs: Sequence[JsonObject] = (),
    cpu: str = "0",
    reserving: int = 0,
    pending: int = 0,
) -> list[str]:
    counters = {"reservingWorkloads": reserving, "admittedWorkloads": reserving, "pendingWorkloads": pending}
    cq = queue(cpu, **counters)
    metadata = {"name": "lq", "uid": "uid-lq", "resourceVersion": "1"}
    lq = {"metadata": metadata, "spec": {"clusterQueue": "cq-ns"}, "status": cq["status"]}
    return find_violations(Snapshot(workloads, jobs, [lq], cq), format_time(NOW))


def test_e_laws_hold_for_valid_workloads() -> None:
    running = workload_of(*ADMITTED, admission=admission("2"), metadata=OWNED)
    waiting = workload_of(WAITING, name="v")
    finished = workload_of(*ADMITTED, condition("Finished"), name="o", admission=admission())
    inactive = workload_of(WAITING, name="i", active=False)
    violations = broken_laws(
        running, waiting, finished, inactive, jobs=[job(suspend=False)], cpu="2", reserving=1, pending=1
    )
    assert not violations


@pytest.mark.parametrize(
    ("workload", "law"),
    [
        (workload_of(WAITING, admission=admission()), "w has an admission without quota"),
        (workload_of(condition("Admitted"), WAITING), "w is admitted without quota"),
        (workload_of(WAITING), "w waits because of WaitingForQuota and fits into 2000m CPU that are free"),
        (workload_of(), "w waits and does not say why"),
        (
            workload_of(WAITING, requeueState={"requeueAt": "2026-03-01T09:00:00Z"}),
            "w waits until 2026-03-01T09:00:00Z, which is over",
        ),
        (
            workload_of(WAITING, condition("Requeued", "False", "PodsReadyTimeout")),
            "w may not be requeued because of PodsReadyTimeout, which nothing ends",
        ),
    ],
)
def test_e_laws_find_pending_workload_that_nothing_requeues(workload: JsonObject, law: str) -> None:
    assert law in broken_laws(workload)


def test_e_laws_find_quota_that_queues_do_not_count() -> None:
    violations = broken_laws(workload_of(*ADMITTED, admission=admission()))
    assert "the ClusterQueue says reserved 0, and the Workloads say 1000" in violations
    assert "the ClusterQueue says reservingWorkloads 0, and the Workloads say 1" in violations
    assert "LocalQueue lq says reservingWorkloads 0, and the Workloads say 1" in violations
    assert "LocalQueue lq says used 0, and the Workloads say 1000" in violations
    assert "LocalQueue lq says pendingWorkloads 0, and the Workloads say 1" in broken_laws(
        workload_of(WAITING)
    )


def slice_of(*conditions: JsonObject, name: str, **fields: Any) -> dict[str, Any]:
    annotations = {NAMES.workload_slice_name: "first"}
    if replaced := fields.pop("replaces", None):
        annotations[NAMES.workload_slice_replacement_for] = f"ns/{replaced}"
    metadata = {**OWNED, "annotations": annotations, **fields.pop("metadata", {})}
    return workload_of(*conditions, name=name, metadata=metadata, **fields)


def test_e_laws_hold_for_valid_slices() -> None:
    first = slice_of(*ADMITTED, name="first", admission=admission("2"))
    second = slice_of(WAITING, name="second", replaces="first")
    second["spec"]["podSets"][0]["count"] = 3
    finished = slice_of(condition("Finished", "True", "WorkloadSliceReplaced"), name="zeroth")
    jobs = [job(suspend=False)]
    assert not broken_laws(first, second, finished, jobs=jobs, cpu="2", reserving=1, pending=1)


@pytest.mark.parametrize(
    ("slices", "law"),
    [
        (
            [slice_of(*ADMITTED, name=name, admission=admission()) for name in ("a", "b")],
            "Job j has 2 slices with quota, and 0 without",
        ),
        ([slice_of(WAITING, name=name) for name in "ab"], "Job j has 0 slices with quota, and 2 without"),
        (
            [
                slice_of(*ADMITTED, name="a", admission=admission()),
                slice_of(condition("Finished"), name="b", metadata={"finalizers": ["f"]}),
            ],
            "slice b of job j is over, and kept",
        ),
        (
            [
                slice_of(*ADMITTED, name="a", admission=admission()),
                slice_of(WAITING, name="b", replaces="a"),
            ],
            "b waits because of WaitingForQuota and fits into 2000m CPU that are free",
        ),
    ],
)
def test_e_laws_find_too_many_or_wrongly_pending_slices(slices: Sequence[JsonObject], law: str) -> None:
    assert law in broken_laws(*slices, jobs=[job(suspend=False)], cpu="1", reserving=1)


@pytest.mark.parametrize(
    ("workload", "law"),
    [
        (
            workload_of(*ADMITTED, condition("Evicted"), admission=admission(), metadata=OWNED),
            "w is evicted, and its quota is not released",
        ),
        (
            workload_of(*ADMITTED, admission=admission(), metadata=OWNED, active=False),
            "w is inactive and holds quota",
        ),
        (
            workload_of(ADMITTED[0], admission=admission()),
            "w holds quota, lacks no check, and is not admitted",
        ),
    ],
)
def test_e_laws_find_quota_that_is_held_without_need(workload: JsonObject, law: str) -> None:
    assert law in broken_laws(workload, jobs=[job(suspend=False)], cpu="1", reserving=1)


def test_e_laws_find_job_that_does_not_follow_its_workload() -> None:
    waiting = workload_of(condition("QuotaReserved", "False", "OnHold"), metadata=OWNED)
    second = {**waiting, "metadata": {**waiting["metadata"], "name": "v"}}
    assert "Job j has 2 Workloads" in broken_laws(waiting, second, jobs=[job(suspend=True)])
    assert "Job j is running, and not admitted" in broken_laws(waiting, jobs=[job(suspend=False)])
    assert "Job j has pods and is not admitted" in broken_laws(waiting, jobs=[job(suspend=True, active=1)])
    running = workload_of(*ADMITTED, admission=admission(), metadata=OWNED)
    assert broken_laws(running, jobs=[job(suspend=True)], cpu="1", reserving=1) == [
        "Job j is suspended, and admitted"
    ]
