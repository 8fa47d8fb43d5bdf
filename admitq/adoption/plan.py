"""The plan of a take-over, made of what was read: findings, numbers, values for the chart, steps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from admitq.adoption.checks import CHECKS, Check, Severity
from admitq.adoption.cluster import Cluster, holds, is_running
from admitq.integrations.paths import Object, value_at
from admitq_api.configuration import Configuration, load_configuration

NAMESPACE: Final = "admitq-system"
"""Where admitq is installed beside what is there, so that the way back stays open."""

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
        "managedJobsNamespaceSelector",
    }
)
"""Fields that the chart fills by itself, or that are said anew for the other namespace."""


WITHOUT_IDENTITY: Final = "grep -vE '^ +(resourceVersion|uid): '"
"""What makes of objects that were read some that can be applied later."""

APPLY: Final = "kubectl apply --server-side --force-conflicts"

INSTALL: Final = (
    f"helm install admitq charts/admitq --namespace {NAMESPACE} --create-namespace "
    "--values values.yaml --take-ownership --wait"
)


@dataclass(frozen=True)
class Finding:
    """A check that found something."""

    check: Check
    places: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """Something to do, and the commands for it."""

    what: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What there is, what was found, and what to do."""

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
        """Whether nothing stands in the way."""
        return all(one.check.severity is not Severity.BLOCKS for one in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON."""
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
                    "name": one.check.name,
                    "severity": one.check.severity.name.lower(),
                    "what": one.check.what,
                    "remedy": one.check.remedy,
                    "places": list(one.places),
                }
                for one in self.findings
            ],
            "values": dict(self.values),
            "steps": [_told(one) for one in self.steps],
            "wayBack": [_told(one) for one in self.way_back],
        }


def _told(step: Step) -> dict[str, Any]:
    return {"what": step.what, "commands": list(step.commands)}


def plan(cluster: Cluster) -> Plan:
    """The plan for a cluster as it was read."""
    found = ((check, tuple(check.find(cluster))) for check in CHECKS)
    return Plan(
        group=cluster.names.group,
        served=cluster.served_versions,
        stored=cluster.all_stored_versions,
        in_charge=tuple(_described(one) for one in cluster.deployments),
        counts={plural: len(cluster.objects.get(plural, ())) for plural in sorted(cluster.definitions)},
        workloads=_states(cluster),
        findings=tuple(Finding(check, places) for check, places in found if places),
        values=values(cluster),
        steps=tuple(_steps(cluster)),
        way_back=tuple(_way_back(cluster)),
    )


def _described(deployment: Object) -> str:
    namespace, name = _place(deployment)
    images = [
        str(one.get("image", "?"))
        for one in value_at(deployment, ("spec", "template", "spec", "containers"), ()) or ()
    ]
    state = "running" if is_running(deployment) else "stopped"
    return f"{namespace}/{name} ({', '.join(images)}): {state}"


def _states(cluster: Cluster) -> dict[str, int]:
    counts = {"pending": 0, "quota reserved": 0, "admitted": 0, "finished": 0}
    for _, one in cluster.each("workloads"):
        counts[state_of(one)] += 1
    return counts


def state_of(workload: Object) -> str:
    """What a Workload is in: the furthest of pending, quota reserved, admitted and finished."""
    for condition, state in (("Finished", "finished"), ("Admitted", "admitted")):
        if holds(workload, condition):
            return state
    return "quota reserved" if holds(workload, "QuotaReserved") else "pending"


def values(cluster: Cluster) -> dict[str, Any]:
    """Values for the chart that make admitq do as the manager in charge was told to."""
    told: dict[str, Any] = {}
    namespaces = sorted({_place(one)[0] for one in cluster.deployments} - {NAMESPACE})
    selector: Any = None
    for one, loaded in cluster.configured:
        if isinstance(loaded, Configuration):
            bare = load_configuration("", service_account_namespace=NAMESPACE)
            told |= {
                key: value
                for key, value in _different(_dumped(loaded), _dumped(bare)).items()
                if key not in PLACE_OF_CHART
            }
            # The address is the pod's, which the chart knows.
            if isinstance(told.get("metrics"), dict):
                told["metrics"].pop("bindAddress", None)
            dispatcher = told.get("multiKueue")
            if isinstance(dispatcher, dict):
                dispatcher.pop("dispatcherName", None)
            selector = one.given.get("managedJobsNamespaceSelector")
    if gates := cluster.known_gates:
        told["featureGates"] = dict(gates)
    told["managedJobsNamespaceSelector"] = selector_without([NAMESPACE, *namespaces], selector)
    return {
        "apiGroup": cluster.names.group,
        "fullnameOverride": "admitq",
        "config": {key: value for key, value in told.items() if value != {}},
    }


def selector_without(namespaces: list[str], given: Any) -> dict[str, Any]:
    """A selector of namespaces that leaves alone what manages jobs, and what the given one leaves alone."""
    from admitq_api.configuration.root import NAMESPACE_NAME  # noqa: PLC0415 a constant of the file

    selector = dict(given) if isinstance(given, Mapping) else {}
    spared = {"key": NAMESPACE_NAME, "operator": "NotIn", "values": ["kube-system", *namespaces]}
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), spared]}


def _dumped(configuration: Configuration) -> dict[str, Any]:
    return configuration.model_dump(mode="json", by_alias=True, exclude_none=True)


def _different(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in one and not, or otherwise, in the other."""
    found: dict[str, Any] = {}
    for key, value in one.items():
        if isinstance(value, Mapping) and isinstance(other.get(key), Mapping):
            if inner := _different(value, other[key]):
                found[key] = inner
        elif key not in other or other[key] != value:
            found[key] = value
    return found


def _place(obj: Object) -> tuple[str, str]:
    return str(value_at(obj, ("metadata", "namespace"), "")), str(value_at(obj, ("metadata", "name"), ""))


def _steps(cluster: Cluster) -> Iterator[Step]:
    definitions = " ".join(_definitions(cluster))
    hooks = _hooks(cluster)
    yield Step(
        "Keep what the way back needs: definitions and webhook configurations as they are.",
        (
            f"kubectl get {definitions} -o yaml | {WITHOUT_IDENTITY} > definitions.yaml",
            *(
                (f"kubectl get {' '.join(hooks)} -o yaml | {WITHOUT_IDENTITY} > webhooks.yaml",)
                if hooks
                else ()
            ),
        ),
    )
    yield Step("Put the values of this plan into a file: admitq adopt --values > values.yaml.")
    yield Step(
        "Stop the manager in charge. Running jobs run on; from now on new jobs are refused.",
        tuple(_scaled(cluster, 0)),
    )
    yield Step(
        "Install admitq beside it. It takes over the definitions; no object is touched.",
        (INSTALL,),
    )
    yield Step(
        "Delete the webhook configurations of the manager that stopped: new jobs are taken again.",
        tuple(f"kubectl delete {name}" for name in hooks),
    )
    if cluster.api_services:
        yield Step(
            "Delete the APIs that nobody answers any more.",
            tuple(f"kubectl delete apiservice {name}" for name in cluster.api_services),
        )


def _way_back(cluster: Cluster) -> Iterator[Step]:
    yield Step(
        "Stop admitq. Running jobs run on; new jobs are refused.",
        (f"kubectl --namespace {NAMESPACE} scale deployment --all --replicas=0",),
    )
    yield Step(
        "Bring back the definitions, and start the manager that was in charge.",
        (
            f"{APPLY} -f definitions.yaml",
            *_scaled(cluster, 1),
            *((f"{APPLY} -f webhooks.yaml",) if cluster.webhooks else ()),
        ),
    )
    yield Step(
        "When it answers, remove admitq. The definitions stay, and with them all objects.",
        (f"helm uninstall admitq --namespace {NAMESPACE}",),
    )


def _definitions(cluster: Cluster) -> list[str]:
    return [
        f"customresourcedefinition/{cluster.names.crd_name(plural)}" for plural in sorted(cluster.definitions)
    ]


def _hooks(cluster: Cluster) -> list[str]:
    return [f"{str(one.get('kind', '')).lower()}/{_place(one)[1]}" for one in cluster.webhooks]


def _scaled(cluster: Cluster, replicas: int) -> Iterator[str]:
    for one in cluster.deployments:
        namespace, name = _place(one)
        wanted = replicas and int(value_at(one, ("spec", "replicas"), 1) or 1)
        yield f"kubectl --namespace {namespace} scale deployment {name} --replicas={wanted}"
        if not replicas:
            yield f"kubectl --namespace {namespace} rollout status deployment {name}"
