"""admitq beside a local cluster: the shipped chart, and processes that run with what it grants them.

The processes get nothing that the chart's pods would not get: the configuration of its ConfigMap (only the
addresses to listen on are changed, since all share one machine) and tokens of its ServiceAccounts.
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
from localcluster import processes
from localcluster.api import Api, ApiFailure
from localcluster.cluster import LocalCluster, to_stderr
from localcluster.cluster_processes import ClusterError
from localcluster.components import LOOPBACK
from localcluster.folders import REPOSITORY
from localcluster.ports import free_ports
from localcluster.processes import Process

Component = Literal["manager", "webhook"]

TOKEN_LIFETIME_S = 3600
"""How long a token is good for, as in the chart."""

_CHART = REPOSITORY / "charts" / "admitq"
_READY_PATIENCE_S = 120.0


class InstallationError(Exception):
    """admitq could not be installed or started; the message says why."""


class Installation:
    """A release of the chart on a local cluster, and its processes beside it.

    Args:
        cluster: a cluster that runs.
        release: the name of the helm release; it prefixes the names of its objects, unless its API group
            fixes them.
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
        """What the names of its objects begin with."""
        given = self._given()
        group = str(given.get("apiGroup", DEFAULT_GROUP))
        shadow = given.get("shadow", {}).get("enabled", False)
        fixed = None if shadow else names_for(group).installation
        return str(given.get("fullnameOverride") or fixed or self.release)

    def install(
        self,
        *,
        api_group: str = DEFAULT_GROUP,
        config: Mapping[str, Any] | None = None,
        values: Mapping[str, Any] | None = None,
        take_ownership: bool = False,
    ) -> None:
        """Installs or upgrades the chart.

        Args:
            api_group: the API group of everything of ours.
            config: fields of the configuration file.
            values: other values of the chart, nested as in values.yaml.
            take_ownership: take over what somebody else has installed, such as definitions.

        Raises:
            InstallationError: when helm refuses; its words are in the message.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        given = dict(values or {})
        chosen = {
            **given,
            "apiGroup": api_group,
            "config": {**given.get("config", {}), **(config or {})},
            "webhook": {
                **given.get("webhook", {}),
                "url": f"https://{LOOPBACK}:{self._port('webhook', 'webhook')}",
            },
        }
        file = self._folder / "values.json"
        file.write_text(json.dumps(chosen, indent=2))
        options = ("--take-ownership",) if take_ownership else ()
        self.helm(
            *("upgrade", "--install", self.release, str(_CHART), "--create-namespace"),
            *("--values", str(file), *options),
        )

    def api_group(self) -> str | None:
        """The API group that was installed, or None when nothing was."""
        group = self._given().get("apiGroup")
        return None if group is None else str(group)

    def _given(self) -> dict[str, Any]:
        """The values that it was installed with; none when it was not."""
        try:
            return json.loads((self._folder / "values.json").read_text())
        except OSError:
            return {}

    def uninstall(self) -> None:
        """Stops the processes and removes the release; queues and workloads stay, as the chart has it."""
        self.stop()
        self.helm("uninstall", self.release, "--wait")

    def helm(self, *arguments: str) -> str:
        """Runs helm on the cluster and in the release's namespace.

        Raises:
            InstallationError: when it fails; its words are in the message.
        """
        # Its own folders, so that nobody's settings and caches play a part.
        own = {
            f"HELM_{kind}_HOME": str(self.cluster.folder / "helm" / kind.lower())
            for kind in ("CACHE", "CONFIG", "DATA")
        }
        done = subprocess.run(
            [str(self.cluster.program("helm")), *arguments, "--namespace", self.namespace],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **self.cluster.environment(), **own},
        )
        if done.returncode != 0:
            raise InstallationError(f"helm {arguments[0]} failed:\n{done.stderr.strip()}")
        return done.stdout

    def start(
        self,
        components: Sequence[Component] = ("manager", "webhook"),
        *,
        replica: int = 0,
        arguments: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts processes and waits until each says that it is ready.

        Args:
            components: which of them.
            replica: tells several managers apart; only one webhook can be behind the chart's URL.
            arguments: more command line arguments, such as `--log-level=debug`.
            config: sections of the configuration file that replace those of the installation.

        Raises:
            InstallationError: when one ends or does not get ready.
        """
        self._renew_tokens()
        for component in components:
            self._start(component, replica, arguments, config or {})
        for component in components:
            self._await_ready(component, replica)

    def stop(self, components: Sequence[Component] = ("manager", "webhook"), *, replica: int = 0) -> None:
        """Asks processes to end in good order; those that do not run are left out."""
        running = self.cluster.processes.all()
        for component in components:
            name = self.process_name(component, replica)
            if name in running:
                self.cluster.terminate(name, patience_s=40.0)

    def kill(self, component: Component, *, replica: int = 0) -> None:
        """Kills a process at once, as a crash would."""
        self.cluster.kill(self.process_name(component, replica))

    def process(self, component: Component, *, replica: int = 0) -> Process | None:
        """The process of a component, or None when it was never started."""
        return self.cluster.processes.all().get(self.process_name(component, replica))

    def log(self, component: Component, *, replica: int = 0) -> Path:
        """The log of a component."""
        return self.cluster.log(self.process_name(component, replica))

    def process_name(self, component: Component, replica: int = 0) -> str:
        """The name under which the cluster knows the process."""
        return f"{self.release}-{component}" + (f"-{replica}" if replica else "")

    def url(self, component: Component, endpoint: Literal["metrics", "health"], *, replica: int = 0) -> str:
        """The base URL of an endpoint of a process: plain HTTP on loopback."""
        return f"http://{LOOPBACK}:{self._port(self._instance(component, replica), endpoint)}"

    def kubeconfig(self, component: Component) -> Path:
        """A kubeconfig file with what the chart grants a component, and no more."""
        return self._folder / f"{component}.kubeconfig"

    def token_file(self, component: Component) -> Path:
        """The file with a component's token, which is renewed in place."""
        return self._folder / f"{component}.token"

    def renew_tokens(self, lifetime_s: int = TOKEN_LIFETIME_S) -> None:
        """Asks for new tokens of all ServiceAccounts and puts them into their files."""
        shadow = self._given().get("shadow", {}).get("enabled", False)
        with self.cluster.api() as api:
            for component in ("manager",) if shadow else ("manager", "webhook"):
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
        # Nothing of the caller's may lead the process to other credentials than its own.
        environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        self.cluster.spawn(self.process_name(component, replica), command, environment=environment)

    def _await_ready(self, component: Component, replica: int) -> None:
        name = self.process_name(component, replica)
        process = self.process(component, replica=replica)
        port = self._port(self._instance(component, replica), "health")

        def over() -> bool:
            return process is None or not process.alive() or _is_ready(port)

        in_time = processes.wait(over, timeout_s=_READY_PATIENCE_S, interval_s=0.05)
        if in_time and process is not None and process.alive():
            return
        what = f"was not ready within {_READY_PATIENCE_S:.0f} s" if not in_time else "ended"
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
        name = self.cluster.name
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": name,
                    "cluster": {
                        "server": self.cluster.server,
                        "certificate-authority": str(self.cluster.authority),
                    },
                }
            ],
            "users": [{"name": component, "user": {"tokenFile": str(self.token_file(component))}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": component}}],
            "current-context": name,
        }
        self.kubeconfig(component).write_text(json.dumps(config, indent=2))

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
        answer = api.request(
            "POST",
            f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": lifetime_s},
            },
        )
        target = self._folder / f"{component}.token"
        fresh = target.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(answer["status"]["token"])
        fresh.replace(target)

    def _instance(self, component: Component, replica: int) -> str:
        return f"{component}-{replica}" if replica else component

    def _port(self, instance: str, endpoint: str) -> int:
        """A port that stays the same as long as the installation does."""
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
    """Renews the tokens of an installation for as long as its cluster is there.

    Args:
        installation: whose tokens.
        wait: sleeps for a number of seconds.
    """
    while installation.cluster.exists():
        # Long before the token ends, so that a failure can be made good many times over.
        pause = TOKEN_LIFETIME_S * 2 / 3
        try:
            installation.renew_tokens()
        except (OSError, http.client.HTTPException, ApiFailure, ClusterError) as error:
            to_stderr(f"no new tokens: {error}")
            pause = 10.0
        wait(pause)


if __name__ == "__main__":
    import time

    _, _cluster, _release, _namespace = sys.argv
    keep_tokens_fresh(
        Installation(LocalCluster(_cluster), release=_release, namespace=_namespace), time.sleep
    )
