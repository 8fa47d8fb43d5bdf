from typing import Any

import pytest

from admitq.integrations.base import (
    KUEUE_MULTIKUEUE_CONTROLLER,
    Integration,
    JobOutcome,
    ObjectReference,
    PodSetTemplate,
    RuleContext,
)
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.kinds.rayservice import RAY_SERVICE
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.json_objects import FieldPath, create_merge_patch, value_at, with_value
from admitq_api.labels import names_for
from admitq_webhooks.mutate.jobs import mutate_job
from admitq_webhooks.references import resolve_references
from tests.unit.webhooks.support import OPERATOR, FakeLookups, policy

NAMES = names_for()
RULES = RuleContext(NAMES)
AUTOSCALER = {"cpu": "500m", "memory": "512Mi"}
ELASTIC = {NAMES.elastic_job: "true"}
SPECS: dict[str, FieldPath] = {
    "RayJob": ("spec", "rayClusterSpec"),
    "RayCluster": ("spec",),
    "RayService": ("spec", "rayClusterConfig"),
}
ALL = pytest.mark.parametrize("kind", [RAY_JOB, RAY_CLUSTER, RAY_SERVICE], ids=lambda one: one.kind)


def pod(cpu: Any = 1, **more: Any) -> Any:
    container = {"name": "ray", "image": "ray:2", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {"spec": {"containers": [container], **more}}


def cluster(*groups: Any, head: Any = None, **more: Any) -> Any:
    workers = [{"groupName": "small", "replicas": 2, "template": pod()}] if not groups else list(groups)
    return {"headGroupSpec": {"template": head or pod()}, "workerGroupSpecs": workers, **more}


def ray(kind: Integration, described: Any, annotations: Any = None, status: Any = None, **spec: Any) -> Any:
    labels = {NAMES.queue_name: "lq"}
    metadata = {"name": "r", "labels": labels, "annotations": annotations or {}}
    if kind is RAY_JOB:
        spec = {"submissionMode": "HTTPMode", "shutdownAfterJobFinishes": True, **spec}
    job = {"metadata": metadata, "spec": spec, "status": status or {}}
    return with_value(job, SPECS[kind.kind], {**(value_at(job, SPECS[kind.kind]) or {}), **described})


# --- podsets --------------------------------------------------------------------------------------


@ALL
def test_the_head_and_each_group_of_workers_are_podsets(kind: Integration) -> None:
    at = SPECS[kind.kind]
    assert kind.list_pod_sets(ray(kind, cluster()), NAMES) == [
        PodSetTemplate("head", 1, (*at, "headGroupSpec", "template")),
        PodSetTemplate("small", 2, (*at, "workerGroupSpecs", 0, "template")),
    ]


BOTH = {
    "rayClusterName": "active",
    "activeServiceStatus": {"rayClusterName": "active"},
    "pendingServiceStatus": {"rayClusterName": "pending"},
}
SCALED = {"enableInTreeAutoscaling": True}


@pytest.mark.parametrize(
    ("kind", "described", "status", "names"),
    [
        (RAY_JOB, SCALED, BOTH, ["active"]),
        (RAY_JOB, {}, BOTH, []),
        (RAY_JOB, SCALED, {}, []),
        (RAY_JOB, SCALED, {"rayClusterName": 7}, []),
        (RAY_SERVICE, SCALED, {"activeServiceStatus": {"rayClusterName": "active"}}, ["active"]),
        (RAY_SERVICE, SCALED, {"pendingServiceStatus": {"rayClusterName": "new"}}, ["new"]),
        (RAY_SERVICE, SCALED, {"activeServiceStatus": None, "pendingServiceStatus": []}, []),
        (RAY_SERVICE, SCALED, BOTH, ["active", "pending"]),
        (RAY_SERVICE, {}, BOTH, ["active", "pending"]),
        (RAY_SERVICE, {}, {"activeServiceStatus": {"rayClusterName": "active"}}, []),
        (RAY_CLUSTER, SCALED, BOTH, []),
    ],
)
def test_created_clusters_are_looked_up_where_they_know_more_than_the_job(
    kind: Integration, described: Any, status: Any, names: list[str]
) -> None:
    running = with_value(ray(kind, cluster(**described), status=status), ("metadata", "namespace"), "ns")
    assert [(str(one), kind.is_required(one)) for one in kind.templates.list_references(running)] == [
        (f"RayCluster {name} in namespace ns", False) for name in names
    ]
    assert kind.templates.list_references(kind.with_suspend(running, True)) == ()


@pytest.mark.parametrize(
    ("kind", "clusters", "counts", "version"),
    [
        (RAY_JOB, {"active": [("small", 5)]}, [1, 5, 0], "1_4"),
        (RAY_SERVICE, {"active": [("SMALL", 5), ("big", 2)]}, [1, 5, 2], "1_4"),
        (
            RAY_SERVICE,
            {"active": [("small", 5), ("big", 1)], "pending": [("small", 2), ("other", 9)]},
            [2, 7, 1],
            "1_4_4",
        ),
        (RAY_SERVICE, {}, [1, 2, 3], "1"),
    ],
)
def test_the_pods_of_a_job_are_those_of_the_clusters_that_were_made_for_it(
    kind: Integration, clusters: Any, counts: list[int], version: str
) -> None:
    big = {"groupName": "big", "replicas": 3, "template": pod()}
    small = {"groupName": "small", "replicas": 2, "template": pod()}
    job = ray(kind, cluster(small, big, **SCALED), status=BOTH)
    found: dict[ObjectReference, Any] = {}
    for one in kind.templates.list_references(job):
        if one.name in clusters:
            groups = [{"groupName": name, "replicas": count} for name, count in clusters[one.name]]
            found[one] = {"metadata": {"generation": 4}, "spec": {"workerGroupSpecs": groups}}
    resolved = kind.templates.resolve(job, found)
    assert [one.count for one in kind.list_pod_sets(resolved, NAMES)] == counts
    assert kind.scaling.get_slice_version(resolved, NAMES) == version
    told = with_value(resolved, ("metadata", "annotations", NAMES.ray_cluster_generation), "9")
    assert kind.scaling.get_slice_version(told, NAMES) == "1_9", "what it is told goes before what it follows"
    assert [one.get_template(resolved) for one in kind.list_pod_sets(resolved, NAMES)] == [
        one.get_template(job) for one in kind.list_pod_sets(job, NAMES)
    ]


async def test_the_webhook_does_not_ask_how_many_workers_a_cluster_has() -> None:
    job = ray(RAY_JOB, cluster(**SCALED), status=BOTH)
    assert RAY_JOB.templates.list_references(job)
    assert await resolve_references(job, "ns", RAY_JOB, FakeLookups(unavailable=True)) is job


@pytest.mark.parametrize("odd", [None, [], {}, {"spec": None}, {"spec": {"workerGroupSpecs": [None, 7, {}]}}])
def test_only_worker_counts_of_a_cluster_are_cached(odd: Any) -> None:
    [followed] = RAY_JOB.templates.referenced_kinds
    assert followed.trim_for_cache is not None
    followed.trim_for_cache(odd)
    group = {"groupName": "small", "replicas": 5, "maxReplicas": 4, "numOfHosts": 2, "template": pod()}
    kept: Any = followed.trim_for_cache(
        {"metadata": {"generation": 4, "managedFields": []}, "spec": cluster(group)}
    )
    assert kept == {
        "metadata": {"generation": 4},
        "spec": {"workerGroupSpecs": [{key: one for key, one in group.items() if key != "template"}]},
    }


@ALL
@pytest.mark.parametrize(
    ("group", "count"),
    [
        ({}, 1),
        ({"replicas": 0}, 0),
        ({"replicas": 3}, 3),
        ({"replicas": 3, "numOfHosts": 1}, 3),
        ({"replicas": 3, "numOfHosts": 4}, 12),
        ({"replicas": 3, "numOfHosts": 0}, 3),
        ({"replicas": 0, "minReplicas": 2}, 2),
        ({"replicas": 5, "minReplicas": 1, "maxReplicas": 3}, 3),
        ({"replicas": 1, "minReplicas": 4, "maxReplicas": 3}, 4),
        ({"replicas": 3, "suspend": True}, 0),
        ({"replicas": 3, "suspend": False, "maxReplicas": "many"}, 3),
        ({"replicas": 2**31, "numOfHosts": 2**31}, 2**62),
        ({"replicas": "three", "numOfHosts": None}, 1),
        ({"replicas": -2, "minReplicas": -1}, 0),
    ],
)
def test_a_group_has_all_hosts_of_all_replicas(kind: Integration, group: Any, count: int) -> None:
    job = ray(kind, cluster({"groupName": "g", "template": pod(), **group}))
    assert [one.count for one in kind.list_pod_sets(job, NAMES)] == [1, count]


@ALL
def test_the_name_of_a_group_becomes_that_of_a_podset(kind: Integration) -> None:
    job = ray(kind, cluster({"groupName": "Large-GPU", "template": pod()}))
    assert [one.name for one in kind.list_pod_sets(job, NAMES)] == ["head", "large-gpu"]


def containers_of_head(kind: Integration, job: Any) -> Any:
    return kind.list_pod_sets(job, NAMES)[0].get_template(job)["spec"]["containers"]


@ALL
@pytest.mark.parametrize(
    ("options", "image", "resources"),
    [
        (None, "ray:2", {"requests": AUTOSCALER, "limits": AUTOSCALER}),
        ({"image": "own:1"}, "own:1", {"requests": AUTOSCALER, "limits": AUTOSCALER}),
        ({"resources": {"requests": {"cpu": 2}}}, "ray:2", {"requests": {"cpu": 2}}),
    ],
)
def test_the_autoscaler_is_a_container_of_the_head(
    kind: Integration, options: Any, image: str, resources: Any
) -> None:
    job = ray(kind, cluster(enableInTreeAutoscaling=True, autoscalerOptions=options))
    own = pod()["spec"]["containers"][0]
    assert containers_of_head(kind, job) == [
        own,
        {"name": "autoscaler", "image": image, "resources": resources},
    ]


@ALL
@pytest.mark.parametrize(
    ("resources", "counted"),
    [
        ({}, {"requests": {"cpu": "200m", "memory": "256Mi"}}),
        ({"requests": {"cpu": "100m", "memory": "1Gi"}}, {"requests": {"cpu": "200m", "memory": "1Gi"}}),
        ({"requests": {"cpu": "1", "memory": "1Gi"}}, {"requests": {"cpu": "1", "memory": "1Gi"}}),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, {"limits": {"cpu": "1", "memory": "1Gi"}}),
        (
            {"limits": {"cpu": "100m", "memory": "1Gi"}},
            {"limits": {"cpu": "200m", "memory": "1Gi"}, "requests": {"cpu": "200m"}},
        ),
        ({"requests": {"cpu": "?", "memory": "1Gi"}}, {"requests": {"cpu": "?", "memory": "1Gi"}}),
    ],
)
@pytest.mark.parametrize("by_annotation", [False, True])
def test_a_fault_tolerant_head_counts_for_what_cleans_up_after_it(
    kind: Integration, by_annotation: bool, resources: Any, counted: Any
) -> None:
    head = {"spec": {"containers": [{"name": "ray", "resources": resources}]}}
    if by_annotation:
        job = ray(kind, cluster(head=head), {"ray.io/ft-enabled": "true"})
    else:
        job = ray(kind, cluster(head=head, gcsFaultToleranceOptions={"redisAddress": "redis:6379"}))
    assert containers_of_head(kind, job)[0]["resources"] == counted


