"""What happens to pods on their way in: held, left alone, refused, or allowed with a warning."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from admitq.core.model import LabelSelector, SelectorOperator, SelectorRequirement
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.pod import POD
from admitq.integrations.pod_shape import compute_role_hash
from admitq.integrations.registry import BUILT_IN_KINDS
from admitq_webhooks.mutate.jobs import mutate_job
from admitq_webhooks.validate.jobs import validate_create, validate_update
from tests.unit.webhooks.support import NAMES, OPERATOR, PRIORITY, QUEUE, FakeLookups, ask, policy

POLICY = policy(integrations=(JOB, POD))
SPEC = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
GATES = [{"name": NAMES.admission_gate}, {"name": NAMES.topology_gate}]
IN_JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "owner-uid", "controller": True}
QUEUED_JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "uid": "owner-uid", "labels": {QUEUE: "q"}},
}


def a_pod(labels: Any = None, annotations: Any = None, gates: Any = None, **metadata: Any) -> dict[str, Any]:
    marks = {"labels": labels, "annotations": annotations}
    given = {field: value for field, value in marks.items() if value is not None}
    named = {"name": "p", "namespace": "team", **given, **metadata}
    spec = SPEC if gates is None else {**SPEC, "schedulingGates": gates}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec}


def managed(labels: Any = None, annotations: Any = None, **parts: Any) -> dict[str, Any]:
    return a_pod({QUEUE: "q", NAMES.managed: "true", **(labels or {})}, annotations, gates=GATES, **parts)


async def mutated(pod: Any, lookups: FakeLookups | None = None, **changes: Any) -> Any:
    return await mutate_job(
        pod, "team", POD, replace(POLICY, **changes), lookups or FakeLookups(), None, OPERATOR
    )


def errors(pod: Any, old: Any = None) -> list[str]:
    if old is None:
        return [str(error) for error in validate_create(pod, POD, POLICY)]
    return [str(error) for error in validate_update(old, pod, "team", POD, POLICY, FakeLookups())]


# --- held -----------------------------------------------------------------------------------------


async def test_a_pod_with_a_queue_is_held_at_its_gates() -> None:
    held = await mutated(a_pod({QUEUE: "q"}))
    assert held == {
        **a_pod(
            {QUEUE: "q", NAMES.managed: "true"},
            {NAMES.role_hash: compute_role_hash(SPEC)},
            gates=GATES,
            finalizers=[NAMES.managed_finalizer],
        )
    }
    assert await mutated(held) == held


async def test_what_a_pod_waits_for_itself_stays() -> None:
    foreign = {"name": "example.com/mine"}
    held = await mutated(a_pod({QUEUE: "q"}, gates=[foreign], finalizers=["example.com/f"]))
    assert held["spec"]["schedulingGates"] == [foreign, *GATES]
    assert held["metadata"]["finalizers"] == ["example.com/f", NAMES.managed_finalizer]


async def test_without_topologies_there_is_no_gate_for_them() -> None:
    gates = policy(gates={"TopologyAwareScheduling": False}).gates
    notes = {NAMES.pod_group_pod_index_label: "index"}
    held = await mutated(a_pod({QUEUE: "q", "index": "3"}, notes), gates=gates)
    assert held["spec"]["schedulingGates"] == GATES[:1]
    assert NAMES.pod_group_pod_index not in held["metadata"]["labels"]


async def test_the_index_of_a_pod_is_taken_from_the_label_that_it_names() -> None:
    notes = {NAMES.pod_group_pod_index_label: "index"}
    held = await mutated(a_pod({QUEUE: "q", "index": "3"}, notes))
    assert held["metadata"]["labels"][NAMES.pod_group_pod_index] == "3"
    assert NAMES.pod_group_pod_index not in (await mutated(a_pod({QUEUE: "q"}, notes)))["metadata"]["labels"]


@pytest.mark.parametrize(("brought", "role"), [("mine", "mine"), ("", compute_role_hash(SPEC))])
async def test_b9_role_hash_that_a_pod_brings_at_its_creation_is_kept(brought: str, role: str) -> None:
    held = await mutated(a_pod({QUEUE: "q"}, {NAMES.role_hash: brought}))
    assert held["metadata"]["annotations"][NAMES.role_hash] == role


async def test_defaults_are_for_pods_that_name_none() -> None:
    lookups = FakeLookups(local_queues={("team", "default")}, priority_classes={"default"})
    labels = (await mutated(a_pod(), lookups))["metadata"]["labels"]
    assert labels == {QUEUE: "default", PRIORITY: "default", NAMES.managed: "true"}


@pytest.mark.parametrize("pod", [a_pod(), a_pod({}), a_pod({QUEUE: ""})])
async def test_pods_without_a_queue_are_held_only_where_all_are(pod: Any) -> None:
    assert await mutated(pod) is pod
    assert (await mutated(pod, manage_jobs_without_queue_name=True))["metadata"]["labels"][NAMES.managed]


async def test_a_pod_that_is_nobodys_has_the_default_priority_class_and_is_not_held() -> None:
    lookups = FakeLookups(priority_classes={"default"})
    assert (await mutated(a_pod(), lookups))["metadata"]["labels"] == {PRIORITY: "default"}
    owned_pod = a_pod(ownerReferences=[IN_JOB])
    assert await mutated(owned_pod, lookups) is owned_pod
    assert lookups.asked == []


async def test_pods_of_a_queued_job_follow_it() -> None:
    pod = a_pod({QUEUE: "q"}, name="j-x7k2p", ownerReferences=[IN_JOB])
    assert await mutated(pod, FakeLookups(owners={"j": QUEUED_JOB})) is pod


def an_owner(api_version: str, kind: str, name: str, *, queue: str = "", **fields: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", **fields.pop("metadata", {})}
    if queue:
        metadata["labels"] = {**metadata.get("labels", {}), QUEUE: queue}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def owned(child: dict[str, Any], owner: dict[str, Any]) -> dict[str, Any]:
    reference = {
        **{key: owner[key] for key in ("apiVersion", "kind")},
        **{key: owner["metadata"][key] for key in ("name", "uid")},
        "controller": True,
    }
    return {**child, "metadata": {**child["metadata"], "ownerReferences": [reference]}}


def spark(role: str, app: str = "spark-1") -> dict[str, str]:
    return {"spark-role": role, "spark-app-selector": app, QUEUE: "q"}


APPLICATION = an_owner("sparkoperator.k8s.io/v1beta2", "SparkApplication", "pi", queue="q", spec={})
DRIVER = an_owner("v1", "Pod", "pi-driver", metadata={"labels": spark("driver")})
ROLES = {"replicas": 2, "template": {"spec": SPEC}}
LAUNCHER = an_owner("batch/v1", "Job", "m-launcher", spec={"template": {"spec": SPEC}})
MPI_JOB = an_owner(
    "kubeflow.org/v2beta1",
    "MPIJob",
    "m",
    queue="q",
    spec={"mpiReplicaSpecs": {"Launcher": ROLES, "Worker": ROLES}},
)
TORCH_JOB = an_owner(
    "kubeflow.org/v1", "PyTorchJob", "t", queue="q", spec={"pytorchReplicaSpecs": {"Worker": ROLES}}
)
TEMPLATE = {"spec": SPEC}
JOBS = [{"name": "a", "template": {"spec": {"template": TEMPLATE}}}]
JOB_OF_SET = an_owner("batch/v1", "Job", "s-a-0", spec={"template": TEMPLATE})
JOB_SET = an_owner("jobset.x-k8s.io/v1alpha2", "JobSet", "s", queue="q", spec={"replicatedJobs": JOBS})
TRAIN_JOB = an_owner("trainer.kubeflow.org/v1alpha1", "TrainJob", "s", queue="q", metadata={"uid": "uid-t"})
CLUSTER = {"headGroupSpec": {"template": TEMPLATE}}
RAY_CLUSTER = an_owner("ray.io/v1", "RayCluster", "ray", queue="q", spec=CLUSTER)
RAY_JOB = an_owner(
    "ray.io/v1",
    "RayJob",
    "rayjob",
    queue="q",
    spec={"rayClusterSpec": CLUSTER},
    status={"rayClusterName": "ray"},
)
HEAD = {"ray.io/cluster": "ray", "ray.io/node-type": "head", "ray.io/group": "headgroup"}
WRAPPED = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": SPEC}
WRAPPER = an_owner(
    "workload.codeflare.dev/v1beta2",
    "AppWrapper",
    "wrapper",
    queue="q",
    spec={"components": [{"template": WRAPPED}]},
)


def unqueued(owner: dict[str, Any]) -> dict[str, Any]:
    labels = {key: value for key, value in owner["metadata"].get("labels", {}).items() if key != QUEUE}
    return {**owner, "metadata": {**owner["metadata"], "labels": labels}}


@pytest.mark.parametrize(
    ("name", "labels", "owners", "is_held"),
    [
        ("j-x7k2p", {}, [QUEUED_JOB], False),
        ("pi-driver", spark("driver"), [APPLICATION], False),
        ("pi-exec-1", spark("executor"), [DRIVER, APPLICATION], False),
        ("m-worker-1", {}, [MPI_JOB], False),
        ("m-launcher-x7k2p", {}, [LAUNCHER, MPI_JOB], False),
        ("t-worker-0", {}, [TORCH_JOB], False),
        ("s-a-0-x7k2p", {}, [JOB_OF_SET, JOB_SET], False),
        ("s-a-0-x7k2p", {}, [JOB_OF_SET, unqueued(JOB_SET), TRAIN_JOB], False),
        ("ray-head-x7k2p", HEAD, [RAY_CLUSTER], False),
        ("ray-head-x7k2p", HEAD, [unqueued(RAY_CLUSTER), RAY_JOB], False),
        ("p", {}, [WRAPPER], False),
        # Pods without queued owner, and pods that only claim to have one.
        ("j-x7k2p", {}, [unqueued(QUEUED_JOB)], True),
        ("pi-exec-1", spark("executor"), [DRIVER, unqueued(APPLICATION)], True),
        ("pi-exec-1", spark("executor"), [DRIVER], True),
        ("pi-exec-1", spark("executor", "spark-2"), [DRIVER, APPLICATION], True),
        ("pi-exec-1", spark("executor", ""), [DRIVER, APPLICATION], True),
        ("pi-exec-1", spark("driver"), [DRIVER, APPLICATION], True),
        ("x", {}, [DRIVER, APPLICATION], True),
        ("pi-exec-1", spark("executor"), [APPLICATION], True),
        ("m-worker-2", {}, [MPI_JOB], True),
        ("ray-head-x7k2p", HEAD, [unqueued(RAY_CLUSTER)], True),
        ("y", {}, [WRAPPER], True),
    ],
)
async def test_pods_that_name_a_queue_are_queued_unless_what_makes_them_is(
    name: str, labels: dict[str, str], owners: list[dict[str, Any]], is_held: bool
) -> None:
    pod = a_pod({**labels, QUEUE: "q"}, name=name)
    chain = [pod, *owners]
    linked = [owned(child, owner) for child, owner in pairwise(chain)]
    known = {f"{one['kind']}/{one['metadata']['name']}": one for one in (*linked[1:], chain[-1])}
    changed = await mutated(linked[0], FakeLookups(owners=known), integrations=BUILT_IN_KINDS)
    assert (changed is not linked[0]) is is_held


def spark_pod(name: str, role: str, cpu: str) -> dict[str, Any]:
    container = {"name": f"spark-kubernetes-{role}", "resources": {"requests": {"cpu": cpu}}}
    return {**a_pod(spark(role), name=name), "spec": {"containers": [container]}}


@pytest.mark.parametrize(
    ("driver_cpu", "executor_cpu", "is_held"), [("1", "1", False), ("1", "9", True), ("9", "1", True)]
)
async def test_executor_that_asks_for_more_than_its_application_was_charged_is_held(
    driver_cpu: str, executor_cpu: str, is_held: bool
) -> None:
    created = spark_pod("pi-driver", "driver", driver_cpu)
    driver = owned({**DRIVER, "spec": created["spec"]}, APPLICATION)
    executor = owned(spark_pod("pi-exec-1", "executor", executor_cpu), driver)
    lookups = FakeLookups(owners={"Pod/pi-driver": driver, "SparkApplication/pi": APPLICATION})
    changed = await mutated(executor, lookups, integrations=BUILT_IN_KINDS)
    assert (changed is not executor) is is_held
    held = await mutated(owned(created, APPLICATION), lookups, integrations=BUILT_IN_KINDS)
    assert (NAMES.managed in held["metadata"]["labels"]) is (driver_cpu == "9")


async def test_pods_of_an_unqueued_replica_set_are_held() -> None:
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "r", "uid": "owner-uid"},
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "r",
        "uid": "owner-uid",
        "controller": True,
    }
    held = await mutated(a_pod({QUEUE: "q"}, ownerReferences=[owner]), FakeLookups(owners={"r": replica_set}))
    assert held["spec"]["schedulingGates"] == GATES


async def test_a_parent_that_had_its_pods_held_vouches_for_them() -> None:
    """No queue, an owner that is queued, a namespace that is not selected: the parent decided."""
    notes = {NAMES.pod_suspending_parent: "statefulset"}
    pod = a_pod(annotations=notes, ownerReferences=[IN_JOB])
    held = await mutated(pod, FakeLookups(owners={"j": QUEUED_JOB}))
    assert held["spec"]["schedulingGates"] == GATES
    assert "finalizers" not in held["metadata"]


async def test_a_pod_that_claims_a_parent_names_no_controller_unless_the_controller_creates_it() -> None:
    notes = {NAMES.pod_suspending_parent: "statefulset"}
    held = await mutate_job(
        a_pod(annotations=notes, ownerReferences=[IN_JOB]), "team", POD, POLICY, FakeLookups()
    )
    assert held["spec"]["schedulingGates"] == GATES
    assert "controller" not in held["metadata"]["ownerReferences"][0]


@pytest.mark.parametrize(
    ("notes", "held"), [({}, False), ({NAMES.pod_suspending_parent: "deployment"}, True)]
)
async def test_namespaces_that_are_not_selected_are_left_alone_but_for_parents(
    notes: Any, held: bool
) -> None:
    nowhere = LabelSelector(requirements=(SelectorRequirement("x", SelectorOperator.EXISTS, ()),))
    options: dict[str, Any] = {"gvk": ("", "v1", "Pod"), "integrations": (POD,), "registered": (POD,)}
    answer = await ask("/mutate--v1-pod", a_pod({QUEUE: "q"}, notes), namespace_selector=nowhere, **options)
    assert ("patch" in answer.response) is held


# --- refused --------------------------------------------------------------------------------------

GROUP, TOTAL = NAMES.pod_group_name, NAMES.pod_group_total_count
PREBUILT, RETRIABLE = NAMES.prebuilt_workload_name, NAMES.retriable_in_group


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(),
        a_pod({GROUP: "g"}, {TOTAL: "many"}),
        managed(),
        managed({GROUP: "g"}, {TOTAL: "2"}),
        managed({}, {GROUP: "g.with.dots", TOTAL: "2"}),
        managed({GROUP: "g", PREBUILT: "g"}, {TOTAL: "2"}),
        managed({PREBUILT: "w"}),
        managed({}, {NAMES.podset_required_topology: "zone"}),
    ],
)
def test_right_pods_are_created(pod: Any) -> None:
    assert errors(pod) == []


@pytest.mark.parametrize(
    ("pod", "error"),
    [
        (
            a_pod({NAMES.managed: "yes"}),
            f'metadata.labels[{NAMES.managed}]: Invalid value: "yes": can only be "true"',
        ),
        (managed({GROUP: "g"}), f"metadata.annotations[{TOTAL}]: Required value"),
        (managed({}, {TOTAL: "2"}), f"metadata.labels[{GROUP}]: Required value"),
        (managed({GROUP: "g"}, {TOTAL: "0"}), f'metadata.annotations[{TOTAL}]: Invalid value: "0"'),
        (managed({GROUP: "g"}, {TOTAL: "two"}), f'metadata.annotations[{TOTAL}]: Invalid value: "two"'),
        (managed({GROUP: "G"}, {TOTAL: "2"}), f'metadata.labels[{GROUP}]: Invalid value: "G"'),
        (managed({}, {GROUP: "G", TOTAL: "2"}), f'metadata.annotations[{GROUP}]: Invalid value: "G"'),
        (
            managed({GROUP: "g", PREBUILT: "w"}, {TOTAL: "2"}),
            'Invalid value: "w": prebuilt workload and pod group should be equal',
        ),
        (managed({NAMES.max_exec_time: "0"}), f"metadata.labels[{NAMES.max_exec_time}]"),
        (managed({}, {NAMES.elastic_job: "true"}), "elastic jobs are not supported for v1, Kind=Pod"),
        (
            managed({}, {NAMES.podset_required_topology: "a", NAMES.podset_preferred_topology: "b"}),
            "metadata.annotations: ",
        ),
    ],
)
def test_wrong_pods_are_refused(pod: Any, error: str) -> None:
    assert any(error in found for found in errors(pod)), errors(pod)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (managed({GROUP: "g"}, {TOTAL: "2"}), managed({GROUP: "h"}, {TOTAL: "2"}), "field is immutable"),
        (managed({GROUP: "g"}, {TOTAL: "2"}), managed(), "field is immutable"),
        (
            managed({}, {RETRIABLE: "false"}),
            managed(),
            "unretriable pod group can't be converted to retriable",
        ),
        (
            managed({}, {RETRIABLE: "false"}),
            managed({}, {RETRIABLE: "true"}),
            "unretriable pod group can't be converted to retriable",
        ),
        (
            {**managed(), "spec": SPEC},
            {**managed({QUEUE: "other"}), "spec": SPEC},
            f"metadata.labels[{QUEUE}]",
        ),
    ],
)
def test_what_a_pod_said_of_its_group_stays(old: Any, new: Any, error: str) -> None:
    assert any(error in found for found in errors(new, old)), errors(new, old)


def test_managed_pod_stored_before_the_webhook_can_be_released() -> None:
    stored = managed(annotations={NAMES.pod_group_total_count: "2"})
    released = a_pod({QUEUE: "q", NAMES.managed: "true"}, {NAMES.pod_group_total_count: "2"})
    assert errors(stored)
    assert errors(released, stored) == []
    unmanaged = a_pod({QUEUE: "q"}, {NAMES.pod_group_total_count: "2"})
    assert errors(released, unmanaged) == errors(released)


def both(place: str) -> str:
    return f"both the '{TOTAL}' annotation and the '{GROUP}' {place} should be set"


@pytest.mark.parametrize(
    ("pod", "where", "place"),
    [
        (managed({GROUP: "g"}), f"metadata.annotations[{TOTAL}]", "label"),
        (managed({}, {GROUP: "g"}), f"metadata.annotations[{TOTAL}]", "annotation"),
        (managed({}, {TOTAL: "2"}), f"metadata.labels[{GROUP}]", "label"),
    ],
)
def test_d22_group_name_and_total_count_are_required_together(pod: Any, where: str, place: str) -> None:
    assert errors(pod) == [f"{where}: Required value: {both(place)}"]


@pytest.mark.parametrize(("name", "refused"), [("other", False), ("w" * 64, True)])
def test_b11_prebuilt_annotation_is_ignored_where_labels_identify_workloads(name: str, refused: bool) -> None:
    off = replace(POLICY, gates=policy(gates={"WorkloadIdentifierAnnotations": False}).gates)
    grouped = managed({GROUP: "g"}, {TOTAL: "2", PREBUILT: name})
    wrong = [str(error) for error in validate_create(grouped, POD, off)]
    assert any("prebuilt workload and pod group should be equal" in error for error in wrong) is refused


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (managed(), managed({GROUP: "g"}, {TOTAL: "2"})),
        (managed(), managed({}, {RETRIABLE: "false"})),
        (managed(), managed({QUEUE: "other"})),
        (a_pod(), a_pod({QUEUE: "q"})),
        (managed({GROUP: "g"}, deletionTimestamp="2026-01-01T00:00:00Z"), managed({GROUP: "h"})),
    ],
)
def test_everything_else_may_change(old: Any, new: Any) -> None:
    assert errors(new, old) == []


@pytest.mark.parametrize(
    ("pod", "warned"),
    [
        (managed(name="j-x7k2p", ownerReferences=[IN_JOB]), True),
        (managed(), False),
        (a_pod(ownerReferences=[IN_JOB]), False),
        (managed({}, {NAMES.pod_suspending_parent: "statefulset"}, ownerReferences=[IN_JOB]), False),
    ],
)
async def test_marking_pods_of_a_queued_job_warns(pod: Any, warned: bool) -> None:
    lookups = FakeLookups(owners={"j": QUEUED_JOB})
    options: dict[str, Any] = {"gvk": ("", "v1", "Pod"), "integrations": (JOB, POD), "registered": (JOB, POD)}
    answer = await ask("/validate--v1-pod", pod, lookups=lookups, **options)
    assert answer.allowed
    expected = f"metadata.labels[{NAMES.managed}]: the owner of this Pod is queued in its stead"
    assert answer.response.get("warnings", []) == ([expected] if warned else [])
