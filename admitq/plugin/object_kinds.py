"""The kinds of objects that commands of the plugin accept, with their other names."""

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from admitq.runtime.kinds import Kinds
    from admitq.runtime.resources import Resource


class ObjectKind(NamedTuple):
    """A kind on the command line. ``attribute`` names its resource in `Kinds`, ``title`` is for texts."""

    name: str
    aliases: tuple[str, ...]
    attribute: str
    title: str

    @property
    def plural(self) -> str:
        """The plural, as in paths of the API server."""
        return f"{self.name}s"

    def resource(self, kinds: "Kinds") -> "Resource":
        """Return the resource of this kind under the API group of a cluster."""
        return getattr(kinds, self.attribute)


WORKLOAD: Final = ObjectKind("workload", ("workloads", "kwl"), "workloads", "Workload")
CLUSTER_QUEUE: Final = ObjectKind("clusterqueue", ("clusterqueues", "cq"), "cluster_queues", "ClusterQueue")
LOCAL_QUEUE: Final = ObjectKind("localqueue", ("localqueues", "lq"), "local_queues", "LocalQueue")
RESOURCE_FLAVOR: Final = ObjectKind(
    "resourceflavor", ("resourceflavors", "rf"), "resource_flavors", "ResourceFlavor"
)

KINDS: Final = (WORKLOAD, CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR)
"""All kinds that commands accept."""
