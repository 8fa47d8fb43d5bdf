"""Objects that serve: the Workloads that they have made, and what their pods are told."""

from typing import Any

import orjson
import pytest

from admitq.controllers import registry
from admitq.controllers.indexes import BY_OWNER, resource_of
from admitq.controllers.job.case import Lookups
from admitq.controllers.plan import Count, Create, Delete, Patch, Plan, RemoveFinalizer, Tell
from admitq.controllers.serving.controller import ServingController
from admitq.controllers.serving.decide import ServingCase, decide
from admitq.integrations.base import Integration
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq.integrations.names import workload_name
from admitq.integrations.paths import with_value
from admitq.integrations.registry import registered
from admitq.runtime.errors import ApiError, PermanentlyRefused
from admitq.runtime.resources import PODS, STATEFUL_SETS
from admitq.runtime.store import Change, Key
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    SETTINGS,
    TEMPLATE,
    Object,
    admitted,
    at,
    condition,
    condition_of,
    reserved,
    settings_with,
    workload,
)
from tests.unit.controllers.world import World

GATES = [{"name": NAMES.admission_gate}, {"name": "example.com/own"}, {"name": NAMES.topology_gate}]
ON_HOLD = condition("QuotaReserved", False, "OnHold", "StatefulSet scaled to zero; workload on hold")
SERVING = settings_with(integrations=(POD, STATEFUL_SET))
NAME = workload_name("StatefulSet", "apps", "s", "uid-s")


def held_template(parent: str) -> Object:
    return {**TEMPLATE, "metadata": {"annotations": {NAMES.pod_suspending_parent: parent}}}


def stateful_set(replicas: int = 3, *, status: Any = None, **metadata: Any) -> Object:
    labels = {NAMES.queue_name: "lq", **metadata.pop("labels", {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": "ns", "uid": "uid-s", "labels": labels, **metadata},
        "spec": {"replicas": replicas, "template": held_template("statefulset")},
        "status": status or {},
    }


def lws(replicas: int = 2, *, leader: bool = True, status: Any = None, **spec: Any) -> Object:
    template = held_template("leaderworkerset")
    group = {"size": 3, "workerTemplate": template, **({"leaderTemplate": template} if leader else {})}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {
            "name": "l",
            "namespace": "ns",
            "uid": "uid-l",
            "labels": {NAMES.queue_name: "lq"},
        },
        "spec": {"replicas": replicas, "leaderWorkerTemplate": group, **spec},
        "status": status or {},
    }


def pod(name: str = "s-0", *, held: bool = True, labels: Any = None, parent: str = "statefulset") -> Object:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "uid-s", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "3",
            "labels": {NAMES.managed: "true", **(labels or {})},
            "annotations": {NAMES.pod_suspending_parent: parent, NAMES.role_hash: "abc"},
            "ownerReferences": [owner],
        },
        "spec": {**TEMPLATE["spec"], **({"schedulingGates": GATES} if held else {"nodeName": "n"})},
        "status": {"phase": "Pending" if held else "Running"},
    }


def lws_pod(group: int, worker: int) -> Object:
    prefix = "leaderworkerset.sigs.k8s.io/"
    labels = {f"{prefix}name": "l", f"{prefix}group-index": str(group), f"{prefix}worker-index": str(worker)}
    return pod(f"l-{group}-{worker}", labels=labels, parent="leaderworkerset")


