"""``list``: workloads, queues, flavors and pods, as tables or as objects."""

import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.documents import print_document
from admitq.plugin.object_kinds import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR, WORKLOAD, ObjectKind
from admitq.plugin.options import CLUSTER, ClusterOptions

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess
    from admitq.plugin.rows import Column, View

TABLE: Final = "table"
WIDE: Final = "wide"

ALL_NAMESPACES: Final = Parameter(
    ("--all-namespaces", "-A"), "List the objects of all namespaces.", is_switch=True
)
LABELS: Final = Parameter(("--selector", "-l"), "Only objects with these labels: KEY=VALUE,…", "LABELS")
FIELDS: Final = Parameter(
    ("--field-selector",), "Only objects with these fields: metadata.name=NAME,…", "FIELDS"
)
OUTPUT: Final = Parameter(("--output", "-o"), "Format.", choices=(TABLE, WIDE, "json", "yaml"), default=TABLE)
FOR: Final = Parameter(
    ("--for",), "Only objects of this job or Workload: job/NAME, rayjob.ray.io/NAME.", "TYPE[.GROUP]/NAME"
)


class Part(NamedTuple):
    """The objects of one kind in an answer, and how a table shows them.

    Args:
        columns: the columns of the table.
        objects: the objects.
        view: what rows show besides the objects.
        namespaced: whether the objects have namespaces.
        warnings: what may be missing, and why.
    """

    columns: "tuple[Column, ...]"
    objects: list[dict[str, Any]]
    view: "View"
    namespaced: bool = True
    warnings: tuple[str, ...] = ()


Reader = Callable[["ClusterAccess", Arguments, "str | None"], Coroutine[Any, Any, list[Part]]]
"""Reads the parts of a list. The last argument is the namespace; None means all namespaces."""


def _list(reader: Reader, about: ObjectKind | None, arguments: Arguments) -> None:
    from admitq.plugin.cluster_access import call_cluster

    everywhere: bool = getattr(arguments, "all_namespaces", False)
    selected: list[str] = []

    async def read(access: "ClusterAccess") -> list[Part]:
        selected.append(access.namespace)
        return await reader(access, arguments, None if everywhere else access.namespace)

    parts = call_cluster(ClusterOptions.of(arguments), read, about=about)
    for warning in (warning for part in parts for warning in part.warnings):
        print(f"warning: {warning}", file=sys.stderr)
    if arguments.output not in {TABLE, WIDE}:
        items = [one for part in parts for one in part.objects]
        print_document({"apiVersion": "v1", "kind": "List", "items": items}, arguments.output)
        return
    if not any(part.objects for part in parts):
        where = f" in {selected[0]} namespace" if parts[0].namespaced and not everywhere else ""
        print(f"No resources found{where}.", file=sys.stderr)
        return
    print("\n\n".join(_tables(parts, wide=arguments.output == WIDE, namespaces=everywhere)))


def _tables(parts: list[Part], *, wide: bool, namespaces: bool) -> list[str]:
    from admitq.plugin.rows import build_rows
    from admitq.plugin.tables import has_colors, render_table

    tables: list[str] = []
    for part in parts:
        if part.objects:
            titles, rows = build_rows(
                part.columns, part.objects, part.view, wide=wide, namespaces=namespaces and part.namespaced
            )
            tables.append(render_table(titles, rows, colored=has_colors()))
    return tables


def _view(cluster_queues: dict[tuple[str, str], str] | None = None) -> "View":
    import time

    from admitq.plugin.rows import View

    return View(time.time_ns(), cluster_queues or {})


async def _list_objects(
    access: "ClusterAccess", kind: ObjectKind, arguments: Arguments, namespace: str | None
) -> list[dict[str, Any]]:
    resource = kind.resource(access.kinds)
    found, _ = await access.client.list(
        resource, namespace if resource.namespaced else None, arguments.selector, arguments.field_selector
    )
    return [{"apiVersion": resource.api_version, "kind": resource.kind, **one} for one in found]


async def _workloads(access: "ClusterAccess", arguments: Arguments, namespace: str | None) -> list[Part]:
    from admitq.plugin.rows import WORKLOADS, cluster_queue_of, status_of
    from admitq.runtime.errors import ApiError

    workloads = await _list_objects(access, WORKLOAD, arguments, namespace)
    warnings: tuple[str, ...] = ()
    queues: list[dict[str, Any]] = []
    try:
        queues, _ = await access.client.list(access.kinds.local_queues, namespace)
    except ApiError as error:
        if not error.is_forbidden:
            raise
        warnings = (f"the ClusterQueues of pending workloads are not shown: {error.message}",)
    cluster_queues = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): one["spec"]["clusterQueue"] for one in queues
    }
    view = _view(cluster_queues)
    if arguments.localqueue:
        workloads = [one for one in workloads if one["spec"].get("queueName") == arguments.localqueue]
    if arguments.clusterqueue:
        workloads = [one for one in workloads if cluster_queue_of(one, view) == arguments.clusterqueue]
    if arguments.status and "all" not in arguments.status:
        workloads = [one for one in workloads if status_of(one) in arguments.status]
    if arguments.for_:
        from admitq.plugin.job_objects import find_named

        named = await find_named(access, arguments.for_, namespace)
        workloads = [one for one in workloads if named.has_workload(one, access.names.job_uid)]
    if arguments.output in {TABLE, WIDE}:
        from admitq.plugin.positions import read_positions

        pending = {
            (one["metadata"]["namespace"], one["spec"]["queueName"])
            for one in workloads
            if status_of(one) == "pending" and one["spec"].get("queueName")
        }
        positions, missing = await read_positions(access, pending)
        view = view._replace(positions=positions)
        warnings = (*warnings, *missing)
    return [Part(WORKLOADS, workloads, view, warnings=warnings)]


