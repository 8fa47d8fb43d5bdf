"""The table of what other programs write is complete, and what plays it notices what it is there for."""

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
from tests.controlplane.rest import Snapshot, broken
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
"""Where the table finds the writers that it names."""

PARTS: Final = {"set_condition", "remove_condition", "find_condition", "is_condition_true", "patch"}
"""What transitions are made of, as opposed to what happens to a Workload."""


# --- completeness ---------------------------------------------------------------------------------


def rows() -> list[Row]:
    return [row for of in (*TABLE.values(), *FURTHER.values(), RETENTION) for row in of]


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
    return {f"{prefixes.get(one.__module__, module)}.{one.__name__}" for one in functions}


def test_e_table_covers_every_transition() -> None:
    methods = {name for name, one in vars(StatusTransition).items() if callable(one) and name[0] != "_"}
    assert {f"transitions.{name}" for name in methods - PARTS} <= listed()
    assert methods >= PARTS


def test_e_table_covers_every_write_of_the_manager() -> None:
    made = {name for name in vars(admission_patches) if name.endswith("_patch")}
    assert {f"admission_patches.{name}" for name in made} <= listed()
    # Preemptions are written as the transition of this name alone.
    assert preemption_writer.StatusTransition is transitions.StatusTransition


def test_e_table_covers_every_step_of_controllers() -> None:
    of_workload = steps_of("workload", workload_steps.STEPS)
    of_jobs = steps_of("job", (*steps.BEFORE_MATCHING, *steps.AFTER_MATCHING))
    assert (of_workload | of_jobs) - listed() == set()


def test_e_writers_of_table_exist() -> None:
    for writer in listed():
        module, _, name = writer.partition(".")
        assert callable(attrgetter(name)(MODULES[module])), writer


def test_e_rows_have_names_of_their_own() -> None:
    names = [row.name for row in rows()]
    assert len(names) == len(set(names))


# --- manners --------------------------------------------------------------------------------------


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


HELD = (condition("QuotaReserved"), condition("Admitted"))


def test_e_typed_update_drops_what_is_empty_and_writes_canonical_quantities() -> None:
    before = workload_of(*HELD, admission=admission("1000m"), admissionChecks=[], resourceRequests=None)
    before["status"]["admission"]["podSetAssignments"][0]["flavors"] = {}
    after = typed(before)
    assert "admissionChecks" not in after["status"]
    assert "resourceRequests" not in after["status"]
    expected = {"name": "main", "count": 1, "resourceUsage": {"cpu": "1"}}
    assert after["status"]["admission"]["podSetAssignments"] == [expected]


def managers(before: JsonObject, after: JsonObject) -> dict[str, Sequence[str]]:
    return {one.manager: sorted(one.fields.get("status", {})) for one in applied(before, after, NAMES)}


def test_e_apply_of_release_leaves_admission_out() -> None:
    before = workload_of(*HELD, admission=admission(), accumulatedPastExecutionTimeSeconds=3)
    after = status(lambda one: one.release("Pending", "m"))(before, NOW)
    said = {NAMES.field_manager("admission"): ["accumulatedPastExecutionTimeSeconds", "conditions"]}
    assert managers(before, after) == said


def test_e_apply_of_one_condition_says_that_condition_alone() -> None:
    before = workload_of(*HELD, admission=admission())
    after = status(lambda one: one.finish("Succeeded", "m"))(before, NOW)
    [one] = applied(before, after, NAMES)
    assert one.manager == NAMES.field_manager("job-controller-Finished")
    assert [said["type"] for said in one.fields["status"]["conditions"]] == ["Finished"]


def test_e_apply_of_reservation_says_what_admission_is() -> None:
    before = workload_of()
    assert managers(before, reserve(admit=True)(before, NOW)) == {
        NAMES.field_manager("admission"): ["admission", "conditions"]
    }


def test_e_apply_of_pods_is_by_managers_of_their_own() -> None:
    before = workload_of(*HELD, condition("PodsReady"), admission=admission())
    after = status(lambda one: one.release("Pending", "m"))(before, NOW)
    assert NAMES.field_manager("job-controller-PodsReady") in managers(before, after)
    reclaimed = {**before, "status": {**before["status"], "reclaimablePods": [{"name": "main", "count": 1}]}}
    assert managers(before, reclaimed) == {NAMES.field_manager("reclaimable-pods"): ["reclaimablePods"]}


def test_e_apply_of_check_is_by_its_controller_and_of_that_check_alone() -> None:
    checks = [{"name": name, "state": "Pending"} for name in "ab"]
    before = workload_of(*HELD, admissionChecks=checks)
    ready = [checks[0], {"name": "b", "state": "Ready"}]
    after = {**before, "status": {**before["status"], "admissionChecks": ready}}
    assert applied(before, after, NAMES) == [
        Applied(CHECK_CONTROLLER, {"status": {"admissionChecks": [ready[1]]}})
    ]


def test_e_apply_cannot_remove_requeue_state_nor_annotations() -> None:
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
WAITS = condition("QuotaReserved", "False", "WaitingForQuota")


def problems(
    *workloads: JsonObject,
    jobs: Sequence[JsonObject] = (),
    cpu: str = "0",
    counted: int = 0,
    pending: int = 0,
) -> list[str]:
    counters = {"reservingWorkloads": counted, "admittedWorkloads": counted, "pendingWorkloads": pending}
    cq = queue(cpu, **counters)
    metadata = {"name": "lq", "uid": "uid-lq", "resourceVersion": "1"}
    lq = {"metadata": metadata, "spec": {"clusterQueue": "cq-ns"}, "status": cq["status"]}
    return broken(Snapshot(workloads, jobs, [lq], cq), format_time(NOW))