def owned(made: Object, job: Object, index: str | None = None) -> Object:
    """The Workload as it would be made for the object."""
    metadata = job["metadata"]
    owner = {"kind": job["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    notes = {
        NAMES.is_group_workload: "true",
        NAMES.job_owner_gvk: f"{job['apiVersion']}, Kind={job['kind']}",
        NAMES.job_owner_name: metadata["name"],
    }
    if index is not None:
        notes[NAMES.component_workload_index] = index
    return {**made, "metadata": {**made["metadata"], "annotations": notes, "ownerReferences": [owner]}}


def of_set(made: Object, job: Object) -> Object:
    named = {**made, "metadata": {**made["metadata"], "name": NAME}}
    template = job["spec"]["template"]
    named["spec"] = {**named["spec"], "podSets": [{"name": "main", "count": 3, "template": template}]}
    return owned(named, job)


def decided(
    job: Object | None,
    *workloads: Object,
    pods: Any = (),
    kind: Integration = STATEFUL_SET,
    settings: Any = SETTINGS,
    classes: Any = None,
    others: Any = (),
    **fields: Any,
) -> Plan:
    """What is decided where these Workloads say that they were made for the object, and others do not."""
    assert kind.serving is not None
    by_name = {one["metadata"]["name"]: one for one in (*workloads, *others)}
    lookups = Lookups(
        flavor=lambda _: None,
        workload_priority_class=(classes or {}).get,
        priority_class=lambda _: None,
        priority_classes=lambda: (),
        workload=by_name.get,
    )
    case = ServingCase(
        integration=kind,
        serving=kind.serving,
        names=NAMES,
        kinds=KINDS,
        settings=settings,
        now=at(10),
        job=job,
        pods=tuple(pods),
        workloads=workloads,
        lookups=lookups,
        **fields,
    )
    return decide(case)


def only_patch(plan: Plan) -> Any:
    (action,) = (one for one in plan.actions if not isinstance(one, Count))
    assert isinstance(action, Patch)
    return action.steps[0].patch


# --- StatefulSets ---------------------------------------------------------------------------------


def test_a_workload_is_made_for_all_replicas_before_there_are_pods() -> None:
    made, told = decided(stateful_set()).actions
    assert isinstance(made, Create)
    assert isinstance(told, Tell)
    metadata: Any = made.obj["metadata"]
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
    spec: Any = made.obj["spec"]
    assert [(one["name"], one["count"]) for one in spec["podSets"]] == [("main", 3)]
    assert (told.reason, told.note) == ("CreatedWorkload", f"Created Workload: ns/{NAME}")


@pytest.mark.parametrize(
    ("job", "fields"),
    [
        (stateful_set(0), {}),
        (stateful_set(labels={NAMES.queue_name: ""}), {}),
        (stateful_set(labels={NAMES.multikueue_origin: "home"}), {}),
        (stateful_set(deletionTimestamp="2026-01-01T00:00:00Z"), {}),
        (stateful_set(), {"namespace_ends": True}),
        (stateful_set(), {"namespace_matches": False}),
        ({**stateful_set(), "spec": {"template": held_template("leaderworkerset")}}, {}),
        ({**stateful_set(), "spec": {"template": TEMPLATE}}, {}),
    ],
)
def test_no_workload_is_made_where_none_is_needed(job: Object, fields: Any) -> None:
    assert decided(job, **fields).actions == ()


def test_pods_are_told_their_group_their_role_and_their_queue() -> None:
    job = stateful_set()
    patch = only_patch(decided(job, of_set(workload(), job), pods=[pod()]))
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


def told(one: Object, patch: Any) -> Object:
    metadata = one["metadata"]
    merged = {key: {**metadata[key], **patch["metadata"][key]} for key in ("labels", "annotations")}
    return {**one, "metadata": {**metadata, **merged}}


def test_a_pod_that_has_been_told_is_left_alone_and_follows_its_queue_while_it_waits() -> None:
    job = stateful_set()
    made = of_set(workload(), job)
    waiting = told(pod(), only_patch(decided(job, made, pods=[pod()])))
    assert decided(job, made, pods=[waiting]).actions == ()
    moved = stateful_set(labels={NAMES.queue_name: "other"})
    there = {**made, "spec": {**made["spec"], "queueName": "other"}}
    assert only_patch(decided(moved, made, pods=[waiting])) == {"spec": {"queueName": "other"}}
    assert only_patch(decided(moved, there, pods=[waiting])) == {
        "metadata": {"labels": {NAMES.queue_name: "other"}}
    }
    running = {**waiting, "spec": {**waiting["spec"], "schedulingGates": []}}
    assert decided(moved, there, pods=[running]).actions == ()


@pytest.mark.parametrize(("length", "place"), [(10, "labels"), (100, "annotations")])
def test_without_the_gate_only_long_names_are_told_in_annotations(length: int, place: str) -> None:
    job = stateful_set(name="s" * length)
    made = of_set(workload(), job)
    name = workload_name("StatefulSet", "apps", "s" * length, "uid-s")
    made["metadata"]["name"] = name
    settings = settings_with(names_by_annotation=False)
    metadata = only_patch(decided(job, made, pods=[pod()], settings=settings))["metadata"]
    told_in = [where for where in ("labels", "annotations") if NAMES.pod_group_name in metadata[where]]
    assert told_in == [place]
    assert {metadata[place][key] for key in (NAMES.pod_group_name, NAMES.prebuilt_workload_name)} == {name}


def without_uid(job: Object) -> Object:
    """A Workload of the object whose name follows from no UID."""
    name = workload_name("StatefulSet", "apps", "s", "")
    return with_value(of_set(workload(), job), ("metadata", "name"), name)


def test_a_workload_that_is_named_without_a_uid_is_found_and_told_to_pods() -> None:
    job = stateful_set()
    made = without_uid(job)
    annotations = only_patch(decided(job, made, pods=[pod()]))["metadata"]["annotations"]
    assert annotations[NAMES.prebuilt_workload_name] == made["metadata"]["name"]


def test_a_workload_that_is_named_by_its_uid_goes_before_one_that_is_not() -> None:
    job = stateful_set()
    other = without_uid(job)
    plan = decided(job, of_set(workload(), job), other, pods=[pod()])
    assert [one.obj for one in plan.actions if isinstance(one, Delete)] == [other]
    [told] = [one for one in plan.actions if isinstance(one, Patch)]
    assert told.steps[0].patch["metadata"]["annotations"][NAMES.prebuilt_workload_name] == NAME


def test_a_workload_of_a_former_object_of_the_name_is_not_taken_for_that_of_this_one() -> None:
    job = stateful_set()
    former = without_uid(stateful_set(uid="former"))
    [made] = [one.obj for one in decided(job, former).actions if isinstance(one, Create)]
    assert made["metadata"]["name"] == NAME


def older(*owners: Object, annotations: Any = None, **metadata: Any) -> Object:
    """A Workload under the older name, which another release created."""
    made = without_uid(stateful_set())
    given = {"annotations": annotations or {}, "ownerReferences": list(owners), **metadata}
    return {**made, "metadata": {**made["metadata"], **given}}


OF_POD = {"apiVersion": "v1", "kind": "Pod", "name": "s-0", "uid": "uid-s-0"}
OF_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "uid-s"}


