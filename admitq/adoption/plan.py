"""The plan of a take-over: findings, counts, values for the chart, and steps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from admitq.adoption.checks import CA_INJECTED, CHECKS, AdoptionCheck, Severity
from admitq.adoption.cluster import Cluster, has_true_condition, is_running
from admitq.core.selectors import selects_namespace
from admitq.translate.selectors import read_label_selector
from admitq_api.configuration import Configuration, load_configuration
from admitq_api.feature_gates import Gate
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.namespaces import NAMESPACE_NAME

SYSTEM: Final = "kube-system"

NAME: Final = "admitq"
"""The name of the Helm release, and the prefix of its objects.

The release is installed into the namespace of the manager in charge. The webhooks and selectors of both
managers exclude that namespace. So each manager can start while the webhooks of the other do not answer. Both
use one Lease there, so if both run, one waits.
"""

PLACE_OF_CHART: Final = frozenset(
    {
        "apiVersion",
        "kind",
        "apiGroup",
        "namespace",
        "webhook",
        "health",
        "leaderElection",
        "internalCertManagement",
        "visibilityServer",
        "managedJobsNamespaceSelector",
    }
)
"""Configuration fields that the chart sets itself, or that the plan computes."""

WITHOUT_IDENTITY: Final = "grep -vE '^ +(resourceVersion|uid): '"
"""The filter that removes the identity of saved objects, so that they can be applied again."""

APPLY: Final = "kubectl apply --server-side --force-conflicts"

GONE: Final = "wait --for=delete pod --timeout=5m --selector"

RELEASE: Final = f"helm upgrade --install {NAME} charts/admitq"


@dataclass(frozen=True)
class Finding:
    """A check, and the places that it found."""

    check: AdoptionCheck
    places: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """A step, and its commands."""

    what: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class AdoptionPlan:
    """The state of the cluster, the findings, and the steps of the take-over."""

    group: str
    served: tuple[str, ...]
    stored: tuple[str, ...]
    in_charge: tuple[str, ...]
    counts: Mapping[str, int]
    workloads: Mapping[str, int]
    findings: tuple[Finding, ...]
    values: Mapping[str, Any]
    steps: tuple[Step, ...]
    way_back: tuple[Step, ...]

    @property
    def is_clear(self) -> bool:
        """Whether no finding blocks the take-over."""
        return all(finding.check.severity is not Severity.BLOCKS for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "apiGroup": self.group,
            "clear": self.is_clear,
            "servedVersions": list(self.served),
            "storedVersions": list(self.stored),
            "inCharge": list(self.in_charge),
            "objects": dict(self.counts),
            "workloads": dict(self.workloads),
            "findings": [
                {
                    "name": finding.check.name,
                    "severity": finding.check.severity.name.lower(),
                    "what": finding.check.what,
                    "remedy": finding.check.remedy,
                    "places": list(finding.places),
                }
                for finding in self.findings
            ],
            "values": dict(self.values),
            "steps": [_step_fields(step) for step in self.steps],
            "wayBack": [_step_fields(step) for step in self.way_back],
        }


def _step_fields(step: Step) -> dict[str, Any]:
    return {"what": step.what, "commands": list(step.commands)}


def make_plan(cluster: Cluster) -> AdoptionPlan:
    """Return the plan for a cluster."""
    places_by_check = ((check, tuple(check.find(cluster))) for check in CHECKS)
    return AdoptionPlan(
        group=cluster.names.group,
        served=cluster.served_versions,
        stored=cluster.all_stored_versions,
        in_charge=tuple(_described(deployment) for deployment in cluster.deployments),
        counts={plural: len(cluster.objects.get(plural, ())) for plural in sorted(cluster.definitions)},
        workloads=_states(cluster),
        findings=tuple(Finding(check, places) for check, places in places_by_check if places),
        values=make_chart_values(cluster),
        steps=tuple(_steps(cluster)),
        way_back=tuple(_way_back(cluster)),
    )


def _described(deployment: JsonObject) -> str:
    namespace, name = _place(deployment)
    images = [
        str(container.get("image", "?"))
        for container in value_at(deployment, ("spec", "template", "spec", "containers"), ()) or ()
    ]
    state = "running" if is_running(deployment) else "stopped"
    return f"{namespace}/{name} ({', '.join(images)}): {state}"


def _states(cluster: Cluster) -> dict[str, int]:
    counts = {"pending": 0, "quota reserved": 0, "admitted": 0, "finished": 0}
    for _, workload in cluster.each("workloads"):
        counts[workload_state(workload)] += 1
    return counts


def workload_state(workload: JsonObject) -> str:
    """Return the state of a Workload: pending, quota reserved, admitted or finished."""
    for condition, state in (("Finished", "finished"), ("Admitted", "admitted")):
        if has_true_condition(workload, condition):
            return state
    return "quota reserved" if has_true_condition(workload, "QuotaReserved") else "pending"


def make_chart_values(cluster: Cluster) -> dict[str, Any]:
    """Return the values for the chart that configure admitq like the manager in charge."""
    config: dict[str, Any] = {}
    for configuration, loaded in cluster.configured:
        if isinstance(loaded, Configuration):
            bare = load_configuration("", service_account_namespace=cluster.namespace)
            config |= {
                key: value
                for key, value in _different(_dumped(loaded), _dumped(bare)).items()
                if key not in PLACE_OF_CHART
            }
            # The chart sets the address.
            if isinstance(config.get("metrics"), dict):
                config["metrics"].pop("bindAddress", None)
            dispatcher = config.get("multiKueue")
            if isinstance(dispatcher, dict):
                dispatcher.pop("dispatcherName", None)
            if (selector := configuration.document.get("managedJobsNamespaceSelector")) is not None:
                read = read_label_selector(loaded.managed_jobs_namespace_selector)
                spared = [SYSTEM, cluster.namespace]
                selected = any(selects_namespace(read, {NAMESPACE_NAME: name}) for name in spared)
                config["managedJobsNamespaceSelector"] = (
                    exclude_namespaces(spared, selector) if selected else selector
                )
            if lease := value_at(configuration.document, ("leaderElection", "resourceName")):
                config["leaderElection"] = {"resourceName": lease}
    gates = dict(cluster.known_gates)
    if any(
        isinstance(configuration, Configuration) and not configuration.wait_for_pods_ready
        for _, configuration in cluster.configured
    ):
        # Only v1beta1 may omit waitForPodsReady; the chart writes v1beta2.
        gates[Gate.DISABLE_WAIT_FOR_PODS_READY.value] = True
    if gates:
        config["featureGates"] = gates
    return {
        "apiGroup": cluster.names.group,
        "fullnameOverride": NAME,
        "visibility": {"enabled": bool(cluster.api_services)},
        "config": {key: value for key, value in config.items() if value != {}},
    }


def exclude_namespaces(namespaces: list[str], selector: Mapping[str, Any]) -> dict[str, Any]:
    """Return a namespace selector that excludes these namespaces, and all that the given one excludes."""
    spared = {"key": NAMESPACE_NAME, "operator": "NotIn", "values": namespaces}
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), spared]}


def _dumped(configuration: Configuration) -> dict[str, Any]:
    return configuration.model_dump(mode="json", by_alias=True, exclude_none=True)


def _different(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of one mapping that the other lacks or has with another value."""
    result: dict[str, Any] = {}
    for key, value in first.items():
        if isinstance(value, Mapping) and isinstance(other.get(key), Mapping):
            if inner := _different(value, other[key]):
                result[key] = inner
        elif key not in other or other[key] != value:
            result[key] = value
    return result