def test_e_laws_hold_of_what_is_well() -> None:
    running = workload_of(*HELD, admission=admission("2"), metadata=OWNED)
    waiting = workload_of(WAITS, name="v")
    over = workload_of(*HELD, condition("Finished"), name="o", admission=admission())
    inactive = workload_of(WAITS, name="i", active=False)
    found = problems(
        running, waiting, over, inactive, jobs=[job(suspend=False)], cpu="2", counted=1, pending=1
    )
    assert not found


@pytest.mark.parametrize(
    ("workload", "law"),
    [
        (workload_of(WAITS, admission=admission()), "w has an admission without quota"),
        (workload_of(condition("Admitted"), WAITS), "w is admitted without quota"),
        (workload_of(WAITS), "w waits because of WaitingForQuota and fits into 2000m CPU that are free"),
        (workload_of(), "w waits and does not say why"),
        (
            workload_of(WAITS, requeueState={"requeueAt": "2026-03-01T09:00:00Z"}),
            "w waits until 2026-03-01T09:00:00Z, which is over",
        ),
        (
            workload_of(WAITS, condition("Requeued", "False", "PodsReadyTimeout")),
            "w may not be requeued because of PodsReadyTimeout, which nothing ends",
        ),
    ],
)
def test_e_laws_notice_workload_that_is_lost(workload: JsonObject, law: str) -> None:
    assert law in problems(workload)


def test_e_laws_notice_quota_that_is_not_counted() -> None:
    found = problems(workload_of(*HELD, admission=admission()))
    assert "the ClusterQueue says reserved 0, and the Workloads say 1000" in found
    assert "the ClusterQueue says reservingWorkloads 0, and the Workloads say 1" in found
    assert "LocalQueue lq says reservingWorkloads 0, and the Workloads say 1" in found
    assert "LocalQueue lq says used 0, and the Workloads say 1000" in found
    assert "LocalQueue lq says pendingWorkloads 0, and the Workloads say 1" in problems(workload_of(WAITS))


def slice_of(*conditions: JsonObject, name: str, **fields: Any) -> dict[str, Any]:
    annotations = {NAMES.workload_slice_name: "first"}
    if replaced := fields.pop("replaces", None):
        annotations[NAMES.workload_slice_replacement_for] = f"ns/{replaced}"
    metadata = {**OWNED, "annotations": annotations, **fields.pop("metadata", {})}
    return workload_of(*conditions, name=name, metadata=metadata, **fields)


def test_e_laws_hold_of_slices_that_are_well() -> None:
    first = slice_of(*HELD, name="first", admission=admission("2"))
    second = slice_of(WAITS, name="second", replaces="first")
    second["spec"]["podSets"][0]["count"] = 3
    over = slice_of(condition("Finished", "True", "WorkloadSliceReplaced"), name="zeroth")
    jobs = [job(suspend=False)]
    assert not problems(first, second, over, jobs=jobs, cpu="2", counted=1, pending=1)


@pytest.mark.parametrize(
    ("slices", "law"),
    [
        (
            [slice_of(*HELD, name=name, admission=admission()) for name in ("a", "b")],
            "Job j has 2 slices with quota, and 0 without",
        ),
        ([slice_of(WAITS, name=name) for name in "ab"], "Job j has 0 slices with quota, and 2 without"),
        (
            [
                slice_of(*HELD, name="a", admission=admission()),
                slice_of(condition("Finished"), name="b", metadata={"finalizers": ["f"]}),
            ],
            "slice b of job j is over, and kept",
        ),
        (
            [
                slice_of(*HELD, name="a", admission=admission()),
                slice_of(WAITS, name="b", replaces="a"),
            ],
            "b waits because of WaitingForQuota and fits into 2000m CPU that are free",
        ),
    ],
)
def test_e_laws_notice_slices_that_are_too_many_or_wait_in_vain(
    slices: Sequence[JsonObject], law: str
) -> None:
    assert law in problems(*slices, jobs=[job(suspend=False)], cpu="1", counted=1)


@pytest.mark.parametrize(
    ("workload", "law"),
    [
        (
            workload_of(*HELD, condition("Evicted"), admission=admission(), metadata=OWNED),
            "w is evicted, and its quota is not released",
        ),
        (
            workload_of(*HELD, admission=admission(), metadata=OWNED, active=False),
            "w is inactive and holds quota",
        ),
        (
            workload_of(HELD[0], admission=admission()),
            "w holds quota, lacks no check, and is not admitted",
        ),
    ],
)
def test_e_laws_notice_quota_that_is_held_for_nothing(workload: JsonObject, law: str) -> None:
    assert law in problems(workload, jobs=[job(suspend=False)], cpu="1", counted=1)


def test_e_laws_notice_job_that_does_not_follow_its_workload() -> None:
    waiting = workload_of(condition("QuotaReserved", "False", "OnHold"), metadata=OWNED)
    twin = {**waiting, "metadata": {**waiting["metadata"], "name": "v"}}
    assert "Job j has 2 Workloads" in problems(waiting, twin, jobs=[job(suspend=True)])
    assert "Job j is running, and not admitted" in problems(waiting, jobs=[job(suspend=False)])
    assert "Job j has pods and is not admitted" in problems(waiting, jobs=[job(suspend=True, active=1)])
    running = workload_of(*HELD, admission=admission(), metadata=OWNED)
    assert problems(running, jobs=[job(suspend=True)], cpu="1", counted=1) == [
        "Job j is suspended, and admitted"
    ]
