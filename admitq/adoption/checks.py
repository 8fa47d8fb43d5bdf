"""The table of the checks before a take-over, which the guide shows too."""

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
"""Stored versions that admitq can read."""

HELM: Final = ("metadata", "annotations", "meta.helm.sh/release-name")

CA_INJECTED: Final = "cert-manager.io/inject-ca-from"
"""The annotation with which cert-manager writes a CA into a CustomResourceDefinition."""

KEEPERS: Final = {
    "argocd.argoproj.io/": "Argo CD",
    "kustomize.toolkit.fluxcd.io/": "Flux",
    "helm.toolkit.fluxcd.io/": "Flux",
    "olm.": "Operator Lifecycle Manager",
}
"""Prefixes of label and annotation keys of GitOps controllers, which revert changes to their objects."""


class Severity(StrEnum):
    """The meaning of a finding for the take-over."""

    BLOCKS = "blocks the take-over"
    CHANGES = "changes"
    NOTE = "to know"


class AdoptionCheck(NamedTuple):
    """One check. ``find`` yields a text for each place of a finding; ``what`` is the finding's meaning."""

    name: str
    severity: Severity
    what: str
    remedy: str
    find: Callable[[Cluster], Iterable[str]]


def _not_installed(cluster: Cluster) -> Iterator[str]:
    if not cluster.definitions and not cluster.unread:
        yield f"no CustomResourceDefinition of {cluster.names.group}"


def _ending(cluster: Cluster) -> Iterator[str]:
    for definition in cluster.definitions.values():
        if value_at(definition, ("metadata", "deletionTimestamp")):
            yield object_reference("customresourcedefinitions", definition)


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
    for configuration, loaded in cluster.configured:
        if isinstance(loaded, Configuration) and loaded.resources.device_class_mappings:
            yield f"resources.deviceClassMappings in {configuration.place}"
    for name, workload in _unfinished(cluster):
        if any(value_at(pod_set, ("template", "spec", "resourceClaims")) for pod_set in _pod_sets(workload)):
            yield name


def _configuration(cluster: Cluster) -> Iterator[str]:
    for configuration, loaded in cluster.configured:
        if isinstance(loaded, ConfigurationError):
            yield from (f"{problem} ({configuration.place})" for problem in str(loaded).splitlines())
        else:
            for name in sorted({*loaded.integrations.frameworks} - {*list_framework_names()}):
                yield f"integrations.frameworks: {name} ({configuration.place})"


def _unread(cluster: Cluster) -> Iterator[str]:
    yield from cluster.unread


def _in_charge(cluster: Cluster) -> Iterator[str]:
    for deployment in cluster.deployments:
        if is_running(deployment):
            yield object_reference("deployments", deployment)
    for lease in cluster.leases:
        if holder := value_at(lease, ("spec", "holderIdentity")):
            yield f"{object_reference('leases', lease)}, held by {holder}"


def _kept(cluster: Cluster) -> Iterator[str]:
    listed = [
        *(("deployments", deployment) for deployment in cluster.deployments),
        *((f"{str(webhook.get('kind', '')).lower()}s", webhook) for webhook in cluster.webhooks),
        *(("customresourcedefinitions", definition) for definition in cluster.definitions.values()),
    ]
    for plural, obj in listed:
        keys = [
            key for part in ("labels", "annotations") for key in value_at(obj, ("metadata", part), {}) or {}
        ]
        keepers = {keeper for start, keeper in KEEPERS.items() if any(key.startswith(start) for key in keys)}
        owners: Iterable[JsonObject] = value_at(obj, ("metadata", "ownerReferences"), ()) or ()
        keepers |= {f"{owner.get('kind')} {owner.get('name')}" for owner in owners}
        yield from (f"{object_reference(plural, obj)} by {keeper}" for keeper in sorted(keepers))


def _injected(cluster: Cluster) -> Iterator[str]:
    for definition in cluster.definitions.values():
        if value_at(definition, ("metadata", "annotations", CA_INJECTED)):
            yield object_reference("customresourcedefinitions", definition)


def _there_already(cluster: Cluster) -> Iterator[str]:
    yield from (object_reference("deployments", deployment) for deployment in cluster.own_deployments)