@pytest.mark.parametrize("owners", [[], [OF_POD]], ids=["no owner", "pods"])
@pytest.mark.parametrize("noted", [True, False])
def test_b11_workload_of_a_stateful_set_under_its_older_name_is_adopted(owners: Any, noted: bool) -> None:
    job = stateful_set()
    found = older(*owners, annotations={NAMES.job_owner_name: "s"} if noted else {})
    assert only_patch(decided(job, found, pods=[pod()]))["metadata"] == {
        "annotations": {
            NAMES.is_group_workload: "true",
            NAMES.job_owner_gvk: "apps/v1, Kind=StatefulSet",
            NAMES.job_owner_name: "s",
        },
        "labels": {NAMES.job_uid: "uid-s"},
        "ownerReferences": [*owners, OF_SET],
    }


@pytest.mark.parametrize(
    "found",
    [
        older({**OF_POD, "controller": True}),
        older({**OF_SET, "uid": "former"}),
        older({**OF_POD, "uid": "uid-of-another"}),
        older(labels={NAMES.job_uid: "uid-of-another"}),
        older(deletionTimestamp="2030-01-01T00:00:00Z"),
    ],
    ids=["controlled", "former StatefulSet", "pod of another", "job of another", "deleted"],
)
def test_b11_workload_under_the_older_name_that_belongs_elsewhere_is_not_adopted(found: Object) -> None:
    plan = decided(stateful_set(), found)
    [made] = [one.obj for one in plan.actions if isinstance(one, Create)]
    assert made["metadata"]["name"] == NAME