@pytest.mark.parametrize(
    ("mode", "own", "names", "head"),
    [
        (None, None, ["head", "small", "submitter"], ["ray"]),
        ("K8sJobMode", None, ["head", "small", "submitter"], ["ray"]),
        ("K8sJobMode", pod(3), ["head", "small", "submitter"], ["ray"]),
        ("HTTPMode", None, ["head", "small"], ["ray"]),
        ("InteractiveMode", None, ["head", "small"], ["ray"]),
        ("SidecarMode", None, ["head", "small"], ["ray", "ray-job-submitter"]),
    ],
)
def test_submitter_requests_quota(mode: Any, own: Any, names: Any, head: Any) -> None:
    job = ray(RAY_JOB, cluster(), submissionMode=mode, submitterPodTemplate=own)
    assert [one.name for one in RAY_JOB.list_pod_sets(job, NAMES)] == names
    assert [one["name"] for one in containers_of_head(RAY_JOB, job)] == head


def test_default_submitter_is_the_operators() -> None:
    job = ray(RAY_JOB, cluster(), submissionMode="K8sJobMode")
    assert RAY_JOB.list_pod_sets(job, NAMES)[2].get_template(job)["spec"] == {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "ray-job-submitter",
                "image": "ray:2",
                "resources": {
                    "requests": {"cpu": "500m", "memory": "200Mi"},
                    "limits": {"cpu": "1", "memory": "1Gi"},
                },
            }
        ],
    }


