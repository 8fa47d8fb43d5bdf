"""Checks before an adoption, the plan that follows from their findings, and the values of the chart."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from admitq.adoption.checks import CHECKS, Severity
from admitq.adoption.cluster import Cluster, FoundConfiguration
from admitq.adoption.plan import make_chart_values, make_plan, workload_state
from admitq_api.configuration import load_configuration
from admitq_api.feature_gates import Gate
from admitq_api.labels import COMPAT_GROUP, names_for

NAMES = names_for(COMPAT_GROUP)
TRUE = {"status": "True"}
EXCLUDES_SHARED_NAMESPACES = {
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
    status = {**parts.pop("status", {}), "conditions": [{"type": name, **TRUE} for name in conditions]}
    return named("w", "team", **parts, status=status)


def deployment(*arguments: str, replicas: int = 1) -> Any:
    pods = {"spec": {"containers": [{"image": "example.com/kueue:1", "args": list(arguments)}]}}
    selector = {"matchLabels": {"app": "theirs"}}
    return named(
        "controller", "their-system", spec={"replicas": replicas, "selector": selector, "template": pods}
    )


def holding(**objects: Any) -> dict[str, Any]:
    return {"objects": {plural: (item,) for plural, item in objects.items()}}


def configured(**given: Any) -> dict[str, Any]:
    whole = {"apiVersion": NAMES.config_api_version, "kind": "Configuration", **given}
    return {"configurations": (FoundConfiguration("configmaps/c in their-system, f", whole),)}


CASES: dict[str, list[tuple[Mapping[str, Any], list[str]]]] = {
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
        # Names of fields that differ in v1beta1 are known where objects are read as v1beta1.
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
    "there-already": [
        ({"own_deployments": (named("admitq-webhook", "s"),)}, ["deployments/admitq-webhook in s"])
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
            configured(
                featureGates={
                    "SchedulerLibraryIntegration": True,
                    "TopologyAwareScheduling": True,
                    "VisibilityOnDemand": False,
                    "PartialAdmission": False,
                    "PriorityBoost": True,
                    "TLSOptions": True,
                    "VectorizedResourceRequests": True,
                }
            ),
            ["SchedulerLibraryIntegration: has no effect: its feature is not implemented yet"],
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
"""By check: parts of a cluster, and the places that the check reports for them."""


def cluster(**parts: Any) -> Cluster:
    whole: dict[str, Any] = {"definitions": {"workloads": definition()}, **parts}
    return Cluster(NAMES, **whole)


@pytest.mark.parametrize(
    ("check", "parts", "places"),
    [
        pytest.param(check, parts, places, id=f"{check.name}-{number}")
        for check in CHECKS
        for number, (parts, places) in enumerate(CASES[check.name])
    ],
)
def test_check_reports_places_of_its_problem(check: Any, parts: Any, places: list[str]) -> None:
    read = cluster(**parts)
    assert list(check.find(read)) == places
    plan = make_plan(read)
    places_by_check = {finding.check.name: list(finding.places) for finding in plan.findings}
    assert places_by_check.get(check.name, []) == places
    if places:
        assert plan.is_clear == (check.severity is not Severity.BLOCKS)


def test_plan_of_usual_cluster_has_no_findings() -> None:
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
    plan = make_plan(usual)
    assert (plan.findings, plan.is_clear) == ((), True)
    assert plan.workloads == {"pending": 1, "quota reserved": 0, "admitted": 1, "finished": 0}


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
def test_workload_state_is_the_latest_that_conditions_show(conditions: tuple[str, ...], state: str) -> None:
    assert workload_state(workload(*conditions)) == state


def test_chart_values_keep_settings_of_file_except_those_of_the_chart() -> None:
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
    values = make_chart_values(read)
    assert values["apiGroup"] == COMPAT_GROUP
    assert values["config"] == {
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
    ("given", "expected"),
    [
        (None, None),
        ({"matchLabels": {"queued": "yes"}}, {"matchLabels": {"queued": "yes"}}),
        ({}, {"matchExpressions": [EXCLUDES_SHARED_NAMESPACES]}),
        (
            {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]},
            {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}, EXCLUDES_SHARED_NAMESPACES]},
        ),
    ],
)
def test_chart_values_exclude_shared_namespaces_from_selector(given: Any, expected: Any) -> None:
    file = {} if given is None else {"managedJobsNamespaceSelector": given}
    values = make_chart_values(cluster(deployments=(deployment(),), **configured(**file)))
    assert values["config"].get("managedJobsNamespaceSelector") == expected


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_chart_values_convert_v1beta1_configuration(given: Any, expected: Any) -> None:
    older = {"apiVersion": NAMES.config_api_version.replace("v1beta2", "v1beta1")}
    values = make_chart_values(cluster(**configured(**older, **given)))["config"]
    assert values == expected
    # The chart's file is of v1beta2: there, waitForPodsReady is on unless a gate switches it off.
    newer = configured(**values)["configurations"][0].document
    assert load_configuration(yaml.safe_dump(dict(newer))).create_feature_gates()[
        Gate.DISABLE_WAIT_FOR_PODS_READY
    ] == ("featureGates" in expected)


def test_plan_steps_keep_webhooks_answering_and_never_run_two_managers() -> None:
    plan = make_plan(
        cluster(
            definitions={"workloads": definition(annotations={"cert-manager.io/inject-ca-from": "a/b"})},
            deployments=(deployment(replicas=2),),
            webhooks=({"kind": "MutatingWebhookConfiguration", **named("m")},),
            api_services=("v1beta2.visibility.example.com",),
        )
    )
    commands = [command for step in plan.steps for command in step.commands]
    keep = ["> definitions.yaml", "> webhooks.yaml", "> apis.yaml", "> before.txt"]
    install = ["manager.replicas=0 --set visibility.enabled=false --take-ownership", "annotate"]
    delete = ["delete mutatingwebhook", "delete apiservice"]
    stop = ["controller --replicas=0", "wait --for=delete pod"]
    start = ["restart deployment admitq-webhook", "values.yaml --wait"]
    assert in_order(commands, [*keep, "> values.yaml", *install, *delete, *stop, *start, "diff before.txt"])
    back = [command for step in plan.way_back for command in step.commands]
    start = ["controller --replicas=2", "definitions.yaml", "webhooks.yaml", "rollout status"]
    # The end of the release deletes the APIServices, which have the same names.
    assert in_order(back, ["admitq-manager --replicas=0", "wait", *start, "uninstall admitq", "apis.yaml"])
    # The namespace that the other manager's webhooks exclude, and that has its Lease.
    assert all("--namespace their-system" in command for command in (*commands, *back) if "helm " in command)


@pytest.mark.parametrize("services", [(), ("v1beta2.visibility.example.com",)])
def test_chart_serves_the_visibility_api_if_the_manager_in_charge_does(services: tuple[str, ...]) -> None:
    assert make_chart_values(cluster(api_services=services))["visibility"] == {"enabled": bool(services)}


def in_order(commands: list[str], marks: list[str]) -> bool:
    """Whether the first commands that contain the marks are in the order of the marks."""
    places = [next(i for i, command in enumerate(commands) if mark in command) for mark in marks]
    return places == sorted(places)


def test_plan_as_json_has_findings_versions_objects_and_steps() -> None:
    plan = make_plan(cluster(**holding(multikueueclusters=named("c")))).to_dict()
    assert plan["clear"] is False
    assert plan["storedVersions"] == ["v1beta2"]
    assert plan["servedVersions"] == ["v1beta1", "v1beta2"]
    assert plan["objects"] == {"workloads": 0}
    [finding] = plan["findings"]
    assert (finding["name"], finding["severity"], finding["places"]) == (
        "multikueue",
        "blocks",
        ["multikueueclusters/c"],
    )
    assert all({"what", "commands"} == set(step) for step in (*plan["steps"], *plan["wayBack"]))
