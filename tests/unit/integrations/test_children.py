"""Children that the controllers of job kinds create, and forged ones that differ from them."""

from collections.abc import Callable
from typing import Any

import pytest

from admitq.integrations.kinds.appwrapper import APP_WRAPPER
from admitq.integrations.kinds.deployment import DEPLOYMENT
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.kubeflow import PYTORCH_JOB
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.integrations.kinds.mpijob import MPI_JOB
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.kinds.rayservice import RAY_SERVICE
from admitq.integrations.kinds.sparkapplication import SPARK_APPLICATION
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq.integrations.kinds.trainjob import TRAIN_JOB
from tests.unit.integrations.child_rows import (
    BIG,
    KIND,
    NAME,
    PODS,
    REQUESTS,
    Row,
    a_cluster,
    a_job,
    a_pod,
    an_object,
    changed,
    cluster_spec,
    container,
    pods,
)
from tests.unit.integrations.ray_children import (
    elastic_ray_row,
    ray_cluster_row,
    ray_cluster_with_a_long_name_row,
    ray_cluster_with_single_named_head_row,
    ray_job_row,
    ray_job_with_sidecar_row,
    ray_service_row,
)

UID = {"batch.kubernetes.io/controller-uid": "uid-j"}
INDEX = "batch.kubernetes.io/job-completion-index"


def job_row() -> Row:
    owner = a_job("j", parallelism=2, completions=2, selector={"matchLabels": UID})
    indexed = a_pod("j-1-x7k2p", labels=UID, annotations={INDEX: "1"})
    valid = a_pod("j-x7k2p", labels=UID)
    return Row(
        JOB,
        owner,
        {
            "a pod": valid,
            "before its name is generated": changed(valid, metadata__name="", metadata__generateName="j-"),
            "with an injected sidecar": a_pod("j-x7k2p", container(), container("istio-proxy"), labels=UID),
            "with defaults of a LimitRange": a_pod(
                "j-x7k2p", container(cpu="1000m", memory="1Gi"), labels=UID
            ),
            "with the overhead of its RuntimeClass": changed(
                valid, spec__overhead={"cpu": "1"}, spec__runtimeClassName="kata"
            ),
        },
        {
            "name of other owner": (NAME, a_pod("mine", labels=UID)),
            "name that the API server does not generate": (NAME, a_pod("j-1", labels=UID)),
            "without the labels that the controller counts by": (NAME, a_pod("j-x7k2p")),
            "labels of another Job": (NAME, a_pod("j-x7k2p", labels={**UID, next(iter(UID)): "uid-k"})),
            "larger requests": (REQUESTS, a_pod("j-x7k2p", BIG, labels=UID)),
            "larger pod-level requests": (
                REQUESTS,
                changed(
                    a_pod("j-x7k2p", container(cpu="9"), labels=UID),
                    spec__resources={"requests": {"cpu": "9"}},
                ),
            ),
            "a claim": (REQUESTS, changed(valid, spec__resourceClaims=[{"resourceClaimName": "g"}])),
            "a Job": (KIND, a_job("j-x7k2p")),
            "index of an unindexed Job": (NAME, indexed),
        },
    )


def indexed_job_row() -> Row:
    spec: dict[str, Any] = {"completionMode": "Indexed", "completions": 2, "selector": {"matchLabels": UID}}
    long = "j" * 60

    def pod(name: str, index: str) -> dict[str, Any]:
        return a_pod(name, labels=UID, annotations={INDEX: index})

    return Row(
        JOB,
        a_job(long, **spec),
        {"a long name": pod(f"{'j' * 55}-1-x7k2p", "1")},
        {
            "index beyond the completions": (NAME, pod(f"{'j' * 55}-2-x7k2p", "2")),
            "name of another index": (NAME, pod(f"{'j' * 55}-0-x7k2p", "1")),
            "no index": (NAME, a_pod(f"{'j' * 55}-1-x7k2p", labels=UID)),
        },
    )


