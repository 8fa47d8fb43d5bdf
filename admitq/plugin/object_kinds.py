"""The kinds of objects that commands of the plugin accept, with their other names."""

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from admitq.runtime.kinds import Kinds
    from admitq.runtime.resources import Resource


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind on the command line. ``attribute`` names its resource in `Kinds`, ``title`` is for texts."""

    name: str
    aliases: tuple[str, ...]
    attribute: str
    title: str

    def resource(self, kinds: "Kinds") -> "Resource":
        """Return the resource of this kind under the API group of a cluster."""
        return attrgetter(self.attribute)(kinds)


WORKLOAD: Final = ObjectKind("workload", ("workloads", "kwl"), "workloads", "Workload")
CLUSTER_QUEUE: Final = ObjectKind("clusterqueue", ("clusterqueues", "cq"), "cluster_queues", "ClusterQueue")
LOCAL_QUEUE: Final = ObjectKind("localqueue", ("localqueues", "lq"), "local_queues", "LocalQueue")
