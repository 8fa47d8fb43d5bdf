"""Which Workload a pod group adopts, and which pods belong to it."""

from typing import Any

import pytest

from admitq.controllers.controller_specs import WhenServed
from admitq.controllers.indexes import find_foreign_pods
from admitq.controllers.registry import build_controllers
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq.runtime.resources import NAMESPACES, PODS, PRIORITY_CLASSES
from admitq.runtime.store import Key, ObjectChange
from admitq_api.json_objects import with_value
from tests.unit.controllers.builders import KINDS, NAMES, admitted, workload
from tests.unit.controllers.job.pod_groups import GROUP, PodWorld, group_workload, owner, pod, pods_of_group
from tests.unit.controllers.world import cluster_scoped


@pytest.mark.parametrize("state", ["held", "running"])
async def test_pod_that_names_the_workload_of_a_stateful_set_does_not_join_its_group(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PodWorld(integrations=(POD, STATEFUL_SET))
    parent = {NAMES.pod_suspending_parent: "statefulset"}
    owned = {**owner("s"), "apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}
    foreign_pod, own_pod = (
        with_value(pod_, ("metadata", "annotations"), {**pod_["metadata"]["annotations"], **parent})
        for pod_ in pods_of_group(state, "running")
    )
    foreign_pod = with_value(foreign_pod, ("metadata", "creationTimestamp"), "2020-01-01T00:00:00Z")
    world.put(PODS, foreign_pod, with_value(own_pod, ("metadata", "ownerReferences"), [owned]))
    of_set = group_workload(admitted)
    owner_annotations = {NAMES.job_owner_gvk: "apps/v1, Kind=StatefulSet", NAMES.job_owner_name: "s"}
    annotations = {**of_set["metadata"]["annotations"], **owner_annotations}
    world.put(KINDS.workloads, with_value(of_set, ("metadata", "annotations"), annotations))
    await world.settle()
    assert world.get(PODS, "b")["status"]["phase"] == "Running"
    assert not any("pods/b" in call for call in world.calls), world.calls
    reasons = {reason for name, reason, _ in world.recorder.events if name == "a"}
    assert reasons == {"WorkloadNameConflict"} | ({"Stopped"} if state == "running" else set())
    calls = list[Any]()

    def counted_find_foreign_pods(*args: Any) -> Any:
        calls.append(args[0])
        return find_foreign_pods(*args)

    monkeypatch.setattr("admitq.controllers.job.stored_jobs.find_foreign_pods", counted_find_foreign_pods)
    await world.pods.reconcile(GROUP)
    assert len(calls) == 1


@pytest.mark.parametrize("validated", [True, False])
async def test_d22_group_named_like_the_workload_of_another_owner_is_not_admitted(validated: bool) -> None:
    world = PodWorld(validate_group_owner=validated)
    world.put(PODS, *pods_of_group("held", "failed"))
    world.put(KINDS.workloads, workload(name="g"))
    await world.settle()
    note = (
        'A Workload named "g" already exists but is not a pod group workload; '
        "this pod group cannot be admitted"
    )
    assert world.recorder.events[-1] == ("a", "WorkloadNameConflict", note)
    assert world.calls == ["json_patch pods/b"]


async def test_pods_without_queue_are_deleted_and_workload_of_serving_object_is_kept() -> None:
    world = PodWorld()
    world.put(PODS, *pods_of_group("running", "running", labels={NAMES.queue_name: None}))
    served = {"annotations": {NAMES.is_group_workload: "true", NAMES.job_owner_name: "s"}}
    world.put(KINDS.workloads, group_workload(workload, metadata=served))
    await world.settle()
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/a", "delete pods/b"]


async def test_pod_group_is_stopped_when_its_workload_has_another_owner() -> None:
    world = PodWorld()
    world.put(PODS, *pods_of_group("running", "running"))
    world.put(KINDS.workloads, workload(name="g"))
    await world.settle()
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/a", "delete pods/b"]


@pytest.mark.parametrize(
    ("validated", "labels", "adopted"),
    [(True, {}, False), (False, {}, True), (True, {NAMES.prebuilt_workload_name: "g"}, True)],
)
async def test_workload_without_controller_belongs_to_the_group_that_names_it(
    validated: bool, labels: Any, adopted: bool
) -> None:
    world = PodWorld(validate_group_owner=validated)
    world.put(PODS, *pods_of_group("held", "held", labels=labels))
    unowned = group_workload(workload, owners="")
    unowned["metadata"]["annotations"] = {}
    world.put(KINDS.workloads, unowned)
    await world.settle()
    assert len(world.get(KINDS.workloads, "g")["metadata"]["ownerReferences"]) == (2 if adopted else 0)


@pytest.mark.parametrize(("by_annotation", "adopted"), [(True, True), (False, False)])
async def test_b11_prebuilt_annotation_of_a_group_counts_only_where_annotations_identify_workloads(
    by_annotation: bool, adopted: bool
) -> None:
    world = PodWorld(names_by_annotation=by_annotation)
    world.put(PODS, *pods_of_group("held", "held", annotations={NAMES.prebuilt_workload_name: "g"}))
    unowned = group_workload(workload, owners="")
    unowned["metadata"]["annotations"] = {}
    world.put(KINDS.workloads, unowned)
    await world.settle()
    assert len(world.get(KINDS.workloads, "g")["metadata"]["ownerReferences"]) == (2 if adopted else 0)


def pod_controller(world: PodWorld) -> WhenServed:
    table = build_controllers(world.ctx, world.core)
    (part,) = (part for part in table.when_served if part.resource == PODS)
    return part


def test_change_enqueues_pods_and_groups_that_it_affects() -> None:
    world = PodWorld()
    high = pod("alone", labels={NAMES.priority_class: "high"})
    world.put(PODS, *pods_of_group("held", "held"), high)
    keys = {watch.resource: watch.keys for watch in pod_controller(world).spec.watches}

    def enqueued(resource: Any, obj: dict[str, Any]) -> set[Key]:
        key = Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        return set(keys[resource](ObjectChange("added", key, obj, None)))

    assert enqueued(PODS, pod("a", group="g")) == {GROUP}
    assert enqueued(PODS, high) == {Key("ns", "alone")}
    assert GROUP in enqueued(KINDS.workloads, group_workload(workload))
    assert GROUP in enqueued(KINDS.workloads, workload(name="g"))
    alone = {**owner("alone"), "controller": True}
    assert Key("ns", "alone") in enqueued(KINDS.workloads, workload(owner=alone))
    assert enqueued(NAMESPACES, cluster_scoped("ns", labels={})) == {GROUP, Key("ns", "alone")}
    assert enqueued(KINDS.workload_priority_classes, cluster_scoped("high", value=1)) == {Key("ns", "alone")}
    assert enqueued(PRIORITY_CLASSES, cluster_scoped("high", value=1)) == set()


def test_pod_controller_lists_managed_pods_only() -> None:
    assert pod_controller(PodWorld()).label_selector == f"{NAMES.managed}=true"


def test_pod_controller_starts_with_groups_of_stored_workloads() -> None:
    world = PodWorld()
    world.put(KINDS.workloads, group_workload(workload))
    assert set(pod_controller(world).known()) == {GROUP}


@pytest.mark.parametrize(
    "metadata",
    [
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "other"}]},
        {"labels": {NAMES.job_uid: "former"}},
    ],
)
@pytest.mark.parametrize("validated", [True, False])
async def test_group_that_names_a_workload_of_another_object_does_not_adopt_it(
    validated: bool, metadata: Any
) -> None:
    world = PodWorld(validate_group_owner=validated)
    world.put(PODS, *pods_of_group("held", "held", labels={NAMES.prebuilt_workload_name: "g"}))
    foreign = group_workload(workload, owners="")
    foreign["metadata"] = {**foreign["metadata"], "annotations": {}, **metadata}
    world.put(KINDS.workloads, foreign)
    await world.settle()
    assert world.recorder.events[-1][1] == "WorkloadNameConflict"
    assert world.get(KINDS.workloads, "g")["metadata"].get("ownerReferences", []) == metadata.get(
        "ownerReferences", []
    )


async def test_group_larger_than_prebuilt_workload_gets_event_and_workload_is_not_finished() -> None:
    world = PodWorld()
    world.put(PODS, *pods_of_group("held", "held", labels={NAMES.prebuilt_workload_name: "g"}))
    free = group_workload(workload, owners="")
    free["spec"] = {**free["spec"], "podSets": [{**free["spec"]["podSets"][0], "count": 1}]}
    world.put(KINDS.workloads, free)
    await world.settle()
    note = "The prebuilt workload is out of sync with its user job"
    assert world.recorder.events[-1] == ("a", "ErrWorkloadCompose", note)
    stored = world.get(KINDS.workloads, "g")
    assert stored["metadata"].get("ownerReferences", []) == []
    assert not any(item["type"] == "Finished" for item in stored.get("status", {}).get("conditions", ()))
