"""Which keys a change enqueues for which controllers, and the permissions of controllers."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from admitq.controllers import registry
from admitq.controllers.controller_specs import ControllerSpec
from admitq.controllers.indexes import resource_of
from admitq.controllers.rbac import merge_permissions, permissions_by_controller
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.pod import POD
from admitq.runtime.kinds import TOPOLOGY_NODES
from admitq.runtime.resources import JOBS, LIMIT_RANGES, NAMESPACES, PRIORITY_CLASSES, Resource
from admitq.runtime.store import Key, ObjectChange
from tests.unit.controllers.builders import (
    ADMISSION,
    ADMITTED,
    KINDS,
    NAMES,
    RESERVED,
    admitted,
    cluster_queue,
    condition,
    job,
    local_queue,
    settings_with,
    workload,
)
from tests.unit.controllers.world import World, cluster_scoped

IDS = {"uid": "u", "resourceVersion": "1"}


@pytest.fixture
def world() -> World:
    result = World()
    labels = {NAMES.queue_name: "lq", NAMES.priority_class: "high", NAMES.prebuilt_workload_name: "mine"}
    template = {"spec": {"priorityClassName": "pods", "containers": []}}
    result.put(JOBS, job({"template": template}, labels=labels))
    result.put(JOBS, job(name="elsewhere", uid="uid-e", namespace="other"))
    reference = {"kind": "WorkloadPriorityClass", "name": "high"}
    result.put(KINDS.workloads, workload(name="waits", spec={"priorityClassRef": reference}))
    runs = workload(
        RESERVED, name="runs", admission=ADMISSION, metadata={"uid": "uid-r"}, spec={"queueName": "old"}
    )
    result.put(KINDS.workloads, runs)
    ended = workload(RESERVED, FINISHED, name="ended", admission=ADMISSION, metadata={"uid": "uid-f"})
    result.put(KINDS.workloads, ended)
    result.put(KINDS.local_queues, {**local_queue(), "metadata": {**local_queue()["metadata"], **IDS}})
    return result


def all_specs(table: registry.Controllers) -> list[ControllerSpec]:
    return [*table.specs, *(spec for part in table.when_served for spec in part.specs)]


def enqueued_keys(
    world: World, resource: Resource, old: dict[str, Any] | None, new: dict[str, Any] | None
) -> dict[str, set[str]]:
    """Return the keys that a change enqueues, by controller."""
    before = None if old is None else orjson.dumps(old)
    obj = new or old or {}
    key = Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
    change = ObjectChange("modified", key, new, before)
    table = registry.build_controllers(world.ctx, world.core)
    by_controller: dict[str, set[str]] = {}
    for spec in all_specs(table):
        for watch in spec.watches:
            if watch.resource == resource and (keys := {str(key) for key in watch.keys(change)}):
                by_controller[spec.name] = by_controller.get(spec.name, set()) | keys
    return by_controller


def with_status(obj: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], **IDS}, "status": status}


def test_changed_workload_enqueues_itself_its_job_and_jobs_that_name_it() -> None:
    world = World()
    world.put(JOBS, job(labels={NAMES.queue_name: "lq", NAMES.prebuilt_workload_name: "w"}))
    obj = workload(name="w", owner={"apiVersion": "batch/v1", "kind": "Job", "name": "x", "controller": True})
    assert enqueued_keys(world, KINDS.workloads, None, obj) == {
        "workload": {"ns/w"},
        "batch/job": {"ns/x", "ns/j"},
    }


FINISHED = condition("Finished", True, "Succeeded")


@pytest.mark.parametrize(
    ("old", "new", "retention", "is_reconciled"),
    [
        pytest.param(None, workload(FINISHED), None, False, id="final when first observed"),
        pytest.param(None, workload(FINISHED), 1, True, id="deleted after a retention"),
        pytest.param(None, workload(FINISHED, owner=None), None, False, id="never had an owner"),
        pytest.param(
            None,
            workload(FINISHED, owner=None, metadata={"labels": {NAMES.job_uid: "uid-j"}}),
            None,
            True,
            id="has lost its owner",
        ),
        pytest.param(
            None,
            workload(FINISHED, metadata={"deletionTimestamp": "2026-03-01T10:00:00Z"}),
            None,
            True,
            id="being deleted",
        ),
        pytest.param(workload(), workload(FINISHED), None, True, id="finishes"),
        pytest.param(None, workload(), None, True, id="waits"),
    ],
)
def test_workload_is_reconciled_unless_it_is_final_when_first_observed(
    old: Any, new: Any, retention: int | None, *, is_reconciled: bool
) -> None:
    world = World(settings_with(after_finished=retention))
    assert ("workload" in enqueued_keys(world, KINDS.workloads, old, new)) is is_reconciled


def test_changed_workload_enqueues_children_of_its_job() -> None:
    world = World()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
    world.put(JOBS, job(name="child", uid="uid-c", ownerReferences=[owner]))
    assert enqueued_keys(world, KINDS.workloads, None, workload())["batch/job"] == {"ns/j", "ns/child"}


def add_descendants(world: World) -> None:
    """Add a JobSet as child of the Job, a Job as child of the JobSet, and a Job as child of that Job."""

    def controlled(api_version: str, kind: str, name: str) -> dict[str, Any]:
        return {"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": True}

    metadata = {**job(name="child")["metadata"], "ownerReferences": [controlled("batch/v1", "Job", "j")]}
    world.put(resource_of(JOBSET), {"metadata": metadata, "spec": {}})
    for name, owner in (
        ("grandchild", controlled(JOBSET.api_version, "JobSet", "child")),
        ("great-grandchild", controlled("batch/v1", "Job", "grandchild")),
    ):
        world.put(JOBS, job(name=name, uid=f"uid-{name}", ownerReferences=[owner]))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, workload()),
        (workload(), None),
        (workload(), admitted()),
        (admitted(), workload(condition("QuotaReserved", False, "Pending"), ADMITTED)),
        (workload(), workload(condition("Finished", True, "Succeeded"))),
        (workload(), workload(condition("Evicted", True, "Preempted"))),
    ],
)
def test_changed_admission_enqueues_descendants_of_job(old: Any, new: Any) -> None:
    world = World(settings_with(integrations=(JOB, JOBSET)))
    add_descendants(world)
    keys = enqueued_keys(world, KINDS.workloads, old, new)
    assert keys["batch/job"] == {"ns/j", "ns/grandchild", "ns/great-grandchild"}
    assert keys[JOBSET.framework] == {"ns/child"}


def test_changed_local_queue_enqueues_its_pending_workloads(world: World) -> None:
    stopped, deleted = local_queue("Hold"), local_queue(deletionTimestamp="t")
    for new in (stopped, deleted, None):
        assert enqueued_keys(world, KINDS.local_queues, local_queue(), new)["workload"] == {"ns/waits"}
    quarantined = {**local_queue(), "status": {"conditions": [condition("Active", False, "Unknown")]}}
    assert enqueued_keys(world, KINDS.local_queues, local_queue(), quarantined)["workload"] == {"ns/waits"}


def test_changed_counts_of_local_queue_enqueue_no_workloads(world: World) -> None:
    other_count = {**local_queue(), "status": {"pendingWorkloads": 5}}
    assert enqueued_keys(world, KINDS.local_queues, local_queue(), other_count) == {"localqueue": {"ns/lq"}}


@pytest.mark.parametrize(
    ("old", "new", "is_enqueued"),
    [
        (with_status(cluster_queue()), with_status(cluster_queue(), pendingWorkloads=7), False),
        (with_status(cluster_queue()), with_status(cluster_queue("Hold")), True),
        (with_status(cluster_queue()), with_status(cluster_queue(checks=[{"name": "c"}])), True),
        (None, with_status(cluster_queue()), True),
        (with_status(cluster_queue()), None, True),
        (
            with_status(cluster_queue(), conditions=[condition("Active", True, "Ready")]),
            with_status(cluster_queue(), conditions=[condition("Active", False, "FlavorNotFound")]),
            True,
        ),
    ],
)
def test_changed_cluster_queue_enqueues_workloads_unless_only_counts_changed(
    world: World, old: Any, new: Any, is_enqueued: bool
) -> None:
    keys = enqueued_keys(world, KINDS.cluster_queues, old, new)
    assert keys.get("workload", set()) == ({"ns/waits", "ns/runs"} if is_enqueued else set())
    assert keys["clusterqueue"] == {"cq"}


def test_objects_that_cluster_queue_starts_or_stops_to_reference_are_enqueued(world: World) -> None:
    old, new = cluster_queue(flavors=["a", "b"]), cluster_queue(flavors=["b", "c"], checks=[{"name": "k"}])
    keys = enqueued_keys(world, KINDS.cluster_queues, old, new)
    assert keys["resourceflavor"] == {"a", "c"}
    assert keys["admissioncheck"] == {"k"}
    assert "resourceflavor" not in enqueued_keys(world, KINDS.cluster_queues, old, old)


def test_topology_is_enqueued_when_flavor_that_references_it_is_deleted(world: World) -> None:
    flavor = cluster_scoped("f", spec={"topologyName": "t"})
    assert enqueued_keys(world, KINDS.resource_flavors, flavor, None)["topology"] == {"t"}


@pytest.mark.parametrize(
    ("old", "new", "is_enqueued"),
    [
        (None, cluster_scoped("high", value=1), True),
        (cluster_scoped("high", value=1), cluster_scoped("high", value=2), True),
        (cluster_scoped("high", value=1), cluster_scoped("high", value=1, description="d"), False),
        (cluster_scoped("high", value=1), None, False),
    ],
)
def test_priority_class_enqueues_itself_and_its_jobs_only_if_value_changes(
    world: World, old: Any, new: Any, is_enqueued: bool
) -> None:
    keys = enqueued_keys(world, KINDS.workload_priority_classes, old, new)
    expected = {"workloadpriorityclass": {"high"}, "batch/job": {"ns/j"}} if is_enqueued else {}
    assert keys == expected


def workload_of_class(
    name: str | None, priority: int, *, kind: str = "WorkloadPriorityClass", **labels: str
) -> dict[str, Any]:
    spec = {
        "priority": priority,
        **({} if name is None else {"priorityClassRef": {"kind": kind, "name": name}}),
    }
    return workload(name="w", metadata={"labels": labels}, spec=spec)


@pytest.mark.parametrize(
    ("old", "new", "is_enqueued"),
    [
        (None, workload_of_class("high", 1), True),
        (None, workload_of_class("high", 9), False),
        (None, workload_of_class("no-such", 1), False),
        (None, workload_of_class("high", 1, kind="PriorityClass"), False),
        (None, workload_of_class("high", 1, **{NAMES.multikueue_origin: "m"}), False),
        (workload_of_class("low", 1), workload_of_class("high", 1), True),
        (workload_of_class(None, 1), workload_of_class("high", 1), True),
        (workload_of_class("high", 9), workload_of_class("high", 1), False),
        (workload_of_class("high", 1), None, False),
    ],
)
def test_workload_that_starts_to_reference_class_of_other_value_is_enqueued(
    world: World, old: Any, new: Any, is_enqueued: bool
) -> None:
    world.put(KINDS.workload_priority_classes, cluster_scoped("high", value=9))
    keys = enqueued_keys(world, KINDS.workloads, old, new)
    assert keys.get("workloadpriorityclass") == ({"ns/w"} if is_enqueued else None)


def test_changed_priority_class_enqueues_jobs_with_pods_of_that_class(world: World) -> None:
    keys = enqueued_keys(world, PRIORITY_CLASSES, None, cluster_scoped("pods", value=1))
    assert keys == {"batch/job": {"ns/j"}}


def test_changed_namespace_labels_enqueue_its_jobs_and_workloads(world: World) -> None:
    old, new = cluster_scoped("ns"), cluster_scoped("ns", metadata={"labels": {"a": "b"}})
    assert enqueued_keys(world, NAMESPACES, old, new) == {"batch/job": {"ns/j"}, "workload": {"ns/waits"}}
    assert enqueued_keys(world, NAMESPACES, old, old) == {}


def test_e_added_namespace_enqueues_its_jobs_and_workloads(world: World) -> None:
    keys = enqueued_keys(world, NAMESPACES, None, cluster_scoped("ns"))
    assert keys == {"batch/job": {"ns/j"}, "workload": {"ns/waits"}}
    assert "workload" not in enqueued_keys(world, NAMESPACES, cluster_scoped("ns"), None)


def test_changed_limit_range_enqueues_pending_workloads_of_its_namespace(world: World) -> None:
    for namespace, keys in (("ns", {"workload": {"ns/waits"}}), ("n", {})):
        limits = {"metadata": {"name": "l", "namespace": namespace}, "spec": {"limits": []}}
        assert enqueued_keys(world, LIMIT_RANGES, None, limits) == keys
        assert enqueued_keys(world, LIMIT_RANGES, limits, limits) == {}


def test_every_watched_resource_has_store(world: World) -> None:
    needed = registry.stores_needed(NAMES)
    table = registry.build_controllers(world.ctx, world.core)
    for spec in table.specs:
        for watch in spec.watches:
            assert watch.resource in needed
    for part in table.when_served:
        assert part.resource not in needed
        for spec in part.specs:
            for watch in spec.watches:
                assert watch.resource in {*needed, part.resource, TOPOLOGY_NODES}


def test_every_controller_has_permissions_for_its_watches(world: World) -> None:
    permissions = permissions_by_controller(NAMES, [JOB])
    specs = all_specs(registry.build_controllers(world.ctx, world.core))
    assert {spec.name for spec in specs} == set(permissions)
    for spec in specs:
        watched = {
            (permission.group, permission.resource)
            for permission in permissions[spec.name]
            if "watch" in permission.verbs
        }
        for watch in spec.watches:
            assert (watch.resource.group, watch.resource.plural) in watched


def test_permissions_of_controllers_are_merged_by_resource() -> None:
    merged = merge_permissions(
        permission
        for permissions in permissions_by_controller(NAMES, [JOB]).values()
        for permission in permissions
    )
    verbs = {(permission.group, permission.resource): permission.verbs for permission in merged}
    assert verbs[NAMES.group, "workloads/status"] == ("patch",)
    assert verbs["batch", "jobs/status"] == ("patch",)
    assert verbs[NAMES.group, "workloads"] == ("create", "delete", "get", "list", "patch", "watch")
    assert not any("*" in allowed for allowed in verbs.values())


def test_workers_can_be_configured_by_kind() -> None:
    world = World()
    settings = replace(
        world.ctx.settings,
        integrations=(JOB, POD),
        concurrency={"Job.batch": 3, f"Workload.{NAMES.group}": 5, "Pod": 7},
    )
    table = registry.build_controllers(replace(world.ctx, settings=settings), world.core)
    assert {spec.name: spec.workers for spec in all_specs(table) if spec.workers > 1} == {
        "batch/job": 3,
        "elasticpods": 4,
        "nodefailures": 4,
        "pod": 7,
        "provisioningrequest": 4,
        "topologyungater": 4,
        "workload": 5,
    }
