from typing import Any

import pytest

from admitq.integrations.base import (
    KUEUE_MULTIKUEUE_CONTROLLER,
    Integration,
    JobOutcome,
    PodSetTemplate,
    RuleContext,
)
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.kinds.rayservice import RAY_SERVICE
from admitq.integrations.references import ObjectReference
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
ALL = pytest.mark.parametrize("kind", [RAY_JOB, RAY_CLUSTER, RAY_SERVICE], ids=lambda kind: kind.kind)


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
def test_ray_head_and_worker_groups_are_podsets(kind: Integration) -> None:
    at = SPECS[kind.kind]
    assert kind.list_pod_sets(ray(kind, cluster()), NAMES) == [
        PodSetTemplate("head", 1, (*at, "headGroupSpec", "template")),
        PodSetTemplate("small", 2, (*at, "workerGroupSpecs", 0, "template")),
    ]


ACTIVE_AND_PENDING = {
    "rayClusterName": "active",
    "activeServiceStatus": {"rayClusterName": "active"},
    "pendingServiceStatus": {"rayClusterName": "pending"},
}
AUTOSCALED = {"enableInTreeAutoscaling": True}


@pytest.mark.parametrize(
    ("kind", "described", "status", "names"),
    [
        (RAY_JOB, AUTOSCALED, ACTIVE_AND_PENDING, ["active"]),
        (RAY_JOB, {}, ACTIVE_AND_PENDING, ["active"]),
        (RAY_JOB, AUTOSCALED, {}, []),
        (RAY_JOB, AUTOSCALED, {"rayClusterName": 7}, []),
        (RAY_SERVICE, AUTOSCALED, {"activeServiceStatus": {"rayClusterName": "active"}}, ["active"]),
        (RAY_SERVICE, AUTOSCALED, {"pendingServiceStatus": {"rayClusterName": "new"}}, ["new"]),
        (RAY_SERVICE, AUTOSCALED, {"activeServiceStatus": None, "pendingServiceStatus": []}, []),
        (RAY_SERVICE, AUTOSCALED, ACTIVE_AND_PENDING, ["active", "pending"]),
        (RAY_SERVICE, {}, ACTIVE_AND_PENDING, ["active", "pending"]),
        (RAY_SERVICE, {}, {"activeServiceStatus": {"rayClusterName": "active"}}, ["active"]),
        (RAY_CLUSTER, AUTOSCALED, ACTIVE_AND_PENDING, []),
    ],
)
def test_running_ray_job_references_the_clusters_in_its_status(
    kind: Integration, described: Any, status: Any, names: list[str]
) -> None:
    running = with_value(ray(kind, cluster(**described), status=status), ("metadata", "namespace"), "ns")
    references = kind.templates.list_references(running)
    assert [(str(reference), kind.is_required(reference)) for reference in references] == [
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
def test_ray_pod_counts_and_slice_version_follow_created_clusters(
    kind: Integration, clusters: Any, counts: list[int], version: str
) -> None:
    big = {"groupName": "big", "replicas": 3, "template": pod()}
    small = {"groupName": "small", "replicas": 2, "template": pod()}
    job = ray(kind, cluster(small, big, **AUTOSCALED), status=ACTIVE_AND_PENDING)
    referenced: dict[ObjectReference, Any] = {}
    for reference in kind.templates.list_references(job):
        if reference.name in clusters:
            groups = [{"groupName": name, "replicas": count} for name, count in clusters[reference.name]]
            referenced[reference] = {"metadata": {"generation": 4}, "spec": {"workerGroupSpecs": groups}}
    resolved = kind.templates.resolve(job, referenced)
    assert [pod_set.count for pod_set in kind.list_pod_sets(resolved, NAMES)] == counts
    assert kind.scaling.get_slice_version(resolved, NAMES) == version
    annotated = with_value(resolved, ("metadata", "annotations", NAMES.ray_cluster_generation), "9")
    assert kind.scaling.get_slice_version(annotated, NAMES) == "1_9", "the annotation overrides the clusters"
    assert [pod_set.get_template(resolved) for pod_set in kind.list_pod_sets(resolved, NAMES)] == [
        pod_set.get_template(job) for pod_set in kind.list_pod_sets(job, NAMES)
    ]


async def test_ray_webhook_does_not_read_created_cluster() -> None:
    job = ray(RAY_JOB, cluster(**AUTOSCALED), status=ACTIVE_AND_PENDING)
    assert RAY_JOB.templates.list_references(job)
    assert await resolve_references(job, "ns", RAY_JOB, FakeLookups(unavailable=True)) is job


@pytest.mark.parametrize(
    "malformed", [None, [], {}, {"spec": None}, {"spec": {"workerGroupSpecs": [None, 7, {}]}}]
)
def test_only_worker_counts_of_created_ray_cluster_are_cached(malformed: Any) -> None:
    [cluster_kind] = RAY_JOB.templates.referenced_kinds
    assert cluster_kind.trim_for_cache is not None
    cluster_kind.trim_for_cache(malformed)
    group = {"groupName": "small", "replicas": 5, "maxReplicas": 4, "numOfHosts": 2, "template": pod()}
    cached: Any = cluster_kind.trim_for_cache(
        {"metadata": {"generation": 4, "managedFields": []}, "spec": cluster(group)}
    )
    assert cached == {
        "metadata": {"generation": 4},
        "spec": {"workerGroupSpecs": [{key: value for key, value in group.items() if key != "template"}]},
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
def test_ray_group_count_is_hosts_of_all_replicas_within_bounds(
    kind: Integration, group: Any, count: int
) -> None:
    job = ray(kind, cluster({"groupName": "g", "template": pod(), **group}))
    assert [pod_set.count for pod_set in kind.list_pod_sets(job, NAMES)] == [1, count]


@ALL
def test_ray_podset_has_group_name_in_lower_case(kind: Integration) -> None:
    job = ray(kind, cluster({"groupName": "Large-GPU", "template": pod()}))
    assert [pod_set.name for pod_set in kind.list_pod_sets(job, NAMES)] == ["head", "large-gpu"]


def head_containers(kind: Integration, job: Any) -> Any:
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
def test_ray_autoscaler_is_counted_as_container_of_head(
    kind: Integration, options: Any, image: str, resources: Any
) -> None:
    job = ray(kind, cluster(enableInTreeAutoscaling=True, autoscalerOptions=options))
    own = pod()["spec"]["containers"][0]
    assert head_containers(kind, job) == [
        own,
        {"name": "autoscaler", "image": image, "resources": resources},
    ]


@ALL
@pytest.mark.parametrize(
    ("resources", "expected"),
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
def test_fault_tolerant_ray_head_requests_at_least_as_much_as_its_cleanup(
    kind: Integration, by_annotation: bool, resources: Any, expected: Any
) -> None:
    head = {"spec": {"containers": [{"name": "ray", "resources": resources}]}}
    if by_annotation:
        job = ray(kind, cluster(head=head), {"ray.io/ft-enabled": "true"})
    else:
        job = ray(kind, cluster(head=head, gcsFaultToleranceOptions={"redisAddress": "redis:6379"}))
    assert head_containers(kind, job)[0]["resources"] == expected


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
def test_rayjob_submitter_is_counted_according_to_submission_mode(
    mode: Any, own: Any, names: Any, head: Any
) -> None:
    job = ray(RAY_JOB, cluster(), submissionMode=mode, submitterPodTemplate=own)
    assert [pod_set.name for pod_set in RAY_JOB.list_pod_sets(job, NAMES)] == names
    assert [container["name"] for container in head_containers(RAY_JOB, job)] == head


def test_rayjob_default_submitter_is_that_of_the_operator() -> None:
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


def inject_node_selector(kind: Integration, job: Any) -> Any:
    for pod_set in kind.list_pod_sets(job, NAMES):
        template = with_value(pod_set.get_template(job), ("spec", "nodeSelector"), {"pool": pod_set.name})
        job = kind.templates.with_template(job, pod_set, template, NAMES)
    return job


@ALL
def test_ray_injection_does_not_write_containers_of_the_operator(kind: Integration) -> None:
    options = {"redisAddress": "redis:6379"}
    job = ray(kind, cluster(head=pod("10m"), enableInTreeAutoscaling=True, gcsFaultToleranceOptions=options))
    at = SPECS[kind.kind]
    after = inject_node_selector(kind, job)
    patch = value_at(create_merge_patch(job, after), at)
    assert set(patch) == {"headGroupSpec", "workerGroupSpecs"}
    assert patch["headGroupSpec"] == {"template": {"spec": {"nodeSelector": {"pool": "head"}}}}
    templates = [pod_set.get_template(after) for pod_set in kind.list_pod_sets(after, NAMES)]
    assert [template["spec"]["nodeSelector"] for template in templates] == [
        {"pool": "head"},
        {"pool": "small"},
    ]
    assert head_containers(kind, after) == head_containers(kind, job)


def test_rayjob_injection_writes_default_submitter_into_job() -> None:
    job = ray(RAY_JOB, cluster(), submissionMode="K8sJobMode")
    submitter = inject_node_selector(RAY_JOB, job)["spec"]["submitterPodTemplate"]
    assert submitter["spec"]["nodeSelector"] == {"pool": "submitter"}
    assert submitter["spec"]["containers"][0]["name"] == "ray-job-submitter"
    assert (
        RAY_JOB.list_pod_sets(inject_node_selector(RAY_JOB, job), NAMES)[2].get_template(
            inject_node_selector(RAY_JOB, job)
        )
        == submitter
    )


def test_rayjob_restore_removes_default_submitter_unless_customized() -> None:
    job = ray(RAY_JOB, cluster(), submissionMode="K8sJobMode")
    running = inject_node_selector(RAY_JOB, job)
    submitter = RAY_JOB.list_pod_sets(running, NAMES)[2]
    restored = {
        "metadata": {"labels": None},
        "spec": {**submitter.get_template(running)["spec"], "nodeSelector": None},
    }
    stopped = RAY_JOB.templates.with_template(running, submitter, restored, NAMES)
    assert "submitterPodTemplate" not in stopped["spec"]
    customized = with_value(restored, ("spec", "containers", 0, "image"), "mine:1")
    stopped = RAY_JOB.templates.with_template(running, submitter, customized, NAMES)
    assert stopped["spec"]["submitterPodTemplate"] == customized


# --- status ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "active", "ready", "outcome", "on_hold"),
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
def test_rayjob_state_follows_its_status(
    status: Any, active: bool, ready: bool, outcome: Any, on_hold: bool
) -> None:
    job = ray(RAY_JOB, cluster(), status=status)
    assert RAY_JOB.is_active(job) is active
    assert RAY_JOB.are_pods_ready(job) is ready
    assert RAY_JOB.find_outcome(job) == outcome
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
def test_raycluster_is_active_while_ready_or_suspending(status: Any, active: bool, ready: bool) -> None:
    job = ray(RAY_CLUSTER, cluster(), status=status)
    assert (RAY_CLUSTER.is_active(job), RAY_CLUSTER.are_pods_ready(job)) == (active, ready)
    assert RAY_CLUSTER.find_outcome(job) is None


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_rayservice_is_active_and_ready_by_its_condition(status: str, ready: bool) -> None:
    job = ray(RAY_SERVICE, cluster(), status={"conditions": [{"type": "Ready", "status": status}]})
    assert (RAY_SERVICE.is_active(job), RAY_SERVICE.are_pods_ready(job)) == (ready, ready)
    assert RAY_SERVICE.find_outcome(job) is None


def test_ray_suspend_field_is_in_spec_or_cluster_spec_of_the_kind() -> None:
    for kind, path in ((RAY_JOB, ("spec",)), (RAY_CLUSTER, ("spec",)), (RAY_SERVICE, SPECS["RayService"])):
        suspended = kind.with_suspend(ray(kind, cluster()), True)
        assert value_at(suspended, (*path, "suspend")) is True
        assert kind.is_suspended(suspended, NAMES)


@pytest.mark.parametrize(
    ("described", "annotations", "is_cleaning_up"),
    [
        ({}, {}, False),
        ({"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}}, {}, True),
        ({}, {"ray.io/ft-enabled": "True"}, True),
        ({}, {"ray.io/ft-enabled": "false"}, False),
    ],
)
def test_rayservice_cleans_up_only_if_fault_tolerant(
    described: Any, annotations: Any, is_cleaning_up: bool
) -> None:
    service = ray(RAY_SERVICE, cluster(**described), annotations)
    assert RAY_SERVICE.lifecycle.is_cleaning_up(service) is is_cleaning_up


# --- webhooks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RAY_CLUSTER, RAY_SERVICE], ids=lambda kind: kind.kind)
def test_elastic_ray_templates_get_elastic_gate(kind: Integration) -> None:
    gates = [{"name": NAMES.elastic_gate}]
    job = ray(kind, cluster(), ELASTIC)
    mutated = kind.webhook.mutate(job, RULES)
    templates = [pod_set.get_template(mutated) for pod_set in kind.list_pod_sets(mutated, NAMES)]
    assert [template["spec"]["schedulingGates"] for template in templates] == [gates, gates]
    assert kind.webhook.mutate(mutated, RULES) == mutated
    assert kind.webhook.mutate(ray(kind, cluster()), RULES) == ray(kind, cluster())
    assert kind.webhook.mutate(job, RuleContext(NAMES, FeatureGates({Gate.ELASTIC_JOBS: False}))) == job


async def test_elastic_rayjob_pods_are_gated_by_mutation_of_its_cluster() -> None:
    job = ray(RAY_JOB, cluster(), ELASTIC)
    assert RAY_JOB.webhook.mutate(job, RULES) == job
    reference = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "r", "uid": "u", "controller": True}
    lookups = FakeLookups(objects={"r": with_value(job, ("metadata", "uid"), "u")})
    # The operator copies labels and annotations of the job.
    child = {**ray(RAY_CLUSTER, cluster(), ELASTIC), "apiVersion": "ray.io/v1", "kind": "RayCluster"}
    child = with_value(child, ("metadata", "name"), "r-x7k2p")
    child = with_value(child, ("metadata", "ownerReferences"), [reference])
    kinds = policy(integrations=(RAY_JOB, RAY_CLUSTER))
    gated = await mutate_job(child, "team", RAY_CLUSTER, kinds, lookups, None, OPERATOR)
    assert gated == RAY_CLUSTER.webhook.mutate(child, RULES) != child
    not_elastic = with_value(child, ("metadata", "annotations"), {})
    assert await mutate_job(not_elastic, "team", RAY_CLUSTER, kinds, lookups, None, OPERATOR) is not_elastic


def groups(count: int) -> list[Any]:
    return [{"groupName": f"g{index}", "template": pod()} for index in range(count)]


def paths(errors: Any) -> list[str]:
    return [error.path for error in errors]


@ALL
@pytest.mark.parametrize(
    ("described", "annotations", "invalid_fields"),
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
def test_unsupported_ray_cluster_spec_is_rejected_if_managed(
    kind: Integration, described: Any, annotations: Any, invalid_fields: list[str]
) -> None:
    job = ray(kind, described, annotations)
    prefix = ".".join(str(step) for step in SPECS[kind.kind])
    expected = [f"{prefix}.{path}" for path in invalid_fields]
    unmanaged = RuleContext(NAMES, is_managed=False)
    assert paths(kind.webhook.validate_create(job, RULES)) == expected
    assert paths(kind.webhook.validate_update(job, job, RULES)) == expected
    assert not kind.webhook.validate_create(job, unmanaged)


@ALL
def test_d23_ray_update_is_validated_if_managed_or_previously_queued_with_the_gate(kind: Integration) -> None:
    queued = ray(kind, cluster(*groups(18)))
    unqueued = with_value(queued, ("metadata", "labels"), {})
    without_gate = FeatureGates({Gate.VALIDATE_RAY_AND_SPARK_JOB_UPDATES: False})
    assert kind.webhook.should_validate_update(unqueued, RULES)
    assert kind.webhook.should_validate_update(queued, RuleContext(NAMES, is_managed=False))
    assert not kind.webhook.should_validate_update(queued, RuleContext(NAMES, without_gate, is_managed=False))
    assert not kind.webhook.should_validate_update(unqueued, RuleContext(NAMES, is_managed=False))
    assert kind.webhook.validate_update(unqueued, queued, RULES)


@pytest.mark.parametrize(
    ("spec", "invalid_fields"),
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
def test_queued_rayjob_must_create_and_delete_its_cluster(spec: Any, invalid_fields: list[str]) -> None:
    job = {"spec": {"shutdownAfterJobFinishes": True, **spec}}
    assert paths(RAY_JOB.webhook.validate_create(job, RULES)) == invalid_fields
    assert not RAY_JOB.webhook.validate_create(job, RuleContext(NAMES, is_managed=False))


@pytest.mark.parametrize(
    ("selector", "is_ignored"), [(None, False), ({}, False), ("c", False), ({"ray.io/cluster": "c"}, True)]
)
def test_rayjob_with_cluster_selector_is_ignored(selector: Any, is_ignored: bool) -> None:
    assert RAY_JOB.lifecycle.is_ignored({"spec": {"clusterSelector": selector}}) is is_ignored


def test_autoscaling_raycluster_managed_by_multikueue_is_rejected() -> None:
    spec = cluster(enableInTreeAutoscaling=True, managedBy=KUEUE_MULTIKUEUE_CONTROLLER)
    assert paths(RAY_CLUSTER.webhook.validate_create(ray(RAY_CLUSTER, spec, ELASTIC), RULES)) == [
        "spec.managedBy"
    ]
    without_autoscaling = cluster(managedBy=KUEUE_MULTIKUEUE_CONTROLLER)
    assert not RAY_CLUSTER.webhook.validate_create(ray(RAY_CLUSTER, without_autoscaling, ELASTIC), RULES)


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
def test_ray_slice_version_contains_generations_of_job_and_cluster(
    kind: Integration, metadata: dict[str, Any], version: str
) -> None:
    assert kind.scaling.get_slice_version({"metadata": metadata}, NAMES) == version