def _place(obj: JsonObject) -> tuple[str, str]:
    return str(value_at(obj, ("metadata", "namespace"), "")), str(value_at(obj, ("metadata", "name"), ""))


def _steps(cluster: Cluster) -> Iterator[Step]:
    definitions = " ".join(_definitions(cluster))
    saved = {"definitions": definitions, "webhooks": " ".join(_hooks(cluster)), "apis": _apis(cluster)}
    injected = [
        f"customresourcedefinition/{_place(definition)[1]}"
        for definition in cluster.definitions.values()
        if value_at(definition, ("metadata", "annotations", CA_INJECTED))
    ]
    install = f"{RELEASE} --namespace {cluster.namespace} --values values.yaml"
    yield Step(
        "Save the objects that you need to go back, and the counts of the queues.",
        (
            *(
                f"kubectl get {what} -o yaml | {WITHOUT_IDENTITY} > {name}.yaml"
                for name, what in saved.items()
                if what
            ),
            f"{_queues(cluster)} > before.txt",
        ),
    )
    yield Step(
        "Write the values of this plan into a file, and add the location of your image.",
        ("admitq adopt --from kueue --values > values.yaml",),
    )
    yield Step(
        "Install admitq beside the manager in charge: its webhooks answer, and it manages nothing yet. "
        "It takes over the CustomResourceDefinitions and changes no other object.",
        (
            f"{install} --set manager.replicas=0 --set visibility.enabled=false --take-ownership --wait",
            *((f"kubectl annotate {' '.join(injected)} {CA_INJECTED}-",) if injected else ()),
        ),
    )
    yield Step(
        "Delete the configurations that call the manager in charge, and stop it. Running jobs continue, new"
        " jobs wait.",
        (
            *(f"kubectl delete {name}" for name in _hooks(cluster)),
            *((f"kubectl delete {_apis(cluster)}",) if cluster.api_services else ()),
            *_stopped(cluster),
        ),
    )
    yield Step(
        "Start admitq. Its webhooks restart and write their CA, which no other program overwrites now.",
        (
            f"kubectl --namespace {cluster.namespace} rollout restart deployment {NAME}-webhook",
            f"{install} --wait",
        ),
    )
    yield Step(
        "Compare the queues: admitted workloads are still admitted.",
        (f"{_queues(cluster)} | diff before.txt - || true",),
    )


