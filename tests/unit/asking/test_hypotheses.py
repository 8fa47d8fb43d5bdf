"""Hypothetical manifests and deletions as events of the core."""

from typing import Any

import pytest

from admitq.asking.hypotheses import Hypotheses, read_hypotheses
from admitq.asking.hypothesis_inputs import HypothesisOptions, IndexedObjects, list_documents
from admitq.core import events as happened
from admitq.core.model import ObjectKey, StopPolicy
from admitq.core.topology.request import TopologyRequest
from admitq.manifests.documents import InputError, read_text
from admitq.manifests.objects import ObjectId
from admitq.workloads.topology_annotations import configured_topology_rules
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.json_objects import with_value
from tests.unit.controllers.builders import ADMISSION, NAMES, OWNER, admitted, instant, timestamp, workload

NOW = instant(60)
API = NAMES.api_version
QUEUE = {NAMES.queue_name: "lq"}


def own(kind: str, name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, **fields}


def cluster_queue(nominal: Any = 4, name: str = "cq", **spec: Any) -> dict[str, Any]:
    flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": nominal}]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    return own("ClusterQueue", name, spec={"namespaceSelector": {}, "resourceGroups": [group], **spec})


def local_queue(name: str = "lq", **spec: Any) -> dict[str, Any]:
    return own("LocalQueue", name, "ns", spec={"clusterQueue": "cq", **spec})


def job(name: str = "new", pods: int = 1, cpu: Any = 1, **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ns", "labels": QUEUE, **metadata},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


def pod(name: str, group: str = "", total: str = "2", cpu: Any = 1) -> dict[str, Any]:
    labels = {**QUEUE, **({NAMES.pod_group_name: group} if group else {})}
    annotations = {NAMES.pod_group_total_count: total} if group else {}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "labels": labels, "annotations": annotations},
        "spec": {"containers": [container]},
    }


def requesting(**annotations: str) -> dict[str, Any]:
    """Return a job with annotations of its pod template."""
    return with_value(job(), ("spec", "template", "metadata"), {"annotations": annotations})


def class_of(value: int, name: str = "high") -> dict[str, Any]:
    return own("WorkloadPriorityClass", name, value=value)