def jobset_row() -> Row:
    entry = {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": pods()}}}
    owner = an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", {"replicatedJobs": [entry]})
    valid = a_job("js-workers-0", parallelism=2)

    def with_pods(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
        return a_job("js-workers-0", pods(*containers, **spec), parallelism=2)

    return Row(
        JOBSET,
        owner,
        {
            "first": valid,
            "last": a_job("js-workers-1", pods(container(cpu="1000m")), parallelism=2),
            "fewer pods": a_job("js-workers-1", parallelism=1),
            "suspended": changed(valid, spec__suspend=True),
            "with injected fields": with_pods(nodeSelector={"pool": "spot"}),
        },
        {
            "ordinal beyond the replicas": (NAME, a_job("js-workers-2", parallelism=2)),
            "ordinal with a leading zero": (NAME, a_job("js-workers-00", parallelism=2)),
            "name of no replicated job": (NAME, a_job("js-others-0", parallelism=2)),
            "another name": (NAME, a_job("mine", parallelism=2)),
            "more pods": (PODS, a_job("js-workers-0", parallelism=5)),
            "larger requests": (REQUESTS, with_pods(BIG)),
            "another resource": (REQUESTS, with_pods(container(cpu="1", gpu="1"))),
            "a second container": (REQUESTS, with_pods(container(), container("d"))),
            "two containers of one name": (REQUESTS, with_pods(container(), container())),
            "overhead": (REQUESTS, with_pods(overhead={"cpu": 1})),
            "runtime class": (REQUESTS, with_pods(runtimeClassName="kata")),
            "init container with limits alone": (
                REQUESTS,
                with_pods(initContainers=[{"name": "i", "resources": {"limits": {"cpu": 9}}}]),
            ),
            "pod-level requests": (REQUESTS, with_pods(resources={"requests": {"cpu": 9}})),
            "a claim": (REQUESTS, with_pods(resourceClaims=[{"name": "g", "resourceClaimName": "g"}])),
            "malformed quantity": (REQUESTS, with_pods(container(cpu="much"))),
            "a pod": (KIND, a_pod("js-workers-0")),
        },
    )


def spark_application_row() -> Row:
    driver = {"cores": 1, "coreLimit": "1200m", "memory": "2g", "memoryOverhead": "512m"}
    owner = an_object(
        "sparkoperator.k8s.io/v1beta2", "SparkApplication", "pi", {"type": "Scala", "driver": driver}
    )

    def a_driver(
        name: str = "pi-driver", *more: dict[str, Any], cpu: str = "1", memory: str = "2560Mi"
    ) -> dict[str, Any]:
        return a_pod(name, container("spark-kubernetes-driver", cpu=cpu, memory=memory), *more)

    limit = {"limits": {"cpu": "9"}, "requests": {"memory": "1Gi"}}
    return Row(
        SPARK_APPLICATION,
        owner,
        {
            "the driver": a_driver(),
            "with an injected sidecar": a_driver("pi-driver", container("istio-proxy")),
            "a smaller driver": a_driver(cpu="500m", memory="1Gi"),
        },
        {
            "name of other owner": (NAME, a_driver("mine")),
            "more cores": (REQUESTS, a_driver(cpu="2")),
            "more memory": (REQUESTS, a_driver(memory="2561Mi")),
            "a limit without a request": (
                REQUESTS,
                changed(
                    a_driver(), spec__containers=[{"name": "spark-kubernetes-driver", "resources": limit}]
                ),
            ),
            "a claim": (REQUESTS, changed(a_driver(), spec__resourceClaims=[{"resourceClaimName": "g"}])),
            "a Job": (KIND, a_job("pi-driver")),
        },
    )


def train_job_row() -> Row:
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    template = pods(container("node"))
    job = {"metadata": step, "spec": {"template": template}}
    runtime = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": job}]}}}
    owner = an_object(
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        "t",
        {"trainer": {"numNodes": 3, "resourcesPerNode": {"requests": {"cpu": "2"}}}},
    )
    owner["resolvedRuntime"] = {"spec": runtime}

    def a_jobset(
        name: str = "t", pods_: int = 3, replicas: int = 1, cpu: str = "2", more: Any = ()
    ) -> dict[str, Any]:
        spec = {"parallelism": pods_, "completions": pods_, "template": pods(container("node", cpu=cpu))}
        entry = {"name": "node", "replicas": replicas, "template": {"spec": spec}}
        jobs = {"replicatedJobs": [entry, *more]}
        return an_object("jobset.x-k8s.io/v1alpha2", "JobSet", name, jobs)

    other = {"name": "b", "template": {"spec": {"template": pods()}}}
    return Row(
        TRAIN_JOB,
        owner,
        {"the JobSet": a_jobset(), "a smaller JobSet": a_jobset(pods_=1, cpu="1")},
        {
            "name of other owner": (NAME, a_jobset("t-1")),
            "more nodes": (PODS, a_jobset(pods_=5)),
            "more replicas": (PODS, a_jobset(replicas=2)),
            "another replicated job": (PODS, a_jobset(more=[other])),
            "two replicated jobs of one name": (PODS, a_jobset(more=a_jobset()["spec"]["replicatedJobs"])),
            "larger requests": (REQUESTS, a_jobset(cpu="9")),
            "a Job": (KIND, a_job("t")),
        },
    )


def train_job_without_runtime_row() -> Row:
    row = train_job_row()
    owner = {key: value for key, value in row.owner.items() if key != "resolvedRuntime"}
    name = row.forgeries["name of other owner"]
    return Row(TRAIN_JOB, owner, row.children, {"name of other owner": name})


def deployment_row() -> Row:
    labels = {"app": "d", "pod-template-hash": "5f7c"}
    owner = an_object(
        "apps/v1", "Deployment", "d", {"selector": {"matchLabels": {"app": "d"}}, "template": pods()}
    )

    def a_set(name: str = "d-5f7c", **metadata: Any) -> dict[str, Any]:
        return an_object("apps/v1", "ReplicaSet", name, {"template": pods()}, **metadata)

    return Row(
        DEPLOYMENT,
        owner,
        {
            "a ReplicaSet": a_set(labels=labels),
            "a ReplicaSet of an earlier revision": a_set("d-9", labels={**labels, "pod-template-hash": "9"}),
        },
        {
            "name of other owner": (NAME, a_set("mine", labels=labels)),
            "another hash": (NAME, a_set("d-mine", labels=labels)),
            "no hash": (NAME, a_set("d-", labels={"app": "d"})),
            "labels that the Deployment does not select": (NAME, a_set(labels={**labels, "app": "e"})),
            "a pod": (KIND, a_pod("d-5f7c-x7k2p", labels=labels)),
            "a StatefulSet": (KIND, an_object("apps/v1", "StatefulSet", "d-5f7c", {}, labels=labels)),
        },
    )


def stateful_set_row() -> Row:
    labels = {"app": "s"}
    spec = {"replicas": 2, "ordinals": {"start": 3}, "selector": {"matchLabels": labels}, "template": pods()}
    return Row(
        STATEFUL_SET,
        an_object("apps/v1", "StatefulSet", "s", spec),
        {
            "first": a_pod("s-3", labels=labels),
            "last": a_pod("s-4", container(), container("istio-proxy"), labels=labels),
        },
        {
            "ordinal beyond the replicas": (NAME, a_pod("s-5", labels=labels)),
            "ordinal before the first": (NAME, a_pod("s-2", labels=labels)),
            "ordinal with a leading zero": (NAME, a_pod("s-03", labels=labels)),
            "name of other owner": (NAME, a_pod("mine-3", labels=labels)),
            "labels that the StatefulSet does not select": (NAME, a_pod("s-3")),
            "larger requests": (REQUESTS, a_pod("s-3", BIG, labels=labels)),
            "a Job": (KIND, a_job("s-3")),
        },
    )


def leader_worker_set_row() -> Row:
    group = {"size": 3, "leaderTemplate": pods(container(cpu="2")), "workerTemplate": pods()}
    surge = {"rollingUpdateConfiguration": {"maxSurge": 1}}
    spec = {"replicas": 2, "leaderWorkerTemplate": group, "rolloutStrategy": surge}

    def leaders(
        name: str = "l", replicas: int = 2, *containers: dict[str, Any], **spec: Any
    ) -> dict[str, Any]:
        template = pods(*(containers or [container(cpu="2")]), **spec)
        return an_object("apps/v1", "StatefulSet", name, {"replicas": replicas, "template": template})

    return Row(
        LEADER_WORKER_SET,
        an_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec),
        {"the leaders": leaders(), "in a rollout": leaders(replicas=3)},
        {
            "name of other owner": (NAME, leaders("mine")),
            "name of the workers of a group": (NAME, leaders("l-0")),
            "more groups": (PODS, leaders(replicas=4)),
            "larger requests": (REQUESTS, leaders("l", 2, BIG)),
            "a second container": (REQUESTS, leaders("l", 2, container(cpu="2"), container("d"))),
            "a claim": (REQUESTS, leaders(resourceClaims=[{"resourceClaimName": "g"}])),
            "a pod": (KIND, a_pod("l-0")),
        },
    )


def mpi_job_row() -> Row:
    roles = {"Launcher": {"template": pods()}, "Worker": {"replicas": 2, "template": pods()}}
    return Row(
        MPI_JOB,
        an_object("kubeflow.org/v2beta1", "MPIJob", "m", {"mpiReplicaSpecs": roles}),
        {"the launcher": a_job("m-launcher"), "a worker": a_pod("m-worker-1")},
        {
            "name of other owner": (NAME, a_job("mine")),
            "many launchers": (PODS, a_job("m-launcher", parallelism=5)),
            "a larger launcher": (REQUESTS, a_job("m-launcher", pods(BIG))),
            "ordinal beyond the replicas": (NAME, a_pod("m-worker-2")),
            "a larger worker": (REQUESTS, a_pod("m-worker-1", BIG)),
            "a JobSet": (KIND, an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "m-launcher", {})),
        },
    )