def injected(kind: Integration, job: Any) -> Any:
    for pod_set in kind.list_pod_sets(job, NAMES):
        template = with_value(pod_set.get_template(job), ("spec", "nodeSelector"), {"pool": pod_set.name})
        job = kind.templates.with_template(job, pod_set, template, NAMES)
    return job


@ALL
def test_an_injection_leaves_the_containers_of_the_operator_out(kind: Integration) -> None:
    options = {"redisAddress": "redis:6379"}
    job = ray(kind, cluster(head=pod("10m"), enableInTreeAutoscaling=True, gcsFaultToleranceOptions=options))
    at = SPECS[kind.kind]
    after = injected(kind, job)
    patch = value_at(create_merge_patch(job, after), at)
    assert set(patch) == {"headGroupSpec", "workerGroupSpecs"}
    assert patch["headGroupSpec"] == {"template": {"spec": {"nodeSelector": {"pool": "head"}}}}
    assert [one.get_template(after)["spec"]["nodeSelector"] for one in kind.list_pod_sets(after, NAMES)] == [
        {"pool": "head"},
        {"pool": "small"},
    ]
    assert containers_of_head(kind, after) == containers_of_head(kind, job)


def test_an_injection_writes_the_default_submitter_into_the_job() -> None:
    job = ray(RAY_JOB, cluster(), submissionMode="K8sJobMode")
    submitter = injected(RAY_JOB, job)["spec"]["submitterPodTemplate"]
    assert submitter["spec"]["nodeSelector"] == {"pool": "submitter"}
    assert submitter["spec"]["containers"][0]["name"] == "ray-job-submitter"
    assert (
        RAY_JOB.list_pod_sets(injected(RAY_JOB, job), NAMES)[2].get_template(injected(RAY_JOB, job))
        == submitter
    )