def _by_helm(cluster: Cluster) -> Iterator[str]:
    for definition in cluster.definitions.values():
        if (release := value_at(definition, HELM)) and not value_at(
            definition, ("metadata", "annotations", "helm.sh/resource-policy")
        ):
            yield f"{object_reference('customresourcedefinitions', definition)} of release {release}"


def _webhooks(cluster: Cluster) -> Iterator[str]:
    for webhook in cluster.webhooks:
        yield object_reference(f"{str(webhook.get('kind', '')).lower()}s", webhook)


def _gates(cluster: Cluster) -> Iterator[str]:
    # A gate that is off has no effect to lose.
    for name in sorted(name for name, on in cluster.known_gates.items() if on):
        gate = Gate(name)
        if gate not in WITHOUT_ALTERNATIVE and (note := get_note(gate)):
            yield f"{name}: {note}"


def _fields(cluster: Cluster) -> Iterator[str]:
    for configuration, loaded in cluster.configured:
        if isinstance(loaded, Configuration):
            yield from (
                f"{field} in {configuration.place}" for field in loaded.list_settings_without_effect()
            )


def _unknown_gates(cluster: Cluster) -> Iterator[str]:
    yield from sorted({*cluster.gates} - {*cluster.known_gates})


def _visibility(cluster: Cluster) -> Iterator[str]:
    yield from (f"apiservices/{name}" for name in cluster.api_services)


def _dropped(cluster: Cluster) -> Iterator[str]:
    for check in cluster.older.get("admissionchecks", ()):
        if value_at(check, ("spec", "retryDelayMinutes")) is not None:
            yield f"spec.retryDelayMinutes of {object_reference('admissionchecks', check)}"


def _other_checks(cluster: Cluster) -> Iterator[str]:
    own_controllers = {cluster.names.provisioning_controller, cluster.names.multikueue_controller}
    for name, check in cluster.each("admissionchecks"):
        if (controller := value_at(check, ("spec", "controllerName"))) not in own_controllers:
            yield f"{name} of {controller}"


def _between(cluster: Cluster) -> Iterator[str]:
    for name, workload in _unfinished(cluster):
        if has_true_condition(workload, "Evicted") and has_true_condition(workload, "QuotaReserved"):
            yield name


def _unfinished(cluster: Cluster) -> Iterator[tuple[str, JsonObject]]:
    return (
        (name, workload)
        for name, workload in cluster.each("workloads")
        if not has_true_condition(workload, "Finished")
    )


def _pod_sets(workload: JsonObject) -> Iterator[dict[str, Any]]:
    pod_sets = value_at(workload, ("spec", "podSets"), ()) or ()
    return (pod_set for pod_set in pod_sets if isinstance(pod_set, dict))


BLOCKS, CHANGES, NOTE = Severity.BLOCKS, Severity.CHANGES, Severity.NOTE