def as_stored(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object as lists of the API server have it: with a UID, and without its kind."""
    metadata = {**obj["metadata"], "uid": f"uid-{obj['metadata']['name']}", "creationTimestamp": timestamp(0)}
    return {"metadata": metadata, **{key: value for key, value in obj.items() if key in {"spec", "status"}}}


REFERENCE = {"group": NAMES.group, "kind": "WorkloadPriorityClass", "name": "high"}
RUNNING = admitted(
    name="running",
    owner={**OWNER, "name": "running"},
    metadata={"uid": "uid-running"},
    spec={"priorityClassRef": REFERENCE, "priority": 10},
)
WAITING = workload(name="waiting", owner={**OWNER, "name": "waiting"}, metadata={"uid": "uid-waiting"})
MEMBERS = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"} for name in ("p1", "p2")]
GROUP = workload(name="group", metadata={"uid": "uid-group", "ownerReferences": MEMBERS})

OBJECTS = [
    ("resourceflavors", as_stored(own("ResourceFlavor", "f", spec={}))),
    ("clusterqueues", {**as_stored(cluster_queue()), "status": {"pendingWorkloads": 1}}),
    ("clusterqueues", as_stored(cluster_queue(name="idle"))),
    ("namespaces", {"metadata": {"name": "ns", "labels": {}}}),
    ("localqueues", as_stored(local_queue())),
    ("workloads", RUNNING),
    ("workloads", WAITING),
    ("workloads", GROUP),
]


def changes(
    *objects: dict[str, Any],
    deleted: Any = (),
    is_local: bool = False,
    stored: Any = (),
    options: HypothesisOptions | None = None,
) -> Hypotheses:
    return read_hypotheses(
        list_documents(objects, "spec.objects"),
        list_documents(list(deleted), "spec.deletions"),
        names=NAMES,
        now=NOW,
        stored=IndexedObjects([*OBJECTS, *(("workloads", each) for each in stored)], [class_of(10)]),
        options=(options or HypothesisOptions())._replace(namespace="ns", is_local=is_local),
    )


def deletion(kind: str, name: str, namespace: str = "", api_version: str = API) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "namespace": namespace}


def kinds_of(hypotheses: Hypotheses) -> list[str]:
    return [type(event).__name__ for event in hypotheses.events]


def workload_of(hypotheses: Hypotheses) -> Any:
    (event,) = [each for each in hypotheses.events if isinstance(each, happened.WorkloadChanged)]
    return event.workload


# --- changes ------------------------------------------------------------------------------------------


def test_objects_are_observed_before_workloads_in_whatever_order_they_come() -> None:
    hypotheses = changes(job(), local_queue("second"), cluster_queue(8), own("ResourceFlavor", "g", spec={}))
    assert kinds_of(hypotheses) == [
        "ResourceFlavorChanged",
        "ClusterQueueChanged",
        "LocalQueueChanged",
        "WorkloadChanged",
    ]


def test_defaults_are_those_of_the_api_server() -> None:
    (event,) = changes(cluster_queue(8)).events
    assert isinstance(event, happened.ClusterQueueChanged)
    assert event.cluster_queue.stop_policy is StopPolicy.NONE
    assert event.cluster_queue.preemption.within_cluster_queue.value == "Never"


def test_jobs_are_new_workloads_which_are_queued_one_after_the_other() -> None:
    hypotheses = changes(job("b"), job("a", pods=3, cpu="500m"))
    assert [key.name.rpartition("-")[0] for key in hypotheses.new_workloads] == ["job-b", "job-a"]
    first, second = (
        event.workload for event in hypotheses.events if isinstance(event, happened.WorkloadChanged)
    )
    assert (first.queued_at, second.queued_at) == (NOW, NOW + 1)
    assert second.pod_sets[0].count == 3
    assert first.uid != second.uid
    assert [hypotheses.workloads[key]["spec"]["queueName"] for key in hypotheses.new_workloads] == [
        "lq",
        "lq",
    ]


def test_jobs_with_a_generated_name_are_numbered() -> None:
    one = job(name="", generateName="train-")
    hypotheses = changes(one, one)
    assert [key.name.rpartition("-")[0] for key in hypotheses.new_workloads] == ["job-train-1", "job-train-2"]


def test_job_without_queue_gets_the_queue_named_default() -> None:
    hypotheses = changes(local_queue("default"), job(labels={}))
    assert workload_of(hypotheses).queue_name == "default"


def test_job_gets_the_priority_class_named_default() -> None:
    assert workload_of(changes(class_of(7, "default"), job())).priority == 7


def test_job_requests_the_topology_of_its_annotations_unless_the_feature_gate_is_disabled() -> None:
    requested = requesting(**{NAMES.podset_required_topology: "rack"})
    for is_on, expected in ((True, TopologyRequest(required="rack")), (False, None)):
        gates = FeatureGates({Gate.TOPOLOGY_AWARE_SCHEDULING: is_on})
        options = HypothesisOptions(topology_rules=configured_topology_rules(gates))
        [pod_set] = workload_of(changes(requested, options=options)).pod_sets
        assert pod_set.topology_request == expected


def test_job_in_a_namespace_that_does_not_exist_gets_it() -> None:
    hypotheses = changes({**job(), "metadata": {**job()["metadata"], "namespace": "fresh"}})
    assert hypotheses.events[0] == happened.NamespaceChanged(
        "fresh", (("kubernetes.io/metadata.name", "fresh"),)
    )
    assert workload_of(hypotheses).key.namespace == "fresh"


def test_pods_of_a_group_are_one_workload() -> None:
    hypotheses = changes(pod("a", "crew"), pod("b", "crew"), pod("alone"))
    assert len(hypotheses.new_workloads) == 2
    assert hypotheses.new_workloads[0].name == "crew"
    (first, _) = (
        event.workload for event in hypotheses.events if isinstance(event, happened.WorkloadChanged)
    )
    assert sum(pod_set.count for pod_set in first.pod_sets) == 2


# --- objects that serve ----------------------------------------------------------------------------------


def serving(kind: str, name: str = "web", replicas: int = 2, **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec: dict[str, Any] = {"replicas": replicas}
    if kind == "LeaderWorkerSet":
        spec["leaderWorkerTemplate"] = {"size": 3, "workerTemplate": template}
    else:
        spec |= {"selector": {"matchLabels": {"app": name}}, "template": template}
    api_version = "leaderworkerset.x-k8s.io/v1" if kind == "LeaderWorkerSet" else "apps/v1"
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "ns", "labels": QUEUE, **metadata},
        "spec": spec,
    }


def pods_of(hypotheses: Hypotheses) -> list[int]:
    """The number of pods of each new Workload."""
    return [
        sum(pod_set.count for pod_set in event.workload.pod_sets)
        for event in hypotheses.events
        if isinstance(event, happened.WorkloadChanged)
    ]


@pytest.mark.parametrize(
    ("kind", "pods"),
    [("Deployment", [1, 1]), ("StatefulSet", [2]), ("LeaderWorkerSet", [3, 3])],
)
def test_pods_of_an_object_that_serves_are_queued_as_by_the_manager(kind: str, pods: list[int]) -> None:
    hypotheses = changes(serving(kind))
    assert pods_of(hypotheses) == pods
    assert set(hypotheses.sources.values()) == {(ObjectId(kind, "ns", "web"),)}
    assert hypotheses.sources.keys() == set(hypotheses.new_workloads)
    assert changes(serving(kind, replicas=0)).events == ()


@pytest.mark.parametrize("kind", ["Deployment", "LeaderWorkerSet"])
def test_an_object_that_serves_has_a_limited_number_of_workloads(kind: str) -> None:
    with pytest.raises(InputError, match="needs more than 1000 Workloads: ask about fewer replicas"):
        changes(serving(kind, replicas=1001))


def owned_by(kind: str, name: str, api_version: str, stored: str = "w", **fields: Any) -> dict[str, Any]:
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}"}
    metadata = {"uid": f"uid-{stored}", "ownerReferences": [owner], **fields}
    return workload(name=stored, metadata=metadata)


@pytest.mark.parametrize(
    ("replicas", "events"),
    [
        (3, ["WorkloadChanged", "WorkloadChanged"]),
        (1, []),
        (0, ["WorkloadDeleted"]),
    ],
)
def test_pods_that_a_deployment_has_count_as_its_replicas(replicas: int, events: list[str]) -> None:
    present = owned_by("Pod", "web-5d4f8c7b9-abcde", "v1")
    other = owned_by("Pod", "web-api-5d4f8c7b9-abcde", "v1", "other")
    hypotheses = changes(serving("Deployment", replicas=replicas), stored=(present, other))
    assert kinds_of(hypotheses) == events


@pytest.mark.parametrize(
    ("replicas", "events"),
    [
        (2, ["WorkloadChanged", "WorkloadChanged"]),
        (1, ["WorkloadChanged"]),
        (0, ["WorkloadDeleted"]),
    ],
)
def test_groups_that_a_leader_worker_set_has_are_changed(replicas: int, events: list[str]) -> None:
    index = {NAMES.component_workload_index: "0"}
    present = owned_by("LeaderWorkerSet", "web", "leaderworkerset.x-k8s.io/v1", annotations=index)
    hypotheses = changes(serving("LeaderWorkerSet", replicas=replicas), stored=(present,))
    assert kinds_of(hypotheses) == events


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        (serving("Deployment", labels={}), "Deployment ns/web: it names no LocalQueue"),
        (
            job(ownerReferences=[{**OWNER, "kind": "JobSet", "apiVersion": "jobset.x-k8s.io/v1alpha2"}]),
            "Job ns/new: it is queued with its owner, JobSet j",
        ),
        (
            job(labels={**QUEUE, NAMES.prebuilt_workload_name: "ready"}),
            "Job ns/new: it adopts Workload ready",
        ),
    ],
)
def test_object_on_which_no_decision_depends_is_ignored_with_its_reason(obj: Any, reason: str) -> None:
    hypotheses = changes(obj)
    assert (hypotheses.events, hypotheses.ignored) == ((), (reason,))


# --- objects that exist -------------------------------------------------------------------------------


def test_stored_object_is_replaced_as_a_whole() -> None:
    (event,) = changes(cluster_queue(8, cohortName="all")).events
    assert isinstance(event, happened.ClusterQueueChanged)
    assert event.cluster_queue.cohort == "all"
    (again,) = changes(cluster_queue(8)).events
    assert isinstance(again, happened.ClusterQueueChanged)
    assert again.cluster_queue.cohort is None


def test_status_of_a_stored_workload_stays() -> None:
    manifest = {
        **own("Workload", "running", "ns", metadata={"finalizers": [NAMES.finalizer]}),
        "spec": {**RUNNING["spec"], "priority": 3},
    }
    changed = workload_of(changes({**manifest, "status": {}}))
    assert (changed.uid, changed.priority, changed.admitted) == ("uid-running", 3, True)
    assert changed.admission.cluster_queue == ADMISSION["clusterQueue"]


def test_job_with_a_pending_workload_changes_this_workload() -> None:
    hypotheses = changes(job("waiting", pods=2))
    changed = workload_of(hypotheses)
    assert (changed.key, changed.uid) == (ObjectKey("ns", "waiting"), "uid-waiting")
    assert changed.pod_sets[0].count == 2
    assert changed.queued_at < NOW
    assert (hypotheses.new_workloads, set(hypotheses.workloads)) == ((), {changed.key})


def test_job_with_quota_and_the_same_pods_keeps_its_quota() -> None:
    changed = workload_of(changes(job("running", pods=3, labels={**QUEUE, NAMES.priority_class: "high"})))
    assert (changed.uid, changed.admitted, changed.priority) == ("uid-running", True, 10)


def test_job_with_quota_and_other_pods_gets_a_new_workload() -> None:
    hypotheses = changes(job("running", pods=2))
    assert hypotheses.events[0] == happened.WorkloadDeleted(ObjectKey("ns", "running"), "uid-running")
    assert workload_of(hypotheses).key in hypotheses.new_workloads
    assert not workload_of(hypotheses).admitted


def test_changed_priority_class_changes_its_workloads() -> None:
    changed = workload_of(changes(class_of(99)))
    assert (changed.key.name, changed.priority, changed.admitted) == ("running", 99, True)


# --- deletions ----------------------------------------------------------------------------------------

RUNNING_DELETED = happened.WorkloadDeleted(ObjectKey("ns", "running"), "uid-running")


@pytest.mark.parametrize(
    ("deleted", "events"),
    [
        (deletion("LocalQueue", "lq", "ns"), [happened.LocalQueueDeleted(ObjectKey("ns", "lq"))]),
        (deletion("ClusterQueue", "idle"), [happened.ClusterQueueDeleted("idle")]),
        (deletion("Workload", "running", "ns"), [RUNNING_DELETED]),
        (deletion("Job", "running", "ns", "batch/v1"), [RUNNING_DELETED]),
        (deletion("WorkloadPriorityClass", "high"), []),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_deletion_is_the_event_of_its_kind(deleted: Any, events: list[Any]) -> None:
    assert [*changes(deleted=[deleted]).events] == events


def test_cluster_queue_with_running_workloads_terminates() -> None:
    (event,) = changes(deleted=[deletion("ClusterQueue", "cq")]).events
    assert isinstance(event, happened.ClusterQueueChanged)
    assert event.cluster_queue.terminating


def test_cluster_queue_is_gone_once_its_workloads_are_deleted_too() -> None:
    deleted = [deletion("ClusterQueue", "cq"), deletion("Workload", "running", "ns")]
    assert [*changes(deleted=deleted).events] == [RUNNING_DELETED, happened.ClusterQueueDeleted("cq")]


def test_namespace_is_deleted_with_its_workloads_and_queues() -> None:
    assert kinds_of(changes(deleted=[deletion("Namespace", "ns", api_version="v1")])) == [
        "WorkloadDeleted",
        "WorkloadDeleted",
        "WorkloadDeleted",
        "LocalQueueDeleted",
        "NamespaceDeleted",
    ]


# --- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (
            [cluster_queue("many")],
            'ClusterQueue cq: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: "many": is not a',
        ),
        ([cluster_queue(cohort="a")], "spec.objects[0]: ClusterQueue cq: spec.cohort: unknown field:"),
        (
            [job(labels={})],
            "spec.objects[0]: Job ns/new: metadata.labels[admitq.dev/queue-name]: is required",
        ),
        (
            [job(labels={**QUEUE, NAMES.priority_class: "none"})],
            'metadata.labels[admitq.dev/priority-class]: WorkloadPriorityClass "none" not found',
        ),
        (
            [job(cpu="much")],
            "spec.objects[0]: Job ns/new: spec.template.spec.containers[0].resources.requests",
        ),
        (
            [job(), job()],
            "Job ns/new: metadata.name: Job ns/new occurs twice, also at spec.objects[0]: keep one",
        ),
        ([{"kind": "Job"}], "spec.objects[0]: Job: apiVersion: is required"),
        ([job(), {"spec": {}}], "spec.objects[1]: kind: is required"),
        ([7], "spec.objects[0]: must be an object with fields like apiVersion and kind"),
        (
            [{**job(), "metadata": {**job()["metadata"], "namespace": {"a": 1}}}],
            "Job {'a': 1}/new: metadata.namespace: must be of type string",
        ),
        (
            [job("running", pods=3, labels={NAMES.queue_name: "other"})],
            "cannot change while the job has quota: write lq, or delete the job",
        ),
        (
            [requesting(**{NAMES.podset_slice_size: "2"})],
            "spec.template.metadata.annotations[admitq.dev/podset-slice-size]: Forbidden: may not be set",
        ),
        (
            [pod("a", "crew")],
            "Pod ns/a: metadata: 'crew' group has fewer runnable pods than expected",
        ),
        (
            [pod("a", "crew", total="none"), pod("b", "crew", total="none")],
            "metadata.annotations[admitq.dev/pod-group-total-count]: Invalid value:",
        ),
        (
            [{**job(), "spec": {"template": {"spec": {"containers": "none"}}}}],
            "spec.objects[0]: Job ns/new:",
        ),
    ],
)
def test_invalid_object_is_refused_with_its_name_field_and_remedy(objects: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        changes(*objects)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("deleted", "message"),
    [
        (deletion("LocalQueue", "none", "ns"), "spec.deletions[0]: LocalQueue ns/none: name: there is no"),
        (deletion("Job", "none", "ns", "batch/v1"), "name: there is no Job ns/none with a Workload"),
        (deletion("Workload", "none", "ns"), "name: there is no Workload ns/none"),
        (
            deletion("ResourceFlavor", "f"),
            "name: ClusterQueue cq uses it, so that it would stay: remove it from spec.resourceGroups",
        ),
        (
            deletion("Pod", "p1", "ns", "v1"),
            "Pod ns/p1 belongs to a group: delete Workload ns/group instead",
        ),
        (deletion("ConfigMap", "c", "ns", "v1"), "kind: no decision depends on objects of this kind"),
        ({"apiVersion": API, "kind": "Cohort"}, "spec.deletions[0]: Cohort: metadata.name: is required"),
    ],
)
def test_impossible_deletion_is_refused_with_its_reason(deleted: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        changes(deleted=[deleted])
    assert message in str(error.value)


def test_object_that_is_applied_and_deleted_is_refused() -> None:
    with pytest.raises(InputError, match="ClusterQueue idle is deleted too: do one of both"):
        changes(cluster_queue(name="idle"), deleted=[deletion("ClusterQueue", "idle")])


def test_every_invalid_object_is_listed() -> None:
    with pytest.raises(InputError) as error:
        changes(cluster_queue("many"), local_queue(stopPolicy="Never"))
    assert [problem.object for problem in error.value.problems] == ["ClusterQueue cq", "LocalQueue lq"]


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (cluster_queue(), "kind: only objects of namespace ns can change: remove ClusterQueue cq"),
        (
            {**job(), "metadata": {**job()["metadata"], "namespace": "other"}},
            "metadata.namespace: only objects of namespace ns can change: remove Job other/new",
        ),
    ],
)
def test_local_question_is_about_one_namespace(obj: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        changes(obj, is_local=True)
    assert message in str(error.value)


def test_problem_of_a_file_has_its_line() -> None:
    text = f"apiVersion: {API}\nkind: LocalQueue\nmetadata:\n  name: lq\nspec:\n  clusterQueue: 7\n"
    with pytest.raises(InputError) as error:
        read_hypotheses(read_text(text, "queue.yaml"), names=NAMES, now=NOW)
    assert str(error.value).startswith("queue.yaml:6: LocalQueue lq: spec.clusterQueue: 7: must be of type")


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}


def test_node_is_changed_or_deleted_in_questions_about_the_whole_cluster() -> None:
    assert kinds_of(changes(NODE)) == ["NodeChanged"]
    hypotheses = read_hypotheses(
        (),
        list_documents([deletion("Node", "n", api_version="v1")], "spec.deletions"),
        names=NAMES,
        now=NOW,
        stored=IndexedObjects([("nodes", {"metadata": {"name": "n"}})]),
    )
    assert kinds_of(hypotheses) == ["NodeDeleted"]
    with pytest.raises(InputError, match="only objects of namespace ns can change: remove Node n"):
        changes(NODE, is_local=True)
