"""Jobs that are put together from pods: what is written of each pod, and that a step cut short is resumed."""

from collections.abc import Callable
from typing import Any

import pytest

from admitq.controllers.indexes import group_key, strangers_in
from admitq.controllers.job.controller import JobController, start_admitted
from admitq.controllers.job.owners import Owners
from admitq.controllers.registry import controllers
from admitq.custom_labels import Location
from admitq.integrations.base import OwnerKind
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq.integrations.names import workload_name
from admitq.integrations.paths import with_value
from admitq.integrations.spec_shape import role_hash
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, NAMESPACES, PODS, PRIORITY_CLASSES
from admitq.runtime.store import Change, Key
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    OWNER,
    TEMPLATE,
    Object,
    admitted,
    condition,
    condition_of,
    job,
    reserved,
    settings_with,
    time,
    workload,
)
from tests.unit.controllers.world import World, cluster_scoped

GROUP = Key("ns", group_key("g"))
GATES = [{"name": NAMES.admission_gate}, {"name": NAMES.topology_gate}]
EVICTED = condition("Evicted", True, "Preempted", "Preempted for x", since=5)
WAITING = condition("WaitingForReplacementPods", True, "PodsFailed", "Some Failed pods need replacement")


def pod(name: str = "p", *, group: str = "", total: int = 2, state: str = "held", **metadata: Any) -> Object:
    """A managed pod: held, running, going (deleted, and its grace over), succeeded or failed."""
    labels = {NAMES.managed: "true", NAMES.queue_name: "lq", **metadata.pop("labels", {})}
    notes = {NAMES.role_hash: "r", **metadata.pop("annotations", {})}
    if group:
        labels[NAMES.pod_group_name] = group
        notes[NAMES.pod_group_total_count] = str(total)
    if state == "going":
        metadata["deletionTimestamp"] = metadata.pop("deletion", time(1))
    spec: Object = dict(TEMPLATE["spec"])
    if state == "held":
        spec["schedulingGates"] = GATES
    if state in {"running", "going"}:
        spec["nodeName"] = "n"
    phase = {"held": "Pending", "going": "Running"}.get(state, state.title())
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "3",
            "creationTimestamp": time(0),
            "labels": labels,
            "annotations": notes,
            "finalizers": [NAMES.managed_finalizer],
            **metadata,
        },
        "spec": spec,
        "status": {"phase": phase},
    }


def pair(*states: str, **fields: Any) -> list[Object]:
    """Pods ``a`` and so on of group ``g`` in these states."""
    return [pod("abcdef"[number], group="g", state=state, **fields) for number, state in enumerate(states)]


def owner(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}


def of_group(
    make: Callable[..., Object], *conditions: Object, owners: str = "ab", count: int = 2, **parts: Any
) -> Object:
    """A Workload of group ``g``."""
    admission = {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "r", "count": count, "flavors": {"cpu": "f"}}],
    }
    given = {"admission": admission} if make is not workload else {}
    metadata = {
        "annotations": {NAMES.is_group_workload: "true"},
        "ownerReferences": [owner(name) for name in owners],
        **parts.pop("metadata", {}),
    }
    spec = {"podSets": [{"name": "r", "count": 2, "template": TEMPLATE}]}
    return make(*conditions, name="g", metadata=metadata, spec=spec, **given, **parts)


