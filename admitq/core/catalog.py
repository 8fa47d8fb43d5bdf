"""Observed objects that ClusterQueues refer to: flavors, checks, namespaces and Cohorts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from admitq.core.activity import check_names, flavor_names
from admitq.core.indexes import discard
from admitq.core.model import AdmissionCheck, ClusterQueue, Cohort, ResourceFlavor


@dataclass(slots=True, eq=False)
class Catalog:
    """The objects as last observed, by name, and the ClusterQueues that refer to them."""

    flavors: dict[str, ResourceFlavor] = field(default_factory=dict[str, ResourceFlavor])
    checks: dict[str, AdmissionCheck] = field(default_factory=dict[str, AdmissionCheck])
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """Labels of each namespace."""
    cohorts: dict[str, Cohort] = field(default_factory=dict[str, Cohort])
    cluster_queues_by_flavor: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    """Names of ClusterQueues by flavor. The flavor may not exist."""
    cluster_queues_by_check: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    """Names of ClusterQueues by admission check. The check may not exist."""

    def add_cluster_queue(self, spec: ClusterQueue) -> None:
        """Index a ClusterQueue by the flavors and checks that it refers to."""
        for name in flavor_names(spec):
            self.cluster_queues_by_flavor.setdefault(name, {})[spec.name] = None
        for name in check_names(spec):
            self.cluster_queues_by_check.setdefault(name, {})[spec.name] = None

    def remove_cluster_queue(self, spec: ClusterQueue) -> None:
        """Undo ``add_user``."""
        for name in flavor_names(spec):
            discard(self.cluster_queues_by_flavor, name, spec.name)
        for name in check_names(spec):
            discard(self.cluster_queues_by_check, name, spec.name)

    def cluster_queues_of_topology(self, name: str) -> list[str]:
        """Return names of ClusterQueues that refer to a flavor of the topology."""
        return [
            cluster_queue
            for flavor in self.flavors.values()
            if flavor.topology_name == name
            for cluster_queue in self.cluster_queues_by_flavor.get(flavor.name, ())
        ]
