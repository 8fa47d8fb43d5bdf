"""admitq beside a local cluster: the shipped chart, and processes with the permissions that it grants.

The processes get only what the chart's pods would get: the configuration of its ConfigMap and tokens of its
ServiceAccounts. Only the listen addresses differ, because all processes share one machine.
"""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from admitq_api.labels import DEFAULT_GROUP, names_for
from localcluster import preloaded, processes
from localcluster.api import Api, ApiFailure
from localcluster.cluster import LocalCluster, to_stderr
from localcluster.cluster_processes import ClusterError
from localcluster.components import LOOPBACK
from localcluster.folders import REPOSITORY
from localcluster.kubeconfigs import kubeconfig, request_token
from localcluster.ports import free_ports
from localcluster.processes import Process

Component = Literal["manager", "webhook", "visibility"]

TOKEN_LIFETIME_S = 3600
"""The lifetime of a token, as in the chart."""

PATIENT_LEASE: Mapping[str, str] = {"leaseDuration": "2m", "renewDeadline": "90s", "retryPeriod": "5s"}
"""`leaderElection` of the configuration of a manager that tests or benchmarks need.

It must not lose its lease and end when a busy machine delays it for seconds.
"""

_CHART = REPOSITORY / "charts" / "admitq"
_READY_PATIENCE_S = 120.0


class InstallationError(Exception):
    """admitq cannot be installed or started. The message has the cause."""


