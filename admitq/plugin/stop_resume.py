"""``stop`` and ``resume``: whether queues admit workloads, and whether a workload may run."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.object_kinds import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, ObjectKind
from admitq.plugin.options import CLUSTER, ClusterOptions

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess

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
KEEP: Final = Parameter(
    ("--keep-already-running",), "Do not stop workloads that are admitted.", is_switch=True
)


def stop_patch(kind: ObjectKind, *, keep_already_running: bool = False) -> dict[str, Any]:
    """Return the merge patch that stops an object."""
    if kind is WORKLOAD:
        return {"spec": {"active": False}}
    return {"spec": {"stopPolicy": "Hold" if keep_already_running else "HoldAndDrain"}}


def resume_patch(kind: ObjectKind) -> dict[str, Any]:
    """Return the merge patch that resumes an object."""
    return {"spec": {"active": True} if kind is WORKLOAD else {"stopPolicy": "None"}}


def _stop(kind: ObjectKind, arguments: Arguments) -> None:
    keep = kind is not WORKLOAD and arguments.keep_already_running
    _patch(kind, arguments, stop_patch(kind, keep_already_running=keep), "stopped")


def _resume(kind: ObjectKind, arguments: Arguments) -> None:
    _patch(kind, arguments, resume_patch(kind), "resumed")


def _patch(kind: ObjectKind, arguments: Arguments, patch: dict[str, Any], done: str) -> None:
    """Patch an object, and print what was done."""
    from admitq.plugin.cluster_access import FIELD_MANAGER, call_cluster

    async def write(access: "ClusterAccess") -> str:
        resource = kind.resource(access.kinds)
        namespace = access.namespace if resource.namespaced else None
        await access.client.merge_patch(
            resource, arguments.name, patch, namespace, field_manager=FIELD_MANAGER
        )
        return f"{kind.name}.{resource.group}/{arguments.name} {done}"

    print(call_cluster(ClusterOptions.of(arguments), write, about=kind))


def _command(
    word: str,
    kind: ObjectKind,
    text: str,
    run: Callable[[ObjectKind, Arguments], None],
    *options: Parameter,
) -> Command:
    name = Parameter(("name",), f"The name of the {kind.title}.", "NAME", completes=kind.plural)
    parameters = (name, *options, *CLUSTER)
    return Command((word, kind.name), text, parameters, partial(run, kind), kind.aliases)


STOP_AND_RESUME: Final = (
    *(
        _command("stop", kind, text, _stop, *(() if kind is WORKLOAD else (KEEP,)))
        for kind, text in STOP_HELP.items()
    ),
    *(_command("resume", kind, text, _resume) for kind, text in RESUME_HELP.items()),
)