def test_stopped_job_has_no_default_submitter() -> None:
    job = ray(RAY_JOB, cluster(), submissionMode="K8sJobMode")
    running = injected(RAY_JOB, job)
    submitter = RAY_JOB.list_pod_sets(running, NAMES)[2]
    bare = {
        "metadata": {"labels": None},
        "spec": {**submitter.get_template(running)["spec"], "nodeSelector": None},
    }
    stopped = RAY_JOB.templates.with_template(running, submitter, bare, NAMES)
    assert "submitterPodTemplate" not in stopped["spec"]
    described = with_value(bare, ("spec", "containers", 0, "image"), "mine:1")
    kept = RAY_JOB.templates.with_template(running, submitter, described, NAMES)
    assert kept["spec"]["submitterPodTemplate"] == described


# --- status ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "active", "ready", "finished", "on_hold"),
    [
        ({}, False, False, None, False),
        ({"jobDeploymentStatus": ""}, False, False, None, False),
        ({"jobDeploymentStatus": "Suspended"}, False, False, None, False),
        ({"jobDeploymentStatus": "Suspending"}, True, False, None, False),
        ({"jobDeploymentStatus": "Initializing"}, True, False, None, False),
        (
            {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}},
            True,
            True,
            None,
            False,
        ),
        ({"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED"}, True, False, None, False),
        ({"jobDeploymentStatus": "ValidationFailed"}, True, False, None, True),
        (
            {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"},
            True,
            False,
            JobOutcome(True, "done"),
            False,
        ),
        (
            {"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"},
            True,
            False,
            JobOutcome(False, ""),
            False,
        ),
        (
            {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "no"},
            True,
            False,
            JobOutcome(False, "no"),
            False,
        ),
        ({"jobDeploymentStatus": "Failed"}, True, False, JobOutcome(False, ""), False),
    ],
)
def test_a_rayjob_stands_as_its_operator_says(
    status: Any, active: bool, ready: bool, finished: Any, on_hold: bool
) -> None:
    job = ray(RAY_JOB, cluster(), status=status)
    assert RAY_JOB.is_active(job) is active
    assert RAY_JOB.are_pods_ready(job) is ready
    assert RAY_JOB.find_outcome(job) == finished
    assert RAY_JOB.lifecycle.is_on_hold(job) is on_hold


