"""The queue managers that `hack/bench throughput` can measure: admitq, or any command."""

import os
import urllib.request
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Protocol

from admitq_api.crds import create_crds
from admitq_api.labels import ApiGroup, Names, names_for
from benchmarks.api_calls import ApiCallKey, read_program, samples
from localcluster import crds, sessions
from localcluster.cluster import LocalCluster, to_stderr
from localcluster.installation import PATIENT_LEASE, Component, Installation
from localcluster.processes import Process, Usage

MANAGER: Final = "manager"
WEBHOOK: Final = "webhook"

_ENDPOINT_PATIENCE_S: Final = 30.0
_READY_PATIENCE_S: Final = 600.0


class MeasuredManager(Protocol):
    """A queue manager beside a cluster.

    Attributes:
        counts_calls: whether its processes count their calls.
    """

    counts_calls: bool

    def install(self) -> None:
        """Install the API.

        Raises:
            InstallationError: it cannot be installed.
            DefinitionsError: the CRDs are not served.
        """
        ...

    def start(self) -> None:
        """Start the program. It can be started again after it was stopped.

        Raises:
            InstallationError: it cannot be started.
        """
        ...

    def failure(self) -> str | None:
        """Return why the program does not run any more, or None if it runs."""
        ...

    def usages(self) -> dict[str, Usage | None]:
        """Return the resource usage of each process, by the name of its component."""
        ...

    def calls(self) -> Mapping[str, Counter[ApiCallKey]]:
        """Return the calls that each process has counted itself, by the name of its component."""
        ...

    def stop(self) -> None:
        """Stop all processes."""
        ...


class AdmitqManager:
    """admitq with its chart: the manager and the webhook."""

    counts_calls = True
    _COMPONENTS: tuple[Component, ...] = ("manager", "webhook")

    def __init__(self, cluster: LocalCluster, group: ApiGroup) -> None:
        self._group: ApiGroup = group
        self._names: Names = names_for(group)
        self._installation = Installation(cluster)

    def install(self) -> None:
        """Install the chart."""
        to_stderr("installing admitq")
        self._installation.install(api_group=self._group, config={"leaderElection": PATIENT_LEASE})

    def start(self) -> None:
        """Start both processes."""
        self._installation.start(self._COMPONENTS, patience_s=_READY_PATIENCE_S)

    def failure(self) -> str | None:
        """Return which process has ended, with the end of its log."""
        for component in self._COMPONENTS:
            process = self._installation.process(component)
            if process is None or not process.alive():
                name = self._installation.process_name(component)
                return f"{name} ended:\n{self._installation.cluster.last_words(name)}"
        return None

    def usages(self) -> dict[str, Usage | None]:
        """Return the resource usage of both processes."""
        found = {component: self._installation.process(component) for component in self._COMPONENTS}
        return {name: process and process.usage() for name, process in found.items()}

    def calls(self) -> Mapping[str, Counter[ApiCallKey]]:
        """Return the calls in the metrics of both processes."""
        metric = f"{self._names.metric_prefix}_api_requests_total"
        return {
            component: read_program(_read(self._installation.url(component, "metrics")), metric)
            for component in self._COMPONENTS
        }

    def admissions(self) -> int:
        """Return the number of admissions in the metrics of the manager."""
        metric = f"{self._names.metric_prefix}_admitted_workloads_total"
        text = _read(self._installation.url("manager", "metrics"))
        return int(sum(sample.value for sample in samples(text, (metric,))))

    def stop(self) -> None:
        """Stop both processes."""
        self._installation.stop(self._COMPONENTS)


class CommandManager:
    """Another program, as a shell command. Only CRDs are installed: no webhook and no access rules.

    The command gets the administrator's kubeconfig in the variable KUBECONFIG.
    """

    counts_calls = False

    def __init__(self, cluster: LocalCluster, group: ApiGroup, command: str) -> None:
        self._cluster = cluster
        self._group: ApiGroup = group
        self._command = command
        self._process: Process | None = None

    def install(self) -> None:
        """Install the CRDs."""
        to_stderr("installing CRDs")
        crds.apply(self._cluster, map(_without_conversion, create_crds(self._group)))

    def start(self) -> None:
        """Start the command."""
        self._process = self._cluster.spawn(
            MANAGER,
            ["/bin/sh", "-c", self._command],
            environment={**os.environ, **self._cluster.environment()},
        )

    def failure(self) -> str | None:
        """Return that the command has ended, with the end of its output."""
        if self._process is not None and self._process.alive():
            return None
        return f"the command ended:\n{self._cluster.last_words(MANAGER)}"

    def usages(self) -> dict[str, Usage | None]:
        """Return the resource usage of the command with its children."""
        return {MANAGER: self._process and sessions.usage(self._process)}

    def calls(self) -> Mapping[str, Counter[ApiCallKey]]:
        """Return nothing: the metrics of the program are unknown."""
        return {}

    def stop(self) -> None:
        """Stop the command and its children."""
        if self._process is not None:
            sessions.stop(self._process)


class NoManager:
    """No queue manager, for comparison. There are no processes, so there are no calls to count."""

    counts_calls = True

    def install(self) -> None:
        """Do nothing."""

    def start(self) -> None:
        """Do nothing."""

    def failure(self) -> str | None:
        """Return None: nothing can end."""
        return None

    def usages(self) -> dict[str, Usage | None]:
        """Return nothing."""
        return {}

    def calls(self) -> Mapping[str, Counter[ApiCallKey]]:
        """Return nothing."""
        return {}

    def admissions(self) -> int:
        """Return 0."""
        return 0

    def stop(self) -> None:
        """Do nothing."""


def manager_of(cluster: LocalCluster, group: ApiGroup, command: str | None) -> MeasuredManager:
    """Return the queue manager that a shell command starts, or admitq if there is no command."""
    return AdmitqManager(cluster, group) if command is None else CommandManager(cluster, group, command)


def _without_conversion(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a CRD that needs no conversion webhook: the API server changes only the version."""
    return {**definition, "spec": {**definition["spec"], "conversion": {"strategy": "None"}}}


def _read(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=_ENDPOINT_PATIENCE_S) as answer:  # noqa: S310 - loopback
        return answer.read().decode()
