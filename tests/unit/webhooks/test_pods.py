"""Reviews of pods: gated, unchanged, rejected, or allowed with a warning."""

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
from tests.unit.webhooks.support import NAMES, OPERATOR, PRIORITY, QUEUE, FakeLookups, call_webhook, policy

POLICY = policy(integrations=(JOB, POD))
SPEC = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
GATES = [{"name": NAMES.admission_gate}, {"name": NAMES.topology_gate}]
JOB_REFERENCE = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "owner-uid", "controller": True}
QUEUED_JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "uid": "owner-uid", "labels": {QUEUE: "q"}},
}


def a_pod(labels: Any = None, annotations: Any = None, gates: Any = None, **metadata: Any) -> dict[str, Any]:
    optional = {"labels": labels, "annotations": annotations}
    given = {field: value for field, value in optional.items() if value is not None}
    full_metadata = {"name": "p", "namespace": "team", **given, **metadata}
    spec = SPEC if gates is None else {**SPEC, "schedulingGates": gates}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": full_metadata, "spec": spec}


def managed(labels: Any = None, annotations: Any = None, **parts: Any) -> dict[str, Any]:
    return a_pod({QUEUE: "q", NAMES.managed: "true", **(labels or {})}, annotations, gates=GATES, **parts)


async def mutate(pod: Any, lookups: FakeLookups | None = None, **changes: Any) -> Any:
    return await mutate_job(
        pod, "team", POD, replace(POLICY, **changes), lookups or FakeLookups(), None, OPERATOR
    )


def list_errors(pod: Any, old: Any = None) -> list[str]:
    if old is None:
        return [str(error) for error in validate_create(pod, POD, POLICY)]
    return [str(error) for error in validate_update(old, pod, "team", POD, POLICY, FakeLookups())]


# --- mutation -------------------------------------------------------------------------------------


async def test_pod_with_queue_is_gated_and_marked() -> None:
    gated = await mutate(a_pod({QUEUE: "q"}))
    assert gated == {
        **a_pod(
            {QUEUE: "q", NAMES.managed: "true"},
            {NAMES.role_hash: compute_role_hash(SPEC)},
            gates=GATES,
            finalizers=[NAMES.managed_finalizer],
        )
    }
    assert await mutate(gated) == gated


async def test_own_gates_and_finalizers_of_pod_are_kept() -> None:
    own_gate = {"name": "example.com/mine"}
    gated = await mutate(a_pod({QUEUE: "q"}, gates=[own_gate], finalizers=["example.com/f"]))
    assert gated["spec"]["schedulingGates"] == [own_gate, *GATES]
    assert gated["metadata"]["finalizers"] == ["example.com/f", NAMES.managed_finalizer]


async def test_pod_gets_no_topology_gate_or_index_without_feature_gate() -> None:
    gates = policy(gates={"TopologyAwareScheduling": False}).gates
    annotations = {NAMES.pod_group_pod_index_label: "index"}
    gated = await mutate(a_pod({QUEUE: "q", "index": "3"}, annotations), gates=gates)
    assert gated["spec"]["schedulingGates"] == GATES[:1]
    assert NAMES.pod_group_pod_index not in gated["metadata"]["labels"]


async def test_pod_index_is_copied_from_the_named_label() -> None:
    annotations = {NAMES.pod_group_pod_index_label: "index"}
    gated = await mutate(a_pod({QUEUE: "q", "index": "3"}, annotations))
    assert gated["metadata"]["labels"][NAMES.pod_group_pod_index] == "3"
    assert (
        NAMES.pod_group_pod_index
        not in (await mutate(a_pod({QUEUE: "q"}, annotations)))["metadata"]["labels"]
    )


@pytest.mark.parametrize(("given", "role"), [("mine", "mine"), ("", compute_role_hash(SPEC))])
async def test_b9_role_hash_given_at_creation_is_kept(given: str, role: str) -> None:
    gated = await mutate(a_pod({QUEUE: "q"}, {NAMES.role_hash: given}))
    assert gated["metadata"]["annotations"][NAMES.role_hash] == role


async def test_pod_without_queue_gets_default_queue_and_priority_class() -> None:
    lookups = FakeLookups(local_queues={("team", "default")}, priority_classes={"default"})
    labels = (await mutate(a_pod(), lookups))["metadata"]["labels"]
    assert labels == {QUEUE: "default", PRIORITY: "default", NAMES.managed: "true"}