class PodWorld(World):
    """A world in which deleted pods wait for their finalizers."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings_with(**{"integrations": (POD,), **settings}))
        self.put(KINDS.resource_flavors, cluster_scoped("f", spec={"nodeLabels": {"pool": "spot"}}))
        self.pods = JobController(self.ctx, POD, Owners(self.ctx))
        self.client.delete = self._delete  # type: ignore[method-assign]

    async def _delete(self, resource: Any, name: str, *, namespace: str | None, uid: str, **_: Any) -> Object:
        self.client.calls.append(("delete", f"{resource.plural}/{name}", uid))
        found = self.stores.of(resource).get(namespace or "", name)
        assert found is not None
        if not found["metadata"].get("finalizers"):
            self.stores.of(resource).remove(found)
            return {}
        self.client.version += 1
        found["metadata"] |= {"deletionTimestamp": time(10), "resourceVersion": str(self.client.version)}
        return found

    async def settle(self, key: Key = GROUP) -> None:
        """Work on a job until nothing is left to do."""
        for _ in range(50):
            before = len(self.client.calls)
            await self.pods.reconcile(key)
            if len(self.client.calls) == before:
                return
        raise AssertionError(self.calls)

    def gone(self) -> None:
        """Take out what was deleted and is not held any more, as the API server would."""
        for one in list(self.stores.of(PODS).list()):
            if "deletionTimestamp" in one["metadata"] and not one["metadata"].get("finalizers"):
                self.stores.of(PODS).remove(one)

    def seen(self) -> Object:
        """All pods and the Workloads, versions and times aside."""
        objects = [*self.stores.of(PODS).list(), *self.stores.of(KINDS.workloads).list()]
        return {one["metadata"]["name"]: _stable(one) for one in objects}


def _stable(obj: Object) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**obj, "metadata": metadata}


def gates(one: Object) -> list[str]:
    return [gate["name"] for gate in one["spec"].get("schedulingGates", [])]


# --- a pod alone ----------------------------------------------------------------------------------


async def test_a_pod_gets_a_workload_that_it_controls() -> None:
    world = PodWorld()
    world.put(PODS, pod())
    await world.settle(Key("ns", "p"))
    made = world.get(KINDS.workloads, workload_name("Pod", "", "p", "uid-p"))
    assert made["metadata"]["ownerReferences"] == [{**owner("p"), "controller": True}]
    assert made["metadata"]["labels"][NAMES.job_uid] == "uid-p"
    (only,) = made["spec"]["podSets"]
    assert (only["name"], only["count"]) == ("main", 1)
    assert "schedulingGates" not in only["template"]["spec"]


async def test_an_admitted_pod_is_started_right_after_its_admission() -> None:
    world = PodWorld()
    world.put(PODS, pod())
    mine = {**owner("p"), "controller": True}
    world.put(
        KINDS.workloads,
        admitted(owner=mine, spec={"podSets": [{"name": "main", "count": 1, "template": TEMPLATE}]}),
    )
    await start_admitted({OwnerKind("", "v1", "Pod"): world.pods}, world.get(KINDS.workloads, "job-j-1"))
    started = world.get(PODS, "p")
    assert gates(started) == []
    assert started["spec"]["nodeSelector"] == {"pool": "spot"}
    assert started["metadata"]["labels"][NAMES.podset] == "main"
    assert ("p", "Started", "Admitted by clusterQueue cq") in world.told.events
    assert world.told.gates == [(gate["name"], "cq", 10, False) for gate in GATES]


async def test_a_deleted_pod_is_let_go_and_its_workload_ended() -> None:
    world = PodWorld()
    world.put(PODS, pod(state="going"))
    world.put(KINDS.workloads, admitted(owner={**owner("p"), "controller": True}))
    await world.settle(Key("ns", "p"))
    ended = world.get(KINDS.workloads, "job-j-1")
    assert condition_of(ended, "Finished")[1] == "OwnerNotFound"
    assert ended["metadata"]["finalizers"] == []
    assert world.get(PODS, "p")["metadata"]["finalizers"] == []


async def test_deleted_pod_keeps_its_quota_until_its_grace_ends() -> None:
    world = PodWorld()
    world.put(PODS, pod(state="going", deletion=time(40)))
    world.put(KINDS.workloads, admitted(owner={**owner("p"), "controller": True}))
    assert await world.pods.reconcile(Key("ns", "p")) == pytest.approx(30.1)
    assert world.calls == []


EVICTED_PODS = [
    (reason, skips, finishes)
    for reason in ("Preempted", "NodeFailures", "ClusterQueueStopped")
    for skips in (True, False)
    for finishes in (True, False)
]


@pytest.mark.parametrize(("reason", "skips_reassignment", "finish_orphaned"), EVICTED_PODS)
async def test_an_evicted_pod_that_ran_may_compete_until_it_ends_only_where_pods_are_reassigned(
    reason: str, skips_reassignment: bool, finish_orphaned: bool
) -> None:
    """It cannot be started a second time: its Workload ends with it."""
    world = PodWorld(skip_reassignment=skips_reassignment, finish_orphaned=finish_orphaned)
    world.put(PODS, pod(state="running"))
    mine = {**owner("p"), "controller": True}
    world.put(KINDS.workloads, admitted(condition("Evicted", True, reason, "m", since=5), owner=mine))
    await world.settle(Key("ns", "p"))
    ended = world.get(KINDS.workloads, "job-j-1")
    assert "deletionTimestamp" in world.get(PODS, "p")["metadata"]
    comes_back = reason != "ClusterQueueStopped" and not skips_reassignment
    assert condition_of(ended, "Requeued") == (str(comes_back), reason, "m")
    assert condition_of(ended, "QuotaReserved") == ("False", "PendingEvaluation", "m")
    assert (condition_of(ended, "Finished") is not None) is finish_orphaned
    assert ended["metadata"]["finalizers"] == []
    assert world.get(PODS, "p")["metadata"]["finalizers"] == []


@pytest.mark.parametrize(("reason", "skips_reassignment", "finish_orphaned"), EVICTED_PODS)
async def test_an_evicted_pod_that_was_still_held_competes_again(
    reason: str, skips_reassignment: bool, finish_orphaned: bool
) -> None:
    """Whatever is said of reassignment: nobody would make another in its place."""
    world = PodWorld(skip_reassignment=skips_reassignment, finish_orphaned=finish_orphaned)
    world.put(PODS, pod())
    mine = {**owner("p"), "controller": True}
    spec = {"podSets": [{"name": "main", "count": 1, "template": TEMPLATE}]}
    world.put(KINDS.workloads, reserved(condition("Evicted", True, reason, "m"), owner=mine, spec=spec))
    await world.settle(Key("ns", "p"))
    assert gates(world.get(PODS, "p")) == [gate["name"] for gate in GATES]
    back = world.get(KINDS.workloads, "job-j-1")
    assert condition_of(back, "Requeued") == (str(reason != "ClusterQueueStopped"), reason, "m")
    assert condition_of(back, "QuotaReserved") == ("False", "PendingEvaluation", "m")


# --- pods that an importer takes over ----------------------------------------------------------------

IMPORTED = [
    condition("QuotaReserved", True, "Imported", "Imported into ClusterQueue cq"),
    condition("Admitted", True, "Imported", "Imported into ClusterQueue cq"),
]
SHAPE = role_hash(TEMPLATE["spec"])


def imported(name: str = "p", *, state: str = "running", **parts: Any) -> Object:
    """A pod that ran before it was queued: without a role hash, a gate or a finalizer."""
    found = pod(name, state=state, finalizers=[], **parts)
    del found["metadata"]["annotations"][NAMES.role_hash]
    return found


def imported_workload() -> Object:
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]}
    spec = {"podSets": [{"name": "main", "count": 1, "template": TEMPLATE}]}
    return workload(*IMPORTED, owner=CONTROLLER, admission=admission, spec=spec)


CONTROLLER = {**owner("p"), "controller": True}


async def test_b7_imported_pod_keeps_its_admission_and_runs_on() -> None:
    world = PodWorld()
    world.put(PODS, imported())
    world.put(KINDS.workloads, imported_workload())
    await world.settle(Key("ns", "p"))
    assert world.calls == []


async def test_b7_imported_pod_that_succeeds_finishes_its_workload() -> None:
    world = PodWorld()
    world.put(PODS, imported(state="succeeded"))
    world.put(KINDS.workloads, imported_workload())
    await world.settle(Key("ns", "p"))
    assert condition_of(world.get(KINDS.workloads, "job-j-1"), "Finished")[1] == "Succeeded"


async def test_b7_workload_of_a_pod_that_is_not_labelled_yet_stays_as_it_is() -> None:
    world = PodWorld()
    world.client.api["pods", "p"] = imported(labels={NAMES.managed: None})
    world.put(KINDS.workloads, imported_workload())
    assert await world.pods.reconcile(Key("ns", "p")) is None
    assert world.calls == ["get pods/p"]


async def test_b7_deleted_workload_of_a_pod_that_is_not_labelled_is_freed_when_the_pod_has_ended() -> None:
    world = PodWorld()
    world.client.api["pods", "p"] = imported(labels={NAMES.managed: None})
    made = imported_workload()
    made["metadata"]["deletionTimestamp"] = time(9)
    world.put(KINDS.workloads, made)
    assert await world.pods.reconcile(Key("ns", "p")) == 1.0
    kept = world.get(KINDS.workloads, "job-j-1")
    assert kept["metadata"]["finalizers"]
    assert condition_of(kept, "PodsOutliveJob")[1] == "PodsRunning"
    later = PodWorld()
    later.client.api["pods", "p"] = imported(state="succeeded", labels={NAMES.managed: None})
    later.put(KINDS.workloads, kept)
    await later.settle(Key("ns", "p"))
    assert later.get(KINDS.workloads, "job-j-1")["metadata"]["finalizers"] == []


async def test_b7_workload_of_a_former_pod_of_the_name_is_finished() -> None:
    world = PodWorld()
    world.client.api["pods", "p"] = imported(labels={NAMES.managed: None}, uid="another")
    world.put(KINDS.workloads, imported_workload())
    await world.settle(Key("ns", "p"))
    assert condition_of(world.get(KINDS.workloads, "job-j-1"), "Finished")[1] == "OwnerNotFound"


@pytest.mark.parametrize("owners", ["ab", ""])
async def test_b7_imported_group_keeps_its_admission_and_runs_on(owners: str) -> None:
    world = PodWorld()
    world.put(PODS, *(imported(name, group="g") for name in "ab"))
    made = of_group(workload, *IMPORTED, owners=owners)
    made["spec"]["podSets"][0]["name"] = SHAPE
    made["status"]["admission"] = {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": SHAPE, "count": 2}],
    }
    world.put(KINDS.workloads, made)
    await world.settle()
    kept = world.get(KINDS.workloads, "g")
    assert condition_of(kept, "Finished") is None
    assert condition_of(kept, "Admitted")[:2] == ("True", "Imported")
    assert kept["metadata"]["ownerReferences"] == [owner("a"), owner("b")]
    assert not [call for call in world.calls if "pods" in call]


async def test_b7_started_pod_without_role_hash_keeps_its_podset() -> None:
    world = PodWorld()
    held = [imported(name, group="g", state="held") for name in "ab"]
    world.put(PODS, *held)
    made = of_group(admitted)
    made["spec"]["podSets"][0]["name"] = SHAPE
    made["status"]["admission"]["podSetAssignments"][0]["name"] = SHAPE
    world.put(KINDS.workloads, made)
    await world.settle()
    started = world.get(PODS, "a")
    assert started["spec"]["nodeSelector"] == {"pool": "spot"}, "its shape is another one now"
    assert not [call for call in world.calls if call.startswith("delete")]
    assert condition_of(world.get(KINDS.workloads, "g"), "Finished") is None


@pytest.mark.parametrize(("queue", "spared"), [("lq", True), (None, False)])
async def test_b7_labelled_pod_of_a_queued_job_runs_with_that_job(queue: str | None, spared: bool) -> None:
    world = PodWorld(integrations=(POD, JOB))
    world.put(JOBS, job(labels={NAMES.queue_name: queue} if queue else {}))
    world.put(PODS, imported("j-x7k2p", ownerReferences=[OWNER]))
    await world.settle(Key("ns", "j-x7k2p"))
    assert (world.calls == []) is spared


# --- groups ---------------------------------------------------------------------------------------


async def test_a_group_gets_the_workload_of_its_name_owned_by_all() -> None:
    world = PodWorld(label_keys_to_copy=("team",))
    world.put(PODS, *pair("held", "held", labels={"team": "x"}))
    await world.settle()
    made = world.get(KINDS.workloads, "g")
    assert made["metadata"]["annotations"] == {NAMES.is_group_workload: "true"}
    assert made["metadata"]["ownerReferences"] == [owner("a"), owner("b")]
    assert made["metadata"]["labels"] == {"team": "x"}
    assert [(one["name"], one["count"]) for one in made["spec"]["podSets"]] == [("r", 2)]


@pytest.mark.parametrize("bearer", ["a", "b"])
async def test_b10_label_to_copy_comes_from_whichever_pod_has_it(bearer: str) -> None:
    world = PodWorld(label_keys_to_copy=("team", "tier"))
    labels: Any = {"a": {"tier": "t"}, "b": {}}
    labels[bearer]["team"] = "x"
    world.put(PODS, *(pod(name, group="g", labels=labels[name]) for name in "ab"))
    await world.settle()
    assert world.get(KINDS.workloads, "g")["metadata"]["labels"] == {"team": "x", "tier": "t"}


async def test_b10_two_values_of_a_label_to_copy_are_a_dispute() -> None:
    world = PodWorld(label_keys_to_copy=("team",))
    world.put(PODS, *(pod(name, group="g", labels={"team": name}) for name in "ab"))
    await world.settle()
    note = "pods of group 'g' have different values of team"
    assert world.told.events[-1] == ("a", "ErrWorkloadCompose", note)


def asking(found: Object, cpu: int) -> Object:
    """The pod with another request."""
    container = {**TEMPLATE["spec"]["containers"][0], "resources": {"requests": {"cpu": str(cpu)}}}
    return {**found, "spec": {**found["spec"], "containers": [container]}}


async def test_group_is_not_queued_when_pods_of_one_role_ask_for_different_amounts() -> None:
    world = PodWorld()
    world.put(PODS, pod("a", group="g"), asking(pod("b", group="g"), 30))
    await world.settle()
    note = "pods 'a' and 'b' name the same role 'r', and 'b' asks for more cpu: give them different roles"
    assert world.told.events == [("a", "RoleMismatch", note)]
    assert world.stores.of(KINDS.workloads).get("ns", "g") is None


async def test_group_is_queued_when_a_pod_that_asks_for_more_has_failed() -> None:
    world = PodWorld()
    failed = asking(pod("b", group="g", state="failed"), 30)
    world.put(PODS, pod("a", group="g"), failed, pod("c", group="g"))
    await world.settle()
    assert world.get(KINDS.workloads, "g")["spec"]["podSets"][0]["count"] == 2


async def test_pod_that_asks_for_more_than_its_role_was_admitted_with_stays_at_its_gate() -> None:
    world = PodWorld()
    world.put(PODS, pod("a", group="g"), asking(pod("b", group="g"), 30))
    world.put(KINDS.workloads, of_group(admitted))
    await world.pods.reconcile(GROUP)
    assert gates(world.get(PODS, "a")) == []
    assert gates(world.get(PODS, "b")) == [gate["name"] for gate in GATES]
    note = (
        "Not started: the pod asks for more cpu than role 'r' of Workload 'g' was admitted with; delete it, "
        "and create one that asks for no more"
    )
    assert ("b", "RoleMismatch", note) in world.told.events


async def test_pod_that_asks_for_no_more_than_was_charged_is_started() -> None:
    """Defaults of a LimitRange are part of the charge, and not of the template."""
    world = PodWorld()
    world.put(PODS, *(asking(pod(name, group="g"), 5) for name in "ab"))
    found = of_group(admitted)
    found["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = {"cpu": "10"}
    world.put(KINDS.workloads, found)
    await world.settle()
    assert [gates(world.get(PODS, name)) for name in "ab"] == [[], []]


METRIC_VALUES = (Location("labels", "size"), Location("annotations", "a.example/cost"))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("large", "large", {"size": "large"}),
        ("large", None, {"size": "large"}),
        (None, "large", {"size": "large"}),
        ("large", "small", {}),
        (None, None, {}),
    ],
)
async def test_b10_workload_of_a_group_gets_the_metric_label_unless_its_pods_disagree(
    first: str | None, second: str | None, expected: dict[str, str]
) -> None:
    world = PodWorld(metric_values_to_copy=METRIC_VALUES)
    members = [
        {**one, "metadata": {**one["metadata"], "labels": {**one["metadata"]["labels"], **labelled(value)}}}
        for one, value in zip(pair("held", "held"), (first, second), strict=True)
    ]
    world.put(PODS, *members)
    await world.settle()
    assert world.get(KINDS.workloads, "g")["metadata"]["labels"] == expected


def labelled(size: str | None) -> dict[str, str]:
    return {} if size is None else {"size": size}


async def test_b10_workload_of_a_pod_alone_gets_the_metric_annotation() -> None:
    world = PodWorld(metric_values_to_copy=METRIC_VALUES)
    world.put(PODS, pod(annotations={"a.example/cost": "c7"}))
    await world.settle(Key("ns", "p"))
    (made,) = world.stores.of(KINDS.workloads).list()
    assert made["metadata"]["annotations"] == {"a.example/cost": "c7"}


async def test_an_incomplete_group_is_told_so_and_frees_pods_that_failed() -> None:
    world = PodWorld()
    world.put(PODS, *pair("held", "failed"))
    await world.settle()
    assert world.calls == ["json_patch pods/b"]
    assert world.told.events[-1] == (
        "a",
        "ErrWorkloadCompose",
        "'g' group has fewer runnable pods than expected",
    )


@pytest.mark.parametrize("known", [True, False])
async def test_pods_that_run_are_not_ended_before_their_admission_is_heard_of(known: bool) -> None:
    world = PodWorld()
    world.put(PODS, *pair("running", "running"))
    if known:
        world.put(KINDS.workloads, of_group(workload))
    newer = of_group(admitted, metadata={"resourceVersion": "8"})
    world.client.api["workloads", "g"] = newer
    assert await world.pods.reconcile(GROUP) == 1.0
    assert world.get(KINDS.workloads, "g") == newer
    await world.settle()
    assert world.calls == ["get workloads/g"]


async def test_pods_that_nobody_admitted_are_ended() -> None:
    world = PodWorld()
    world.put(PODS, *pair("running", "running"))
    await world.pods.reconcile(GROUP)
    assert world.calls == [
        "get workloads/g",
        "patch pods/a/status",
        "delete pods/a",
        "patch pods/b/status",
        "delete pods/b",
    ]


async def test_members_that_were_ended_for_good_are_let_go_when_their_time_is_over() -> None:
    world = PodWorld(after_deactivated=0)
    why = condition("Evicted", True, "DeactivatedDueToMaximumExecutionTimeExceeded", since=5)
    world.put(PODS, *pair("going", "held"))
    over = of_group(workload, why)
    world.put(KINDS.workloads, {**over, "spec": {**over["spec"], "active": False}})
    await world.settle()
    assert world.calls.count("delete pods/b") == 1
    assert all("deletionTimestamp" in one["metadata"] for one in world.stores.of(PODS).list())
    assert all(one["metadata"]["finalizers"] == [] for one in world.stores.of(PODS).list())
    assert ("a", "Deleted", "Deleted job: deactivation retention period expired") in world.told.events


async def test_members_become_owners_of_their_groups_workload() -> None:
    world = PodWorld()
    world.put(PODS, *pair("held", "held"))
    world.put(KINDS.workloads, of_group(workload, owners="a"))
    await world.settle()
    assert world.get(KINDS.workloads, "g")["metadata"]["ownerReferences"] == [owner("a"), owner("b")]
    assert ("g", "OwnerReferencesAdded", "Added 1 owner reference(s)") in world.told.events


@pytest.mark.parametrize("waits", ["held", "running"])
async def test_pod_that_names_the_workload_of_a_stateful_set_does_not_join_its_group(
    waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PodWorld(integrations=(POD, STATEFUL_SET))
    parent = {NAMES.pod_suspending_parent: "statefulset"}
    owned = {**owner("s"), "apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}
    theirs, own = (
        with_value(one, ("metadata", "annotations"), {**one["metadata"]["annotations"], **parent})
        for one in pair(waits, "running")
    )
    theirs = with_value(theirs, ("metadata", "creationTimestamp"), "2020-01-01T00:00:00Z")
    world.put(PODS, theirs, with_value(own, ("metadata", "ownerReferences"), [owned]))
    of_set = of_group(admitted)
    notes = {NAMES.job_owner_gvk: "apps/v1, Kind=StatefulSet", NAMES.job_owner_name: "s"}
    annotations = {**of_set["metadata"]["annotations"], **notes}
    world.put(KINDS.workloads, with_value(of_set, ("metadata", "annotations"), annotations))
    await world.settle()
    assert world.get(PODS, "b")["status"]["phase"] == "Running"
    assert not any("pods/b" in call for call in world.calls), world.calls
    reasons = {reason for name, reason, _ in world.told.events if name == "a"}
    assert reasons == {"WorkloadNameConflict"} | ({"Stopped"} if waits == "running" else set())
    compared = list[Any]()

    def strangers(*known: Any) -> Any:
        compared.append(known[0])
        return strangers_in(*known)

    monkeypatch.setattr("admitq.controllers.job.stored_jobs.strangers_in", strangers)
    await world.pods.reconcile(GROUP)
    assert len(compared) == 1


@pytest.mark.parametrize("validated", [True, False])
async def test_d22_group_named_like_the_workload_of_another_owner_is_not_admitted(validated: bool) -> None:
    world = PodWorld(validate_group_owner=validated)
    world.put(PODS, *pair("held", "failed"))
    world.put(KINDS.workloads, workload(name="g"))
    await world.settle()
    note = (
        'A Workload named "g" already exists but is not a pod group workload; '
        "this pod group cannot be admitted"
    )
    assert world.told.events[-1] == ("a", "WorkloadNameConflict", note)
    assert world.calls == ["json_patch pods/b"]


async def test_pods_that_lost_their_queue_are_ended_rather_than_the_workload_of_what_serves() -> None:
    world = PodWorld()
    world.put(PODS, *pair("running", "running", labels={NAMES.queue_name: None}))
    served = {"annotations": {NAMES.is_group_workload: "true", NAMES.job_owner_name: "s"}}
    world.put(KINDS.workloads, of_group(workload, metadata=served))
    await world.settle()
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/a", "delete pods/b"]


async def test_a_group_whose_workload_has_become_somebody_elses_does_not_run_on() -> None:
    world = PodWorld()
    world.put(PODS, *pair("running", "running"))
    world.put(KINDS.workloads, workload(name="g"))
    await world.settle()
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/a", "delete pods/b"]


@pytest.mark.parametrize(
    ("validated", "labels", "taken"),
    [(True, {}, False), (False, {}, True), (True, {NAMES.prebuilt_workload_name: "g"}, True)],
)
async def test_a_workload_that_nobody_controls_is_a_groups_if_the_group_says_so(
    validated: bool, labels: Any, taken: bool
) -> None:
    world = PodWorld(validate_group_owner=validated)
    world.put(PODS, *pair("held", "held", labels=labels))
    bare = of_group(workload, owners="")
    bare["metadata"]["annotations"] = {}
    world.put(KINDS.workloads, bare)
    await world.settle()
    assert len(world.get(KINDS.workloads, "g")["metadata"]["ownerReferences"]) == (2 if taken else 0)


@pytest.mark.parametrize(("by_annotation", "taken"), [(True, True), (False, False)])
async def test_b11_prebuilt_annotation_of_a_group_counts_only_where_annotations_identify_workloads(
    by_annotation: bool, taken: bool
) -> None:
    world = PodWorld(names_by_annotation=by_annotation)
    world.put(PODS, *pair("held", "held", annotations={NAMES.prebuilt_workload_name: "g"}))
    bare = of_group(workload, owners="")
    bare["metadata"]["annotations"] = {}
    world.put(KINDS.workloads, bare)
    await world.settle()
    assert len(world.get(KINDS.workloads, "g")["metadata"]["ownerReferences"]) == (2 if taken else 0)


async def test_a_pod_is_started_beside_those_that_run_as_far_as_there_is_room() -> None:
    world = PodWorld()
    world.put(PODS, *pair("running", "failed", "held"))
    world.put(KINDS.workloads, of_group(admitted, owners="abc"))
    await world.settle()
    assert gates(world.get(PODS, "c")) == []
    assert world.get(PODS, "b")["metadata"]["finalizers"] == []


async def test_pods_keep_waiting_for_their_place_where_a_topology_is_assigned() -> None:
    world = PodWorld()
    world.put(PODS, *pair("held", "held"))
    placed = of_group(admitted)
    placed["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = {"levels": []}
    world.put(KINDS.workloads, placed)
    await world.settle()
    assert gates(world.get(PODS, "a")) == [NAMES.topology_gate]
    assert world.told.gates == [(NAMES.admission_gate, "cq", 10, True)] * 2


@pytest.mark.parametrize(
    ("made", "states", "reason", "status"),
    [
        (of_group(admitted), ["running", "failed"], "PodsFailed", "True"),
        (of_group(workload, EVICTED), ["going", "going"], "Preempted", "True"),
        (of_group(admitted, WAITING), ["running", "running"], "PodsReady", "False"),
        (of_group(workload, WAITING), ["held", "succeeded"], "PodsReady", "False"),
    ],
)
async def test_it_is_told_whether_pods_must_be_replaced(
    made: Any, states: list[str], reason: str, status: str
) -> None:
    world = PodWorld()
    told = [condemned(one) if one["status"]["phase"] == "Running" else one for one in pair(*states)]
    world.put(PODS, *told)
    world.put(KINDS.workloads, made)
    await world.settle()
    found = condition_of(world.get(KINDS.workloads, "g"), "WaitingForReplacementPods")
    assert found[:2] == (status, reason)


@pytest.mark.parametrize("make", [workload, reserved])
async def test_a4_waiting_for_replacement_pods_keeps_reason_and_message_of_its_eviction(make: Any) -> None:
    """Whatever another program writes over the eviction, its pods were lost to it."""
    over = condition("Evicted", False, "QuotaReserved", "Previously: m")
    waits = condition("WaitingForReplacementPods", True, "Preempted", "m")
    world = PodWorld()
    world.put(PODS, *pair("held", "failed"))
    world.put(KINDS.workloads, of_group(make, over, waits))
    await world.settle()
    found = condition_of(world.get(KINDS.workloads, "g"), "WaitingForReplacementPods")
    assert found == ("True", "Preempted", "m")


async def test_a_condition_that_pods_alone_have_is_written_as_by_their_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, writers = PodWorld(), list[str]()
    patch = world.client.merge_patch

    async def noted(*what: Any, field_manager: str, **where: Any) -> Object:
        writers.append(field_manager)
        return await patch(*what, field_manager=field_manager, **where)

    monkeypatch.setattr(world.client, "merge_patch", noted)
    world.put(PODS, *(condemned(one) for one in pair("running", "failed")))
    world.put(KINDS.workloads, of_group(admitted))
    await world.pods.reconcile(GROUP)
    assert writers == ["admitq-pod-controller"]


@pytest.mark.parametrize(
    ("states", "waiting"),
    [
        (["failed", "failed"], ("True", "PodsFailed", "Some Failed pods need replacement")),
        (["succeeded", "failed"], ("True", "PodsFailed", "Some Failed pods need replacement")),
        (["succeeded", "succeeded"], None),
    ],
)
async def test_a_group_that_ends_without_its_pods_says_first_that_it_lacks_them(
    states: list[str], waiting: Any
) -> None:
    world = PodWorld()
    world.put(PODS, *pair(*states, annotations={NAMES.retriable_in_group: "false"}))
    world.put(KINDS.workloads, of_group(admitted))
    await world.settle()
    ended = world.get(KINDS.workloads, "g")
    assert condition_of(ended, "WaitingForReplacementPods") == waiting
    assert condition_of(ended, "Finished")[0] == "True"


async def test_of_a_group_that_has_ended_nobody_is_awaited() -> None:
    world = PodWorld()
    world.put(PODS, *pair("failed", "going"))
    ended = of_group(admitted, condition("Finished", True, "Succeeded"))
    world.put(KINDS.workloads, ended)
    await world.settle()
    assert condition_of(world.get(KINDS.workloads, "g"), "WaitingForReplacementPods") is None


async def test_a_deleted_workload_still_says_whom_its_group_lacks() -> None:
    world = PodWorld()
    world.put(PODS, *pair("running", "failed"))
    world.put(KINDS.workloads, of_group(admitted, metadata={"deletionTimestamp": time(9)}))
    await world.pods.reconcile(GROUP)
    found = condition_of(world.get(KINDS.workloads, "g"), "WaitingForReplacementPods")
    assert found[:2] == ("True", "PodsFailed")


def condemned(one: Object) -> Object:
    if "deletionTimestamp" not in one["metadata"]:
        return one
    ended = {"type": "TerminationTarget", "status": "True", "reason": "R"}
    return {**one, "status": {**one["status"], "conditions": [ended]}}


async def test_a_deleted_pod_is_looked_at_again_when_its_grace_ends() -> None:
    world = PodWorld()
    going = pod("a", group="g", state="going", deletion=time(40))
    world.put(PODS, going, pod("b", group="g", state="running"))
    world.put(KINDS.workloads, of_group(admitted, WAITING))
    again = await world.pods.reconcile(GROUP)
    assert again == pytest.approx(30.1)


async def test_a_fast_release_does_not_wait_for_pods_that_are_deleted() -> None:
    for fast, freed in ((False, False), (True, True)):
        world = PodWorld(fast_quota_release=fast)
        world.put(
            PODS,
            *(condemned(pod(name, group="g", state="going", deletion=time(40))) for name in "ab"),
        )
        world.put(KINDS.workloads, of_group(admitted, EVICTED))
        await world.settle()
        quota = condition_of(world.get(KINDS.workloads, "g"), "QuotaReserved")
        assert (quota[0] == "False") is freed


async def test_a_group_whose_pods_the_watch_does_not_show_is_asked_for() -> None:
    world = PodWorld()
    world.put(KINDS.workloads, of_group(admitted))
    world.client.api["pods", "a"] = pod("a", group="g")
    assert await world.pods.reconcile(GROUP) == 1.0
    world.client.api.clear()
    await world.settle()
    ended = world.get(KINDS.workloads, "g")
    assert condition_of(ended, "Finished")[1] == "OwnerNotFound"
    assert ended["metadata"]["finalizers"] == []


# --- Workloads that precede their pods ------------------------------------------------------------


@pytest.mark.parametrize("make", [workload, reserved, admitted])
async def test_b8_group_workload_without_owner_is_not_finished_before_its_first_pod(make: Any) -> None:
    world = PodWorld()
    world.put(KINDS.workloads, of_group(make, owners=""))
    assert await world.pods.reconcile(GROUP) is None
    assert world.calls == []


async def test_e_group_workload_that_is_evicted_before_its_first_pod_is_requeued() -> None:
    world = PodWorld()
    world.put(KINDS.workloads, of_group(admitted, EVICTED, owners=""))
    await world.settle()
    released = world.get(KINDS.workloads, "g")
    assert condition_of(released, "QuotaReserved")[:2] == ("False", "PendingEvaluation")
    assert condition_of(released, "Requeued")[:2] == ("True", "Preempted")
    assert condition_of(released, "Finished") is None
    assert "admission" not in released["status"]


async def test_b8_group_workload_gets_its_first_pod_as_owner() -> None:
    world = PodWorld()
    world.put(KINDS.workloads, of_group(workload, owners=""))
    await world.settle()
    world.put(PODS, *pair("held"))
    await world.settle()
    assert world.get(KINDS.workloads, "g")["metadata"]["ownerReferences"] == [owner("a")]


@pytest.mark.parametrize(
    ("owners", "metadata"), [("ab", {}), ("", {"deletionTimestamp": time(9)})], ids=["owners gone", "deleted"]
)
async def test_b8_group_workload_is_finished_when_its_owners_are_gone_or_it_is_deleted(
    owners: str, metadata: Any
) -> None:
    world = PodWorld()
    world.put(KINDS.workloads, of_group(admitted, owners=owners, metadata=metadata))
    await world.settle()
    ended = world.get(KINDS.workloads, "g")
    assert condition_of(ended, "Finished")[1] == "OwnerNotFound"
    assert ended["metadata"]["finalizers"] == []


async def test_a_start_that_the_api_refuses_for_good_ends_the_group() -> None:
    world = PodWorld()
    world.put(PODS, *pair("held", "held"))
    world.put(KINDS.workloads, of_group(admitted))
    original = world.client.merge_patch

    async def refuse(resource: Any, *args: Any, **named: Any) -> Object:
        if resource == PODS:
            raise ApiError(422, "Invalid", "spec: immutable")
        return await original(resource, *args, **named)

    world.client.merge_patch = refuse  # type: ignore[method-assign]
    await world.pods.reconcile(GROUP)
    failed = condition_of(world.get(KINDS.workloads, "g"), "Finished")
    assert failed == ("True", "FailedToStart", "spec: immutable")


# --- cut short ------------------------------------------------------------------------------------

HISTORIES: dict[str, tuple[list[str], Object | None]] = {
    "made": (["held", "held"], None),
    "started": (["held", "held"], of_group(admitted)),
    "evicted": (["running", "running"], of_group(admitted, EVICTED)),
    "not admitted": (["running", "held"], of_group(workload)),
    "no Workload": (["running", "held"], None),
    "deleted": (["running", "held"], of_group(admitted, metadata={"deletionTimestamp": time(9)})),
    "finished": (["succeeded", "succeeded"], of_group(admitted)),
    "too many": (["running", "running", "held", "held"], of_group(admitted, owners="abcd")),
    "all deleted": (["going", "going"], of_group(admitted)),
    "replaced": (["running", "failed", "held"], of_group(admitted, owners="abc")),
    "reserved": (["held", "held"], of_group(reserved)),
}


def staged(history: str) -> PodWorld:
    world = PodWorld()
    states, made = HISTORIES[history]
    world.put(PODS, *pair(*states))
    if made is not None:
        world.put(KINDS.workloads, made)
    return world


class Falling(list[tuple[str, str, Any]]):
    """Calls of which only so many get through."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def append(self, call: tuple[str, str, Any]) -> None:
        if len(self) == self._most:
            raise ApiError(503, "ServiceUnavailable", "fallen")
        super().append(call)