class Installation:
    """A release of the chart on a local cluster, and its processes.

    Args:
        cluster: a running cluster.
        release: the name of the helm release. It is the prefix of the names of its objects, unless the API
            group fixes these names.
        namespace: the namespace of the release.
    """

    def __init__(
        self, cluster: LocalCluster, *, release: str = "admitq", namespace: str = "admitq-system"
    ) -> None:
        self.cluster = cluster
        self.release = release
        self.namespace = namespace
        self._folder = cluster.folder / "installations" / release

    @property
    def prefix(self) -> str:
        """The prefix of the names of its objects."""
        chart_values = self._given()
        group = str(chart_values.get("apiGroup", DEFAULT_GROUP))
        shadow = chart_values.get("shadow", {}).get("enabled", False)
        fixed = None if shadow else names_for(group).installation
        return str(chart_values.get("fullnameOverride") or fixed or self.release)

    def install(
        self,
        *,
        api_group: str = DEFAULT_GROUP,
        config: Mapping[str, Any] | None = None,
        values: Mapping[str, Any] | None = None,
        take_ownership: bool = False,
    ) -> None:
        """Install or upgrade the chart.

        Args:
            api_group: the API group of all kinds and names of admitq.
            config: fields of the configuration file.
            values: other values of the chart, nested as in values.yaml.
            take_ownership: adopt objects that another installation created, such as CRDs.

        Raises:
            InstallationError: helm fails; the message has its output.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        chart_values = dict(values or {})
        chosen = {
            **chart_values,
            "apiGroup": api_group,
            "config": {**chart_values.get("config", {}), **(config or {})},
            "webhook": {
                **chart_values.get("webhook", {}),
                "url": f"https://{LOOPBACK}:{self._port('webhook', 'webhook')}",
            },
        }
        visibility = {"enabled": False, **chart_values.get("visibility", {})}
        if visibility["enabled"]:
            visibility["url"] = f"https://{LOOPBACK}:{self._port('visibility', 'visibility')}"
        chosen["visibility"] = visibility
        file = self._folder / "values.json"
        file.write_text(json.dumps(chosen, indent=2))
        options = ("--take-ownership",) if take_ownership else ()
        self.helm(
            *("upgrade", "--install", self.release, str(_CHART), "--create-namespace"),
            *("--values", str(file), *options),
        )

    def api_group(self) -> str | None:
        """The installed API group, or None if nothing is installed."""
        group = self._given().get("apiGroup")
        return None if group is None else str(group)

    def _given(self) -> dict[str, Any]:
        """Return the values of the installed release, or an empty map."""
        try:
            return json.loads((self._folder / "values.json").read_text())
        except OSError:
            return {}

    def uninstall(self) -> None:
        """Stop the processes and uninstall the release. As with the chart, queues and workloads stay."""
        self.stop()
        self.helm("uninstall", self.release, "--wait")

    def helm(self, *arguments: str) -> str:
        """Run helm on the cluster and in the release's namespace.

        Raises:
            InstallationError: helm fails; the message has its output.
        """
        # Helm uses its own folders, so that settings and caches of the user have no effect.
        own = {
            f"HELM_{kind}_HOME": str(self.cluster.folder / "helm" / kind.lower())
            for kind in ("CACHE", "CONFIG", "DATA")
        }
        process = subprocess.run(
            [str(self.cluster.program("helm")), *arguments, "--namespace", self.namespace],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **self.cluster.environment(), **own},
        )
        if process.returncode != 0:
            raise InstallationError(f"helm {arguments[0]} failed:\n{process.stderr.strip()}")
        return process.stdout

    def start(
        self,
        components: Sequence[Component] = ("manager", "webhook"),
        *,
        replica: int = 0,
        arguments: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
        patience_s: float = _READY_PATIENCE_S,
    ) -> None:
        """Start processes and wait until each reports that it is ready.

        Args:
            components: the components to start.
            replica: distinguishes several managers; only one webhook can be behind the chart's URL.
            arguments: more command line arguments, such as `--log-level=debug`.
            config: sections of the configuration file that replace those of the installation.
            patience_s: the seconds within which each must be ready.

        Raises:
            InstallationError: a process ends or does not become ready.
        """
        self._renew_tokens()
        for component in components:
            self._start(component, replica, arguments, config or {})
        for component in components:
            self._await_ready(component, replica, patience_s)

    def stop(
        self, components: Sequence[Component] = ("visibility", "manager", "webhook"), *, replica: int = 0
    ) -> None:
        """Terminate processes in order. Processes that do not run are ignored."""
        running = self.cluster.processes.all()
        for component in components:
            name = self.process_name(component, replica)
            if name in running:
                self.cluster.terminate(name, patience_s=40.0)

    def kill(self, component: Component, *, replica: int = 0) -> None:
        """Kill a process by SIGKILL, as in a crash."""
        self.cluster.kill(self.process_name(component, replica))

    def process(self, component: Component, *, replica: int = 0) -> Process | None:
        """Return the process of a component, or None if it was never started."""
        return self.cluster.processes.all().get(self.process_name(component, replica))

    def log(self, component: Component, *, replica: int = 0) -> Path:
        """Return the log file of a component."""
        return self.cluster.log(self.process_name(component, replica))

    def process_name(self, component: Component, replica: int = 0) -> str:
        """Return the name of the component's process in the cluster."""
        return f"{self.release}-{component}" + (f"-{replica}" if replica else "")

    def url(self, component: Component, endpoint: Literal["metrics", "health"], *, replica: int = 0) -> str:
        """Return the base URL of an endpoint of a process: plain HTTP on loopback."""
        return f"http://{LOOPBACK}:{self._port(self._instance(component, replica), endpoint)}"

    def port_of(self, component: Literal["webhook", "visibility"]) -> int:
        """Return the port on loopback on which a component serves HTTPS."""
        return self._port(component, component)

    def kubeconfig(self, component: Component) -> Path:
        """Return a kubeconfig file with only the permissions that the chart grants a component."""
        return self._folder / f"{component}.kubeconfig"

    def token_file(self, component: Component) -> Path:
        """Return the file with a component's token, which is renewed in place."""
        return self._folder / f"{component}.token"

    def renew_tokens(self, lifetime_s: int = TOKEN_LIFETIME_S) -> None:
        """Request new tokens of all ServiceAccounts and write them to their files."""
        chart_values = self._given()
        shadow = chart_values.get("shadow", {}).get("enabled", False)
        components = ["manager"] if shadow else ["manager", "webhook"]
        if chart_values.get("visibility", {}).get("enabled", False):
            components.append("visibility")
        with self.cluster.api() as api:
            for component in components:
                self._renew_token(api, component, lifetime_s)

    def _start(
        self, component: Component, replica: int, arguments: Sequence[str], config: Mapping[str, Any]
    ) -> None:
        instance = self._instance(component, replica)
        file = self._folder / f"{instance}.yaml"
        file.write_text(yaml.safe_dump({**self._configuration(component, replica), **config}))
        self._write_kubeconfig(component)
        command = [
            str(Path(sys.executable).with_name("admitq")),
            component,
            f"--config={file}",
            f"--kubeconfig={self.kubeconfig(component)}",
            *arguments,
        ]
        # Remove variables of the caller with which the process would use other credentials.
        environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        self.cluster.processes.spawn(
            self.process_name(component, replica), command, environment=environment, start=preloaded.spawn
        )

    def _await_ready(self, component: Component, replica: int, patience_s: float) -> None:
        name = self.process_name(component, replica)
        process = self.process(component, replica=replica)
        port = self._port(self._instance(component, replica), "health")

        def over() -> bool:
            return process is None or not process.alive() or _is_ready(port)

        in_time = processes.wait(over, timeout_s=patience_s, interval_s=0.05)
        if in_time and process is not None and process.alive():
            return
        what = f"was not ready within {patience_s:.0f} s" if not in_time else "ended"
        raise InstallationError(
            f"{name} {what}. The end of {self.cluster.log(name)}:\n{self.cluster.last_words(name)}"
        )

    def _configuration(self, component: Component, replica: int) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/{self.prefix}-config"
        with self.cluster.api() as api:
            shipped = yaml.safe_load(api.request("GET", path)["data"]["config.yaml"])
        instance = self._instance(component, replica)
        return {
            **shipped,
            "webhook": {
                **shipped.get("webhook", {}),
                "host": LOOPBACK,
                "port": self._port("webhook", "webhook"),
            },
            "visibilityServer": {
                **shipped.get("visibilityServer", {}),
                "bindAddress": LOOPBACK,
                "bindPort": self._port("visibility", "visibility"),
            },
            "metrics": {
                **shipped.get("metrics", {}),
                "bindAddress": f"{LOOPBACK}:{self._port(instance, 'metrics')}",
            },
            "health": {
                **shipped.get("health", {}),
                "healthProbeBindAddress": f"{LOOPBACK}:{self._port(instance, 'health')}",
            },
        }

    def _write_kubeconfig(self, component: Component) -> None:
        cluster, credentials = self.cluster, {"tokenFile": str(self.token_file(component))}
        self.kubeconfig(component).write_text(
            kubeconfig(cluster.name, cluster.server, cluster.authority, component, credentials)
        )

    def _renew_tokens(self) -> None:
        self.renew_tokens()
        name = f"{self.release}-token-renewer"
        renewer = self.cluster.processes.all().get(name)
        if renewer is not None and renewer.alive():
            return
        argv = [
            sys.executable,
            "-m",
            "localcluster.installation",
            self.cluster.name,
            self.release,
            self.namespace,
        ]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "hack")}
        self.cluster.spawn(name, argv, environment=environment)

    def _renew_token(self, api: Api, component: str, lifetime_s: int) -> None:
        account = f"{self.prefix}-{component}"
        token = request_token(api, self.namespace, account, lifetime_s)
        target = self._folder / f"{component}.token"
        fresh = target.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(token)
        fresh.replace(target)

    def _instance(self, component: Component, replica: int) -> str:
        return f"{component}-{replica}" if replica else component

    def _port(self, instance: str, endpoint: str) -> int:
        """Return a port that stays the same for the lifetime of the installation."""
        file = self._folder / "ports.json"
        ports: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
        key = f"{instance}/{endpoint}"
        if key not in ports:
            ports.update(free_ports([key]))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(ports))
        return ports[key]


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5.0)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def keep_tokens_fresh(installation: Installation, wait: Callable[[float], None]) -> None:
    """Renew the tokens of an installation as long as its cluster exists.

    Args:
        installation: the installation with the tokens.
        wait: sleeps for a number of seconds.
    """
    while installation.cluster.exists():
        # Renew long before the token expires, so that there is time for many retries.
        pause = TOKEN_LIFETIME_S * 2 / 3
        try:
            installation.renew_tokens()
        except (OSError, http.client.HTTPException, ApiFailure, ClusterError) as error:
            to_stderr(f"cannot renew tokens: {error}")
            pause = 10.0
        wait(pause)


if __name__ == "__main__":
    import time

    _, _cluster, _release, _namespace = sys.argv
    keep_tokens_fresh(
        Installation(LocalCluster(_cluster), release=_release, namespace=_namespace), time.sleep
    )