def _way_back(cluster: Cluster) -> Iterator[Step]:
    managers = f"app.kubernetes.io/instance={NAME},app.kubernetes.io/component=manager"
    yield Step(
        "Stop admitq's managers; its webhooks still answer. Running jobs continue, new jobs wait.",
        (
            f"kubectl --namespace {cluster.namespace} scale deployment {NAME}-manager --replicas=0",
            f"kubectl --namespace {cluster.namespace} {GONE} {managers}",
        ),
    )
    yield Step(
        "Start the manager that was in charge, and restore the saved objects. Until it answers, new jobs are "
        "rejected.",
        (
            *(
                f"kubectl --namespace {namespace} scale deployment {name} --replicas={replicas}"
                for namespace, name, replicas in _replicas(cluster)
            ),
            "kubectl replace -f definitions.yaml",
            *((f"{APPLY} -f webhooks.yaml",) if cluster.webhooks else ()),
            *(
                f"kubectl --namespace {namespace} rollout status deployment {name}"
                for namespace, name, _ in _replicas(cluster)
            ),
        ),
    )
    yield Step(
        "When it answers, remove admitq. The CustomResourceDefinitions and all objects stay.",
        (
            f"helm uninstall {NAME} --namespace {cluster.namespace}",
            # The release has APIServices of the same names, and deletes them.
            *((f"{APPLY} -f apis.yaml",) if cluster.api_services else ()),
        ),
    )


def _queues(cluster: Cluster) -> str:
    """Return the command that prints the counts of the queues."""
    columns = ",".join(
        f"{title}:.status.{field}"
        for title, field in (
            ("RESERVING", "reservingWorkloads"),
            ("ADMITTED", "admittedWorkloads"),
            ("PENDING", "pendingWorkloads"),
        )
    )
    queues = cluster.names.crd_name("clusterqueues")
    return f"kubectl get {queues} -o custom-columns=NAME:.metadata.name,{columns}"


def _apis(cluster: Cluster) -> str:
    return " ".join(f"apiservice/{name}" for name in cluster.api_services)


def _definitions(cluster: Cluster) -> list[str]:
    return [
        f"customresourcedefinition/{cluster.names.crd_name(plural)}" for plural in sorted(cluster.definitions)
    ]


def _hooks(cluster: Cluster) -> list[str]:
    return [f"{str(webhook.get('kind', '')).lower()}/{_place(webhook)[1]}" for webhook in cluster.webhooks]


def _replicas(cluster: Cluster) -> Iterator[tuple[str, str, int]]:
    """Yield namespace, name and replicas of each Deployment in charge; at least one replica."""
    for deployment in cluster.deployments:
        yield *_place(deployment), int(value_at(deployment, ("spec", "replicas"), 1)) or 1


def _stopped(cluster: Cluster) -> Iterator[str]:
    for deployment in cluster.deployments:
        namespace, name = _place(deployment)
        yield f"kubectl --namespace {namespace} scale deployment {name} --replicas=0"
        # The scale-down completes before the pods have ended, so the next command waits for the pods.
        if labels := value_at(deployment, ("spec", "selector", "matchLabels")):
            selector = ",".join(f"{key}={value}" for key, value in labels.items())
            yield f"kubectl --namespace {namespace} {GONE} {selector}"
