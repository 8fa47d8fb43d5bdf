"""Translation of Workloads."""

import copy
from typing import Any

import pytest

from admitq.core.model import SECOND, Admission, ObjectKey, PodSetUpdate, Toleration
from admitq.translate.admissions import format_admission
from admitq.translate.read_options import ReadOptions
from admitq.translate.workloads import read_quota_holder, read_workload
from admitq_api import conditions
from admitq_api.json_objects import with_value
from admitq_api.stored_fields import MalformedField
from tests.unit.translate.builders import CREATED, LATER, NAMES, condition, container, workload


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "priority"),
        ("spec", "podSets", 0, "count"),
        ("spec", "podSets", 0, "minCount"),
        ("status", "reclaimablePods", 0, "count"),
        ("status", "admission", "podSetAssignments", 0, "count"),
    ],
)
@pytest.mark.parametrize("value", ["3", 1.5, True])
def test_e_workload_with_number_that_is_not_whole_is_malformed(
    path: tuple[str | int, ...], value: object
) -> None:
    status: dict[str, Any] = {
        "conditions": [condition("QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 2}]},
        "reclaimablePods": [{"name": "main", "count": 1}],
    }
    with pytest.raises(MalformedField) as error:
        read_workload(with_value(workload(status=status), path, value), NAMES)
    assert str(path[-1]) in error.value.field


TOLERATION: dict[str, Any] = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}

RESERVED: dict[str, Any] = {
    "conditions": [condition("QuotaReserved")],
    "admission": {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "main", "count": 2, "flavors": {"cpu": "spot"}}],
    },
    "reclaimablePods": [{"name": "main", "count": 1}],
    "admissionChecks": [{"name": "check", "state": "Ready"}],
}


@pytest.mark.parametrize("value", [1, True, ["x"], {"x": "y"}])
@pytest.mark.parametrize(
    "path",
    [
        ("spec", "queueName"),
        ("spec", "podSets", 0, "name"),
        ("spec", "podSets", 0, "topologyRequest", "podSetGroupName"),
        ("spec", "podSets", 0, "template", "spec", "runtimeClassName"),
        ("spec", "podSets", 0, "template", "spec", "nodeSelector", "zone"),
        *(("spec", "podSets", 0, "template", "spec", "tolerations", 0, field) for field in TOLERATION),
        ("status", "admission", "clusterQueue"),
        ("status", "admission", "podSetAssignments", 0, "name"),
        ("status", "admission", "podSetAssignments", 0, "flavors", "cpu"),
        ("status", "reclaimablePods", 0, "name"),
        ("status", "admissionChecks", 0, "name"),
    ],
)
def test_e_workload_with_name_that_is_no_text_is_malformed(path: tuple[str | int, ...], value: Any) -> None:
    pod = {**container(cpu="1"), "tolerations": [TOLERATION]}
    with pytest.raises(MalformedField, match="must be a text"):
        read_workload(with_value(workload(pod=pod, status=RESERVED), path, value), NAMES)


@pytest.mark.parametrize("state", ["Waiting", 1, ["Ready"]])
def test_workload_with_unknown_admission_check_state_is_malformed(state: Any) -> None:
    checks = [{"name": "first", "state": "Ready"}, {"name": "second", "state": state}]
    with pytest.raises(MalformedField) as error:
        read_workload(workload(status={"admissionChecks": checks}), NAMES)
    assert error.value.field == "status.admissionChecks[1].state"
    assert error.value.remedy == "must be one of Pending, Ready, Retry, Rejected"


def test_workload_is_read_with_all_of_its_status() -> None:
    status = {
        "conditions": [
            condition("QuotaReserved"),
            condition("Admitted"),
            condition("Evicted"),
            condition("Requeued", "False"),
        ],
        "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [
                {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "1"}, "count": 2}
            ],
        },
        "requeueState": {"count": 1, "requeueAt": "2026-03-01T10:01:00Z"},
        "reclaimablePods": [{"name": "main", "count": 1}],
        "admissionChecks": [{"name": "budget", "state": "Ready"}],
    }
    read = read_workload(workload(status=status, priority=7, active=False), NAMES)
    assert (read.key, read.uid, read.priority, read.active) == (ObjectKey("team", "w"), "u-1", 7, False)
    assert read.admitted
    assert read.evicted
    assert read.requeue_blocked
    assert read.requeue_at == conditions.parse_time(CREATED) + 60 * SECOND
    assert read.reclaimable_pods == (("main", 1),)
    assert read.admission_checks == (("budget", "Ready"),)
    assert read.admission is not None
    assert format_admission(read.admission) == status["admission"]


