"""The kinds of the API group of admitq, as resources of the API server, and those that the core observes."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from admitq.runtime.resources import LIMIT_RANGES, NAMESPACES, NODES, PODS, RUNTIME_CLASSES, Resource
from admitq_api.labels import Names


@dataclass(frozen=True, slots=True)
class Kinds:
    """The resources of one API group of admitq."""

    workloads: Resource
    local_queues: Resource
    cluster_queues: Resource
    cohorts: Resource
    resource_flavors: Resource
    admission_checks: Resource
    provisioning_request_configs: Resource
    topologies: Resource
    workload_priority_classes: Resource


@cache
def kinds_of(names: Names) -> Kinds:
    """Return the resources of the API group of these names."""

    def resource(plural: str, kind: str, *, namespaced: bool = False) -> Resource:
        return Resource(names.group, names.version, plural, kind, namespaced=namespaced)

    return Kinds(
        workloads=resource("workloads", "Workload", namespaced=True),
        local_queues=resource("localqueues", "LocalQueue", namespaced=True),
        cluster_queues=resource("clusterqueues", "ClusterQueue"),
        cohorts=resource("cohorts", "Cohort"),
        resource_flavors=resource("resourceflavors", "ResourceFlavor"),
        admission_checks=resource("admissionchecks", "AdmissionCheck"),
        provisioning_request_configs=resource("provisioningrequestconfigs", "ProvisioningRequestConfig"),
        topologies=resource("topologies", "Topology"),
        workload_priority_classes=resource("workloadpriorityclasses", "WorkloadPriorityClass"),
    )


TOPOLOGY_NODES: Final = replace(NODES, view="domains of topologies")
"""The nodes that the domains of topologies consist of."""

TOPOLOGY_PODS: Final = replace(PODS, view="on nodes of topologies")
"""The pods that take room in the domains of topologies."""


def list_core_resources(kinds: Kinds) -> tuple[Resource, ...]:
    """Return the resources that the core always observes.

    While a flavor has a topology, it observes ``TOPOLOGY_PODS`` and ``TOPOLOGY_NODES``, too.
    """
    return (
        kinds.resource_flavors,
        kinds.admission_checks,
        kinds.topologies,
        kinds.cohorts,
        kinds.cluster_queues,
        NAMESPACES,
        LIMIT_RANGES,
        RUNTIME_CLASSES,
        kinds.local_queues,
        kinds.workloads,
    )
