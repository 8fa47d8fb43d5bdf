"""What is found before a take-over, and what follows from it."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from admitq.adoption.checks import CHECKS, Severity
from admitq.adoption.cluster import Cluster, FoundConfiguration
from admitq.adoption.plan import make_chart_values, make_plan, workload_state
from admitq_api.configuration import load_configuration
from admitq_api.feature_gates import Gate, get_note
from admitq_api.labels import COMPAT_GROUP, names_for

NAMES = names_for(COMPAT_GROUP)
TRUE = {"status": "True"}
SPARING = {
    "key": "kubernetes.io/metadata.name",
    "operator": "NotIn",
    "values": ["kube-system", "their-system"],
}


def definition(
    plural: str = "workloads",
    stored: tuple[str, ...] = ("v1beta2",),
    served: tuple[str, ...] = ("v1beta1", "v1beta2"),
    **metadata: Any,
) -> Any:
    versions = [{"name": version, "served": version in served} for version in ("v1beta1", "v1beta2")]
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
    selector = {"matchLabels": {"app": "theirs"}}
    return named(
        "controller", "their-system", spec={"replicas": replicas, "selector": selector, "template": pods}
    )


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
    "no-way-back": [
        (
            {"definitions": {"workloads": definition(served=("v1beta1",), stored=("v1beta1",))}},
            ["workloads"],
        ),
    ],
    "unknown-fields": [
        (
            {
                "definitions": {"workloads": definition()},
                "objects": {
                    "workloads": (
                        workload("Admitted", spec={"later": 1}, status={"admission": {"clusterQueue": "q"}}),
                        workload(
                            spec={"later": 2, "active": True, "podSets": [{"template": {"spec": {"new": 1}}}]}
                        ),
                        workload("Finished", spec={"never": 1}),
                    )
                },
            },
            ["spec.later of workloads/w in team and 1 more"],
        ),
        (
            {
                "definitions": {"clusterqueues": definition("clusterqueues")},
                **holding(
                    clusterqueues=named(
                        "q",
                        spec={
                            "queueingStrategy": "Later",
                            "namespaceSelector": {"matchLabels": {"a": "b"}},
                            "resourceGroups": [{"flavors": [{"name": "f", "weight": 1}]}],
                        },
                    )
                ),
            },
            [
                "spec.queueingStrategy: Later of clusterqueues/q",
                "spec.resourceGroups[].flavors[].weight of clusterqueues/q",
            ],
        ),
        (
            {"definitions": {"robots": definition("robots")}, **holding(robots=named("r"))},
            ["all of robots/r"],
        ),
        # What v1beta1 calls otherwise is known where objects are read in it.
        (
            {
                "definitions": {"clusterqueues": definition("clusterqueues", served=("v1beta1",))},
                **holding(clusterqueues=named("q", spec={"cohort": "c", "cohortName": "c"})),
            },
            ["spec.cohortName of clusterqueues/q"],
        ),
    ],
    "configuration": [
        (configured(nonsense=1), ["nonsense: unknown field: remove it (configmaps/c in their-system, f)"]),
    ],
    "unknown-gates": [
        (configured(featureGates={"Later": True, "PartialAdmission": True}), ["Later"]),
        ({"deployments": (deployment("--feature-gates=Later=true,"),)}, ["Later"]),
        ({"deployments": (deployment("--feature-gates", "Later=true"),)}, ["Later"]),
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
            holding(workloads=workload(spec={"podSets": [{"topologyRequest": {"podIndexLabel": "index"}}]})),
            [],
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
    "kept-by-others": [
        (
            {
                "deployments": (
                    named(
                        "controller",
                        "their-system",
                        metadata={
                            "annotations": {"argocd.argoproj.io/tracking-id": "x"},
                            "labels": {"kustomize.toolkit.fluxcd.io/name": "x", "app": "theirs"},
                            "ownerReferences": [{"kind": "Operator", "name": "o"}],
                        },
                    ),
                )
            },
            [
                "deployments/controller in their-system by Argo CD",
                "deployments/controller in their-system by Flux",
                "deployments/controller in their-system by Operator o",
            ],
        ),
        (
            {"definitions": {"workloads": definition(labels={"olm.managed": "true"})}},
            [f"customresourcedefinitions/workloads.{COMPAT_GROUP} by Operator Lifecycle Manager"],
        ),
    ],
    "injected-ca": [
        (
            {"definitions": {"workloads": definition(annotations={"cert-manager.io/inject-ca-from": "a/b"})}},
            [f"customresourcedefinitions/workloads.{COMPAT_GROUP}"],
        )
    ],
    "there-already": [({"ours": (named("admitq-webhook", "s"),)}, ["deployments/admitq-webhook in s"])],
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
            configured(
                featureGates={
                    "TASBalancedPlacement": True,
                    "TopologyAwareScheduling": True,
                    "VisibilityOnDemand": False,
                    "PartialAdmission": False,
                    "PriorityBoost": True,
                    "TLSOptions": True,
                    "VectorizedResourceRequests": True,
                }
            ),
            [
                "TASBalancedPlacement: has no effect: its feature is not implemented yet",
                f"TopologyAwareScheduling: {get_note(Gate.TOPOLOGY_AWARE_SCHEDULING)}",
            ],
        )
    ],
    "fields-without-effect": [
        (configured(pprofBindAddress=":6060"), ["pprofBindAddress in configmaps/c in their-system, f"]),
        (configured(pprofBindAddress="0", clientConnection={"qps": 9}), []),
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
    made = make_plan(read)
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
    made = make_plan(usual)
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
    assert workload_state(workload(*conditions)) == state


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
    made = make_chart_values(read)
    assert made["apiGroup"] == COMPAT_GROUP
    assert made["config"] == {
        "metrics": {"enableClusterQueueResources": True},
        "controller": {"groupKindConcurrency": {"Job.batch": 5}},
        "clientConnection": {"qps": 50.0, "burst": 100},
        "waitForPodsReady": {"timeout": "5m0s", "blockAdmission": True},
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
        "featureGates": {"PartialAdmission": False},
        "managedJobsNamespaceSelector": {"matchLabels": {"queued": "yes"}},
        "leaderElection": {"resourceName": NAMES.lease_name},
    }


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (None, None),
        ({"matchLabels": {"queued": "yes"}}, {"matchLabels": {"queued": "yes"}}),
        ({}, {"matchExpressions": [SPARING]}),
        (
            {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]},
            {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}, SPARING]},
        ),
    ],
)
def test_values_spare_the_namespace_that_managers_share(given: Any, made: Any) -> None:
    file = {} if given is None else {"managedJobsNamespaceSelector": given}
    told = make_chart_values(cluster(deployments=(deployment(),), **configured(**file)))
    assert told["config"].get("managedJobsNamespaceSelector") == made


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, {"featureGates": {"DisableWaitForPodsReady": True}}),
        (
            {"waitForPodsReady": {"enable": False}, "featureGates": {"PriorityBoost": True}},
            {"featureGates": {"PriorityBoost": True, "DisableWaitForPodsReady": True}},
        ),
        (
            {"waitForPodsReady": {"enable": True}},
            {"waitForPodsReady": {"timeout": "5m0s", "blockAdmission": True}},
        ),
    ],
)
def test_file_of_the_older_version_is_converted(given: Any, told: Any) -> None:
    older = {"apiVersion": NAMES.config_api_version.replace("v1beta2", "v1beta1")}
    made = make_chart_values(cluster(**configured(**older, **given)))["config"]
    assert made == told
    # The chart's file is of the newer version, in which waiting is on unless it is switched off.
    newer = configured(**made)["configurations"][0].given
    assert load_configuration(yaml.safe_dump(dict(newer))).create_feature_gates()[
        Gate.DISABLE_WAIT_FOR_PODS_READY
    ] == ("featureGates" in told)


def test_webhooks_always_answer_and_managers_never_run_together() -> None:
    made = make_plan(
        cluster(
            definitions={"workloads": definition(annotations={"cert-manager.io/inject-ca-from": "a/b"})},
            deployments=(deployment(replicas=2),),
            webhooks=({"kind": "MutatingWebhookConfiguration", **named("m")},),
            api_services=("v1beta2.visibility.example.com",),
        )
    )
    commands = [command for step in made.steps for command in step.commands]
    keep = ["> definitions.yaml", "> webhooks.yaml", "> apis.yaml", "> before.txt"]
    install = ["manager.replicas=0 --take-ownership", "annotate"]
    delete = ["delete mutatingwebhook", "delete apiservice"]
    stop = ["controller --replicas=0", "wait --for=delete pod"]
    start = ["restart deployment admitq-webhook", "values.yaml --wait"]
    assert in_order(commands, [*keep, "> values.yaml", *install, *delete, *stop, *start, "diff before.txt"])
    back = [command for step in made.way_back for command in step.commands]
    start = ["controller --replicas=2", "definitions.yaml", "webhooks.yaml", "apis.yaml", "rollout status"]
    assert in_order(back, ["admitq-manager --replicas=0", "wait", *start, "uninstall admitq"])
    # Where the other's webhooks spare it, and the other's Lease is.
    assert all("--namespace their-system" in one for one in (*commands, *back) if "helm " in one)


def in_order(commands: list[str], marks: list[str]) -> bool:
    """Whether there is a command with each mark, one after the other."""
    places = [next(i for i, command in enumerate(commands) if mark in command) for mark in marks]
    return places == sorted(places)


def test_the_plan_as_json_has_everything() -> None:
    made = make_plan(cluster(**holding(topologies=named("rack")))).to_dict()
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
