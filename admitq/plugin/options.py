"""Options that all commands of the plugin share. They have the names that kubectl gives them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from admitq_api.labels import GROUPS

GROUP_VARIABLE: Final = "ADMITQ_API_GROUP"
"""The environment variable that sets ``--api-group``."""

KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="Kubeconfig file; without one the files of KUBECONFIG, or ~/.kube/config.",
        metavar="FILE",
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option("--context", help="Context of the kubeconfig; without one the current.", metavar="NAME"),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Namespace; without one that of the context.", metavar="NAME"),
]
ApiGroupOption = Annotated[
    str | None,
    typer.Option(
        "--api-group",
        envvar=GROUP_VARIABLE,
        help=f"One of {', '.join(GROUPS)}; without one the group that the cluster serves.",
        metavar="GROUP",
    ),
]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster and the namespace of a command, as the user gives them; None selects the default."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    api_group: str | None = None
