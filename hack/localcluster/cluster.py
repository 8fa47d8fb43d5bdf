"""A control plane with a name: start it, inspect it, kill parts of it, and stop it."""

import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localcluster import binaries, components, nodes, processes
from localcluster.api import Api
from localcluster.cluster_processes import (
    ALL_COMPONENTS,
    COMPONENTS,
    POD_NETWORK,
    ClusterError,
    ClusterProcesses,
    ComponentDiedError,
)
from localcluster.folders import state_folder
from localcluster.locks import exclusive
from localcluster.nodes import NodePool
from localcluster.pki import Pair
from localcluster.ports import free_ports
from localcluster.processes import Process, Usage
from localcluster.readiness import (
    PATIENCE_S,
    PLAIN_HEALTH,
    accepts,
    answers,
    has_default_account,
    holds_in_time,
)

_START_ATTEMPTS = 3
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_BUSY_PORT = re.compile(r"address already in use", re.IGNORECASE)


@dataclass(frozen=True)
class ProcessStatus:
    """The state of one process of a cluster.

    Attributes:
        name: the name of the component, or of another process beside the cluster.
        pid: its process id, whether it runs or not.
        usage: its resource usage, or None if it does not run.
        log: its log file.
    """

    name: str
    pid: int
    usage: Usage | None
    log: Path

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.usage is not None


def to_stderr(message: str) -> None:
    """Write a progress message to standard error."""
    print(message, file=sys.stderr, flush=True)


