"""Workloads and pods of StatefulSets."""

from typing import Any

import pytest

from admitq.controllers.plan import (
    ActionPlan,
    Create,
    Delete,
    Patch,
    RecordEvent,
    RecordMetric,
    RemoveFinalizer,
)
from admitq.integrations.workload_names import create_workload_name
from tests.unit.controllers.builders import (
    NAMES,
    TEMPLATE,
    admitted,
    condition,
    reserved,
    settings_with,
    workload,
)
from tests.unit.controllers.serving.objects import (
    NAME,
    held_template,
    of_set,
    only_patch,
    plan_for,
    pod,
    stateful_set,
    without_uid,
)


def test_stateful_set_gets_workload_for_all_replicas_before_its_pods() -> None:
    create, event = plan_for(stateful_set()).actions
    assert isinstance(create, Create)
    assert isinstance(event, RecordEvent)
    metadata: Any = create.obj["metadata"]
    assert metadata["name"] == NAME
    assert metadata["annotations"] == {
        NAMES.is_group_workload: "true",
        NAMES.job_owner_gvk: "apps/v1, Kind=StatefulSet",
        NAMES.job_owner_name: "s",
    }
    assert metadata["labels"][NAMES.job_uid] == "uid-s"
    assert metadata["ownerReferences"] == [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "uid-s"}
    ]
    spec: Any = create.obj["spec"]
    assert [(pod_set["name"], pod_set["count"]) for pod_set in spec["podSets"]] == [("main", 3)]
    assert (event.reason, event.note) == ("CreatedWorkload", f"Created Workload: ns/{NAME}")


@pytest.mark.parametrize(
    ("job", "fields"),
    [
        (stateful_set(0), {}),
        (stateful_set(labels={NAMES.queue_name: ""}), {}),
        (stateful_set(labels={NAMES.multikueue_origin: "home"}), {}),
        (stateful_set(deletionTimestamp="2026-01-01T00:00:00Z"), {}),
        (stateful_set(), {"is_namespace_terminating": True}),
        (stateful_set(), {"namespace_matches": False}),
        ({**stateful_set(), "spec": {"template": held_template("leaderworkerset")}}, {}),
        ({**stateful_set(), "spec": {"template": TEMPLATE}}, {}),
    ],
)
def test_no_workload_is_created_for_empty_or_unmanaged_stateful_set(job: dict[str, Any], fields: Any) -> None:
    assert plan_for(job, **fields).actions == ()


def test_pods_of_stateful_set_are_marked_with_group_role_and_queue() -> None:
    job = stateful_set()
    patch = only_patch(plan_for(job, of_set(workload(), job), pods=[pod()]))
    assert patch == {
        "metadata": {
            "labels": {NAMES.queue_name: "lq"},
            "annotations": {
                NAMES.prebuilt_workload_name: NAME,
                NAMES.pod_group_name: NAME,
                NAMES.pod_group_total_count: "3",
                NAMES.pod_group_fast_admission: "true",
                NAMES.pod_group_serving: "true",
                NAMES.pod_group_pod_index_label: "apps.kubernetes.io/pod-index",
                NAMES.role_hash: "main",
            },
        }
    }


