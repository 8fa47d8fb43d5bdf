"""``stop`` and ``resume``: whether queues admit workloads, and whether a workload may run."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from admitq.plugin.failures import exit_on_failure
from admitq.plugin.object_kinds import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, ObjectKind
from admitq.plugin.options import (
    ApiGroupOption,
    ClusterOptions,
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
)

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess

stop_commands = typer.Typer(help="Stop a queue or a workload.", no_args_is_help=True, rich_markup_mode=None)
resume_commands = typer.Typer(
    help="Resume a queue or a workload.", no_args_is_help=True, rich_markup_mode=None
)

STOP_HELP: Final = {
    WORKLOAD: "Deactivate a Workload. Its job stops, and is not admitted until it is resumed.",
    CLUSTER_QUEUE: "Stop a ClusterQueue. Its running workloads are stopped and requeued.",
    LOCAL_QUEUE: "Stop a LocalQueue. Its running workloads are stopped and requeued.",
}
RESUME_HELP: Final = {
    WORKLOAD: "Activate a Workload, so that it is admitted when its quota is available.",
    CLUSTER_QUEUE: "Start a stopped ClusterQueue again.",
    LOCAL_QUEUE: "Start a stopped LocalQueue again.",
}
KeepOption = Annotated[
    bool,
    typer.Option("--keep-already-running", help="Do not stop workloads that are admitted."),
]


def stop_patch(kind: ObjectKind, *, keep_already_running: bool = False) -> dict[str, Any]:
    """Return the merge patch that stops an object."""
    if kind is WORKLOAD:
        return {"spec": {"active": False}}
    return {"spec": {"stopPolicy": "Hold" if keep_already_running else "HoldAndDrain"}}


def resume_patch(kind: ObjectKind) -> dict[str, Any]:
    """Return the merge patch that resumes an object."""
    return {"spec": {"active": True} if kind is WORKLOAD else {"stopPolicy": "None"}}


@exit_on_failure
def _patch(options: ClusterOptions, kind: ObjectKind, name: str, patch: dict[str, Any], done: str) -> None:
    """Patch an object, and print what was done."""
    from admitq.plugin.cluster_access import FIELD_MANAGER, call_cluster

    async def write(access: "ClusterAccess") -> str:
        resource = kind.resource(access.kinds)
        namespace = access.namespace if resource.namespaced else None
        await access.client.merge_patch(resource, name, patch, namespace, field_manager=FIELD_MANAGER)
        return f"{kind.name}.{resource.group}/{name} {done}"

    typer.echo(call_cluster(options, write, about=f"{kind.name}s"))


def _add_commands(kind: ObjectKind) -> None:
    argument = typer.Argument(help=f"The name of the {kind.title}.", metavar="NAME", show_default=False)

    def stop_queue(
        name: Annotated[str, argument],
        keep_already_running: KeepOption = False,
        namespace: NamespaceOption = None,
        context: ContextOption = None,
        kubeconfig: KubeconfigOption = None,
        api_group: ApiGroupOption = None,
    ) -> None:
        options = ClusterOptions(kubeconfig, context, namespace, api_group)
        _patch(options, kind, name, stop_patch(kind, keep_already_running=keep_already_running), "stopped")

    def stop_workload(
        name: Annotated[str, argument],
        namespace: NamespaceOption = None,
        context: ContextOption = None,
        kubeconfig: KubeconfigOption = None,
        api_group: ApiGroupOption = None,
    ) -> None:
        options = ClusterOptions(kubeconfig, context, namespace, api_group)
        _patch(options, kind, name, stop_patch(kind), "stopped")

    def resume(
        name: Annotated[str, argument],
        namespace: NamespaceOption = None,
        context: ContextOption = None,
        kubeconfig: KubeconfigOption = None,
        api_group: ApiGroupOption = None,
    ) -> None:
        options = ClusterOptions(kubeconfig, context, namespace, api_group)
        _patch(options, kind, name, resume_patch(kind), "resumed")

    for name in (kind.name, *kind.aliases):
        hidden = name != kind.name
        stop = stop_workload if kind is WORKLOAD else stop_queue
        stop_commands.command(name, help=STOP_HELP[kind], hidden=hidden)(stop)
        resume_commands.command(name, help=RESUME_HELP[kind], hidden=hidden)(resume)


for _kind in STOP_HELP:
    _add_commands(_kind)
