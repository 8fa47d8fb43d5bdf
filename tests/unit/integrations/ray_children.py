"""Children of Ray jobs, and forged children."""

from collections.abc import Iterator
from typing import Any

from admitq.integrations.base import ChildDifference
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.kinds.rayservice import RAY_SERVICE
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


def ray_forgeries(name: str) -> Iterator[tuple[str, tuple[ChildDifference, dict[str, Any]]]]:
    """Yield forged clusters of a RayJob or RayService."""
    good = a_cluster(name)
    group = good["spec"]["workerGroupSpecs"][0]
    yield "name of other owner", (NAME, a_cluster("mine"))
    yield "name that is not generated", (NAME, a_cluster("r-mine"))
    yield "more workers", (PODS, a_cluster(name, cluster_spec(5)))
    yield "more hosts", (PODS, changed(good, spec__workerGroupSpecs__0__numOfHosts=2))
    yield "a larger minimum", (PODS, changed(good, spec__workerGroupSpecs__0__minReplicas=5))
    yield "another group", (PODS, changed(good, spec__workerGroupSpecs=[group, {**group, "groupName": "b"}]))
    yield "two groups of one name", (PODS, changed(good, spec__workerGroupSpecs=[group, group]))
    yield "a larger head", (REQUESTS, changed(good, spec__headGroupSpec__template=pods(BIG)))
    yield "larger workers", (REQUESTS, changed(good, spec__workerGroupSpecs__0__template=pods(BIG)))
    yield "an autoscaler", (REQUESTS, changed(good, spec__enableInTreeAutoscaling=True))


def ray_job_row() -> Row:
    owner = an_object("ray.io/v1", "RayJob", "r", {"rayClusterSpec": cluster_spec()})
    owner["status"] = {"rayClusterName": "r-x7k2p"}
    submitter = container("ray-job-submitter", cpu="500m", memory="200Mi")
    return Row(
        RAY_JOB,
        owner,
        {
            "the cluster": a_cluster("r-x7k2p"),
            "the cluster with a suspended group": changed(
                a_cluster("r-x7k2p"), spec__workerGroupSpecs__0__suspend=True
            ),
            "the submitter": a_job("r", pods(submitter)),
        },
        {
            **dict(ray_forgeries("r-x7k2p")),
            "a second cluster": (NAME, a_cluster("r-zzzzz")),
            "a submitter of another name": (NAME, a_job("r-x7k2p", pods(submitter))),
            "a submitter of many pods": (PODS, a_job("r", pods(submitter), parallelism=5)),
            "a larger submitter": (REQUESTS, a_job("r", pods(container("ray-job-submitter", cpu="9")))),
            "a pod": (KIND, a_pod("r-x7k2p")),
        },
    )


def ray_job_with_sidecar_row() -> Row:
    spec = {"rayClusterSpec": cluster_spec(), "submissionMode": "SidecarMode"}
    submitter = container("ray-job-submitter", cpu="500m", memory="200Mi")
    cluster = changed(a_cluster("r-x7k2p"), spec__headGroupSpec__template=pods(container(), submitter))
    return Row(
        RAY_JOB,
        an_object("ray.io/v1", "RayJob", "r", spec),
        {
            "before the status names the cluster": cluster,
            "older name": {**cluster, **named("r-raycluster-x7k2p")},
        },
        {"a submitter where it is a sidecar": (NAME, a_job("r", pods(submitter)))},
    )


def named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def elastic_ray_row() -> Row:
    spec = cluster_spec(enableInTreeAutoscaling=True)
    owner = an_object("ray.io/v1", "RayJob", "r", {"rayClusterSpec": spec}, annotations={"elastic": "true"})
    scaled = cluster_spec(5, enableInTreeAutoscaling=True)
    return Row(
        RAY_JOB,
        owner,
        {"a cluster that Ray scaled": a_cluster("r-x7k2p", scaled, annotations={"elastic": "true"})},
        {
            "scaled cluster without the annotation": (PODS, a_cluster("r-x7k2p", scaled)),
            "larger workers": (
                REQUESTS,
                changed(
                    a_cluster("r-x7k2p", scaled, annotations={"elastic": "true"}),
                    spec__workerGroupSpecs__0__template=pods(BIG),
                ),
            ),
        },
        is_elastic=lambda obj: obj["metadata"].get("annotations") == {"elastic": "true"},
    )