@pytest.mark.parametrize("pod", [a_pod(), a_pod({}), a_pod({QUEUE: ""})])
async def test_pod_without_queue_is_gated_only_if_all_jobs_are_managed(pod: Any) -> None:
    assert await mutate(pod) is pod
    assert (await mutate(pod, manage_jobs_without_queue_name=True))["metadata"]["labels"][NAMES.managed]


async def test_default_priority_class_is_set_on_pod_without_owner_only() -> None:
    lookups = FakeLookups(priority_classes={"default"})
    assert (await mutate(a_pod(), lookups))["metadata"]["labels"] == {PRIORITY: "default"}
    owned_pod = a_pod(ownerReferences=[JOB_REFERENCE])
    assert await mutate(owned_pod, lookups) is owned_pod
    assert lookups.object_requests == []


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
WRAPPED_POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": SPEC}
WRAPPER = an_owner(
    "workload.codeflare.dev/v1beta2",
    "AppWrapper",
    "wrapper",
    queue="q",
    spec={"components": [{"template": WRAPPED_POD}]},
)


def unqueued(owner: dict[str, Any]) -> dict[str, Any]:
    labels = {key: value for key, value in owner["metadata"].get("labels", {}).items() if key != QUEUE}
    return {**owner, "metadata": {**owner["metadata"], "labels": labels}}