@pytest.mark.parametrize(
    ("status", "active", "ready"),
    [
        ({}, False, False),
        ({"state": "ready"}, True, True),
        ({"state": "suspended"}, False, False),
        ({"conditions": [{"type": "RayClusterSuspending", "status": "True"}]}, True, False),
        ({"conditions": [{"type": "RayClusterSuspended", "status": "True"}]}, False, False),
    ],
)
def test_a_raycluster_is_active_while_ready_or_suspending(status: Any, active: bool, ready: bool) -> None:
    job = ray(RAY_CLUSTER, cluster(), status=status)
    assert (RAY_CLUSTER.is_active(job), RAY_CLUSTER.are_pods_ready(job)) == (active, ready)
    assert RAY_CLUSTER.find_outcome(job) is None


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_a_rayservice_is_active_while_it_takes_requests(status: str, ready: bool) -> None:
    job = ray(RAY_SERVICE, cluster(), status={"conditions": [{"type": "Ready", "status": status}]})
    assert (RAY_SERVICE.is_active(job), RAY_SERVICE.are_pods_ready(job)) == (ready, ready)
    assert RAY_SERVICE.find_outcome(job) is None


def test_the_suspension_stands_where_each_kind_has_it() -> None:
    for kind, path in ((RAY_JOB, ("spec",)), (RAY_CLUSTER, ("spec",)), (RAY_SERVICE, SPECS["RayService"])):
        suspended = kind.with_suspend(ray(kind, cluster()), True)
        assert value_at(suspended, (*path, "suspend")) is True
        assert kind.is_suspended(suspended, NAMES)


