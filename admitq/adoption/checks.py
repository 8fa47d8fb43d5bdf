"""What is looked for before a cluster is taken over: a table, which the guide shows as it is."""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

from admitq.adoption.cluster import (
    NEWER,
    Cluster,
    has_true_condition,
    is_running,
    object_reference,
    readable_version,
)
from admitq.adoption.unknown_fields import find_unknown_fields
from admitq.integrations.registry import list_framework_names
from admitq_api.configuration import Configuration, ConfigurationError
from admitq_api.feature_gates import WITHOUT_ALTERNATIVE, Gate, get_note
from admitq_api.json_objects import JsonObject, value_at

KNOWN_VERSIONS: Final = frozenset({"v1beta1", "v1beta2"})
"""Versions in which stored objects can be read."""

HELM: Final = ("metadata", "annotations", "meta.helm.sh/release-name")

CA_INJECTED: Final = "cert-manager.io/inject-ca-from"
"""The annotation by which somebody else is asked to write a CA into a definition."""

KEEPERS: Final = {
    "argocd.argoproj.io/": "Argo CD",
    "kustomize.toolkit.fluxcd.io/": "Flux",
    "helm.toolkit.fluxcd.io/": "Flux",
    "olm.": "Operator Lifecycle Manager",
}
"""What keys of labels and annotations begin with that tell who puts an object back when it is changed."""


class Severity(StrEnum):
    """What a finding means for the take-over."""

    BLOCKS = "stands in the way"
    CHANGES = "changes"
    NOTE = "to know"


class AdoptionCheck(NamedTuple):
    """One thing that is looked for.

    ``find`` gives what was found, one text for each place; ``what`` says what that means.
    """

    name: str
    severity: Severity
    what: str
    remedy: str
    find: Callable[[Cluster], Iterable[str]]


def _not_installed(cluster: Cluster) -> Iterator[str]:
    if not cluster.definitions and not cluster.unread:
        yield f"no CustomResourceDefinition of {cluster.names.group}"


def _ending(cluster: Cluster) -> Iterator[str]:
    for one in cluster.definitions.values():
        if value_at(one, ("metadata", "deletionTimestamp")):
            yield object_reference("customresourcedefinitions", one)


def _stored_unknown(cluster: Cluster) -> Iterator[str]:
    for plural in cluster.definitions:
        for version in sorted({*cluster.versions(plural)} - KNOWN_VERSIONS):
            yield f"{plural} in {version}"


def _stored_older(cluster: Cluster) -> Iterator[str]:
    for plural in cluster.definitions:
        if "v1beta1" in cluster.versions(plural):
            yield plural


def _no_way_back(cluster: Cluster) -> Iterator[str]:
    for plural, definition in cluster.definitions.items():
        if readable_version(definition) != NEWER:
            yield plural


_INDEXES: Final = frozenset({"podIndexLabel", "subGroupIndexLabel", "subGroupCount"})
"""The fields of a topology request that number pods, and ask for no placement."""


def _asks_for_topology(pod_set: JsonObject) -> bool:
    """Whether a podset requests a placement; any job's podset may say how its pods are numbered."""
    return not _INDEXES.issuperset(value_at(pod_set, ("topologyRequest",), {}))


def _topology(cluster: Cluster) -> Iterator[str]:
    yield from (name for name, _ in cluster.each("topologies"))
    for name, flavor in cluster.each("resourceflavors"):
        if value_at(flavor, ("spec", "topologyName")):
            yield name
    for name, workload in _unfinished(cluster):
        asked = any(map(_asks_for_topology, _pod_sets(workload)))
        if asked or any(one.get("topologyAssignment") for one in _assignments(workload)):
            yield name