def with_podset(found: Object, **changes: Any) -> Object:
    """A Workload whose one podset differs by these fields."""
    [pod_set] = found["spec"]["podSets"]
    return with_value(found, ("spec", "podSets"), [{**pod_set, **changes}])


LARGER = with_value(
    held_template("statefulset"),
    ("spec", "containers"),
    [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "9"}}}],
)
DIFFERENT = {
    "more pods": {"count": 30},
    "fewer pods": {"count": 1},
    "larger pods": {"template": LARGER},
    "another role": {"name": "other"},
}
NOT_ADOPTED = "is not adopted: its podsets differ from those of the StatefulSet"


@pytest.mark.parametrize("noted", [True, False], ids=["annotated", "bare"])
@pytest.mark.parametrize("changes", DIFFERENT.values(), ids=list(DIFFERENT))
def test_b11_workload_under_the_older_name_with_other_podsets_is_left_alone(
    changes: Any, noted: bool
) -> None:
    found = with_podset(older(OF_POD), **changes)
    plan = decided(stateful_set(), *([found] if noted else []), pods=[pod()], others=[found])
    [refusal, event] = [one for one in plan.actions if isinstance(one, Tell)]
    note = f"Workload {found['metadata']['name']} {NOT_ADOPTED}"
    assert (refusal.reason, refusal.note) == ("ErrWorkloadCompose", note)
    assert event.reason == "CreatedWorkload"
    [made] = [one for one in plan.actions if not isinstance(one, Tell)]
    assert isinstance(made, Create)
    assert made.obj["metadata"]["name"] == NAME


def test_workload_under_the_older_name_of_a_stateful_set_on_hold_is_adopted_whatever_its_number() -> None:
    found = older(annotations={NAMES.job_owner_name: "s"})
    patch = only_patch(decided(stateful_set(0), found))
    assert patch["metadata"]["ownerReferences"] == [OF_SET]


@pytest.mark.parametrize("noted", [True, False], ids=["annotated", "bare"])
def test_free_workload_of_the_name_of_a_group_with_other_podsets_is_reported_and_left_alone(
    noted: bool,
) -> None:
    found = with_value(with_podset(older(), count=30), ("metadata", "name"), NAME)
    plan = decided(stateful_set(), *([found] if noted else []), pods=[pod()], others=[found])
    [event] = plan.actions
    assert isinstance(event, Tell)
    assert (event.reason, event.note, plan.again) == (
        "ErrWorkloadCompose",
        f"Workload {NAME} {NOT_ADOPTED}",
        5.0,
    )


def test_workload_that_lost_its_owner_and_kept_the_label_of_the_stateful_set_is_adopted_again() -> None:
    found = with_podset(older(labels={NAMES.job_uid: "uid-s"}), count=30)
    owners = only_patch(decided(stateful_set(), others=[found]))["metadata"]["ownerReferences"]
    assert owners == [OF_SET]


@pytest.mark.parametrize("left", [{}, {NAMES.is_group_workload: "true"}])
def test_e_workload_of_a_stateful_set_is_marked_again_when_it_has_lost_its_annotations(left: Any) -> None:
    job = stateful_set()
    made = with_value(of_set(admitted(), job), ("metadata", "annotations"), left)
    metadata = only_patch(decided(job, others=[made], pods=[pod()]))["metadata"]
    assert metadata["annotations"] == {
        NAMES.is_group_workload: "true",
        NAMES.job_owner_gvk: "apps/v1, Kind=StatefulSet",
        NAMES.job_owner_name: "s",
    }
    assert metadata["ownerReferences"] == made["metadata"]["ownerReferences"]