def test_updates_of_checks_are_read_if_they_decide_about_nodes() -> None:
    tolerations = [{"key": "k", "operator": "Exists"}]
    updates = [
        {"name": "main", "nodeSelector": {"pool": "new"}, "tolerations": tolerations},
        {"name": "main", "labels": {"a": "b"}},
    ]
    checks = [{"name": "a", "state": "Ready"}, {"name": "b", "state": "Ready", "podSetUpdates": updates}]
    read = read_workload(workload(status={"admissionChecks": checks}), NAMES)
    assert read.pod_set_updates == (PodSetUpdate("main", (("pool", "new"),), (Toleration("k", "Exists"),)),)
    updates[0]["nodeSelector"] = "new"
    with pytest.raises(MalformedField, match=r"admissionChecks\[1\].podSetUpdates\[0\].nodeSelector"):
        read_workload(workload(status={"admissionChecks": checks}), NAMES)


def test_admission_gates_are_read_from_annotation_if_allowed() -> None:
    obj = workload()
    obj["metadata"]["annotations"] = {NAMES.admission_gated_by: "example.org/budget, example.org/data,"}
    assert read_workload(obj, NAMES).admission_gates == ("example.org/budget", "example.org/data")
    assert read_workload(obj, NAMES, ReadOptions(allows_admission_gates=False)).admission_gates == ()


@pytest.mark.parametrize(
    ("message", "gates"),
    [
        ("Admission is gated by: example.org/budget,example.org/data", 2),
        ("Workload requires preemption, but it's gated", 0),
    ],
)
def test_admission_gates_of_reported_message_are_kept_without_annotation(message: str, gates: int) -> None:
    gated = {**condition("QuotaReserved"), "status": "False", "reason": "AdmissionGated", "message": message}
    assert len(read_workload(workload(status={"conditions": [gated]}), NAMES).admission_gates) == gates


def test_workload_with_reservation_without_admission_is_malformed() -> None:
    with pytest.raises(MalformedField, match="must be set while the QuotaReserved condition is true"):
        read_workload(workload(status={"conditions": [condition("QuotaReserved")]}), NAMES)


def test_read_workload_does_not_change_object() -> None:
    obj = workload(pod=container(limits={"cpu": "2"}))
    before = copy.deepcopy(obj)
    read_workload(obj, NAMES)
    assert obj == before


LEFTOVER = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "resourceUsage": {"cpu": "1"}}]}


@pytest.mark.parametrize("conditions", [[], [{"type": "QuotaReserved", "status": "False"}]])
def test_a2_workload_with_admission_without_true_condition_holds_no_quota(conditions: list[Any]) -> None:
    admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-03-01T10:00:00Z"}
    obj = workload(status={"conditions": [*conditions, admitted], "admission": LEFTOVER})
    read = read_workload(obj, NAMES)
    assert (read.admission, read.admitted, read.reserved_at) == (None, False, 0)
    with pytest.raises(MalformedField):
        read_quota_holder(obj)


def test_a2_workload_with_true_condition_without_admission_holds_no_quota() -> None:
    reserved = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-03-01T10:00:00Z"}
    obj = workload(status={"conditions": [reserved]})
    for read in (lambda: read_workload(obj, NAMES), lambda: read_quota_holder(obj)):
        with pytest.raises(MalformedField, match=r"^status\.admission: "):
            read()


@pytest.mark.parametrize(
    ("annotation", "gate", "expected"),
    [
        ("team/first", True, ObjectKey("team", "first")),
        ("team/first", False, None),
        ("other/first", True, None),
        ("first", True, None),
        ("", True, None),
        (None, True, None),
    ],
)
def test_slice_replaces_workload_named_in_annotation(
    annotation: str | None, gate: bool, expected: ObjectKey | None
) -> None:
    obj = workload()
    if annotation is not None:
        obj["metadata"]["annotations"] = {NAMES.workload_slice_replacement_for: annotation}
    assert read_workload(obj, NAMES, ReadOptions(allows_replacement=gate)).replaces == expected


def test_reserved_at_is_transition_time_of_quota_reserved() -> None:
    state = [condition("QuotaReserved", at=LATER), condition("PodsReady")]
    admission = {"clusterQueue": "cq", "podSetAssignments": []}
    read = read_workload(workload(status={"conditions": state, "admission": admission}), NAMES)
    assert read.reserved_at == conditions.parse_time(LATER)
    assert read.pods_ready
    assert read_workload(workload(), NAMES).reserved_at == 0


def test_finished_workload_is_read_without_its_requests() -> None:
    """It is counted in the ClusterQueue of the quota that it held, and holds none."""
    status = {
        "conditions": [condition("QuotaReserved"), condition("Admitted"), condition("Finished")],
        "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [{"name": "main", "resourceUsage": {"cpu": "not an amount"}}],
        },
    }
    read = read_workload(with_value(workload(status=status), ("spec", "podSets"), "unreadable"), NAMES)
    assert (read.key, read.uid, read.queue_name) == (ObjectKey("team", "w"), "u-1", "main")
    assert read.finished
    assert read.admitted
    assert read.pod_sets == ()
    assert read.admission == Admission("cq", ())


def test_finished_workload_without_reservation_has_no_admission() -> None:
    status = {"conditions": [condition("QuotaReserved", "False"), condition("Finished")]}
    assert read_workload(workload(status=status), NAMES).admission is None
