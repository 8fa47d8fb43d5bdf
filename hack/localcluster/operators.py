"""The operators of the job kinds: how each is built and started outside of a cluster.

An operator runs as it does in a cluster: from the manifests of its project, with the permissions of its
ServiceAccount, and with its webhooks. Only addresses and certificates differ, because all processes share one
machine.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

WEBHOOK, HEALTH, METRICS = "webhook", "health", "metrics"
PORTS = (WEBHOOK, HEALTH, METRICS)
"""The names of the ports of an operator's process."""


class UnknownOperatorError(Exception):
    """There is no operator with this name. The message has the available names."""


@dataclass(frozen=True)
class Edit:
    """A change of an address in the source of an operator, which no setting changes.

    Attributes:
        file: the file in the module.
        old: a text that the file contains once.
        new: the text in its place.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Operator:
    """An operator of one project.

    Texts of ``arguments``, ``configuration``, ``objects`` and ``environment`` contain names in braces:

    - those of ``PORTS``
    - ``{config}``: the file with the configuration
    - ``{certificates}``: the folder with ``tls.crt`` and ``tls.key`` of its webhooks
    - ``{folder}``: its state folder

    Attributes:
        name: its name in `hack/cluster up --operators`.
        module: the path of its Go module, which hack/controlplane/operators pins.
        namespace: its namespace.
        account: its ServiceAccount.
        kustomizations: folders of the module that contain its manifests as kustomizations.
        objects: further objects, such as its configuration if it reads this from the API.
        secret: the Secret from which it takes the authority and certificate of its webhooks.
        package: the folder of its main package in the module.
        arguments: the command line arguments.
        configuration: the content of the configuration file; nothing for no file.
        environment: environment variables of its own.
        needs: operators without which it does not work.
        edits: changes of its source before the build.
        without: manifests to leave out, as `kind/name`; `Webhook/name` for a webhook that it does not serve.
        samples: folders of the module with manifests for users.
        has_webhooks: whether it serves webhooks.
        calls_pods: whether it connects to pods, through the API server.
    """

    name: str
    module: str
    namespace: str
    account: str
    kustomizations: tuple[str, ...] = ()
    objects: tuple[Mapping[str, Any], ...] = ()
    secret: str = ""
    package: str = "."
    arguments: tuple[str, ...] = ()
    configuration: Mapping[str, Any] = field(default_factory=dict[str, Any])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    needs: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    without: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    has_webhooks: bool = True
    calls_pods: bool = False


OPERATORS = (
    Operator(
        name="jobset",
        module="sigs.k8s.io/jobset",
        namespace="jobset-system",
        account="jobset-controller-manager",
        kustomizations=("config/default",),
        samples=("config/samples",),
        arguments=("--config={config}",),
        configuration={
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": "127.0.0.1", "port": "{webhook}", "certDir": "{certificates}"},
            "health": {"healthProbeBindAddress": "127.0.0.1:{health}"},
            "metrics": {"bindAddress": "127.0.0.1:{metrics}"},
        },
    ),
    Operator(
        name="kuberay",
        module="github.com/ray-project/kuberay/ray-operator",
        namespace="ray-system",
        account="kuberay-operator",
        kustomizations=("config/default-with-webhooks",),
        samples=("config/samples",),
        arguments=(
            "--metrics-addr=127.0.0.1:{metrics}",
            "--health-probe-bind-address=127.0.0.1:{health}",
            "--enable-leader-election=false",
            # The API server connects to the pods of Ray, as this process has no route to them.
            "--use-kubernetes-proxy",
        ),
        environment={"ENABLE_WEBHOOKS": "true"},
        # Its manifests contain them, but the operator registers that of RayClusters only. Each RayJob would
        # be refused.
        without=("Webhook/vrayjob.kb.io", "Webhook/vrayservice.kb.io"),
        calls_pods=True,
    ),
)


def named(name: str) -> Operator:
    """Return an operator by its name.

    Raises:
        UnknownOperatorError: there is none.
    """
    for operator in OPERATORS:
        if operator.name == name:
            return operator
    available = ", ".join(operator.name for operator in OPERATORS)
    raise UnknownOperatorError(f"there is no operator {name!r}; available are: {available}")


def with_needs(names: Iterable[str]) -> list[Operator]:
    """Return operators and those that they need, each after the ones that it needs.

    Raises:
        UnknownOperatorError: a name is unknown.
    """
    found: dict[str, Operator] = {}
    for name in names:
        operator = named(name)
        found |= {each.name: each for each in with_needs(operator.needs)}
        found[name] = operator
    return list(found.values())
