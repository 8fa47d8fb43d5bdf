"""Operators beside a local cluster: their manifests are applied, and their processes run on loopback."""

import base64
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from localcluster import crds, operator_builds, processes
from localcluster.api import Api, ApiFailure
from localcluster.cluster import LocalCluster, to_stderr
from localcluster.cluster_processes import ClusterError
from localcluster.components import LOOPBACK
from localcluster.kubeconfigs import kubeconfig, request_token
from localcluster.operator_builds import Build
from localcluster.operator_table import with_needs
from localcluster.operators import HEALTH, PORTS, WEBHOOK, Operator
from localcluster.pki import Authority
from localcluster.ports import free_ports
from localcluster.readiness import accepts, answers

_READY_WITHIN_S = 120.0
_TOKEN_LIFETIME_S = 30 * 24 * 3600
_FIELD_MANAGER = "fieldManager=admitq-tests&force=true"

_PATHS: Mapping[str, str] = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}
"""The kinds of manifests that are applied, in this order after the CRDs. A Deployment is not: its process
runs beside the cluster. Nothing here provides the kinds of certificate and metrics operators."""

_PATHS_AFTER_START: Mapping[str, str] = {
    "ClusterTrainingRuntime": "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
}
"""The kinds of manifests that the webhooks of their own operator review, so it must run before."""


