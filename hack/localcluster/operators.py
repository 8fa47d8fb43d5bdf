"""The operators of the job kinds: what each is built from, and how it runs outside of a cluster.

An operator runs as it does in a cluster: from the manifests of its project, with the permissions of its
ServiceAccount, and with its webhooks. Only addresses and certificates differ, because all processes share one
machine. ``operator_table.py`` lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WEBHOOK, HEALTH, METRICS = "webhook", "health", "metrics"
PORTS = (WEBHOOK, HEALTH, METRICS)
"""The names of the ports of an operator's process."""


@dataclass(frozen=True)
class Edit:
    """A change of an address or certificate in the source of an operator, which no setting changes.

    Attributes:
        file: the file in the module.
        old: a text that the file contains once.
        new: the text in its place.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Source:
    """What an operator is built from: the module of its project.

    Attributes:
        module: the path of the Go module, which hack/controlplane/operators pins.
        namespace: the namespace of the operator in its manifests.
        package: the folder of its main package in the module.
        kustomizations: folders of the module that contain its manifests as kustomizations.
        bases: the same, of kustomizations without a namespace. They get that of the operator.
        chart: the folder of the module that contains its manifests as a Helm chart.
        chart_values: the values of the chart that differ from its defaults.
        samples: folders of the module with manifests for users.
        edits: changes of its source before the build.
        has_port_file: whether the build adds a file with the address of its webhooks, which its edits use.
    """

    module: str
    namespace: str
    package: str = "."
    kustomizations: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    chart: str = ""
    chart_values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    samples: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    has_port_file: bool = False


@dataclass(frozen=True)
class Operator:
    """A process of an operator of one project. Operators with several processes have an entry for each.

    Texts of ``arguments``, ``configuration``, ``objects`` and ``environment`` contain names in braces:

    - those of ``PORTS``
    - ``{config}``: the file with the configuration
    - ``{certificates}``: the folder with ``tls.crt`` and ``tls.key`` of its webhooks
    - ``{folder}``: its state folder
    - ``{api_port}``: the port of the API server

    Attributes:
        name: its name in `hack/cluster up --operators`.
        source: what it is built from.
        account: its ServiceAccount.
        objects: further objects, such as its configuration if it reads this from the API.
        arguments: the command line arguments.
        configuration: the content of the configuration file; nothing for no file.
        environment: environment variables of its own.
        programs: programs that it runs, as files in its state folder, each with the module that plays it.
        needs: operators without which it does not work.
        without: manifests to leave out, as `kind/name`; `Webhook/name` for a webhook that it does not serve.
        has_webhooks: whether it serves the webhooks of its project.
        lease: its Lease if no setting turns off the election of a leader. A new process waits until a Lease
            of a killed one has expired, so it is deleted before a start.
        calls_pods: whether it connects to pods, through the API server.
        health_path: the path of its health check on its port `health`.
    """

    name: str
    source: Source
    account: str
    objects: tuple[Mapping[str, Any], ...] = ()
    arguments: tuple[str, ...] = ()
    configuration: Mapping[str, Any] = field(default_factory=dict[str, Any])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    programs: Mapping[str, str] = field(default_factory=dict[str, str])
    needs: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    has_webhooks: bool = True
    lease: str = ""
    calls_pods: bool = False
    health_path: str = "/readyz"