def test_e_stateful_set_reports_and_retries_while_its_name_belongs_to_another_workload() -> None:
    job = stateful_set()
    theirs = with_value(workload(), ("metadata", "name"), NAME)
    plan = decided(job, others=[theirs], pods=[pod()])
    [event] = plan.actions
    assert isinstance(event, Tell)
    note = f"Workload {NAME} exists already and belongs to something else"
    assert (event.reason, event.note, plan.again) == ("ErrWorkloadCompose", note, 5.0)


def test_e_stateful_set_is_reconciled_when_its_workload_loses_its_annotations() -> None:
    job = stateful_set()
    world = World(SERVING)
    assert STATEFUL_SET.serving is not None
    [watch] = (
        one
        for one in ServingController(world.ctx, STATEFUL_SET, STATEFUL_SET.serving).when_served().spec.watches
        if one.resource == KINDS.workloads
    )
    made = of_set(workload(), job)
    bare = with_value(made, ("metadata", "annotations"), {})
    change = Change("modified", Key("ns", NAME), bare, orjson.dumps(made))
    assert set(watch.keys(change)) == {Key("ns", "s")}


def test_scaled_to_zero_the_reservation_is_given_back_and_waits_again_afterwards() -> None:
    empty, job = stateful_set(0), stateful_set()
    status = only_patch(decided(empty, of_set(reserved(), empty)))["status"]
    quota = next(one for one in status["conditions"] if one["type"] == "QuotaReserved")
    assert (quota["status"], quota["reason"], quota["message"]) == (
        "False",
        "OnHold",
        "StatefulSet scaled to zero; workload on hold",
    )
    assert status["admission"] is None
    assert decided(empty, of_set(workload(ON_HOLD), empty)).actions == ()
    again = only_patch(decided(job, of_set(workload(ON_HOLD), job)))["status"]["conditions"][0]
    assert again["message"] == "Workload no longer on hold; waiting for quota reservation"


@pytest.mark.parametrize(
    ("replicas", "pods", "deleted"), [(0, [], True), (0, [pod(held=False)], False), (3, [], False)]
)
def test_finished_workload_of_a_stateful_set_is_deleted_when_it_is_scaled_to_zero(
    replicas: int, pods: Any, deleted: bool
) -> None:
    job = stateful_set(replicas)
    finished = of_set(workload(condition("Finished", True, "Failed", "by another program")), job)
    actions = decided(job, finished, pods=pods).actions
    assert [type(one) for one in actions if not isinstance(one, Patch)] == ([Delete] if deleted else [])


def test_quota_of_a_set_that_is_scaled_to_zero_is_kept_while_its_pods_run() -> None:
    empty = stateful_set(0)
    made = of_set(reserved(), empty)
    plan = decided(empty, made, pods=[pod(held=False)])
    assert [one for one in plan.actions if getattr(one, "obj", {}).get("kind") == "Workload"] == []
    ended = {**pod(held=False), "status": {"phase": "Succeeded"}}
    assert only_patch(decided(empty, made, pods=[ended]))["status"]["admission"] is None


def test_that_its_workload_is_deactivated_goes_before_that_it_is_scaled_to_zero() -> None:
    """Two controllers that each tell their own would do so for ever."""
    empty = stateful_set(0)
    deactivated = condition("QuotaReserved", False, "Deactivated", "The workload is deactivated")
    for quota in (deactivated, ON_HOLD):
        assert decided(empty, of_set(workload(quota, spec={"active": False}), empty)).actions == ()


def test_what_comes_back_larger_asks_for_more_first() -> None:
    job = stateful_set(5)
    patch = only_patch(decided(job, of_set(workload(ON_HOLD), job), pods=[pod()]))
    assert patch["spec"]["podSets"][0]["count"] == 5