class OperatorRun:
    """An operator beside a cluster.

    Args:
        cluster: a running cluster.
        operator: the operator.
        built: its build.
    """

    def __init__(self, cluster: LocalCluster, operator: Operator, built: Build) -> None:
        self.cluster = cluster
        self.operator = operator
        self.built = built
        self._folder = cluster.folder / "operators" / operator.name

    @property
    def process_name(self) -> str:
        """The name of its process in the cluster."""
        return f"operator-{self.operator.name}"

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.cluster.runs(self.process_name)

    def install(self) -> None:
        """Apply the manifests of the project, with webhooks at the address of the process."""
        if self.operator.has_webhooks:
            self._write_certificate()
        namespace, values = self.operator.source.namespace, self._values()
        manifests: list[dict[str, Any]] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            *(self._at_own_address(obj) for obj in self.built.manifests() if self._is_own(obj)),
            *filled(list(self.operator.objects), values),
        ]
        crds.apply(
            self.cluster,
            [
                crds.without_descriptions(obj)
                for obj in manifests
                if obj["kind"] == "CustomResourceDefinition"
            ],
        )
        with self.cluster.api() as api:
            for kind, path in _PATHS.items():
                for obj in manifests:
                    if obj["kind"] == kind:
                        _apply(api, path, obj)
            self._write_kubeconfig(request_token(api, namespace, self.operator.account, _TOKEN_LIFETIME_S))

    def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises:
            ClusterError: it ends or does not become ready.
        """
        if self.operator.lease:
            with self.cluster.api() as api:
                _delete_lease(api, self.operator.source.namespace, self.operator.lease)
        values = self._values()
        if self.operator.configuration:
            configuration = filled(self.operator.configuration, values)
            (self._folder / "config.json").write_text(json.dumps(configuration, indent=2))
        for name, module in self.operator.programs.items():
            self._write_program(name, module)
        arguments = filled(list(self.operator.arguments), values)
        self.cluster.spawn(
            self.process_name,
            [str(self.built.program), *arguments],
            environment={
                **_inherited(),
                "KUBECONFIG": str(self._kubeconfig),
                # Operators without a setting take their certificate from a folder of this one.
                "TMPDIR": str(self._folder),
                "WEBHOOK_PORT": values[WEBHOOK],
                **filled(self.operator.environment, values),
            },
        )
        self._await_ready(self._ports())

    def install_reviewed(self) -> None:
        """Apply the manifests that the webhooks of the running process review."""
        with self.cluster.api() as api:
            for obj in self.built.manifests():
                if path := _PATHS_AFTER_START.get(obj["kind"]):
                    _apply(api, path, obj)

    def kill(self) -> None:
        """Kill the process by SIGKILL, as in a crash."""
        self.cluster.kill(self.process_name)

    @property
    def _kubeconfig(self) -> Path:
        return self._folder / "kubeconfig"

    @property
    def _certificates(self) -> Path:
        return self._folder / "k8s-webhook-server" / "serving-certs"

    def _ports(self) -> dict[str, int]:
        """Return ports that stay the same as long as the cluster exists."""
        file = self._folder / "ports.json"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(free_ports(PORTS)))
        return json.loads(file.read_text())

    def _values(self) -> dict[str, str]:
        """Return the values for the names in the texts of the operator."""
        return {
            **{name: str(port) for name, port in self._ports().items()},
            "config": str(self._folder / "config.json"),
            "certificates": str(self._certificates),
            "folder": str(self._folder),
            "api_port": str(urlsplit(self.cluster.server).port),
        }

    def _is_own(self, obj: Mapping[str, Any]) -> bool:
        """Whether to apply a manifest of the project for this process."""
        if obj["kind"].endswith("WebhookConfiguration") and not self.operator.has_webhooks:
            return False
        return f"{obj['kind']}/{obj['metadata']['name']}" not in self.operator.without

    def _write_program(self, name: str, module: str) -> None:
        """Write a program that the operator runs; the module plays it."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n')
        path.chmod(0o755)

    def _at_own_address(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Return a manifest of webhooks with URLs and the authority of the cluster; others unchanged."""
        if not obj["kind"].endswith("WebhookConfiguration"):
            return obj
        authority = base64.b64encode(self.cluster.authority.read_bytes()).decode()
        webhooks = [
            {**webhook, "clientConfig": {"url": self._url(webhook), "caBundle": authority}}
            for webhook in obj["webhooks"]
            if f"Webhook/{webhook['name']}" not in self.operator.without
        ]
        return {**obj, "webhooks": webhooks}

    def _url(self, webhook: Mapping[str, Any]) -> str:
        path = webhook["clientConfig"]["service"]["path"]
        return f"https://{LOOPBACK}:{self._ports()[WEBHOOK]}{path}"

    def _write_kubeconfig(self, token: str) -> None:
        cluster, operator = self.cluster, self.operator
        self._kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        self._kubeconfig.touch(mode=0o600)
        self._kubeconfig.write_text(
            kubeconfig(
                cluster.name,
                cluster.server,
                cluster.authority,
                operator.account,
                {"token": token},
                namespace=operator.source.namespace,
            )
        )

    def _write_certificate(self) -> None:
        self._certificates.mkdir(parents=True, exist_ok=True)
        authority = Authority.load(self.cluster.folder / "pki", "ca")
        pair = authority.server(f"operator-{self.operator.name}", (LOOPBACK,))
        shutil.copy(pair.certificate, self._certificates / "tls.crt")
        shutil.copy(pair.key, self._certificates / "tls.key")

    def _await_ready(self, ports: Mapping[str, int]) -> None:
        process = self.cluster.processes.all()[self.process_name]

        def is_ready() -> bool:
            serves = not self.operator.has_webhooks or accepts(ports[WEBHOOK])
            return serves and answers(ports[HEALTH], self.operator.health_path)

        processes.wait(lambda: not process.alive() or is_ready(), timeout_s=_READY_WITHIN_S, interval_s=0.1)
        if not (process.alive() and is_ready()):
            what = f"was not ready within {_READY_WITHIN_S:.0f} s" if process.alive() else "ended"
            raise ClusterError(
                f"{self.process_name} {what}. The end of {self.cluster.log(self.process_name)}:\n"
                f"{self.cluster.last_words(self.process_name)}"
            )


def run_operators(
    cluster: LocalCluster, names: Iterable[str], say: Callable[[str], None] = to_stderr
) -> dict[str, OperatorRun]:
    """Build, install and start operators, and those that they need. Those that run already stay.

    Args:
        cluster: a running cluster.
        names: names of operators.
        say: receives a message for each step.

    Returns:
        The running operators by name.

    Raises:
        UnknownOperatorError: a name is unknown.
        OperatorBuildError: one cannot be built.
        ClusterError: one ends or does not become ready.
    """
    operators = with_needs(names)
    builds = operator_builds.build(operators, say)
    runs = {each.name: OperatorRun(cluster, each, builds[each.name]) for each in operators}
    for run in runs.values():
        if not run.is_running:
            run.install()
            run.start()
            run.install_reviewed()
            say(f"operator {run.operator.name} runs, its log is {cluster.log(run.process_name)}")
    return runs


def filled(value: Any, values: Mapping[str, str]) -> Any:
    """Return a value with values in place of their names in braces. A port alone becomes a number."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value)
        return {key: filled(item, values) for key, item in items.items()}
    if isinstance(value, list):
        return [filled(item, values) for item in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    is_port = value in {f"{{{name}}}" for name in PORTS}
    return int(value.format(**values)) if is_port else value.format(**values)


def _apply(api: Api, path: str, obj: Mapping[str, Any]) -> None:
    """Apply an object to the path of its kind. As for kubectl, a cluster-wide object may have a namespace."""
    metadata = dict(obj["metadata"])
    namespace = metadata.pop("namespace", "default")
    if "{namespace}" in path:
        metadata["namespace"] = namespace
    api.request(
        "PATCH",
        f"{path.format(namespace=namespace)}/{metadata['name']}?{_FIELD_MANAGER}",
        {**obj, "metadata": metadata},
        content_type="application/apply-patch+yaml",
    )


def _delete_lease(api: Api, namespace: str, name: str) -> None:
    """Delete the Lease of a process that no longer runs, if there is one."""
    try:
        api.request("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
    except ApiFailure as failure:
        if failure.status != HTTPStatus.NOT_FOUND:
            raise


def _inherited() -> dict[str, str]:
    """Return the environment of this process without its credentials for other clusters."""
    return {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
