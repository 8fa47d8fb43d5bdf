"""The API permissions of each controller: the source of the manager's role.

Every permission here is used by the code of a controller.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from admitq.controllers.controller_names import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, PRIORITY_CLASS, WORKLOAD
from admitq.controllers.indexes import followed_resource, resource_of
from admitq.controllers.pods.elastic_pods import ELASTIC_PODS
from admitq.controllers.pods.node_failures import NODE_FAILURES
from admitq.controllers.pods.topology_ungater import TOPOLOGY_UNGATER
from admitq.controllers.provisioning.requests import PROVISIONING_REQUESTS
from admitq.controllers.provisioning.watches import PROVISIONING
from admitq.integrations.base import Integration
from admitq.integrations.references import OwnerKind
from admitq.runtime.kinds import Kinds, kinds_of
from admitq.runtime.resources import (
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_TEMPLATES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RUNTIME_CLASSES,
    Resource,
)
from admitq_api.feature_gates import Gate
from admitq_api.labels import Names


@dataclass(frozen=True, slots=True)
class Permission:
    """Verbs on a resource, or on a subresource such as ``jobs/status``."""

    group: str
    resource: str
    verbs: tuple[str, ...]


_WATCH: Final = ("list", "watch")


def _watched(*resources: Resource) -> tuple[Permission, ...]:
    return tuple(Permission(resource.group, resource.plural, _WATCH) for resource in resources)


def _may(resource: Resource, *verbs: str, subresource: str = "") -> Permission:
    name = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return Permission(resource.group, name, verbs)


ELASTIC_POD_PERMISSIONS: Final = _may(PODS, *_WATCH, "patch", "delete")
"""Permissions for pods of elastic jobs: gates are removed, and excess pods are deleted."""

UNGATER_PERMISSIONS: Final = _may(PODS, *_WATCH, "get", "patch")
"""Permissions for pods with a topology assignment. Single reads: pods with a patch of unknown result."""

ENDING_PERMISSIONS: Final = _may(PODS, "patch", subresource="status")
"""Permissions to end pods that wait for a failed node."""

_OWNERS: Final[Mapping[OwnerKind, Resource]] = {OwnerKind("apps", "v1", "ReplicaSet"): REPLICA_SETS}
"""Resources of kinds that stand between jobs and their controllers."""


def intermediate_owner_resources(integration: Integration) -> tuple[Resource, ...]:
    """Return the resources of the kinds that stand between the jobs of a kind and their controllers."""
    return tuple(_OWNERS[kind] for kind in integration.ownership.intermediate_owners)


def permissions_of_kind(integration: Integration) -> tuple[Permission, ...]:
    """Return the permissions for the jobs of a kind and for the objects that define their pods."""
    jobs = resource_of(integration)
    if integration.serving is not None:
        # Objects of kinds that serve groups are watched and never written. Other such kinds are only read as
        # owners.
        watched = () if integration.serving.list_groups is None else _WATCH
        return (_may(jobs, *watched, "get"),)
    return (
        # Single reads: a job that is not in the store, before its Workload is released.
        _may(jobs, *_WATCH, "get", "patch"),
        # For the deletion of deactivated jobs after their retention, which is off by default, and for stops
        # of members.
        _may(jobs, "delete"),
        *((_may(jobs, "patch", subresource="status"),) if integration.lifecycle.patches_status else ()),
        # Single reads: whether a queued object controls a job through these.
        *(_may(owner, "get") for owner in intermediate_owner_resources(integration)),
        *_watched(*(followed_resource(integration, kind) for kind in integration.templates.referenced_kinds)),
    )


def _around_jobs(kinds: Kinds) -> tuple[Permission, ...]:
    return (
        # Single reads: a Workload name that is taken.
        _may(kinds.workloads, *_WATCH, "get", "create", "patch", "delete"),
        _may(kinds.workloads, "patch", subresource="status"),
        *_watched(NAMESPACES, PRIORITY_CLASSES, kinds.workload_priority_classes, kinds.resource_flavors),
    )


def permissions_by_controller(
    names: Names, integrations: Sequence[Integration]
) -> Mapping[str, tuple[Permission, ...]]:
    """Return the permissions of every controller, by its name."""
    kinds = kinds_of(names)
    workloads, cluster_queues, flavors = kinds.workloads, kinds.cluster_queues, kinds.resource_flavors
    elastic = any(integration.scaling.can_be_elastic for integration in integrations)
    return {
        **({ELASTIC_PODS: (ELASTIC_POD_PERMISSIONS, *_watched(workloads))} if elastic else {}),
        TOPOLOGY_UNGATER: (UNGATER_PERMISSIONS, *_watched(workloads)),
        NODE_FAILURES: (
            *_watched(PODS, NODES, workloads, flavors),
            ENDING_PERMISSIONS,
            _may(workloads, "patch", subresource="status"),
        ),
        WORKLOAD: (
            _may(workloads, *_WATCH, "patch", "delete"),
            _may(workloads, "patch", subresource="status"),
            # Also used by job controllers: pods that outlive their job keep its quota. They are listed, or
            # read one by one.
            _may(PODS, "list", "get"),
            # The requests of pods depend on the limits of their namespace and on their runtime class.
            *_watched(kinds.local_queues, cluster_queues, NAMESPACES, LIMIT_RANGES, RUNTIME_CLASSES),
        ),
        **{
            integration.framework: (*permissions_of_kind(integration), *_around_jobs(kinds))
            for integration in integrations
        },
        CLUSTER_QUEUE: (
            _may(cluster_queues, *_WATCH, "patch"),
            _may(cluster_queues, "patch", subresource="status"),
        ),
        LOCAL_QUEUE: (
            *_watched(kinds.local_queues),
            _may(kinds.local_queues, "patch", subresource="status"),
        ),
        # Statuses of cohorts report fair sharing, which is off by default.
        COHORT: (*_watched(kinds.cohorts), _may(kinds.cohorts, "patch", subresource="status")),
        PRIORITY_CLASS: (*_watched(kinds.workload_priority_classes), _may(workloads, *_WATCH, "patch")),
        "resourceflavor": (_may(flavors, *_WATCH, "patch"), *_watched(cluster_queues)),
        "admissioncheck": (_may(kinds.admission_checks, *_WATCH, "patch"), *_watched(cluster_queues)),
        PROVISIONING: (
            _may(PROVISIONING_REQUESTS, *_WATCH, "create", "delete"),
            _may(POD_TEMPLATES, *_WATCH, "create", "patch", "delete"),
            *_watched(workloads, kinds.admission_checks, kinds.provisioning_request_configs, flavors),
            _may(workloads, "patch", subresource="status"),
            _may(kinds.admission_checks, "patch", subresource="status"),
        ),
        "topology": (_may(kinds.topologies, *_WATCH, "patch"), *_watched(flavors)),
    }


class GatedPermissions(NamedTuple):
    """Permissions of a part that runs only with a feature gate and certain kinds of jobs.

    ``frameworks`` are the frameworks of these kinds, one of which must be enabled. Empty if the kind does not
    matter.
    """

    gate: Gate
    permissions: tuple[Permission, ...]
    frameworks: tuple[str, ...] = ()


OBSERVED_WITH_GATES: Final = (GatedPermissions(Gate.TOPOLOGY_AWARE_SCHEDULING, _watched(NODES, PODS)),)
"""Permissions to read what decisions depend on with a feature gate only."""


def permissions_of_gates(integrations: Iterable[Integration]) -> tuple[GatedPermissions, ...]:
    """Return the manager's permissions that it needs only with a feature gate, on or off by default."""
    elastic = tuple(
        integration.framework for integration in integrations if integration.scaling.can_be_elastic
    )
    return (
        GatedPermissions(Gate.ELASTIC_JOBS, (ELASTIC_POD_PERMISSIONS,), elastic),
        GatedPermissions(Gate.TOPOLOGY_AWARE_SCHEDULING, (UNGATER_PERMISSIONS,)),
        GatedPermissions(Gate.TAS_FAILED_NODE_REPLACEMENT, (ENDING_PERMISSIONS,)),
        GatedPermissions(
            Gate.FAILURE_RECOVERY_POLICY,
            (
                _may(PODS, *_WATCH, "delete"),
                _may(PODS, "patch", subresource="status"),
                *_watched(NODES),
            ),
        ),
        *OBSERVED_WITH_GATES,
    )


def merge_permissions(of: Iterable[Permission]) -> tuple[Permission, ...]:
    """Merge permissions: one for each resource, sorted."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for permission in of:
        verbs.setdefault((permission.group, permission.resource), set()).update(permission.verbs)
    return tuple(Permission(*key, tuple(sorted(verbs_of_key))) for key, verbs_of_key in sorted(verbs.items()))