@pytest.mark.parametrize(
    ("revision", "partition", "start", "status", "let_go"),
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
def test_pods_that_make_room_for_a_new_revision_are_let_go(
    revision: str, partition: int, start: int, status: Any, let_go: bool
) -> None:
    known = {"updateRevision": "new", "currentRevision": "old", "observedGeneration": 2, **status}
    job = stateful_set(status=known, generation=2)
    job["spec"]["updateStrategy"] = {"rollingUpdate": {"partition": partition}}
    job["spec"]["ordinals"] = {"start": start}
    one = pod(labels={"controller-revision-hash": revision, "apps.kubernetes.io/pod-index": str(start)})
    write, *counts = decided(job, of_set(workload(), job), pods=[one]).actions
    assert isinstance(write, Patch)
    gates = {"spec": {"schedulingGates": [{"name": "example.com/own"}]}}
    assert (write.steps[0].patch == gates) is let_go
    assert [isinstance(count, Count) for count in counts] == [True, True] * let_go


def test_a_priority_class_that_changes_is_followed_with_quota_too() -> None:
    job = stateful_set(labels={NAMES.priority_class: "high"})
    reference = {"group": NAMES.group, "kind": "WorkloadPriorityClass", "name": "low"}
    made = of_set(reserved(spec={"priorityClassRef": reference}), job)
    classes = {"high": {"metadata": {"name": "high"}, "value": 9}}
    write, event = decided(job, made, classes=classes).actions
    assert isinstance(write, Patch)
    spec = write.steps[0].patch["spec"]
    assert (spec["priority"], spec["priorityClassRef"]["name"]) == (9, "high")
    assert isinstance(event, Tell)
    note = f"Updated workload priority class: ns/{NAME}"
    assert (event.regarding, event.reason, event.note) == (job, "UpdatedWorkload", note)
    (warned,) = decided(job, made).actions
    assert isinstance(warned, Tell)
    assert warned.reason == "WorkloadPriorityClassNotFound"


@pytest.mark.parametrize("left", [{"labels": {NAMES.queue_name: ""}}, {"namespace_matches": False}])
def test_what_has_quota_from_before_ends_though_its_object_is_managed_no_more(left: Any) -> None:
    job = stateful_set(**({"labels": left["labels"]} if "labels" in left else {}))
    fields = {key: value for key, value in left.items() if key != "labels"}
    evicted = of_set(admitted(condition("Evicted", True, "Preempted")), job)
    assert only_patch(decided(job, evicted, **fields))["status"]["admission"] is None
    going = of_set(workload(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), job)
    [freed] = decided(job, going, **fields).actions
    assert isinstance(freed, RemoveFinalizer)
    assert decided(job, of_set(workload(), job), **fields) == Plan()
    assert decided(job, **fields) == Plan()


def test_no_class_that_is_not_there_keeps_quota_from_being_given_back() -> None:
    labels = {NAMES.priority_class: "none-such"}
    spec = {"priorityClassRef": {"group": NAMES.group, "kind": "WorkloadPriorityClass", "name": "low"}}
    none = stateful_set(replicas=0, labels=labels)
    released = only_patch(decided(none, of_set(admitted(spec=spec), none)))
    assert released["status"]["admission"] is None


def test_a_gate_that_is_taken_off_is_taken_off_the_workload() -> None:
    key = NAMES.admission_gated_by
    job = stateful_set(annotations={key: "a.example/x"})
    made = of_set(workload(), job)
    made["metadata"]["annotations"][key] = "a.example/x,b.example/y"
    assert only_patch(decided(job, made)) == {"metadata": {"annotations": {key: "a.example/x"}}}


def test_an_evicted_workload_without_pods_gives_its_quota_back() -> None:
    job = stateful_set()
    made = of_set(admitted(condition("Evicted", True, "Preempted", since=4)), job)
    plan = decided(job, made)
    assert only_patch(plan)["status"]["admission"] is None
    assert all(
        isinstance(one, Patch) and one.resource.kind == "Pod"
        for one in decided(job, made, pods=[pod(held=False)]).actions
    )


def test_workloads_of_what_is_gone_are_finished_and_let_go() -> None:
    job = stateful_set()
    made = of_set(workload(), job)
    settings = settings_with(finish_orphaned=True)
    (finished,) = only_patch(decided(None, made, settings=settings))["status"]["conditions"]
    assert (finished["type"], finished["reason"]) == ("Finished", "OwnerNotFound")
    (freed,) = decided(None, made, settings=settings_with(finish_orphaned=False)).actions
    assert isinstance(freed, RemoveFinalizer)
    former = of_set(workload(), stateful_set(uid="uid-before"))
    actions = decided(job, former, settings=settings_with(finish_orphaned=False)).actions
    assert [type(one) for one in actions] == [RemoveFinalizer]


@pytest.mark.parametrize(("pods", "freed"), [([], True), ([pod(held=False)], False)])
def test_a_deleted_workload_goes_when_its_pods_have_gone(pods: Any, freed: bool) -> None:
    job = stateful_set()
    made = of_set(workload(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), job)
    actions = decided(job, made, pods=pods).actions
    assert [type(one) for one in actions] == ([RemoveFinalizer] if freed else [])


# --- LeaderWorkerSets -----------------------------------------------------------------------------


def lws_name(index: int) -> str:
    return workload_name("LeaderWorkerSet", "leaderworkerset.x-k8s.io", f"l-{index}", "uid-l")


def test_each_group_has_a_workload() -> None:
    made = [one for one in decided(lws(), kind=LEADER_WORKER_SET).actions if isinstance(one, Create)]
    metadata: list[Any] = [one.obj["metadata"] for one in made]
    assert [one["name"] for one in metadata] == [lws_name(0), lws_name(1)]
    assert [one["annotations"][NAMES.component_workload_index] for one in metadata] == ["0", "1"]
    assert {one["annotations"][NAMES.job_owner_name] for one in metadata} == {"l"}
    assert metadata[0]["ownerReferences"][0]["name"] == "l"
    spec: Any = made[0].obj["spec"]
    assert [(one["name"], one["count"]) for one in spec["podSets"]] == [("leader", 1), ("worker", 2)]


def test_groups_without_a_template_for_leaders_are_all_alike() -> None:
    made = decided(lws(1, leader=False), kind=LEADER_WORKER_SET).actions[0]
    assert isinstance(made, Create)
    assert [(one["name"], one["count"]) for one in made.obj["spec"]["podSets"]] == [("main", 3)]


def of_group(index: int, **parts: Any) -> Object:
    job = lws()
    template = held_template("leaderworkerset")
    pod_sets = [
        {"name": "leader", "count": 1, "template": template},
        {"name": "worker", "count": 2, "template": template},
    ]
    return owned(workload(name=lws_name(index), spec={"podSets": pod_sets}, **parts), job, str(index))


def test_pods_are_told_the_group_that_they_are_in() -> None:
    pods = [lws_pod(0, 0), lws_pod(0, 1), lws_pod(1, 2)]
    plan = decided(lws(), of_group(0), of_group(1), pods=pods, kind=LEADER_WORKER_SET)
    seen: dict[str, Any] = {}
    for action in plan.actions:
        assert isinstance(action, Patch)
        metadata = action.steps[0].patch["metadata"]
        seen[action.obj["metadata"]["name"]] = (
            metadata["annotations"][NAMES.pod_group_name],
            metadata["annotations"][NAMES.role_hash],
            metadata["annotations"][NAMES.pod_group_total_count],
        )
    assert seen == {
        "l-0-0": (lws_name(0), "leader", "3"),
        "l-0-1": (lws_name(0), "worker", "3"),
        "l-1-2": (lws_name(1), "worker", "3"),
    }


@pytest.mark.parametrize(
    ("state", "actions"),
    [
        ({}, [Delete]),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, [RemoveFinalizer]),
    ],
)
def test_workloads_of_groups_that_are_no_more_go(state: Any, actions: Any) -> None:
    plan = decided(lws(1), of_group(0), of_group(1, **state), kind=LEADER_WORKER_SET)
    assert [type(one) for one in plan.actions] == actions