def _dispatched(cluster: Cluster) -> Iterator[str]:
    for name, check in cluster.each("admissionchecks"):
        if value_at(check, ("spec", "controllerName")) == cluster.names.multikueue_controller:
            yield name
    for plural in ("multikueueclusters", "multikueueconfigs"):
        yield from (name for name, _ in cluster.each(plural))
    for name, workload in _unfinished(cluster):
        status = workload.get("status") or {}
        origin = value_at(workload, ("metadata", "labels", cluster.names.multikueue_origin))
        if status.get("clusterName") or status.get("nominatedClusterNames") or origin:
            yield name


def _variants(cluster: Cluster) -> Iterator[str]:
    for name, queue in cluster.each("clusterqueues"):
        if value_at(queue, ("spec", "concurrentAdmissionPolicy")):
            yield name
    for name, workload in _unfinished(cluster):
        if value_at(workload, ("metadata", "labels", cluster.names.concurrent_admission_parent)):
            yield name


def _devices(cluster: Cluster) -> Iterator[str]:
    for one, loaded in cluster.configured:
        if isinstance(loaded, Configuration) and loaded.resources.device_class_mappings:
            yield f"resources.deviceClassMappings in {one.place}"
    for name, workload in _unfinished(cluster):
        if any(value_at(one, ("template", "spec", "resourceClaims")) for one in _pod_sets(workload)):
            yield name


def _configuration(cluster: Cluster) -> Iterator[str]:
    for one, loaded in cluster.configured:
        if isinstance(loaded, ConfigurationError):
            yield from (f"{problem} ({one.place})" for problem in str(loaded).splitlines())
        else:
            for name in sorted({*loaded.integrations.frameworks} - {*list_framework_names()}):
                yield f"integrations.frameworks: {name} ({one.place})"


def _unread(cluster: Cluster) -> Iterator[str]:
    yield from cluster.unread


def _in_charge(cluster: Cluster) -> Iterator[str]:
    for one in cluster.deployments:
        if is_running(one):
            yield object_reference("deployments", one)
    for one in cluster.leases:
        if holder := value_at(one, ("spec", "holderIdentity")):
            yield f"{object_reference('leases', one)}, held by {holder}"


def _kept(cluster: Cluster) -> Iterator[str]:
    listed = [
        *(("deployments", one) for one in cluster.deployments),
        *((f"{str(one.get('kind', '')).lower()}s", one) for one in cluster.webhooks),
        *(("customresourcedefinitions", one) for one in cluster.definitions.values()),
    ]
    for plural, one in listed:
        keys = [
            key for part in ("labels", "annotations") for key in value_at(one, ("metadata", part), {}) or {}
        ]
        keepers = {keeper for start, keeper in KEEPERS.items() if any(key.startswith(start) for key in keys)}
        owners: Iterable[JsonObject] = value_at(one, ("metadata", "ownerReferences"), ()) or ()
        keepers |= {f"{owner.get('kind')} {owner.get('name')}" for owner in owners}
        yield from (f"{object_reference(plural, one)} by {keeper}" for keeper in sorted(keepers))


def _injected(cluster: Cluster) -> Iterator[str]:
    for one in cluster.definitions.values():
        if value_at(one, ("metadata", "annotations", CA_INJECTED)):
            yield object_reference("customresourcedefinitions", one)


def _there_already(cluster: Cluster) -> Iterator[str]:
    yield from (object_reference("deployments", one) for one in cluster.ours)


def _by_helm(cluster: Cluster) -> Iterator[str]:
    for one in cluster.definitions.values():
        if (release := value_at(one, HELM)) and not value_at(
            one, ("metadata", "annotations", "helm.sh/resource-policy")
        ):
            yield f"{object_reference('customresourcedefinitions', one)} of release {release}"


def _webhooks(cluster: Cluster) -> Iterator[str]:
    for one in cluster.webhooks:
        yield object_reference(f"{str(one.get('kind', '')).lower()}s", one)


def _gates(cluster: Cluster) -> Iterator[str]:
    # Who switches off what is not there misses nothing.
    for name in sorted(name for name, on in cluster.known_gates.items() if on):
        gate = Gate(name)
        if gate not in WITHOUT_ALTERNATIVE and (note := get_note(gate)):
            yield f"{name}: {note}"


