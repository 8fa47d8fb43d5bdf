"""What is found before a take-over, and what follows from it."""

from collections.abc import Mapping
from typing import Any

import pytest

from admitq.adoption.checks import CHECKS, Severity
from admitq.adoption.cluster import Cluster, FoundConfiguration
from admitq.adoption.plan import plan, state_of, values
from admitq_api.labels import COMPAT_GROUP, names_for

NAMES = names_for(COMPAT_GROUP)
TRUE = {"status": "True"}


def definition(plural: str = "workloads", stored: tuple[str, ...] = ("v1beta2",), **metadata: Any) -> Any:
    versions = [{"name": version, "served": True} for version in ("v1beta1", "v1beta2")]
    return {
        "metadata": {"name": f"{plural}.{COMPAT_GROUP}", **metadata},
        "spec": {"group": COMPAT_GROUP, "versions": versions},
        "status": {"storedVersions": list(stored)},
    }


def named(name: str, namespace: str | None = None, **parts: Any) -> Any:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **parts.pop("metadata", {})}
    return {"metadata": metadata, **parts}


def workload(*conditions: str, **parts: Any) -> Any:
    told = [{"type": one, **TRUE} for one in conditions]
    status = {**parts.pop("status", {}), "conditions": told}
    return named("w", "team", **parts, status=status)


def deployment(*arguments: str, replicas: int = 1) -> Any:
    pods = {"spec": {"containers": [{"image": "example.com/kueue:1", "args": list(arguments)}]}}
    return named("controller", "their-system", spec={"replicas": replicas, "template": pods})


def holding(**objects: Any) -> dict[str, Any]:
    return {"objects": {plural: (one,) for plural, one in objects.items()}}


def configured(**given: Any) -> dict[str, Any]:
    whole = {"apiVersion": NAMES.config_api_version, "kind": "Configuration", **given}
    return {"configurations": (FoundConfiguration("configmaps/c in their-system, f", whole),)}