@pytest.mark.parametrize("history", HISTORIES)
async def test_whatever_write_is_the_last_before_a_fall_the_end_is_the_same(history: str) -> None:
    whole = staged(history)
    await whole.settle()
    writes = len(whole.client.calls)
    for last in range(writes):
        world = staged(history)
        world.client.calls = Falling(last)
        with pytest.raises(ApiError):
            await world.settle()
        world.client.calls = []
        await world.settle()
        assert world.seen() == whole.seen(), f"after write {last} of {whole.calls}"


# --- which job a change concerns ------------------------------------------------------------------


def test_changes_of_pods_and_workloads_concern_the_job_that_they_are_of() -> None:
    world = PodWorld()
    high = pod("alone", labels={NAMES.priority_class: "high"})
    world.put(PODS, *pair("held", "held"), high)
    (part,) = (one for one in controllers(world.ctx, world.core).when_served if one.resource == PODS)
    keys = {watch.resource: watch.keys for watch in part.spec.watches}

    def concerned(resource: Any, obj: Object) -> set[Key]:
        key = Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        return set(keys[resource](Change("added", key, obj, None)))

    assert concerned(PODS, pod("a", group="g")) == {GROUP}
    assert concerned(PODS, high) == {Key("ns", "alone")}
    assert GROUP in concerned(KINDS.workloads, of_group(workload))
    assert GROUP in concerned(KINDS.workloads, workload(name="g"))
    alone = {**owner("alone"), "controller": True}
    assert Key("ns", "alone") in concerned(KINDS.workloads, workload(owner=alone))
    assert concerned(NAMESPACES, cluster_scoped("ns", labels={})) == {GROUP, Key("ns", "alone")}
    assert concerned(KINDS.workload_priority_classes, cluster_scoped("high", value=1)) == {Key("ns", "alone")}
    assert concerned(PRIORITY_CLASSES, cluster_scoped("high", value=1)) == set()
    assert part.label_selector == f"{NAMES.managed}=true"
    world.put(KINDS.workloads, of_group(workload))
    assert set(part.known()) == {GROUP}


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
    world.put(PODS, *pair("held", "held", labels={NAMES.prebuilt_workload_name: "g"}))
    theirs = of_group(workload, owners="")
    theirs["metadata"] = {**theirs["metadata"], "annotations": {}, **metadata}
    world.put(KINDS.workloads, theirs)
    await world.settle()
    assert world.told.events[-1][1] == "WorkloadNameConflict"
    assert world.get(KINDS.workloads, "g")["metadata"].get("ownerReferences", []) == metadata.get(
        "ownerReferences", []
    )