class LocalCluster:
    """A control plane on loopback, which all processes of the user find by its name.

    The object has no state of its own: two objects with one name are the same cluster.

    Args:
        name: lower-case letters, digits and dashes, at most 40.

    Raises:
        ClusterError: the name has another form.
    """

    def __init__(self, name: str = "default") -> None:
        if not _NAME.fullmatch(name):
            raise ClusterError(
                f"{name!r} cannot name a cluster: use at most 40 lower-case letters, digits and dashes"
            )
        self.name = name
        self.folder = state_folder() / "clusters" / name
        self.processes = ClusterProcesses(name, self.folder)
        self._lock = self.folder.with_name(f".{name}.lock")

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self.folder / "kubeconfigs" / "admin.yaml"

    @property
    def authority(self) -> Path:
        """The certificate of the cluster's authority, which signed the API server's certificate."""
        return self.folder / "pki" / "ca.crt"

    @property
    def admin(self) -> Pair:
        """The administrator's client certificate and key."""
        return Pair(self.folder / "pki" / "admin.crt", self.folder / "pki" / "admin.key")

    @property
    def admin_token(self) -> str:
        """The administrator's bearer token. The API server verifies it faster than a client certificate."""
        kubeconfig = json.loads(self.kubeconfig.read_bytes())
        return kubeconfig["users"][0]["user"]["token"]

    @property
    def audit_log(self) -> Path:
        """The audit log: one JSON event a line, for each call by a ServiceAccount outside kube-system."""
        return components.audit_log(self.folder)

    @property
    def server(self) -> str:
        """The API server's URL.

        Raises:
            ClusterError: the cluster was never started.
        """
        return str(self._description()["server"])

    def port(self, name: str) -> int:
        """Return the port on loopback of a name of `components.PORTS`."""
        return int(self._description()["ports"][name])

    def log(self, process: str) -> Path:
        """Return the log file of a component or of another process beside the cluster."""
        return self.processes.log(process)

    def api(self) -> Api:
        """Return a connection to the API server as administrator, for one thread."""
        return Api(self.server, self.authority, self.admin)

    def environment(self) -> dict[str, str]:
        """Return the variables that make kubectl and helm use this cluster: KUBECONFIG and PATH.

        PATH ends with the folder of the plugin of kubectl, which must not hide other programs.
        """
        programs = self._description()["programs"]
        folders = dict.fromkeys(str(Path(programs[name]).parent) for name in ("kubectl", "helm"))
        plugin = sysconfig.get_path("scripts")
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": os.pathsep.join([*folders, os.environ.get("PATH", os.defpath), plugin]),
        }

    def program(self, name: str) -> Path:
        """Return the path of a built program, such as kubectl or helm."""
        return Path(self._description()["programs"][name])

    def start(
        self,
        pools: Sequence[NodePool] = (NodePool(),),
        *,
        component_names: Sequence[str] = COMPONENTS,
        api_server_arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        owner: Process | None = None,
        say: Callable[[str], None] = to_stderr,
    ) -> bool:
        """Start the cluster and wait until it accepts pods. Build missing programs first.

        If an earlier cluster with this name exists and a part of it is dead, remove that cluster first.

        Args:
            pools: the simulated nodes, which need all components.
            component_names: the components to start. etcd and kube-apiserver are necessary. With
                ``POD_NETWORK``, the API server connects to simulated pods.
            api_server_arguments: more command line arguments of kube-apiserver.
            environment: environment variables of the components, in addition to those of this process.
            owner: the process that needs the cluster; `reclaim_orphans` stops the cluster when this process
                has ended. None: the cluster runs until it is stopped.
            say: receives a message for each step.

        Returns:
            False if the same cluster ran already.

        Raises:
            ClusterError: it runs with other options, or a component dies or does not become ready.
        """
        try:
            programs = binaries.build(say)
        except binaries.BuildError as error:
            raise ClusterError(str(error)) from error
        options = json.loads(
            json.dumps(
                {
                    "pools": [asdict(pool) for pool in pools],
                    "arguments": list(api_server_arguments),
                    "components": [name for name in ALL_COMPONENTS if name in component_names],
                }
            )
        )
        with exclusive(
            self._lock, waiting=lambda: say(f"cluster {self.name} is being started or stopped, waiting")
        ):
            if self._runs_already(options):
                return False
            if self.folder.exists():
                say(f"cluster {self.name}: removing the remains of an earlier one")
                self._clear()
            for attempt in range(1, _START_ATTEMPTS + 1):
                try:
                    self._start(pools, api_server_arguments, options, programs, environment, owner)
                except ComponentDiedError as death:
                    self.processes.halt()
                    if attempt == _START_ATTEMPTS or not _BUSY_PORT.search(death.last_words):
                        raise
                    say(f"cluster {self.name}: another process took a port, trying other ports")
                    self._clear()
                except BaseException:
                    self.processes.halt()
                    raise
                else:
                    break
        return True

    def stop(self) -> bool:
        """Stop all processes of this cluster and delete its state.

        Returns:
            False if there was nothing to stop.
        """
        with exclusive(self._lock):
            if not self.folder.exists():
                return False
            self._clear()
            return True

    def exists(self) -> bool:
        """Whether the cluster was started and not stopped since. Parts of it can be dead."""
        return (self.folder / "cluster.json").exists()

    def status(self) -> list[ProcessStatus]:
        """Return the state of every process of the cluster: components first, in the order of their start."""
        return [
            ProcessStatus(name, process.pid, process.usage(), self.log(name))
            for name, process in self.processes.all().items()
        ]

    def healthy(self) -> bool:
        """Whether every component of the cluster runs and the API server is ready."""
        running = self.processes.all()
        names = self._description()["options"]["components"]
        if any(name not in running or not running[name].alive() for name in names):
            return False
        with self.api() as api:
            return api.healthy("/readyz")

    def runs(self, name: str) -> bool:
        """Whether a process of the cluster runs."""
        process = self.processes.all().get(name)
        return process is not None and process.alive()

    def spawn(
        self, name: str, argv: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> Process:
        """Start a process beside the cluster, which ends with the cluster."""
        return self.processes.spawn(name, argv, environment=environment)

    def kill(self, name: str) -> None:
        """Kill a component or another process of the cluster by SIGKILL, and wait for its end."""
        self.processes.kill(name)

    def terminate(self, name: str, *, patience_s: float = 10.0) -> None:
        """Terminate one process of the cluster, and kill it if it does not end in time."""
        self.processes.terminate(name, patience_s=patience_s)

    def revive(self, component: str, *, environment: Mapping[str, str] | None = None) -> None:
        """Start a component again, with the same data and command line, and wait until it is ready.

        Args:
            component: the name of the component.
            environment: variables that replace those of this process.

        Raises:
            ClusterError: it dies again or does not become ready.
        """
        argv = self._description()["command_lines"][component]
        self.processes.spawn_component(component, argv, environment or {})
        self._await_ready(component, self._description()["ports"])

    def add_nodes(self, pool: NodePool) -> None:
        """Add simulated nodes and wait until all nodes of the cluster are ready.

        Raises:
            ClusterError: they do not become ready.
        """
        with self.api() as api:
            nodes.create(api, pool)
            expected = len(api.request("GET", "/api/v1/nodes")["items"])
            self._await(lambda: nodes.ready_count(api) >= expected, f"{expected} nodes to be ready")

    def last_words(self, process: str) -> str:
        """Return the last lines of a process's log."""
        return processes.last_lines(self.log(process))

    def _start(
        self,
        pools: Sequence[NodePool],
        api_server_arguments: Sequence[str],
        options: Any,
        programs: Mapping[str, Path],
        environment: Mapping[str, str] | None,
        owner: Process | None,
    ) -> None:
        self.folder.mkdir(parents=True, mode=0o700)
        (self.folder / "logs").mkdir()
        ports = free_ports(components.PORTS)
        layout = components.Layout(
            folder=self.folder,
            programs=programs,
            ports=ports,
            identities=components.make_identities(self.folder / "pki"),
            api_server_arguments=api_server_arguments,
            has_pod_network=POD_NETWORK in options["components"],
        )
        components.write_files(layout)
        command_lines = components.command_lines(layout)
        description = {
            "server": layout.server,
            "ports": ports,
            "programs": {name: str(path) for name, path in programs.items()},
            "command_lines": command_lines,
            "options": options,
        }
        (self.folder / "cluster.json").write_text(json.dumps(description, indent=2))
        if owner is not None:
            owner.write(self.folder / "owner.json")
        first = [name for name in options["components"] if name in {"etcd", POD_NETWORK, "kube-apiserver"}]
        for name in first:
            self.processes.spawn_component(name, command_lines[name], environment)
            self._await_ready(name, ports)
        others = [name for name in options["components"] if name not in first]
        for name in others:
            self.processes.spawn_component(name, command_lines[name], environment)
        with self.api() as api:
            for pool in pools:
                nodes.create(api, pool)
            for name in others:
                self._await_ready(name, ports)
            if "kube-controller-manager" in others:
                self._await(lambda: has_default_account(api), "the ServiceAccount controller")
            expected = sum(pool.count for pool in pools)
            self._await(lambda: nodes.ready_count(api) >= expected, f"{expected} nodes to be ready")

    def _runs_already(self, options: Any) -> bool:
        if not self.exists() or not self.healthy():
            return False
        if self._description()["options"] != options:
            raise ClusterError(
                f"cluster {self.name} already runs with other options; "
                f"stop it first: hack/cluster down --name {self.name}"
            )
        return True

    def _await_ready(self, component: str, ports: Mapping[str, int]) -> None:
        what, port = f"{component} to be ready", ports[component]
        if component == POD_NETWORK:
            self._await(lambda: accepts(port), what)
            return
        if component in PLAIN_HEALTH:
            self._await(lambda: answers(port, PLAIN_HEALTH[component]), what)
            return
        path = "/readyz" if component == "kube-apiserver" else "/healthz"
        with Api(f"https://{components.LOOPBACK}:{port}", self.authority, self.admin) as api:
            self._await(lambda: api.healthy(path), what)

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        if not holds_in_time(condition, self.processes.check_alive):
            raise ClusterError(
                f"cluster {self.name}: waited {PATIENCE_S:.0f} s for {what} without success; "
                f"the logs are in {self.folder / 'logs'}"
            )

    def _clear(self) -> None:
        self.processes.halt()
        # Rename first, so that a partly deleted folder is never mistaken for a cluster.
        doomed = self.folder.with_name(f".{self.name}.{os.getpid()}.removed")
        self.folder.rename(doomed)
        shutil.rmtree(doomed)

    def _description(self) -> dict[str, Any]:
        try:
            return json.loads((self.folder / "cluster.json").read_text())
        except OSError as error:
            raise ClusterError(
                f"there is no cluster {self.name}; start one: hack/cluster up --name {self.name}"
            ) from error


def all_clusters() -> list[LocalCluster]:
    """Return every cluster that was started and not stopped since."""
    folder = state_folder() / "clusters"
    names = sorted(path.parent.name for path in folder.glob("*/cluster.json")) if folder.exists() else []
    return [LocalCluster(name) for name in names if _NAME.fullmatch(name)]


def reclaim_orphans(say: Callable[[str], None] = to_stderr) -> None:
    """Stop the clusters of ended owners."""
    for cluster in all_clusters():
        owner = processes.read(cluster.folder / "owner.json")
        if owner is not None and not owner.alive():
            say(f"cluster {cluster.name}: the process that needed it has ended, stopping it")
            cluster.stop()
