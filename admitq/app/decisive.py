"""What decisions depend on."""

from admitq.runtime.kinds import Kinds
from admitq.runtime.resources import LIMIT_RANGES, NAMESPACES, RUNTIME_CLASSES, Resource


def decisive(kinds: Kinds) -> tuple[Resource, ...]:
    """What the core reads: all that decides who is admitted, and where."""
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