@pytest.mark.parametrize(
    ("updating", "surge", "wanted"),
    [(True, 1, True), (True, "50%", True), (True, 0, False), (False, 1, False)],
)
def test_a_rollout_has_workloads_for_the_groups_that_it_adds(
    updating: bool, surge: Any, wanted: bool
) -> None:
    status = {"conditions": [condition("UpdateInProgress", updating, "x")]}
    strategy = {"rollingUpdateConfiguration": {"maxSurge": surge}}
    job = lws(status=status, rolloutStrategy=strategy)
    plan = decided(job, of_group(0), of_group(1), pods=[lws_pod(2, 0)], kind=LEADER_WORKER_SET)
    made: list[Any] = [one.obj for one in plan.actions if isinstance(one, Create)]
    assert [one["metadata"]["name"] for one in made] == ([lws_name(2)] if wanted else [])


# --- the shell ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "raised", "events"),
    [
        (
            ApiError(422, "Invalid", "no containers"),
            PermanentlyRefused,
            [("s", "ErrWorkloadCompose", "no containers")],
        ),
        (ApiError(403, "Forbidden", "denied"), ApiError, [("s", "ErrWorkloadCompose", "denied")]),
        (ApiError(500, "InternalError", "later"), ApiError, []),
    ],
)
async def test_d24_refused_workload_is_reported_and_retried_only_if_the_refusal_may_end(
    error: ApiError, raised: type[Exception], events: list[Any]
) -> None:
    world = World(SERVING)
    world.put(resource_of(STATEFUL_SET), stateful_set(resourceVersion="1"))
    world.client.fails["create"] = error
    assert STATEFUL_SET.serving is not None
    controller = ServingController(world.ctx, STATEFUL_SET, STATEFUL_SET.serving)
    with pytest.raises(raised, match=error.message):
        await controller.reconcile(Key("ns", "s"))
    assert world.told.events == events