def with_marks(obj: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Return the pod after a patch of its labels and annotations."""
    metadata = obj["metadata"]
    merged = {key: {**metadata[key], **patch["metadata"][key]} for key in ("labels", "annotations")}
    return {**obj, "metadata": {**metadata, **merged}}


def test_marked_pod_follows_queue_of_its_set_while_gated() -> None:
    job = stateful_set()
    existing = of_set(workload(), job)
    gated = with_marks(pod(), only_patch(plan_for(job, existing, pods=[pod()])))
    assert plan_for(job, existing, pods=[gated]).actions == ()
    moved_set = stateful_set(labels={NAMES.queue_name: "other"})
    moved_workload = {**existing, "spec": {**existing["spec"], "queueName": "other"}}
    assert only_patch(plan_for(moved_set, existing, pods=[gated])) == {"spec": {"queueName": "other"}}
    assert only_patch(plan_for(moved_set, moved_workload, pods=[gated])) == {
        "metadata": {"labels": {NAMES.queue_name: "other"}}
    }
    running = {**gated, "spec": {**gated["spec"], "schedulingGates": []}}
    assert plan_for(moved_set, moved_workload, pods=[running]).actions == ()


@pytest.mark.parametrize(("length", "field"), [(10, "labels"), (100, "annotations")])
def test_group_name_is_in_annotation_only_if_long_without_feature_gate(length: int, field: str) -> None:
    job = stateful_set(name="s" * length)
    existing = of_set(workload(), job)
    name = create_workload_name("StatefulSet", "apps", "s" * length, "uid-s")
    existing["metadata"]["name"] = name
    settings = settings_with(names_by_annotation=False)
    metadata = only_patch(plan_for(job, existing, pods=[pod()], settings=settings))["metadata"]
    fields = [name for name in ("labels", "annotations") if NAMES.pod_group_name in metadata[name]]
    assert fields == [field]
    assert {metadata[field][key] for key in (NAMES.pod_group_name, NAMES.prebuilt_workload_name)} == {name}


def test_workload_named_without_uid_is_found_and_set_on_pods() -> None:
    job = stateful_set()
    existing = without_uid(job)
    annotations = only_patch(plan_for(job, existing, pods=[pod()]))["metadata"]["annotations"]
    assert annotations[NAMES.prebuilt_workload_name] == existing["metadata"]["name"]


def test_workload_named_by_uid_is_preferred_to_one_named_without() -> None:
    job = stateful_set()
    other = without_uid(job)
    plan = plan_for(job, of_set(workload(), job), other, pods=[pod()])
    assert [action.obj for action in plan.actions if isinstance(action, Delete)] == [other]
    [mark] = [action for action in plan.actions if isinstance(action, Patch)]
    assert mark.steps[0].patch["metadata"]["annotations"][NAMES.prebuilt_workload_name] == NAME


def test_workload_of_former_stateful_set_with_same_name_is_not_used() -> None:
    job = stateful_set()
    former = without_uid(stateful_set(uid="former"))
    [created] = [action.obj for action in plan_for(job, former).actions if isinstance(action, Create)]
    assert created["metadata"]["name"] == NAME


@pytest.mark.parametrize(
    ("revision", "partition", "start", "status", "is_ungated"),
    [
        ("new", 0, 0, {}, False),
        ("old", 0, 0, {}, True),
        ("old", 1, 0, {}, False),
        ("old", 0, 7, {}, True),
        ("old", 1, 7, {}, False),
        ("newer", 0, 0, {"observedGeneration": 1}, False),
        ("newer", 0, 0, {"currentRevision": "new"}, False),
    ],
)
def test_pods_of_old_revision_are_ungated_during_rollout(
    revision: str, partition: int, start: int, status: Any, is_ungated: bool
) -> None:
    known = {"updateRevision": "new", "currentRevision": "old", "observedGeneration": 2, **status}
    job = stateful_set(status=known, generation=2)
    job["spec"]["updateStrategy"] = {"rollingUpdate": {"partition": partition}}
    job["spec"]["ordinals"] = {"start": start}
    pod_ = pod(labels={"controller-revision-hash": revision, "apps.kubernetes.io/pod-index": str(start)})
    write, *counts = plan_for(job, of_set(workload(), job), pods=[pod_]).actions
    assert isinstance(write, Patch)
    gates = {"spec": {"schedulingGates": [{"name": "example.com/own"}]}}
    assert (write.steps[0].patch == gates) is is_ungated
    assert [isinstance(count, RecordMetric) for count in counts] == [True, True] * is_ungated


def test_reserved_workload_follows_priority_class_of_stateful_set() -> None:
    job = stateful_set(labels={NAMES.priority_class: "high"})
    reference = {"group": NAMES.group, "kind": "WorkloadPriorityClass", "name": "low"}
    existing = of_set(reserved(spec={"priorityClassRef": reference}), job)
    classes = {"high": {"metadata": {"name": "high"}, "value": 9}}
    write, event = plan_for(job, existing, classes=classes).actions
    assert isinstance(write, Patch)
    spec = write.steps[0].patch["spec"]
    assert (spec["priority"], spec["priorityClassRef"]["name"]) == (9, "high")
    assert isinstance(event, RecordEvent)
    note = f"Updated workload priority class: ns/{NAME}"
    assert (event.regarding, event.reason, event.note) == (job, "UpdatedWorkload", note)


def test_missing_priority_class_of_stateful_set_is_reported() -> None:
    job = stateful_set(labels={NAMES.priority_class: "high"})
    reference = {"group": NAMES.group, "kind": "WorkloadPriorityClass", "name": "low"}
    (event,) = plan_for(job, of_set(reserved(spec={"priorityClassRef": reference}), job)).actions
    assert isinstance(event, RecordEvent)
    assert event.reason == "WorkloadPriorityClassNotFound"


unmanaged = pytest.mark.parametrize(
    ("labels", "fields"),
    [({NAMES.queue_name: ""}, {}), ({}, {"namespace_matches": False})],
    ids=["without queue", "in unselected namespace"],
)


@unmanaged
def test_evicted_workload_of_unmanaged_stateful_set_still_releases_quota(labels: Any, fields: Any) -> None:
    job = stateful_set(labels=labels)
    evicted = of_set(admitted(condition("Evicted", True, "Preempted")), job)
    assert only_patch(plan_for(job, evicted, **fields))["status"]["admission"] is None


@unmanaged
def test_deleted_workload_of_unmanaged_stateful_set_still_loses_finalizer(labels: Any, fields: Any) -> None:
    job = stateful_set(labels=labels)
    deleted = of_set(workload(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), job)
    [removal] = plan_for(job, deleted, **fields).actions
    assert isinstance(removal, RemoveFinalizer)


@unmanaged
def test_unmanaged_stateful_set_without_quota_gets_no_actions(labels: Any, fields: Any) -> None:
    job = stateful_set(labels=labels)
    assert plan_for(job, of_set(workload(), job), **fields) == ActionPlan()
    assert plan_for(job, **fields) == ActionPlan()


def test_missing_priority_class_does_not_prevent_release_of_quota() -> None:
    labels = {NAMES.priority_class: "none-such"}
    spec = {"priorityClassRef": {"group": NAMES.group, "kind": "WorkloadPriorityClass", "name": "low"}}
    empty = stateful_set(replicas=0, labels=labels)
    released = only_patch(plan_for(empty, of_set(admitted(spec=spec), empty)))
    assert released["status"]["admission"] is None


def test_admission_gate_removed_from_stateful_set_is_removed_from_workload() -> None:
    key = NAMES.admission_gated_by
    job = stateful_set(annotations={key: "a.example/x"})
    existing = of_set(workload(), job)
    existing["metadata"]["annotations"][key] = "a.example/x,b.example/y"
    assert only_patch(plan_for(job, existing)) == {"metadata": {"annotations": {key: "a.example/x"}}}


def test_evicted_workload_of_stateful_set_releases_quota_when_no_pod_runs() -> None:
    job = stateful_set()
    existing = of_set(admitted(condition("Evicted", True, "Preempted", since=4)), job)
    plan = plan_for(job, existing)
    assert only_patch(plan)["status"]["admission"] is None
    assert all(
        isinstance(action, Patch) and action.resource.kind == "Pod"
        for action in plan_for(job, existing, pods=[pod(held=False)]).actions
    )


def test_workload_of_deleted_stateful_set_is_finished_with_feature_gate() -> None:
    existing = of_set(workload(), stateful_set())
    settings = settings_with(finish_orphaned=True)
    (finished,) = only_patch(plan_for(None, existing, settings=settings))["status"]["conditions"]
    assert (finished["type"], finished["reason"]) == ("Finished", "OwnerNotFound")


def test_workload_of_deleted_stateful_set_is_released_unfinished_without_feature_gate() -> None:
    existing = of_set(workload(), stateful_set())
    (removal,) = plan_for(None, existing, settings=settings_with(finish_orphaned=False)).actions
    assert isinstance(removal, RemoveFinalizer)


def test_workload_of_former_stateful_set_with_same_name_is_released() -> None:
    former = of_set(workload(), stateful_set(uid="uid-before"))
    actions = plan_for(stateful_set(), former, settings=settings_with(finish_orphaned=False)).actions
    assert [type(action) for action in actions] == [RemoveFinalizer]


@pytest.mark.parametrize(("pods", "is_released"), [([], True), ([pod(held=False)], False)])
def test_deleted_workload_of_stateful_set_is_released_when_its_pods_have_ended(
    pods: Any, is_released: bool
) -> None:
    job = stateful_set()
    existing = of_set(workload(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), job)
    actions = plan_for(job, existing, pods=pods).actions
    assert [type(action) for action in actions] == ([RemoveFinalizer] if is_released else [])


def test_stateful_set_with_invalid_topology_annotation_is_reported() -> None:
    job = stateful_set()
    annotations = job["spec"]["template"]["metadata"]["annotations"]
    annotations |= {NAMES.podset_required_topology: "rack", NAMES.podset_preferred_topology: "rack"}
    [event] = plan_for(job).actions
    assert isinstance(event, RecordEvent)
    assert event.reason == "ErrWorkloadCompose"
    assert event.note.startswith("spec.template.metadata.annotations: Invalid value: ")
