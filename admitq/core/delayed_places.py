"""Flavors in which pods get their places in a topology later than the workload gets its quota.

The pods of a workload cannot be placed while their nodes do not exist, or while these are not known. This is
so if a ProvisioningRequest asks for the nodes, and if MultiKueue sends the workload to another cluster. Then
the reservation has no topology assignment. A *second pass* makes it once the admission checks are ready; with
MultiKueue, the other cluster does.

Source: semantics, Topology-aware scheduling, Delayed topology.
"""

from collections.abc import Mapping

from admitq.core.activity import checks_of_controller, flavor_names
from admitq.core.applicable_checks import applicable_checks
from admitq.core.model import AdmissionCheck, ClusterQueue
from admitq.core.settings import CoreSettings


def find_flavors_placed_later(
    queue: ClusterQueue, checks: Mapping[str, AdmissionCheck], settings: CoreSettings
) -> frozenset[str]:
    """Return the flavors of a ClusterQueue to which a check of one of these controllers applies."""
    delaying = {
        name
        for controller in (settings.provisioning_controller, settings.multikueue_controller)
        for name in checks_of_controller(controller, queue, checks)
    }
    flavors = flavor_names(queue)
    return frozenset(
        flavor
        for flavor in (flavors if delaying else ())
        if delaying & applicable_checks(queue.admission_checks, flavors, (flavor,))
    )


def is_placed_elsewhere(
    queue: ClusterQueue, checks: Mapping[str, AdmissionCheck], settings: CoreSettings
) -> bool:
    """Whether MultiKueue sends the workloads of a ClusterQueue to clusters that have the topologies."""
    return bool(checks_of_controller(settings.multikueue_controller, queue, checks))