def kubeflow_row() -> Row:
    roles = {"Worker": {"replicas": 2, "template": pods()}}
    return Row(
        PYTORCH_JOB,
        an_object("kubeflow.org/v1", "PyTorchJob", "t", {"pytorchReplicaSpecs": roles}),
        {"a worker": a_pod("t-worker-1", container(), container("istio-proxy"))},
        {
            "name of other owner": (NAME, a_pod("mine")),
            "ordinal beyond the replicas": (NAME, a_pod("t-worker-2")),
            "no role of the job": (NAME, a_pod("t-master-0")),
            "larger requests": (REQUESTS, a_pod("t-worker-1", BIG)),
            "a Job": (KIND, a_job("t-worker-1")),
        },
    )


def app_wrapper_row() -> Row:
    wrapped = a_job("w", parallelism=2)
    robot = {
        "apiVersion": "example.com/v1",
        "kind": "Robot",
        "metadata": {"name": "x"},
        "spec": {"t": pods()},
    }
    scaling = a_cluster("c", cluster_spec(enableInTreeAutoscaling=True))
    components = [
        {"template": wrapped},
        {"template": robot, "podSets": [{"path": "template.spec.t"}]},
        {"template": scaling},
    ]
    owner = an_object("workload.codeflare.dev/v1beta2", "AppWrapper", "a", {"components": components})
    return Row(
        APP_WRAPPER,
        owner,
        {
            "the object": wrapped,
            "an object of another kind": robot,
            "a cluster that Ray scales": changed(scaling, spec__workerGroupSpecs__0__replicas=5),
        },
        {
            "name of other owner": (NAME, a_job("mine", parallelism=2)),
            "another kind": (NAME, a_pod("w")),
            "more pods": (PODS, a_job("w", parallelism=5)),
            "larger requests": (REQUESTS, a_job("w", pods(BIG), parallelism=2)),
            "larger requests of another kind": (REQUESTS, changed(robot, spec__t=pods(BIG))),
        },
    )


