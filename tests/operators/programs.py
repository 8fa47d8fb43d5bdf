"""The programs that run the jobs of a kind, which a story may crash and start again."""

from dataclasses import dataclass
from typing import Protocol

from localcluster.cluster import LocalCluster

CONTROLLER_MANAGER = "kube-controller-manager"


class Program(Protocol):
    """An operator, or the controller of a kind of Kubernetes."""

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        ...

    def start(self) -> None:
        """Start its process and wait until it is ready."""
        ...

    def kill(self) -> None:
        """Kill its process by SIGKILL, as in a crash."""
        ...


@dataclass(frozen=True)
class ControllerManager:
    """The kube-controller-manager of a cluster, with the controllers of the kinds of Kubernetes."""

    cluster: LocalCluster

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.cluster.runs(CONTROLLER_MANAGER)

    def start(self) -> None:
        """Start it again and wait until it is ready."""
        self.cluster.revive(CONTROLLER_MANAGER)

    def kill(self) -> None:
        """Kill it by SIGKILL."""
        self.cluster.kill(CONTROLLER_MANAGER)