@pytest.mark.parametrize(
    ("name", "labels", "owners", "is_gated"),
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
async def test_pod_with_queue_is_gated_unless_it_follows_a_queued_owner(
    name: str, labels: dict[str, str], owners: list[dict[str, Any]], is_gated: bool
) -> None:
    pod = a_pod({**labels, QUEUE: "q"}, name=name)
    chain = [pod, *owners]
    linked = [owned(child, owner) for child, owner in pairwise(chain)]
    stored = {f"{owner['kind']}/{owner['metadata']['name']}": owner for owner in (*linked[1:], chain[-1])}
    changed = await mutate(linked[0], FakeLookups(objects=stored), integrations=BUILT_IN_KINDS)
    assert (changed is not linked[0]) is is_gated


def spark_pod(name: str, role: str, cpu: str) -> dict[str, Any]:
    container = {"name": f"spark-kubernetes-{role}", "resources": {"requests": {"cpu": cpu}}}
    return {**a_pod(spark(role), name=name), "spec": {"containers": [container]}}


@pytest.mark.parametrize(
    ("driver_cpu", "executor_cpu", "is_gated"), [("1", "1", False), ("1", "9", True), ("9", "1", True)]
)
async def test_spark_pod_that_requests_more_than_charged_is_gated(
    driver_cpu: str, executor_cpu: str, is_gated: bool
) -> None:
    created = spark_pod("pi-driver", "driver", driver_cpu)
    driver = owned({**DRIVER, "spec": created["spec"]}, APPLICATION)
    executor = owned(spark_pod("pi-exec-1", "executor", executor_cpu), driver)
    lookups = FakeLookups(objects={"Pod/pi-driver": driver, "SparkApplication/pi": APPLICATION})
    changed = await mutate(executor, lookups, integrations=BUILT_IN_KINDS)
    assert (changed is not executor) is is_gated
    gated = await mutate(owned(created, APPLICATION), lookups, integrations=BUILT_IN_KINDS)
    assert (NAMES.managed in gated["metadata"]["labels"]) is (driver_cpu == "9")


async def test_pod_of_unqueued_replica_set_is_gated() -> None:
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
    gated = await mutate(
        a_pod({QUEUE: "q"}, ownerReferences=[owner]), FakeLookups(objects={"r": replica_set})
    )
    assert gated["spec"]["schedulingGates"] == GATES


async def test_pod_with_suspending_parent_is_gated_despite_queued_owner() -> None:
    annotations = {NAMES.pod_suspending_parent: "statefulset"}
    pod = a_pod(annotations=annotations, ownerReferences=[JOB_REFERENCE])
    gated = await mutate(pod, FakeLookups(objects={"j": QUEUED_JOB}))
    assert gated["spec"]["schedulingGates"] == GATES
    assert "finalizers" not in gated["metadata"]


async def test_controller_of_pod_with_suspending_parent_is_removed_for_other_users() -> None:
    annotations = {NAMES.pod_suspending_parent: "statefulset"}
    gated = await mutate_job(
        a_pod(annotations=annotations, ownerReferences=[JOB_REFERENCE]), "team", POD, POLICY, FakeLookups()
    )
    assert gated["spec"]["schedulingGates"] == GATES
    assert "controller" not in gated["metadata"]["ownerReferences"][0]


@pytest.mark.parametrize(
    ("annotations", "gated"), [({}, False), ({NAMES.pod_suspending_parent: "deployment"}, True)]
)
async def test_pod_in_unselected_namespace_is_gated_only_with_suspending_parent(
    annotations: Any, gated: bool
) -> None:
    unselected = LabelSelector(requirements=(SelectorRequirement("x", SelectorOperator.EXISTS, ()),))
    options: dict[str, Any] = {"gvk": ("", "v1", "Pod"), "integrations": (POD,), "registered": (POD,)}
    answer = await call_webhook(
        "/mutate--v1-pod", a_pod({QUEUE: "q"}, annotations), namespace_selector=unselected, **options
    )
    assert ("patch" in answer.response) is gated


# --- validation -----------------------------------------------------------------------------------

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
def test_valid_new_pod_is_accepted(pod: Any) -> None:
    assert list_errors(pod) == []


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
def test_invalid_new_pod_is_rejected(pod: Any, error: str) -> None:
    assert any(error in actual for actual in list_errors(pod)), list_errors(pod)


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
def test_group_queue_and_retriable_annotation_of_pod_are_immutable(old: Any, new: Any, error: str) -> None:
    assert any(error in actual for actual in list_errors(new, old)), list_errors(new, old)


def test_invalid_stored_managed_pod_can_be_ungated() -> None:
    stored = managed(annotations={NAMES.pod_group_total_count: "2"})
    released = a_pod({QUEUE: "q", NAMES.managed: "true"}, {NAMES.pod_group_total_count: "2"})
    assert list_errors(stored)
    assert list_errors(released, stored) == []
    unmanaged = a_pod({QUEUE: "q"}, {NAMES.pod_group_total_count: "2"})
    assert list_errors(released, unmanaged) == list_errors(released)


def required_together(place: str) -> str:
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
    assert list_errors(pod) == [f"{where}: Required value: {required_together(place)}"]


@pytest.mark.parametrize(("name", "is_rejected"), [("other", False), ("w" * 64, True)])
def test_b11_prebuilt_annotation_is_ignored_where_labels_identify_workloads(
    name: str, is_rejected: bool
) -> None:
    without_gate = replace(POLICY, gates=policy(gates={"WorkloadIdentifierAnnotations": False}).gates)
    grouped = managed({GROUP: "g"}, {TOTAL: "2", PREBUILT: name})
    actual = [str(error) for error in validate_create(grouped, POD, without_gate)]
    assert any("prebuilt workload and pod group should be equal" in error for error in actual) is is_rejected


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
def test_other_pod_changes_are_accepted(old: Any, new: Any) -> None:
    assert list_errors(new, old) == []


@pytest.mark.parametrize(
    ("pod", "has_warning"),
    [
        (managed(name="j-x7k2p", ownerReferences=[JOB_REFERENCE]), True),
        (managed(), False),
        (a_pod(ownerReferences=[JOB_REFERENCE]), False),
        (managed({}, {NAMES.pod_suspending_parent: "statefulset"}, ownerReferences=[JOB_REFERENCE]), False),
    ],
)
async def test_managed_pod_of_queued_job_causes_warning(pod: Any, has_warning: bool) -> None:
    lookups = FakeLookups(objects={"j": QUEUED_JOB})
    options: dict[str, Any] = {"gvk": ("", "v1", "Pod"), "integrations": (JOB, POD), "registered": (JOB, POD)}
    answer = await call_webhook("/validate--v1-pod", pod, lookups=lookups, **options)
    assert answer.allowed
    warning = f"metadata.labels[{NAMES.managed}]: the owner of this Pod is queued, not the Pod itself"
    assert answer.response.get("warnings", []) == ([warning] if has_warning else [])