@pytest.mark.parametrize(
    ("described", "annotations", "cleaning"),
    [
        ({}, {}, False),
        ({"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}}, {}, True),
        ({}, {"ray.io/ft-enabled": "True"}, True),
        ({}, {"ray.io/ft-enabled": "false"}, False),
    ],
)
def test_a_fault_tolerant_service_cleans_up_when_it_goes(
    described: Any, annotations: Any, cleaning: bool
) -> None:
    assert (
        RAY_SERVICE.lifecycle.is_cleaning_up(ray(RAY_SERVICE, cluster(**described), annotations)) is cleaning
    )


# --- webhooks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RAY_CLUSTER, RAY_SERVICE], ids=lambda one: one.kind)
def test_the_pods_of_an_elastic_cluster_are_held(kind: Integration) -> None:
    gates = [{"name": NAMES.elastic_gate}]
    job = ray(kind, cluster(), ELASTIC)
    mutated = kind.webhook.mutate(job, RULES)
    found = [
        one.get_template(mutated)["spec"]["schedulingGates"] for one in kind.list_pod_sets(mutated, NAMES)
    ]
    assert found == [gates, gates]
    assert kind.webhook.mutate(mutated, RULES) == mutated
    assert kind.webhook.mutate(ray(kind, cluster()), RULES) == ray(kind, cluster())
    assert kind.webhook.mutate(job, RuleContext(NAMES, FeatureGates({Gate.ELASTIC_JOBS: False}))) == job


async def test_the_pods_of_an_elastic_rayjob_are_held_by_its_cluster() -> None:
    job = ray(RAY_JOB, cluster(), ELASTIC)
    assert RAY_JOB.webhook.mutate(job, RULES) == job
    by = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "r", "uid": "u", "controller": True}
    world = FakeLookups(owners={"r": with_value(job, ("metadata", "uid"), "u")})
    # The operator copies labels and annotations of the job.
    made = {**ray(RAY_CLUSTER, cluster(), ELASTIC), "apiVersion": "ray.io/v1", "kind": "RayCluster"}
    named = with_value(made, ("metadata", "name"), "r-x7k2p")
    child = with_value(named, ("metadata", "ownerReferences"), [by])
    ours = policy(integrations=(RAY_JOB, RAY_CLUSTER))
    held = await mutate_job(child, "team", RAY_CLUSTER, ours, world, None, OPERATOR)
    assert held == RAY_CLUSTER.webhook.mutate(child, RULES) != child
    plain = with_value(child, ("metadata", "annotations"), {})
    assert await mutate_job(plain, "team", RAY_CLUSTER, ours, world, None, OPERATOR) is plain


def groups(count: int) -> list[Any]:
    return [{"groupName": f"g{index}", "template": pod()} for index in range(count)]


def paths(errors: Any) -> list[str]:
    return [error.path for error in errors]


@ALL
@pytest.mark.parametrize(
    ("described", "annotations", "wrong"),
    [
        (cluster(), {}, []),
        (cluster(*groups(16)), {}, []),
        (cluster(*groups(18)), {}, ["workerGroupSpecs"]),
        (cluster({"groupName": "head", "template": pod()}), {}, ["workerGroupSpecs[0].groupName"]),
        (cluster({"groupName": "Head", "template": pod()}), {}, ["workerGroupSpecs[0].groupName"]),
        (cluster(enableInTreeAutoscaling=True), {}, ["enableInTreeAutoscaling"]),
        (cluster(enableInTreeAutoscaling=True), ELASTIC, []),
        (cluster(enableInTreeAutoscaling=False), {}, []),
    ],
)
def test_clusters_that_cannot_be_queued_are_refused(
    kind: Integration, described: Any, annotations: Any, wrong: list[str]
) -> None:
    job = ray(kind, described, annotations)
    prefix = ".".join(str(step) for step in SPECS[kind.kind])
    expected = [f"{prefix}.{path}" for path in wrong]
    unmanaged = RuleContext(NAMES, is_managed=False)
    assert paths(kind.webhook.validate_create(job, RULES)) == expected
    assert paths(kind.webhook.validate_update(job, job, RULES)) == expected
    assert not kind.webhook.validate_create(job, unmanaged)


@ALL
def test_d23_update_is_validated_if_the_object_is_managed_or_was_with_the_gate(kind: Integration) -> None:
    queued = ray(kind, cluster(*groups(18)))
    free = with_value(queued, ("metadata", "labels"), {})
    off = FeatureGates({Gate.VALIDATE_RAY_AND_SPARK_JOB_UPDATES: False})
    assert kind.webhook.should_validate_update(free, RULES)
    assert kind.webhook.should_validate_update(queued, RuleContext(NAMES, is_managed=False))
    assert not kind.webhook.should_validate_update(queued, RuleContext(NAMES, off, is_managed=False))
    assert not kind.webhook.should_validate_update(free, RuleContext(NAMES, is_managed=False))
    assert kind.webhook.validate_update(free, queued, RULES)


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({"rayClusterSpec": cluster()}, []),
        ({"rayClusterSpec": cluster(), "clusterSelector": {"ray.io/cluster": "c"}}, ["spec.clusterSelector"]),
        ({"clusterSelector": {"ray.io/cluster": "c"}}, []),
        ({}, ["spec.rayClusterSpec"]),
        ({"rayClusterSpec": cluster(), "shutdownAfterJobFinishes": False}, ["spec.shutdownAfterJobFinishes"]),
        ({"rayClusterSpec": cluster(), "shutdownAfterJobFinishes": None}, ["spec.shutdownAfterJobFinishes"]),
        (
            {"rayClusterSpec": cluster({"groupName": "submitter", "template": pod()})},
            ["spec.rayClusterSpec.workerGroupSpecs[0].groupName"],
        ),
        (
            {
                "rayClusterSpec": cluster({"groupName": "submitter", "template": pod()}),
                "submissionMode": "HTTPMode",
            },
            [],
        ),
    ],
)
def test_a_queued_rayjob_makes_its_own_cluster_and_deletes_it(spec: Any, wrong: list[str]) -> None:
    job = {"spec": {"shutdownAfterJobFinishes": True, **spec}}
    assert paths(RAY_JOB.webhook.validate_create(job, RULES)) == wrong
    assert not RAY_JOB.webhook.validate_create(job, RuleContext(NAMES, is_managed=False))