async def test_workload_of_a_deleted_set_keeps_its_quota_while_orphaned_pods_run() -> None:
    world = World(SERVING)
    assert STATEFUL_SET.serving is not None
    held = of_set(admitted(), stateful_set())
    name = held["metadata"]["name"]
    world.put(KINDS.workloads, held)
    orphan = {
        "metadata": {"name": "s-0", "namespace": "ns", "annotations": {NAMES.workload: name}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }
    world.client.api["pods", "s-0"] = orphan
    key = Key("ns", "s")
    assert await ServingController(world.ctx, STATEFUL_SET, STATEFUL_SET.serving).reconcile(key) == 1.0
    stored = world.get(KINDS.workloads, name)
    assert condition_of(stored, "PodsOutliveJob")[1] == "PodsRunning"
    assert condition_of(stored, "Finished") is None
    world.client.api.clear()
    await ServingController(world.ctx, STATEFUL_SET, STATEFUL_SET.serving).reconcile(key)
    assert condition_of(world.get(KINDS.workloads, name), "Finished")[1] == "OwnerNotFound"


async def test_nothing_is_told_of_a_namespace_that_ends() -> None:
    world = World(SERVING)
    world.put(resource_of(STATEFUL_SET), stateful_set(resourceVersion="1"))
    body = {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    world.client.fails["create"] = ApiError(403, "Forbidden", "is being terminated", body=body)
    assert STATEFUL_SET.serving is not None
    controller = ServingController(world.ctx, STATEFUL_SET, STATEFUL_SET.serving)
    assert await controller.reconcile(Key("ns", "s")) is None
    assert world.told.events == []


def test_the_stores_of_all_kinds_tell_what_is_inside_what() -> None:
    """Through jobs of any kind, others hear of the admission of an ancestor."""
    world = World(settings_with(integrations=registered()))
    table = registry.controllers(world.ctx, world.core)
    kinds = {resource_of(one) for one in registered()}
    stores = {one.resource: one.indexes for one in table.when_served if one.resource in kinds}
    assert {PODS, STATEFUL_SETS} < stores.keys()
    assert [resource for resource, indexes in stores.items() if BY_OWNER not in indexes] == []
