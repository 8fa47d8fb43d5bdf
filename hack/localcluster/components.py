"""The command lines of the control plane's components."""

import csv
import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster.kubeconfigs import kubeconfig
from localcluster.pki import Authority, Pair, write_signing_keys

_HERE = Path(__file__).parent
LOOPBACK = "127.0.0.1"
_SERVICE_RANGE = "10.96.0.0/16"
_FIRST_SERVICE = "10.96.0.1"
# Ten thousand simulated pods need more addresses than the usual /24 of a node.
_POD_RANGE = "10.128.0.0/9"

ADMIN = "admin"

PORTS = (
    "etcd",
    "etcd-peer",
    "pod-network",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
)


# All simulated containers have the same log.
_CONTAINER_LOGS: Mapping[str, Any] = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "ClusterLogs",
    "metadata": {"name": "containers"},
    "spec": {"logs": [{"logsFile": str(_HERE / "container.log")}]},
}


@dataclass(frozen=True)
class Identities:
    """Every certificate and key of a cluster, as files."""

    authority: Pair
    front_proxy_authority: Pair
    front_proxy: Pair
    signing_key: Path
    verifying_key: Path
    servers: Mapping[str, Pair]
    admin: Pair
    tokens: Mapping[str, str]
    """Bearer token of each client. The API server verifies a client certificate again with each request."""


# Each client, with its user and groups.
_USERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    ADMIN: ("admin", ("system:masters",)),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    # KWOK acts for all kubelets. No built-in role allows that.
    "kwok": ("kwok", ("system:masters",)),
}


def make_identities(folder: Path) -> Identities:
    """Create a public key infrastructure in a folder."""
    folder.mkdir(parents=True, mode=0o700)
    authority = Authority.create(folder, "ca")
    front_proxy_authority = Authority.create(folder, "front-proxy-ca")
    signing, verifying = folder / "service-accounts.key", folder / "service-accounts.pub"
    write_signing_keys(signing, verifying)
    api_server_names = (
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        LOOPBACK,
        _FIRST_SERVICE,
    )
    return Identities(
        authority=authority.pair,
        front_proxy_authority=front_proxy_authority.pair,
        front_proxy=front_proxy_authority.client("front-proxy", "front-proxy"),
        signing_key=signing,
        verifying_key=verifying,
        servers={
            "kube-apiserver": authority.server("kube-apiserver-serving", api_server_names),
            "kube-controller-manager": authority.server(
                "kube-controller-manager-serving", ("localhost", LOOPBACK)
            ),
            "kube-scheduler": authority.server("kube-scheduler-serving", ("localhost", LOOPBACK)),
            "pod-network": authority.server("pod-network-serving", (LOOPBACK,)),
            "kwok": authority.server("kwok-serving", (LOOPBACK,)),
        },
        admin=authority.client(ADMIN, *_USERS[ADMIN]),
        tokens={name: secrets.token_hex(16) for name in _USERS},
    )


@dataclass(frozen=True)
class Layout:
    """The input of the command lines.

    Attributes:
        folder: the cluster's state folder.
        programs: the path of every program by name.
        ports: a port for every name of `PORTS`.
        identities: the certificates and keys.
        api_server_arguments: more arguments for kube-apiserver; they come last, so they take precedence.
        has_pod_network: whether kube-apiserver connects to simulated pods.
    """

    folder: Path
    programs: Mapping[str, Path]
    ports: Mapping[str, int]
    identities: Identities
    api_server_arguments: Sequence[str] = ()
    has_pod_network: bool = False

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{LOOPBACK}:{self.ports['kube-apiserver']}"

    def kubeconfig(self, client: str) -> Path:
        """Return the kubeconfig file of a component, or of the administrator."""
        return self.folder / "kubeconfigs" / f"{client}.yaml"


def write_files(layout: Layout) -> None:
    """Write the files that the command lines refer to."""
    (layout.folder / "kubeconfigs").mkdir(mode=0o700)
    for client, token in layout.identities.tokens.items():
        path = layout.kubeconfig(client)
        path.touch(mode=0o600)
        authority = layout.identities.authority.certificate
        credentials = {"token": token}
        path.write_text(kubeconfig(layout.folder.name, layout.server, authority, client, credentials))
    tokens = _token_file(layout)
    tokens.touch(mode=0o600)
    with tokens.open("w", newline="") as file:
        csv.writer(file).writerows(
            (token, _USERS[client][0], client, ",".join(_USERS[client][1]))
            for client, token in layout.identities.tokens.items()
        )
    if layout.has_pod_network:
        _token_of_pod_network(layout).touch(mode=0o600)
        _token_of_pod_network(layout).write_text(layout.identities.tokens["kwok"])
        _egress_configuration(layout).write_text(json.dumps(_egress(layout)))
    _container_logs(layout).write_text(json.dumps(_CONTAINER_LOGS))
    _scheduler_configuration(layout).write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "leaderElection": {"leaderElect": False},
                "clientConnection": {
                    "kubeconfig": str(layout.kubeconfig("kube-scheduler")),
                    "contentType": "application/vnd.kubernetes.protobuf",
                    "qps": 1000,
                    "burst": 2000,
                },
            }
        )
    )


def command_lines(layout: Layout) -> dict[str, list[str]]:
    """Return the command line of every component, in the order of their start."""
    arguments = {
        "etcd": _etcd(layout),
        "pod-network": _pod_network(layout),
        "kube-apiserver": [*_api_server(layout), *layout.api_server_arguments],
        "kube-controller-manager": _controller_manager(layout),
        "kube-scheduler": _scheduler(layout),
        "kwok": _kwok(layout),
    }
    programs = {**layout.programs, "pod-network": sys.executable}
    return {name: [str(programs[name]), *options] for name, options in arguments.items()}