@pytest.mark.parametrize(
    ("selector", "skipped"), [(None, False), ({}, False), ("c", False), ({"ray.io/cluster": "c"}, True)]
)
def test_a_rayjob_for_a_cluster_that_is_there_is_none_of_ours(selector: Any, skipped: bool) -> None:
    assert RAY_JOB.lifecycle.is_ignored({"spec": {"clusterSelector": selector}}) is skipped


def test_a_cluster_that_scales_itself_stays_where_it_is() -> None:
    spec = cluster(enableInTreeAutoscaling=True, managedBy=KUEUE_MULTIKUEUE_CONTROLLER)
    assert paths(RAY_CLUSTER.webhook.validate_create(ray(RAY_CLUSTER, spec, ELASTIC), RULES)) == [
        "spec.managedBy"
    ]
    steady = cluster(managedBy=KUEUE_MULTIKUEUE_CONTROLLER)
    assert not RAY_CLUSTER.webhook.validate_create(ray(RAY_CLUSTER, steady, ELASTIC), RULES)


@ALL
@pytest.mark.parametrize(
    ("metadata", "version"),
    [
        ({}, "1"),
        ({"generation": 7}, "7"),
        ({"generation": 7, "annotations": {NAMES.ray_cluster_generation: "3"}}, "7_3"),
        ({"generation": 7, "annotations": {NAMES.ray_cluster_generation: ""}}, "7"),
        ({"generation": 7, "annotations": {NAMES.ray_cluster_generation: 3}}, "7"),
        ({"generation": 7, "annotations": None}, "7"),
    ],
)
def test_slices_are_distinguished_by_generations_of_job_and_cluster(
    kind: Integration, metadata: dict[str, Any], version: str
) -> None:
    assert kind.scaling.get_slice_version({"metadata": metadata}, NAMES) == version
