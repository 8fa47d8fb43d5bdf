"""Whether a ClusterQueue is active, and if not, all causes in the order of its condition message."""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from admitq.core.model import AdmissionCheck, ClusterQueue, ResourceFlavor, StopPolicy
from admitq.core.settings import CoreSettings


class ActiveReason(StrEnum):
    """Reasons of a ClusterQueue's Active condition."""

    READY = "Ready"
    UNKNOWN = "Unknown"
    TERMINATING = "Terminating"
    STOPPED = "Stopped"
    FLAVOR_NOT_FOUND = "FlavorNotFound"
    ADMISSION_CHECK_NOT_FOUND = "AdmissionCheckNotFound"
    ADMISSION_CHECK_INACTIVE = "AdmissionCheckInactive"
    MULTIPLE_MULTIKUEUE = "MultipleMultiKueueAdmissionChecks"
    MULTIKUEUE_PER_FLAVOR = "MultiKueueAdmissionCheckAppliedPerFlavor"
    MULTIKUEUE_WITH_PROVISIONING = "MultiKueueWithProvisioningRequest"
    TOPOLOGY_NOT_FOUND = "TopologyNotFound"


class InactiveCause(NamedTuple):
    """A cause why a ClusterQueue is inactive, with the names of the objects that cause it."""

    reason: ActiveReason
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReferencedObjects:
    """The objects that ClusterQueues refer to, as they are now."""

    flavors: Mapping[str, ResourceFlavor]
    checks: Mapping[str, AdmissionCheck]
    topologies: Container[str]
    settings: CoreSettings


def flavor_names(cluster_queue: ClusterQueue) -> tuple[str, ...]:
    """Return the flavors that a ClusterQueue refers to, in the order of its specification."""
    return tuple(
        dict.fromkeys(flavor.name for group in cluster_queue.resource_groups for flavor in group.flavors)
    )


def check_names(cluster_queue: ClusterQueue) -> tuple[str, ...]:
    """Return the AdmissionChecks that a ClusterQueue refers to, sorted."""
    return tuple(sorted({rule.name for rule in cluster_queue.admission_checks}))


def checks_of_controller(
    controller: str, cluster_queue: ClusterQueue, checks: Mapping[str, AdmissionCheck]
) -> tuple[str, ...]:
    """Return the AdmissionChecks of a ClusterQueue that a controller owns, sorted.

    Args:
        controller: the name of the controller. No check has an empty one.
        cluster_queue: the ClusterQueue.
        checks: all AdmissionChecks that exist, by name.
    """
    if not controller:
        return ()
    named = (checks.get(name) for name in check_names(cluster_queue))
    return tuple(check.name for check in named if check is not None and check.controller_name == controller)


def _quarantined(queue: ClusterQueue, _objects: ReferencedObjects) -> tuple[str, ...] | None:
    return () if queue.quarantined else None


def _terminating(queue: ClusterQueue, _objects: ReferencedObjects) -> tuple[str, ...] | None:
    return () if queue.terminating else None


def _stopped(queue: ClusterQueue, _objects: ReferencedObjects) -> tuple[str, ...] | None:
    return () if queue.stop_policy is not StopPolicy.NONE else None


def _missing_flavors(queue: ClusterQueue, objects: ReferencedObjects) -> tuple[str, ...] | None:
    return tuple(name for name in flavor_names(queue) if name not in objects.flavors) or None


def _missing_checks(queue: ClusterQueue, objects: ReferencedObjects) -> tuple[str, ...] | None:
    return tuple(name for name in check_names(queue) if name not in objects.checks) or None


def _inactive_checks(queue: ClusterQueue, objects: ReferencedObjects) -> tuple[str, ...] | None:
    checks = (objects.checks.get(name) for name in check_names(queue))
    return tuple(check.name for check in checks if check is not None and not check.active) or None


def _several_multikueue(queue: ClusterQueue, objects: ReferencedObjects) -> tuple[str, ...] | None:
    names = checks_of_controller(objects.settings.multikueue_controller, queue, objects.checks)
    return names if len(names) > 1 else None


def _multikueue_per_flavor(queue: ClusterQueue, objects: ReferencedObjects) -> tuple[str, ...] | None:
    names = checks_of_controller(objects.settings.multikueue_controller, queue, objects.checks)
    restricted = {rule.name for rule in queue.admission_checks if rule.on_flavors}
    return tuple(name for name in names if name in restricted) or None


def _multikueue_with_provisioning(queue: ClusterQueue, objects: ReferencedObjects) -> tuple[str, ...] | None:
    multikueue = checks_of_controller(objects.settings.multikueue_controller, queue, objects.checks)
    provisioning = checks_of_controller(objects.settings.provisioning_controller, queue, objects.checks)
    return (multikueue[0], provisioning[0]) if multikueue and provisioning else None


def _missing_topologies(queue: ClusterQueue, objects: ReferencedObjects) -> tuple[str, ...] | None:
    """Return missing topologies, each followed by its flavor. With MultiKueue, other clusters have them."""
    if checks_of_controller(objects.settings.multikueue_controller, queue, objects.checks):
        return None
    flavors = (objects.flavors.get(name) for name in flavor_names(queue))
    return (
        tuple(
            name
            for flavor in flavors
            if flavor is not None and flavor.topology_name and flavor.topology_name not in objects.topologies
            for name in (flavor.topology_name, flavor.name)
        )
        or None
    )


_RULES: Final[
    tuple[tuple[ActiveReason, Callable[[ClusterQueue, ReferencedObjects], tuple[str, ...] | None]], ...]
] = (
    (ActiveReason.UNKNOWN, _quarantined),
    (ActiveReason.TERMINATING, _terminating),
    (ActiveReason.STOPPED, _stopped),
    (ActiveReason.FLAVOR_NOT_FOUND, _missing_flavors),
    (ActiveReason.ADMISSION_CHECK_NOT_FOUND, _missing_checks),
    (ActiveReason.ADMISSION_CHECK_INACTIVE, _inactive_checks),
    (ActiveReason.MULTIPLE_MULTIKUEUE, _several_multikueue),
    (ActiveReason.MULTIKUEUE_PER_FLAVOR, _multikueue_per_flavor),
    (ActiveReason.MULTIKUEUE_WITH_PROVISIONING, _multikueue_with_provisioning),
    (ActiveReason.TOPOLOGY_NOT_FOUND, _missing_topologies),
)


def _causes(queue: ClusterQueue, objects: ReferencedObjects) -> Iterator[InactiveCause]:
    for reason, holds in _RULES:
        names = holds(queue, objects)
        if names is not None:
            yield InactiveCause(reason, names)


def inactive_causes(queue: ClusterQueue, objects: ReferencedObjects) -> tuple[InactiveCause, ...]:
    """Return all causes why the ClusterQueue is inactive; empty if it is active."""
    return tuple(_causes(queue, objects))
