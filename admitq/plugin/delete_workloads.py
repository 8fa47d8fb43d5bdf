"""``delete workload``: deletes the jobs of Workloads, which else would create their Workloads again."""

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.create import CLIENT, DRY_RUN, SERVER
from admitq.plugin.object_kinds import WORKLOAD
from admitq.plugin.options import CLUSTER, ClusterOptions
from admitq.plugin.remedies import CommandError

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess
    from admitq.runtime.resources import Resource
    from admitq_api.json_objects import JsonObject

CANCELED: Final = 1
"""The exit status if the user does not want to proceed."""

_DONE: Final = {CLIENT: "deleted (dry run)", SERVER: "deleted (server dry run)"}


class Deletion(NamedTuple):
    """An object to delete.

    Args:
        resource: its resource.
        namespace: its namespace.
        name: its name.
        uid: its UID. Another object of the same name is not deleted.
        workload: namespace and name of the Workload of the job; empty if the object is a Workload.
    """

    resource: "Resource"
    namespace: str
    name: str
    uid: str
    workload: str = ""

    @property
    def full_name(self) -> str:
        """Kind, group and name, as kubectl prints them."""
        group = f".{self.resource.group}" if self.resource.group else ""
        return f"{self.resource.kind.lower()}{group}/{self.name}"


def prompt(deletions: Iterable[Deletion]) -> str:
    """Return the question whether to delete the jobs; empty if no jobs are deleted."""
    jobs = "".join(f"  - {one.full_name} of workload {one.workload}\n" for one in deletions if one.workload)
    if not jobs:
        return ""
    return f"This operation will also delete:\n{jobs}Do you want to proceed (y/n)? "


def check_selection(names: Sequence[str], *, is_all: bool, everywhere: bool) -> None:
    """Check that a command line selects Workloads.

    Raises:
        CommandError: it selects none, or selects them in two ways.
    """
    if names and is_all:
        raise CommandError("--all: names are given, too\nLeave out the names, or --all.")
    if everywhere and not is_all:
        raise CommandError("--all-namespaces: --all is missing\nAdd --all, or select a namespace with -n.")
    if not names and not is_all:
        raise CommandError("no Workload is named\nWrite names of Workloads, or --all.")


async def find_deletions(access: "ClusterAccess", arguments: Arguments) -> list[Deletion]:
    """Return what to delete for the Workloads that a command line selects.

    Raises:
        CommandError: the kind of a job is not served.
        ApiError: a call failed.
    """
    workloads = await _selected(access, arguments)
    deletions: dict[str, Deletion] = {}
    resources: dict[tuple[str, str], Resource] = {}
    for workload in workloads:
        for one in await _deletions_of(access, workload, resources):
            # Several Workloads may have one job.
            deletions.setdefault(one.uid, one)
    return list(deletions.values())


async def _selected(access: "ClusterAccess", arguments: Arguments) -> list[dict[str, Any]]:
    resource = access.kinds.workloads
    if arguments.all:
        namespace = None if arguments.all_namespaces else access.namespace
        found, _ = await access.client.list(resource, namespace)
        return found
    names = dict.fromkeys(arguments.names)
    return [await access.client.get(resource, name, access.namespace) for name in names]


async def _deletions_of(
    access: "ClusterAccess", workload: "JsonObject", resources: dict[tuple[str, str], "Resource"]
) -> list[Deletion]:
    from admitq.plugin.job_objects import find_owner_resource
    from admitq.plugin.rows import job_owners_of
    from admitq_api.json_objects import text_at

    namespace, name, uid = (text_at(workload, ("metadata", field)) for field in ("namespace", "name", "uid"))
    owners = job_owners_of(workload)
    if not owners:
        return [Deletion(access.kinds.workloads, namespace, name, uid)]
    deletions: list[Deletion] = []
    for owner in owners:
        kind = text_at(owner, ("apiVersion",)), text_at(owner, ("kind",))
        if kind not in resources:
            resources[kind] = await find_owner_resource(access, owner)
        job, job_uid = text_at(owner, ("name",)), text_at(owner, ("uid",))
        deletions.append(Deletion(resources[kind], namespace, job, job_uid, f"{namespace}/{name}"))
    return deletions


async def _delete_all(access: "ClusterAccess", deletions: Sequence[Deletion], *, dry_run: bool) -> None:
    """Delete objects, and print the name of each.

    Raises:
        ApiError: a call failed, for another reason than that the object is gone.
    """
    from admitq.runtime.errors import ApiError

    for one in deletions:
        try:
            await access.client.delete(
                one.resource, one.name, one.namespace, one.uid, propagation="Background", dry_run=dry_run
            )
        except ApiError as error:
            if not error.is_not_found:
                raise
            print(f"{one.full_name} is gone already")
            continue
        print(f"{one.full_name} {_DONE[SERVER] if dry_run else 'deleted'}")


def _run(arguments: Arguments) -> int | None:
    check_selection(arguments.names, is_all=arguments.all, everywhere=arguments.all_namespaces)
    from admitq.plugin.cluster_access import call_cluster

    options = ClusterOptions.of(arguments)
    selected: list[str] = []

    async def find(access: "ClusterAccess") -> list[Deletion]:
        selected.append(access.namespace)
        return await find_deletions(access, arguments)

    deletions = call_cluster(options, find, about=WORKLOAD)
    if not deletions:
        where = "" if arguments.all_namespaces else f" in {selected[0]} namespace"
        print(f"No resources found{where}.", file=sys.stderr)
        return None
    if arguments.dry_run == CLIENT:
        for one in deletions:
            print(f"{one.full_name} {_DONE[CLIENT]}")
        return None
    is_dry_run = arguments.dry_run == SERVER
    if not (arguments.yes or is_dry_run or confirm(prompt(deletions))):
        print("Deletion is canceled")
        return CANCELED
    call_cluster(options, partial(_delete_all, deletions=deletions, dry_run=is_dry_run), about=WORKLOAD)
    return None


def confirm(question: str) -> bool:
    """Ask a question, and return whether the answer is yes. An empty question is not asked."""
    if not question:
        return True
    try:
        return input(question).strip().lower() in {"y", "yes"}
    except EOFError:
        print()
        return False


DELETE_WORKLOAD: Final = Command(
    ("delete", WORKLOAD.name),
    "Delete the jobs of Workloads, and with them the Workloads.\n\n"
    "A Workload without a job is deleted itself. The command lists the jobs and asks before it deletes them.",
    (
        Parameter(
            ("names",), "The names of the Workloads.", "NAME", is_repeated=True, completes=WORKLOAD.plural
        ),
        Parameter(("--all",), "Delete all Workloads of the namespace.", is_switch=True),
        Parameter(
            ("--all-namespaces", "-A"), "With --all: delete the Workloads of all namespaces.", is_switch=True
        ),
        Parameter(("--yes", "-y"), "Do not ask.", is_switch=True),
        DRY_RUN._replace(help="client: delete nothing. server: send the requests, and delete nothing."),
        *CLUSTER,
    ),
    _run,
    WORKLOAD.aliases,
)