def ray_service_row() -> Row:
    owner = an_object("ray.io/v1", "RayService", "r", {"rayClusterConfig": cluster_spec()})
    owner["status"] = {
        "activeServiceStatus": {"rayClusterName": "serves"},
        "pendingServiceStatus": {"rayClusterName": "r-raycluster-x7k2p"},
    }
    return Row(
        RAY_SERVICE,
        owner,
        {
            "the active cluster": a_cluster("serves"),
            "the pending cluster": a_cluster("r-raycluster-x7k2p"),
            "a replaced cluster": a_cluster("r-zzzzz"),
            "a cluster that is scaled up in steps": a_cluster("r-zzzzz", cluster_spec(0)),
        },
        {**dict(ray_forgeries("r-x7k2p")), "a Job": (KIND, a_job("r-x7k2p"))},
    )


def ray_cluster_row() -> Row:
    state = {"redisAddress": "redis:6379"}
    owner = a_cluster("ray", cluster_spec(gcsFaultToleranceOptions=state, enableInTreeAutoscaling=True))
    head = {"ray.io/cluster": "ray", "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    worker = {"ray.io/cluster": "ray", "ray.io/node-type": "worker", "ray.io/group": "small"}
    wait = {"name": "wait-gcs-ready", "resources": {"requests": {"cpu": "200m"}}}
    cleanup = pods(container(cpu="200m", memory="256Mi"))
    return Row(
        RAY_CLUSTER,
        owner,
        {
            "a head": a_pod("ray-head-x7k2p", container(), container("autoscaler", cpu="500m"), labels=head),
            "a head without a generated name": a_pod("ray-head", labels=head),
            "a worker with an init container": changed(
                a_pod("ray-small-worker-x7k2p", labels=worker), spec__initContainers=[wait]
            ),
            "a worker before its name is generated": changed(
                a_pod("", labels=worker), metadata__generateName="ray-small-worker-"
            ),
            "a worker of an older operator": a_pod("ray-worker-small-x7k2p", labels=worker),
            "the Job that cleans up": a_job("ray-redis-cleanup", cleanup),
        },
        {
            "name of other owner": (NAME, a_pod("mine-small-worker-x7k2p", labels=worker)),
            "no labels that the operator counts by": (NAME, a_pod("ray-small-worker-x7k2p")),
            "labels of another cluster": (
                NAME,
                a_pod("ray-small-worker-x7k2p", labels={**worker, "ray.io/cluster": "b"}),
            ),
            "no group of the cluster": (
                NAME,
                a_pod("ray-b-worker-x7k2p", labels={**worker, "ray.io/group": "b"}),
            ),
            "a head that is named a worker": (NAME, a_pod("ray-small-worker-x7k2p", labels=head)),
            "a larger worker": (REQUESTS, a_pod("ray-small-worker-x7k2p", BIG, labels=worker)),
            "a larger head": (REQUESTS, a_pod("ray-head-x7k2p", BIG, labels=head)),
            "a Job of another name": (NAME, a_job("ray-cleanup", cleanup)),
            "a Job of many pods": (PODS, a_job("ray-redis-cleanup", cleanup, parallelism=5)),
            "a larger Job": (REQUESTS, a_job("ray-redis-cleanup", pods(BIG))),
            "a RayCluster": (KIND, a_cluster("ray-head-x7k2p")),
        },
    )


def ray_cluster_with_single_named_head_row() -> Row:
    head = {"ray.io/cluster": "ray", "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    owner = {**a_cluster("ray"), "status": {"head": {"podName": "ray-head"}}}
    return Row(
        RAY_CLUSTER,
        owner,
        {"the head": a_pod("ray-head", labels=head)},
        {
            "a second head": (NAME, a_pod("ray-head-x7k2p", labels=head)),
            "a second head with a name to be generated": (
                NAME,
                changed(a_pod("", labels=head), metadata__generateName="ray-head-"),
            ),
        },
    )


def ray_cluster_with_a_long_name_row() -> Row:
    name, labels = "c" * 50, {"ray.io/node-type": "worker", "ray.io/group": "small"}
    truncated = f"{'c' * 38}-small-worker-x7k2p"
    return Row(
        RAY_CLUSTER,
        a_cluster(name),
        {"a truncated name": a_pod(truncated, labels={**labels, "ray.io/cluster": name})},
        {"cleanup Job without fault tolerance": (NAME, a_job(f"{name}-redis-cleanup"))},
    )