async def _local_queues(access: "ClusterAccess", arguments: Arguments, namespace: str | None) -> list[Part]:
    from admitq.plugin.rows import LOCAL_QUEUES

    queues = await _list_objects(access, LOCAL_QUEUE, arguments, namespace)
    if arguments.clusterqueue:
        queues = [one for one in queues if one["spec"]["clusterQueue"] == arguments.clusterqueue]
    return [Part(LOCAL_QUEUES, queues, _view())]


async def _cluster_queues(
    access: "ClusterAccess", arguments: Arguments, _namespace: str | None
) -> list[Part]:
    from admitq.plugin.rows import CLUSTER_QUEUES, is_true

    queues = await _list_objects(access, CLUSTER_QUEUE, arguments, None)
    if arguments.active is not None:
        wanted = {text.strip() == "true" for text in arguments.active.split(",")}
        queues = [one for one in queues if is_true(one, "Active") in wanted]
    return [Part(CLUSTER_QUEUES, queues, _view(), namespaced=False)]


async def _queues(access: "ClusterAccess", arguments: Arguments, namespace: str | None) -> list[Part]:
    from admitq.plugin.rows import CLUSTER_QUEUES, LOCAL_QUEUES
    from admitq.runtime.errors import ApiError

    local = await _list_objects(access, LOCAL_QUEUE, arguments, namespace)
    warnings: tuple[str, ...] = ()
    queues: list[dict[str, Any]] = []
    try:
        queues = await _list_objects(access, CLUSTER_QUEUE, arguments, None)
    except ApiError as error:
        if not error.is_forbidden:
            raise
        warnings = (f"ClusterQueues are not shown: {error.message}",)
    return [
        Part(LOCAL_QUEUES, local, _view()),
        Part(CLUSTER_QUEUES, queues, _view(), namespaced=False, warnings=warnings),
    ]


async def _flavors(access: "ClusterAccess", arguments: Arguments, _namespace: str | None) -> list[Part]:
    from admitq.plugin.rows import RESOURCE_FLAVORS

    flavors = await _list_objects(access, RESOURCE_FLAVOR, arguments, None)
    return [Part(RESOURCE_FLAVORS, flavors, _view(), namespaced=False)]


async def _pods(access: "ClusterAccess", arguments: Arguments, namespace: str | None) -> list[Part]:
    from admitq.plugin.job_objects import find_named, list_pods_of
    from admitq.plugin.rows import PODS

    named = await find_named(access, arguments.for_, namespace)
    pods, unknown = await list_pods_of(access, named, namespace, arguments.selector, arguments.field_selector)
    pods = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods]
    warnings = tuple(f"pods may be missing: {text}" for text in unknown)
    return [Part(PODS, pods, _view(), warnings=warnings)]


def _queue_option(name: str, short: str, kind: ObjectKind, text: str) -> Parameter:
    return Parameter((name, short), text, "NAME", completes=kind.plural)


_ANY: Final = (LABELS, FIELDS, OUTPUT)
_OF_CLUSTER_QUEUE: Final = _queue_option(
    "--clusterqueue", "-c", CLUSTER_QUEUE, "Only objects of this ClusterQueue."
)
LISTS: Final = (
    Command(
        ("list", "workloads"),
        "List Workloads with their jobs, queues and statuses.",
        (
            ALL_NAMESPACES,
            _OF_CLUSTER_QUEUE,
            _queue_option("--localqueue", "-q", LOCAL_QUEUE, "Only Workloads of this LocalQueue."),
            Parameter(
                ("--status",),
                "Only Workloads with this status. It can be repeated.",
                is_repeated=True,
                choices=("all", "pending", "quotareserved", "admitted", "finished"),
            ),
            FOR,
            *_ANY,
            *CLUSTER,
        ),
        partial(_list, _workloads, WORKLOAD),
        ("workload", "kwl"),
    ),
    Command(
        ("list", "queues"),
        "List LocalQueues, and ClusterQueues if you may.",
        (ALL_NAMESPACES, *_ANY, *CLUSTER),
        partial(_list, _queues, LOCAL_QUEUE),
        ("queue",),
    ),
    Command(
        ("list", "localqueues"),
        "List LocalQueues.",
        (ALL_NAMESPACES, _OF_CLUSTER_QUEUE, *_ANY, *CLUSTER),
        partial(_list, _local_queues, LOCAL_QUEUE),
        ("localqueue", "lq"),
    ),
    Command(
        ("list", "clusterqueues"),
        "List ClusterQueues.",
        (
            Parameter(
                ("--active",),
                "Only active ClusterQueues, or only inactive ones.",
                choices=("true", "false", "true,false"),
            ),
            *_ANY,
            *CLUSTER,
        ),
        partial(_list, _cluster_queues, CLUSTER_QUEUE),
        ("clusterqueue", "cq"),
    ),
    Command(
        ("list", "resourceflavors"),
        "List ResourceFlavors.",
        (*_ANY, *CLUSTER),
        partial(_list, _flavors, RESOURCE_FLAVOR),
        ("resourceflavor", "rf"),
    ),
    Command(
        ("list", "pods"),
        "List the pods of a job or a Workload, also those that other objects of the job own.",
        (FOR._replace(is_required=True), ALL_NAMESPACES, *_ANY, *CLUSTER),
        partial(_list, _pods, None),
        ("pod", "po"),
    ),
)