ROWS: tuple[Callable[[], Row], ...] = (
    job_row,
    indexed_job_row,
    jobset_row,
    ray_job_row,
    ray_job_with_sidecar_row,
    elastic_ray_row,
    ray_service_row,
    ray_cluster_row,
    ray_cluster_with_single_named_head_row,
    ray_cluster_with_a_long_name_row,
    train_job_row,
    train_job_without_runtime_row,
    deployment_row,
    stateful_set_row,
    leader_worker_set_row,
    mpi_job_row,
    kubeflow_row,
    app_wrapper_row,
    spark_application_row,
)


def cases(field: str) -> list[Any]:
    return [
        pytest.param(row, name, id=f"{create_row.__name__.removesuffix('_row')}: {name}")
        for create_row in ROWS
        for row in (create_row(),)
        for name in getattr(row, field)
    ]


@pytest.mark.parametrize(("row", "name"), cases("children"))
def test_child_created_by_its_controller_has_no_difference(row: Row, name: str) -> None:
    child = row.children[name]
    assert row.kind.may_create_kind_of(child)
    assert row.kind.ownership.compare_child(row.owner, child, row.is_elastic) is None
    assert row.kind.may_have_created(row.owner, child, row.is_elastic)


@pytest.mark.parametrize(("row", "name"), cases("forgeries"))
def test_forged_child_has_expected_difference(row: Row, name: str) -> None:
    difference, child = row.forgeries[name]
    assert row.kind.may_create_kind_of(child) is (difference != KIND)
    if difference != KIND:
        assert row.kind.ownership.compare_child(row.owner, child, row.is_elastic) == difference


def test_each_covering_kind_has_five_forgeries() -> None:
    covering_kinds = {
        JOB,
        JOBSET,
        RAY_JOB,
        RAY_CLUSTER,
        RAY_SERVICE,
        TRAIN_JOB,
        DEPLOYMENT,
        STATEFUL_SET,
        LEADER_WORKER_SET,
    }
    forgeries = {kind.kind: 0 for kind in covering_kinds}
    for create_row in ROWS:
        row = create_row()
        if row.kind.kind in forgeries:
            forgeries[row.kind.kind] += len(row.forgeries)
    assert len(forgeries) == 9
    assert min(forgeries.values()) >= 5, forgeries


def test_child_requests_are_compared_as_rounded_by_the_api_server() -> None:
    """The API server rounds amounts up to thousandths in the template of a Job, but not of a JobSet."""
    entry = {"name": "a", "template": {"spec": {"template": pods(container(cpu="0.0001"))}}}
    owner = an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", {"replicatedJobs": [entry]})
    assert JOBSET.may_have_created(owner, a_job("js-a-0", pods(container(cpu="1m"))))
    assert not JOBSET.may_have_created(owner, a_job("js-a-0", pods(container(cpu="2m"))))