CHECKS: Final[tuple[AdoptionCheck, ...]] = (
    AdoptionCheck(
        "unreadable",
        BLOCKS,
        "Some resources could not be read, so the checks of them are incomplete.",
        "Run the command with an account that may read them.",
        _unread,
    ),
    AdoptionCheck(
        "nothing-to-adopt",
        BLOCKS,
        "The API group is not installed in this cluster.",
        "Check the kubeconfig, or install admitq as in a new cluster.",
        _not_installed,
    ),
    AdoptionCheck(
        "definitions-ending",
        BLOCKS,
        "CustomResourceDefinitions are being deleted, and all their objects with them.",
        "Restore them before anything else.",
        _ending,
    ),
    AdoptionCheck(
        "versions",
        BLOCKS,
        "Objects are stored in a version that admitq cannot read.",
        "Rewrite them with a release of the manager in charge that supports both versions; then remove the "
        "version from status.storedVersions.",
        _stored_unknown,
    ),
    AdoptionCheck(
        "no-way-back",
        BLOCKS,
        "CustomResourceDefinitions have no v1beta2, which admitq writes. The manager in charge could not "
        "read it, so you could not go back.",
        "First upgrade the manager in charge to a release with v1beta2.",
        _no_way_back,
    ),
    AdoptionCheck(
        "unknown-fields",
        BLOCKS,
        "Objects have fields or values that admitq's CustomResourceDefinitions lack. The next write would "
        "drop "
        "or reject them.",
        "Stay with the manager in charge, or remove them from these objects.",
        find_unknown_fields,
    ),
    AdoptionCheck(
        "configuration",
        BLOCKS,
        "The configuration file has fields or values that admitq does not accept.",
        "Change these fields in the values for the chart.",
        _configuration,
    ),
    AdoptionCheck(
        "unknown-gates",
        BLOCKS,
        "Feature gates are set that admitq does not know. With them, admitq would not start.",
        "Remove them from the values for the chart.",
        _unknown_gates,
    ),
    AdoptionCheck(
        "multikueue",
        BLOCKS,
        "Workloads are dispatched to other clusters. admitq does not do that yet.",
        "Stay with the manager in charge, or let such workloads finish and delete these objects.",
        _dispatched,
    ),
    AdoptionCheck(
        "concurrent-admission",
        BLOCKS,
        "Workloads are queued through variants. admitq does not do that yet.",
        "Remove the policy and let such workloads finish.",
        _variants,
    ),
    AdoptionCheck(
        "devices",
        BLOCKS,
        "Device claims (DRA) count against quota. admitq does not support that yet.",
        "Remove the mappings from the configuration and let such workloads finish.",
        _devices,
    ),
    AdoptionCheck(
        "in-charge",
        CHANGES,
        "Another manager is running. Two managers would write the same objects.",
        "Stop it as the steps say, before admitq starts.",
        _in_charge,
    ),
    AdoptionCheck(
        "webhooks",
        CHANGES,
        "Webhook configurations call the manager in charge. Once it has stopped, they reject all requests "
        "that "
        "they match, such as those for jobs and pods.",
        "Delete them after admitq's webhooks answer and before that manager stops, as the steps say.",
        _webhooks,
    ),
    AdoptionCheck(
        "kept-by-others",
        CHANGES,
        "A GitOps controller reverts changes to these objects.",
        "Exclude these objects from it while admitq is in charge.",
        _kept,
    ),
    AdoptionCheck(
        "injected-ca",
        CHANGES,
        "cert-manager writes the CA of the manager in charge into CustomResourceDefinitions that need "
        "admitq's CA.",
        "Remove the annotation when admitq is installed, as the steps say.",
        _injected,
    ),
    AdoptionCheck(
        "definitions-of-a-release",
        CHANGES,
        "A Helm release owns the CustomResourceDefinitions. To uninstall it would delete them and all "
        "queues.",
        "Do not uninstall that release while admitq is in charge.",
        _by_helm,
    ),
    AdoptionCheck(
        "stored-v1beta1",
        CHANGES,
        "Objects are stored as v1beta1. admitq converts them when they are read and writes v1beta2.",
        "No action is needed.",
        _stored_older,
    ),
    AdoptionCheck(
        "dropped-fields",
        CHANGES,
        "Objects have fields that v1beta2 does not have.",
        "These fields have no effect, so no action is needed.",
        _dropped,
    ),
    AdoptionCheck(
        "gates-without-effect",
        CHANGES,
        "Feature gates are on that have less effect in admitq than their name says.",
        "Check whether you rely on these features.",
        _gates,
    ),
    AdoptionCheck(
        "fields-without-effect",
        CHANGES,
        "The configuration file sets fields that have no effect in admitq.",
        "Check whether you rely on these fields.",
        _fields,
    ),
    AdoptionCheck(
        "visibility",
        CHANGES,
        "The API of pending workloads is registered. While no manager serves it, kubectl api-resources and "
        "namespace deletion complain about an API that does not answer.",
        "Delete the APIServices when the manager in charge stops, as the steps say. The release creates them "
        "again, because the values of this plan set visibility.enabled.",
        _visibility,
    ),
    AdoptionCheck(
        "there-already",
        NOTE,
        "admitq is already installed in this cluster.",
        "Continue with the next step. Do not save objects again: you need the saved objects to go back.",
        _there_already,
    ),
    AdoptionCheck(
        "between",
        NOTE,
        "Some evicted Workloads have jobs that are not stopped yet. admitq continues these evictions.",
        "No action is needed.",
        _between,
    ),
    AdoptionCheck(
        "other-checks",
        NOTE,
        "Admission checks belong to controllers of other projects, which are not affected.",
        "Keep these controllers running.",
        _other_checks,
    ),
)
"""All checks, in the order of the plan."""
