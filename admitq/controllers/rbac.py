"""What each controller does to the API: the source of the manager's role.

A permission stands here because a line of a controller uses it, and for no other reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from admitq.controllers.indexes import followed_resource, resource_of
from admitq.controllers.pods.elastic_pods import ELASTIC_PODS
from admitq.controllers.provisioning.requests import PROVISIONING_REQUESTS
from admitq.controllers.provisioning.watches import PROVISIONING
from admitq.controllers.registry import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, PRIORITY_CLASS, WORKLOAD
from admitq.integrations.base import Integration, OwnerKind
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
    """Verbs that are used on a resource, or on a subresource such as ``jobs/status``."""

    group: str
    resource: str
    verbs: tuple[str, ...]


_WATCH: Final = ("list", "watch")


def _watched(*resources: Resource) -> tuple[Permission, ...]:
    return tuple(Permission(one.group, one.plural, _WATCH) for one in resources)


def _may(resource: Resource, *verbs: str, subresource: str = "") -> Permission:
    name = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return Permission(resource.group, name, verbs)


ELASTIC_POD_PERMISSIONS: Final = _may(PODS, *_WATCH, "patch", "delete")
"""What is done to pods of elastic jobs: gates are lifted, pods beyond their quota are deleted."""

_OWNERS: Final[Mapping[OwnerKind, Resource]] = {OwnerKind("apps", "v1", "ReplicaSet"): REPLICA_SETS}
"""Kinds that stand between jobs and who controls them, as resources."""


def intermediate_owner_resources(integration: Integration) -> tuple[Resource, ...]:
    """The resources of the kinds that stand between a kind's jobs and who controls them."""
    return tuple(_OWNERS[kind] for kind in integration.ownership.intermediate_owners)


def permissions_of_kind(integration: Integration) -> tuple[Permission, ...]:
    """What is done to jobs of a kind and to what their pods follow from, and to nothing else."""
    jobs = resource_of(integration)
    if integration.serving is not None:
        # Watched where Workloads are made for its groups, and never written; else only looked up as an owner.
        watched = () if integration.serving.list_groups is None else _WATCH
        return (_may(jobs, *watched, "get"),)
    return (
        # Read one by one: a job that the watch does not show, before its Workload is given up.
        _may(jobs, *_WATCH, "get", "patch"),
        # After the retention of deactivated jobs, which is off by default; members, to stop them.
        _may(jobs, "delete"),
        *((_may(jobs, "patch", subresource="status"),) if integration.lifecycle.patches_status else ()),
        # Read one by one: whether something that is queued controls a job through these.
        *(_may(owner, "get") for owner in intermediate_owner_resources(integration)),
        *_watched(*(followed_resource(integration, one) for one in integration.templates.referenced_kinds)),
    )


def _around_jobs(kinds: Kinds) -> tuple[Permission, ...]:
    return (
        # Read one by one: a Workload whose name turned out to be taken.
        _may(kinds.workloads, *_WATCH, "get", "create", "patch", "delete"),
        _may(kinds.workloads, "patch", subresource="status"),
        *_watched(NAMESPACES, PRIORITY_CLASSES, kinds.workload_priority_classes, kinds.resource_flavors),
    )


def permissions_by_controller(
    names: Names, integrations: Sequence[Integration]
) -> Mapping[str, tuple[Permission, ...]]:
    """The permissions of every controller, by its name."""
    kinds = kinds_of(names)
    workloads, cluster_queues, flavors = kinds.workloads, kinds.cluster_queues, kinds.resource_flavors
    elastic = any(one.scaling.can_be_elastic for one in integrations)
    return {
        **({ELASTIC_PODS: (ELASTIC_POD_PERMISSIONS, *_watched(workloads))} if elastic else {}),
        WORKLOAD: (
            _may(workloads, *_WATCH, "patch", "delete"),
            _may(workloads, "patch", subresource="status"),
            # By the controllers of jobs, too: pods that outlive their job keep its quota. While some are
            # known to remain, one of them is read.
            _may(PODS, "list", "get"),
            # What pods ask for depends on the rules of their namespace and on how they are run.
            *_watched(kinds.local_queues, cluster_queues, NAMESPACES, LIMIT_RANGES, RUNTIME_CLASSES),
        ),
        **{one.framework: (*permissions_of_kind(one), *_around_jobs(kinds)) for one in integrations},
        CLUSTER_QUEUE: (
            _may(cluster_queues, *_WATCH, "patch"),
            _may(cluster_queues, "patch", subresource="status"),
        ),
        LOCAL_QUEUE: (
            *_watched(kinds.local_queues),
            _may(kinds.local_queues, "patch", subresource="status"),
        ),
        # Statuses of cohorts tell of fair sharing, which is off by default.
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
    """Permissions of a controller that runs only with a feature gate, and only beside certain kinds of jobs.

    ``frameworks`` are those of the kinds, one of which must be enabled; empty where the kind does not matter.
    """

    gate: Gate
    permissions: tuple[Permission, ...]
    frameworks: tuple[str, ...] = ()


def permissions_of_gates(integrations: Iterable[Integration]) -> tuple[GatedPermissions, ...]:
    """The permissions of controllers that run only with a feature gate, be it on or off by default."""
    elastic = tuple(one.framework for one in integrations if one.scaling.can_be_elastic)
    return (
        GatedPermissions(Gate.ELASTIC_JOBS, (ELASTIC_POD_PERMISSIONS,), elastic),
        GatedPermissions(
            Gate.FAILURE_RECOVERY_POLICY,
            (
                _may(PODS, *_WATCH, "delete"),
                _may(PODS, "patch", subresource="status"),
                *_watched(NODES),
            ),
        ),
    )


def merge_permissions(of: Iterable[Permission]) -> tuple[Permission, ...]:
    """The same permissions, each resource once, sorted."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for permission in of:
        verbs.setdefault((permission.group, permission.resource), set()).update(permission.verbs)
    return tuple(Permission(*key, tuple(sorted(found))) for key, found in sorted(verbs.items()))