FOUND: dict[str, list[tuple[Mapping[str, Any], list[str]]]] = {
    "unreadable": [({"unread": ("nodes: forbidden",)}, ["nodes: forbidden"])],
    "nothing-to-adopt": [({"definitions": {}}, [f"no CustomResourceDefinition of {COMPAT_GROUP}"])],
    "definitions-ending": [
        (
            {"definitions": {"workloads": definition(deletionTimestamp="2030-01-01T00:00:00Z")}},
            [f"customresourcedefinitions/workloads.{COMPAT_GROUP}"],
        )
    ],
    "versions": [
        (
            {"definitions": {"workloads": definition(stored=("v1alpha1", "v1beta1"))}},
            ["workloads in v1alpha1"],
        )
    ],
    "configuration": [
        (configured(nonsense=1), ["nonsense: unknown field: remove it (configmaps/c in their-system, f)"]),
    ],
    "unknown-gates": [
        (configured(featureGates={"Later": True, "PartialAdmission": True}), ["Later"]),
        ({"deployments": (deployment("--feature-gates=Later=true,"),)}, ["Later"]),
    ],
    "topology": [
        (holding(topologies=named("rack")), ["topologies/rack"]),
        (
            holding(resourceflavors=named("f", spec={"topologyName": "rack"})),
            ["resourceflavors/f"],
        ),
        (
            holding(workloads=workload(spec={"podSets": [{"topologyRequest": {"preferred": "rack"}}]})),
            ["workloads/w in team"],
        ),
        (
            holding(
                workloads=workload(
                    status={"admission": {"podSetAssignments": [{"topologyAssignment": {"levels": ["l"]}}]}},
                )
            ),
            ["workloads/w in team"],
        ),
        (
            holding(
                workloads=workload("Finished", spec={"podSets": [{"topologyRequest": {"preferred": "r"}}]})
            ),
            [],
        ),
    ],
    "multikueue": [
        (
            holding(admissionchecks=named("c", spec={"controllerName": NAMES.multikueue_controller})),
            ["admissionchecks/c"],
        ),
        (holding(admissionchecks=named("c", spec={"controllerName": NAMES.provisioning_controller})), []),
        (holding(multikueueclusters=named("c")), ["multikueueclusters/c"]),
        (holding(multikueueconfigs=named("c")), ["multikueueconfigs/c"]),
        (holding(workloads=workload(status={"clusterName": "far"})), ["workloads/w in team"]),
        (
            holding(workloads=workload(metadata={"labels": {NAMES.multikueue_origin: "far"}})),
            ["workloads/w in team"],
        ),
    ],
    "concurrent-admission": [
        (
            holding(clusterqueues=named("q", spec={"concurrentAdmissionPolicy": {"migration": {}}})),
            ["clusterqueues/q"],
        ),
        (
            holding(workloads=workload(metadata={"labels": {NAMES.concurrent_admission_parent: "true"}})),
            ["workloads/w in team"],
        ),
    ],
    "devices": [
        (
            configured(resources={"deviceClassMappings": [{"name": "gpu", "deviceClassNames": ["gpu.com"]}]}),
            ["resources.deviceClassMappings in configmaps/c in their-system, f"],
        ),
        (
            holding(
                workloads=workload(
                    spec={"podSets": [{"template": {"spec": {"resourceClaims": [{"name": "gpu"}]}}}]}
                )
            ),
            ["workloads/w in team"],
        ),
    ],
    "in-charge": [
        ({"deployments": (deployment(),)}, ["deployments/controller in their-system"]),
        ({"deployments": (deployment(replicas=0),)}, []),
        (
            {"leases": (named("l", "their-system", spec={"holderIdentity": "pod_1"}),)},
            ["leases/l in their-system, held by pod_1"],
        ),
        ({"leases": (named("l", "their-system", spec={"holderIdentity": ""}),)}, []),
    ],
    "webhooks": [
        (
            {"webhooks": ({"kind": "MutatingWebhookConfiguration", **named("m")},)},
            ["mutatingwebhookconfigurations/m"],
        )
    ],
    "definitions-of-a-release": [
        (
            {"definitions": {"workloads": definition(annotations={"meta.helm.sh/release-name": "theirs"})}},
            [f"customresourcedefinitions/workloads.{COMPAT_GROUP} of release theirs"],
        ),
        (
            {
                "definitions": {
                    "workloads": definition(
                        annotations={
                            "meta.helm.sh/release-name": "theirs",
                            "helm.sh/resource-policy": "keep",
                        }
                    )
                }
            },
            [],
        ),
    ],
    "stored-v1beta1": [
        ({"definitions": {"workloads": definition(stored=("v1beta1", "v1beta2"))}}, ["workloads"]),
    ],
    "dropped-fields": [
        (
            {"older": {"admissionchecks": (named("c", spec={"retryDelayMinutes": 5}),)}},
            ["spec.retryDelayMinutes of admissionchecks/c"],
        )
    ],
    "gates-without-effect": [
        (
            configured(featureGates={"TASBalancedPlacement": True, "PartialAdmission": False}),
            ["TASBalancedPlacement=true"],
        )
    ],
    "visibility": [
        (
            {"api_services": ("v1beta2.visibility.example.com",)},
            ["apiservices/v1beta2.visibility.example.com"],
        )
    ],
    "between": [
        (holding(workloads=workload("Evicted", "QuotaReserved")), ["workloads/w in team"]),
        (holding(workloads=workload("Evicted")), []),
        (holding(workloads=workload("QuotaReserved")), []),
    ],
    "other-checks": [
        (
            holding(admissionchecks=named("c", spec={"controllerName": "example.com/budget"})),
            ["admissionchecks/c of example.com/budget"],
        )
    ],
}
"""By check: what there is, and where it finds something."""


def cluster(**parts: Any) -> Cluster:
    whole: dict[str, Any] = {"definitions": {"workloads": definition()}, **parts}
    return Cluster(NAMES, **whole)


@pytest.mark.parametrize(
    ("check", "parts", "places"),
    [
        pytest.param(check, parts, places, id=f"{check.name}-{number}")
        for check in CHECKS
        for number, (parts, places) in enumerate(FOUND[check.name])
    ],
)
def test_a_check_finds_what_it_looks_for(check: Any, parts: Any, places: list[str]) -> None:
    read = cluster(**parts)
    assert list(check.find(read)) == places
    made = plan(read)
    assert {one.check.name: list(one.places) for one in made.findings}.get(check.name, []) == places
    if places:
        assert made.is_clear == (check.severity is not Severity.BLOCKS)


