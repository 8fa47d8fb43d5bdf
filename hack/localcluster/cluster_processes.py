"""The processes of one cluster: its components, and others beside them."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from localcluster import processes
from localcluster.folders import REPOSITORY
from localcluster.processes import Process

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
POD_NETWORK = "pod-network"
"""The component through which the API server reaches simulated pods. Most clusters do without it."""
ALL_COMPONENTS = (COMPONENTS[0], POD_NETWORK, *COMPONENTS[1:])
"""All components in the order of their start."""
# Clusters of tests are small and short-lived, and cores are scarcer than memory. Fewer garbage collections
# save a quarter of the API server's work during the installation of CRDs. The memory limit is soft.
_LESS_COLLECTING = {"GOGC": "400", "GOMEMLIMIT": "1500MiB"}


class ClusterError(Exception):
    """A cluster cannot be started or used. The message has the cause or the remedy."""


class ComponentDiedError(ClusterError):
    """A component ended during the start of the cluster.

    Attributes:
        last_words: the end of its log.
    """

    def __init__(self, cluster: str, component: str, log: Path) -> None:
        self.last_words = processes.last_lines(log)
        super().__init__(f"cluster {cluster}: {component} died. The end of {log}:\n{self.last_words}")


class ClusterProcesses:
    """The processes of a cluster. Files in its folder contain their process ids.

    Args:
        name: the cluster's name.
        folder: the cluster's folder.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder

    def log(self, process: str) -> Path:
        """Return the log file of a process."""
        return self._folder / "logs" / f"{process}.log"

    def all(self) -> dict[str, Process]:
        """Return every process of the cluster by name, components first."""
        folder = self._folder / "processes"
        names = [path.stem for path in sorted(folder.glob("*.json"))] if folder.exists() else []
        names.sort(key=_place)
        records = {name: processes.read(folder / f"{name}.json") for name in names}
        return {name: process for name, process in records.items() if process is not None}

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        start: Callable[..., Process] = processes.spawn,
    ) -> Process:
        """Start a process; ``start`` has the parameters of ``processes.spawn``."""
        self._file(name).parent.mkdir(exist_ok=True)
        process = start(argv, log=self.log(name), environment=environment)
        process.write(self._file(name))
        return process

    def spawn_component(
        self, name: str, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a component of the cluster; ``environment`` takes precedence over that of this process."""
        python = {"PYTHONPATH": str(REPOSITORY / "hack")}
        self.spawn(
            name, argv, environment={**_LESS_COLLECTING, **os.environ, **python, **(environment or {})}
        )

    def kill(self, name: str) -> None:
        """Kill a process by SIGKILL, and wait for its end.

        Raises:
            ClusterError: there is no such process.
        """
        process = self._process(name)
        process.signal(signal.SIGKILL)
        processes.wait(lambda: not process.alive(), timeout_s=5.0)
        processes.reap(process)

    def terminate(self, name: str, *, patience_s: float) -> None:
        """Terminate a process, and kill it if it does not end in time.

        Raises:
            ClusterError: there is no such process.
        """
        processes.stop([self._process(name)], patience_s=patience_s)
        self._file(name).unlink(missing_ok=True)

    def halt(self) -> None:
        """Stop every process, clients before their servers. Keep the files."""
        running = self.all()
        beside = [process for name, process in running.items() if name not in ALL_COMPONENTS]
        processes.stop(beside)
        for name in reversed(ALL_COMPONENTS):
            if name in running:
                # Components get little time to end, because their data is deleted next.
                processes.stop([running[name]], patience_s=3.0)

    def check_alive(self) -> None:
        """Check that all components run.

        Raises:
            ComponentDiedError: one has ended.
        """
        for name, process in self.all().items():
            if name in ALL_COMPONENTS and not process.alive():
                raise ComponentDiedError(self._name, name, self.log(name))

    def _process(self, name: str) -> Process:
        process = processes.read(self._file(name))
        if process is None:
            raise ClusterError(f"cluster {self._name} has no process {name}")
        return process

    def _file(self, name: str) -> Path:
        return self._folder / "processes" / f"{name}.json"


def _place(name: str) -> int:
    """Return the place of a process in the order of the start: processes that are no components come last."""
    return ALL_COMPONENTS.index(name) if name in ALL_COMPONENTS else len(ALL_COMPONENTS)