def _etcd(layout: Layout) -> list[str]:
    client = f"http://{LOOPBACK}:{layout.ports['etcd']}"
    peer = f"http://{LOOPBACK}:{layout.ports['etcd-peer']}"
    return [
        f"--name={layout.folder.name}",
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={layout.folder.name}={peer}",
        # The data of a temporary cluster need not survive a power cut.
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
        "--log-level=warn",
    ]


def _api_server(layout: Layout) -> list[str]:
    keys = layout.identities
    serving = keys.servers["kube-apiserver"]
    return [
        f"--etcd-servers=http://{LOOPBACK}:{layout.ports['etcd']}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        # Endpoints must not have loopback addresses, so the `kubernetes` Service has none.
        "--endpoint-reconciler-type=none",
        f"--secure-port={layout.ports['kube-apiserver']}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={keys.authority.certificate}",
        f"--token-auth-file={_token_file(layout)}",
        f"--service-cluster-ip-range={_SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={keys.verifying_key}",
        f"--service-account-signing-key-file={keys.signing_key}",
        f"--requestheader-client-ca-file={keys.front_proxy_authority.certificate}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={keys.front_proxy.certificate}",
        f"--proxy-client-key-file={keys.front_proxy.key}",
        # For kubectl logs. No machine has the host names of simulated nodes.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={keys.authority.certificate}",
        f"--audit-policy-file={_HERE / 'audit-policy.yaml'}",
        f"--audit-log-path={audit_log(layout.folder)}",
        # The log is one file, so that readers get all events.
        "--audit-log-maxsize=0",
        "--max-requests-inflight=800",
        "--max-mutating-requests-inflight=400",
        "--profiling=false",
        *(
            [f"--egress-selector-config-file={_egress_configuration(layout)}"]
            if layout.has_pod_network
            else []
        ),
    ]


def _egress(layout: Layout) -> dict[str, Any]:
    """Return the configuration of kube-apiserver for connections to pods and nodes by the pod network."""
    keys = layout.identities
    # kube-apiserver reads the TLS configuration even of a proxy without TLS.
    tcp = {
        "url": f"https://{LOOPBACK}:{layout.ports['pod-network']}",
        "tlsConfig": {
            "caBundle": str(keys.authority.certificate),
            "clientCert": str(keys.admin.certificate),
            "clientKey": str(keys.admin.key),
        },
    }
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"tcp": tcp}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


def _pod_network(layout: Layout) -> list[str]:
    return [
        "-m",
        "localcluster.pod_network",
        f"--port={layout.ports['pod-network']}",
        f"--server={layout.server}",
        f"--authority={layout.identities.authority.certificate}",
        f"--certificate={layout.identities.servers['pod-network'].certificate}",
        f"--key={layout.identities.servers['pod-network'].key}",
        f"--token-file={_token_of_pod_network(layout)}",
    ]


def _controller_manager(layout: Layout) -> list[str]:
    keys = layout.identities
    config = layout.kubeconfig("kube-controller-manager")
    return [
        *_serving(layout, "kube-controller-manager"),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--root-ca-file={keys.authority.certificate}",
        f"--service-account-private-key-file={keys.signing_key}",
        f"--cluster-signing-cert-file={keys.authority.certificate}",
        f"--cluster-signing-key-file={keys.authority.key}",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        # With more workers on two cores, the Job controller is faster than its own cache. It then waits for
        # seconds ("read version is not as new as written").
        "--concurrent-job-syncs=5",
        "--concurrent-namespace-syncs=20",
        "--controller-start-interval=0s",
        # Simulated nodes report their status every 10 to 20 minutes.
        "--node-monitor-grace-period=1h",
        "--profiling=false",
    ]


def _scheduler(layout: Layout) -> list[str]:
    config = layout.kubeconfig("kube-scheduler")
    return [
        *_serving(layout, "kube-scheduler"),
        f"--config={_scheduler_configuration(layout)}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
    ]


def _kwok(layout: Layout) -> list[str]:
    serving = layout.identities.servers["kwok"]
    return [
        f"--kubeconfig={layout.kubeconfig('kwok')}",
        f"--config={_HERE / 'stages.yaml'}",
        f"--config={_container_logs(layout)}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=0",
        f"--node-ip={LOOPBACK}",
        f"--cidr={_POD_RANGE}",
        f"--server-address={LOOPBACK}:{layout.ports['kwok']}",
        # Each node has this port. The API server connects to it by TLS, as to a kubelet.
        f"--node-port={layout.ports['kwok']}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
    ]


def audit_log(folder: Path) -> Path:
    """Return the audit log of the cluster in a state folder: one JSON event a line."""
    return folder / "logs" / "audit.log"


def _serving(layout: Layout, component: str) -> list[str]:
    pair = layout.identities.servers[component]
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={layout.ports[component]}",
        f"--tls-cert-file={pair.certificate}",
        f"--tls-private-key-file={pair.key}",
    ]


def _token_file(layout: Layout) -> Path:
    return layout.folder / "kubeconfigs" / "tokens.csv"


def _egress_configuration(layout: Layout) -> Path:
    return layout.folder / "kubeconfigs" / "egress-selector-configuration.json"


def _token_of_pod_network(layout: Layout) -> Path:
    return layout.folder / "kubeconfigs" / "pod-network.token"


def _container_logs(layout: Layout) -> Path:
    return layout.folder / "kubeconfigs" / "container-logs.json"


def _scheduler_configuration(layout: Layout) -> Path:
    return layout.folder / "kubeconfigs" / "kube-scheduler-configuration.json"
