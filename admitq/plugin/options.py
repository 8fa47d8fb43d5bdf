"""Parameters that several commands share. They have the names that kubectl gives them."""

from typing import TYPE_CHECKING, Final, NamedTuple

from admitq.plugin.command import Arguments, Parameter

if TYPE_CHECKING:
    from pathlib import Path

GROUP_VARIABLE: Final = "ADMITQ_API_GROUP"
"""The environment variable that sets ``--api-group``."""

NAMESPACE: Final = Parameter(
    ("--namespace", "-n"), "Namespace; without one that of the context.", "NAME", completes="namespaces"
)
CONTEXT: Final = Parameter(
    ("--context",), "Context of the kubeconfig; without one the current.", "NAME", completes="contexts"
)
KUBECONFIG: Final = Parameter(
    ("--kubeconfig",),
    "Kubeconfig file; without one the files of KUBECONFIG, or ~/.kube/config.",
    "FILE",
    completes="files",
)
API_GROUP: Final = Parameter(
    ("--api-group",),
    f"API group of admitq; without one the group that the cluster serves. The variable {GROUP_VARIABLE} "
    "sets it, too.",
    "GROUP",
    variable=GROUP_VARIABLE,
    completes="groups",
)
CLUSTER: Final = (NAMESPACE, CONTEXT, KUBECONFIG, API_GROUP)
"""The parameters that select cluster and namespace. Commands that call a cluster have them."""


class ClusterOptions(NamedTuple):
    """The cluster and the namespace of a command, as the user gives them; None selects the default."""

    kubeconfig: "Path | None" = None
    context: str | None = None
    namespace: str | None = None
    api_group: str | None = None

    @classmethod
    def of(cls, arguments: Arguments) -> "ClusterOptions":
        """Return the options of a command line."""
        from pathlib import Path

        kubeconfig = None if arguments.kubeconfig is None else Path(arguments.kubeconfig)
        return cls(kubeconfig, arguments.context, arguments.namespace, arguments.api_group)