def _fields(cluster: Cluster) -> Iterator[str]:
    for one, loaded in cluster.configured:
        if isinstance(loaded, Configuration):
            yield from (f"{field} in {one.place}" for field in loaded.list_settings_without_effect())


def _unknown_gates(cluster: Cluster) -> Iterator[str]:
    yield from sorted({*cluster.gates} - {*cluster.known_gates})


def _visibility(cluster: Cluster) -> Iterator[str]:
    yield from (f"apiservices/{name}" for name in cluster.api_services)


def _dropped(cluster: Cluster) -> Iterator[str]:
    for one in cluster.older.get("admissionchecks", ()):
        if value_at(one, ("spec", "retryDelayMinutes")) is not None:
            yield f"spec.retryDelayMinutes of {object_reference('admissionchecks', one)}"


def _other_checks(cluster: Cluster) -> Iterator[str]:
    ours = {cluster.names.provisioning_controller, cluster.names.multikueue_controller}
    for name, check in cluster.each("admissionchecks"):
        if (controller := value_at(check, ("spec", "controllerName"))) not in ours:
            yield f"{name} of {controller}"


def _between(cluster: Cluster) -> Iterator[str]:
    for name, workload in _unfinished(cluster):
        if has_true_condition(workload, "Evicted") and has_true_condition(workload, "QuotaReserved"):
            yield name


def _unfinished(cluster: Cluster) -> Iterator[tuple[str, JsonObject]]:
    return ((name, one) for name, one in cluster.each("workloads") if not has_true_condition(one, "Finished"))


def _pod_sets(workload: JsonObject) -> Iterator[dict[str, Any]]:
    found = value_at(workload, ("spec", "podSets"), ()) or ()
    return (one for one in found if isinstance(one, dict))


def _assignments(workload: JsonObject) -> Iterator[dict[str, Any]]:
    found = value_at(workload, ("status", "admission", "podSetAssignments"), ()) or ()
    return (one for one in found if isinstance(one, dict))


BLOCKS, CHANGES, NOTE = Severity.BLOCKS, Severity.CHANGES, Severity.NOTE