def test_a_usual_cluster_is_clear() -> None:
    usual = cluster(
        objects={
            "clusterqueues": (named("q", spec={}),),
            "resourceflavors": (named("f", spec={"nodeLabels": {"a": "b"}}),),
            "admissionchecks": (named("c", spec={"controllerName": NAMES.provisioning_controller}),),
            "workloads": (
                workload(spec={"podSets": [{"template": {"spec": {}}}]}),
                workload("QuotaReserved", "Admitted"),
            ),
        },
        deployments=(deployment("--config=/c.yaml", "--feature-gates=PartialAdmission=false", replicas=0),),
        **configured(integrations={"frameworks": ["batch/job", "pod"]}),
    )
    made = plan(usual)
    assert (made.findings, made.is_clear) == ((), True)
    assert made.workloads == {"pending": 1, "quota reserved": 0, "admitted": 1, "finished": 0}


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ((), "pending"),
        (("Evicted",), "pending"),
        (("QuotaReserved",), "quota reserved"),
        (("QuotaReserved", "Admitted"), "admitted"),
        (("QuotaReserved", "Admitted", "Finished"), "finished"),
    ],
)
def test_a_workload_is_counted_by_how_far_it_got(conditions: tuple[str, ...], state: str) -> None:
    assert state_of(workload(*conditions)) == state


def test_values_say_what_the_file_says_and_leave_to_the_chart_what_is_its_own() -> None:
    read = cluster(
        deployments=(deployment("--config=/c.yaml"),),
        **configured(
            webhook={"port": 9443},
            health={"healthProbeBindAddress": ":8081"},
            metrics={"bindAddress": ":8080", "enableClusterQueueResources": True},
            leaderElection={"leaderElect": True, "resourceName": NAMES.lease_name},
            controller={"groupKindConcurrency": {"Job.batch": 5}},
            clientConnection={"qps": 50, "burst": 100},
            waitForPodsReady={"timeout": "5m", "blockAdmission": True},
            integrations={"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
            managedJobsNamespaceSelector={"matchLabels": {"queued": "yes"}},
            featureGates={"PartialAdmission": False, "Later": True},
        ),
    )
    made = values(read)
    assert made["apiGroup"] == COMPAT_GROUP
    assert made["config"] == {
        "metrics": {"enableClusterQueueResources": True},
        "controller": {"groupKindConcurrency": {"Job.batch": 5}},
        "clientConnection": {"qps": 50.0, "burst": 100},
        "waitForPodsReady": {"timeout": "5m0s", "blockAdmission": True},
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
        "featureGates": {"PartialAdmission": False},
        "managedJobsNamespaceSelector": {
            "matchLabels": {"queued": "yes"},
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", "admitq-system", "their-system"],
                }
            ],
        },
    }


def test_steps_stop_the_manager_before_admitq_starts_and_its_webhooks_after() -> None:
    made = plan(
        cluster(
            deployments=(deployment(replicas=2),),
            webhooks=({"kind": "MutatingWebhookConfiguration", **named("m")},),
            api_services=("v1beta2.visibility.example.com",),
        )
    )
    commands = [command for step in made.steps for command in step.commands]
    stop = ["get mutatingwebhook", "controller --replicas=0"]
    assert in_order(commands, [*stop, "helm install", "delete mutatingwebhook", "delete apiservice"])
    back = [command for step in made.way_back for command in step.commands]
    start = ["definitions.yaml", "controller --replicas=2", "webhooks.yaml"]
    assert in_order(back, ["admitq-system scale", *start, "uninstall admitq"])


def in_order(commands: list[str], marks: list[str]) -> bool:
    """Whether there is a command with each mark, one after the other."""
    places = [next(i for i, command in enumerate(commands) if mark in command) for mark in marks]
    return places == sorted(places)


def test_the_plan_as_json_has_everything() -> None:
    made = plan(cluster(**holding(topologies=named("rack")))).to_dict()
    assert made["clear"] is False
    assert made["storedVersions"] == ["v1beta2"]
    assert made["servedVersions"] == ["v1beta1", "v1beta2"]
    assert made["objects"] == {"workloads": 0}
    [finding] = made["findings"]
    assert (finding["name"], finding["severity"], finding["places"]) == (
        "topology",
        "blocks",
        ["topologies/rack"],
    )
    assert all({"what", "commands"} == set(step) for step in (*made["steps"], *made["wayBack"]))