async def test_group_larger_than_the_workload_it_names_gets_an_event_and_the_workload_is_not_finished() -> (
    None
):
    world = PodWorld()
    world.put(PODS, *pair("held", "held", labels={NAMES.prebuilt_workload_name: "g"}))
    free = of_group(workload, owners="")
    free["spec"] = {**free["spec"], "podSets": [{**free["spec"]["podSets"][0], "count": 1}]}
    world.put(KINDS.workloads, free)
    await world.settle()
    note = "The prebuilt workload is out of sync with its user job"
    assert world.told.events[-1] == ("a", "ErrWorkloadCompose", note)
    left = world.get(KINDS.workloads, "g")
    assert left["metadata"].get("ownerReferences", []) == []
    assert not any(one["type"] == "Finished" for one in left.get("status", {}).get("conditions", ()))


@pytest.mark.parametrize(
    ("held", "states", "labels", "counted"),
    [
        (of_group(workload), ("running", "held"), {}, [("g", "Pod", 1)]),
        (of_group(workload, EVICTED), ("running", "running"), {NAMES.podset: "r"}, []),
        (of_group(admitted, EVICTED), ("running", "running"), {}, []),
        (of_group(admitted), ("running", "running"), {}, []),
    ],
    ids=["never admitted", "evicted by another program", "evicted", "admitted"],
)
async def test_pods_of_a_group_that_run_without_a_grant_are_counted(
    held: Object, states: tuple[str, ...], labels: dict[str, str], counted: list[Any]
) -> None:
    world = PodWorld()
    world.put(KINDS.workloads, held)
    world.client.api["workloads", "g"] = held
    world.put(PODS, *pair(*states, labels=labels))
    await world.settle()
    assert world.told.excess == counted