CHECKS: Final[tuple[AdoptionCheck, ...]] = (
    AdoptionCheck(
        "unreadable",
        BLOCKS,
        "Something could not be read, so nothing is known of it.",
        "Run the command as somebody who may read it.",
        _unread,
    ),
    AdoptionCheck(
        "nothing-to-adopt",
        BLOCKS,
        "The group is not installed here.",
        "Look at the kubeconfig, or install admitq as in a new cluster.",
        _not_installed,
    ),
    AdoptionCheck(
        "definitions-ending",
        BLOCKS,
        "Definitions are being deleted, and all objects with them.",
        "Restore them before anything else.",
        _ending,
    ),
    AdoptionCheck(
        "versions",
        BLOCKS,
        "Objects are stored in a version that cannot be read.",
        "Let the manager in charge, in a version that knows both, write them anew; then drop the version "
        "from status.storedVersions.",
        _stored_unknown,
    ),
    AdoptionCheck(
        "no-way-back",
        BLOCKS,
        "Definitions have no v1beta2, in which admitq writes. Their manager could not read it: there would "
        "be no way back.",
        "Let the manager in charge be one that has v1beta2 first.",
        _no_way_back,
    ),
    AdoptionCheck(
        "unknown-fields",
        BLOCKS,
        "Objects say what admitq's definitions do not know. It would be lost or refused at the next write.",
        "Stay with the manager in charge, or take it out of these objects.",
        find_unknown_fields,
    ),
    AdoptionCheck(
        "configuration",
        BLOCKS,
        "The configuration file says something that admitq does not take.",
        "Change these fields in the values for the chart.",
        _configuration,
    ),
    AdoptionCheck(
        "unknown-gates",
        BLOCKS,
        "Feature gates are set that admitq does not know, and which it refuses to start with.",
        "Leave them out of the values for the chart.",
        _unknown_gates,
    ),
    AdoptionCheck(
        "topology",
        BLOCKS,
        "Topology-aware placement is in use. admitq has none yet: it would admit without places for pods.",
        "Stay with the manager in charge, or take topologies out of flavors and let such workloads end.",
        _topology,
    ),
    AdoptionCheck(
        "multikueue",
        BLOCKS,
        "Workloads are dispatched to other clusters. admitq does not do that yet.",
        "Stay with the manager in charge, or let such workloads end and remove these objects.",
        _dispatched,
    ),
    AdoptionCheck(
        "concurrent-admission",
        BLOCKS,
        "Workloads are queued through variants. admitq does not do that yet.",
        "Remove the policy and let such workloads end.",
        _variants,
    ),
    AdoptionCheck(
        "devices",
        BLOCKS,
        "Claims of devices (DRA) are counted. admitq does not do that yet.",
        "Take the mappings out of the configuration and let such workloads end.",
        _devices,
    ),
    AdoptionCheck(
        "in-charge",
        CHANGES,
        "Another manager runs. Two would own the same objects.",
        "Stop it as the steps say, before admitq starts.",
        _in_charge,
    ),
    AdoptionCheck(
        "webhooks",
        CHANGES,
        "Webhook configurations call the manager in charge. Once it has stopped they refuse what they are "
        "asked about, such as all jobs and pods.",
        "Delete them when admitq's webhooks answer and before their manager stops, as the steps say.",
        _webhooks,
    ),
    AdoptionCheck(
        "kept-by-others",
        CHANGES,
        "Somebody puts these objects back when they are changed, also in the middle of the night.",
        "Tell them to leave these objects alone for as long as admitq is in charge.",
        _kept,
    ),
    AdoptionCheck(
        "injected-ca",
        CHANGES,
        "cert-manager writes the CA of the manager in charge into definitions, where admitq's must be.",
        "Take the annotation away when admitq is installed, as the steps say.",
        _injected,
    ),
    AdoptionCheck(
        "definitions-of-a-release",
        CHANGES,
        "A Helm release owns the definitions. Its uninstallation would delete them, with all queues.",
        "Never uninstall that release while admitq is in charge.",
        _by_helm,
    ),
    AdoptionCheck(
        "stored-v1beta1",
        CHANGES,
        "Objects are stored as v1beta1. admitq converts them when they are read and writes v1beta2.",
        "Nothing has to be done.",
        _stored_older,
    ),
    AdoptionCheck(
        "dropped-fields",
        CHANGES,
        "Fields that v1beta2 has not.",
        "They had no effect any more; nothing has to be done.",
        _dropped,
    ),
    AdoptionCheck(
        "gates-without-effect",
        CHANGES,
        "Feature gates are switched on that do less than they say.",
        "Look whether you rely on what they switch.",
        _gates,
    ),
    AdoptionCheck(
        "fields-without-effect",
        CHANGES,
        "The configuration file sets what admitq takes without effect.",
        "Look whether you rely on it.",
        _fields,
    ),
    AdoptionCheck(
        "visibility",
        CHANGES,
        "The API of pending workloads is registered, and admitq does not serve it: kubectl api-resources and "
        "namespace deletion complain about an API that does not answer.",
        "Delete the APIServices when the manager in charge stops, as the steps say.",
        _visibility,
    ),
    AdoptionCheck(
        "there-already",
        NOTE,
        "admitq is installed here.",
        "Go on where the steps were left. Do not save anything anew: what is saved is for the way back.",
        _there_already,
    ),
    AdoptionCheck(
        "between",
        NOTE,
        "Workloads are evicted and their jobs not stopped yet. admitq goes on where that is.",
        "Nothing has to be done.",
        _between,
    ),
    AdoptionCheck(
        "other-checks",
        NOTE,
        "Admission checks belong to controllers of others, which go on as they are.",
        "Keep these controllers running.",
        _other_checks,
    ),
)
"""Everything that is looked for, in the order of the plan."""
