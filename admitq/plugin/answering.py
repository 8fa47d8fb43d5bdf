"""Answers to questions: from the visibility API, or in this process.

The visibility API is asked if the cluster serves it. Otherwise, or for files, this process builds a state
from stored objects, and asks it. Imported only by commands that ask.
"""

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from admitq.asking.answers import eta_document, explanation_document
from admitq.asking.branch_processes import BranchError
from admitq.asking.branches import branch_of
from admitq.asking.listed_objects import list_stored_objects
from admitq.asking.object_files import read_object_files
from admitq.asking.sources import AskedCluster, observe_files, observe_objects, suppose_manifests
from admitq.asking.stored_objects import SourceError, StoredObjects
from admitq.core.model import ObjectKey
from admitq.plugin.answer_waits import ask_until_median, parse_wait
from admitq.plugin.cluster_access import ClusterAccess, call_cluster
from admitq.plugin.command import Arguments
from admitq.plugin.documents import print_document
from admitq.plugin.object_kinds import WORKLOAD
from admitq.plugin.options import ClusterOptions
from admitq.plugin.remedies import CommandError
from admitq.plugin.tables import GREEN, RED, YELLOW, has_colors, paint, safe_text
from admitq.plugin.targets import Target, find_key, find_key_of_stored, read_target
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq_api.json_objects import as_list, as_text
from admitq_api.labels import Names

ETA: Final = "eta"
"""The question when a workload starts, as a subresource of the visibility API."""

SECONDS: Final = 5.0
"""The time for an answer of this process, if the command line gives no more."""

PATIENCE: Final = 2.0
"""How many times as long a question may take until it is stopped."""

_UNANSWERED: Final = frozenset({403, 404, 405, 503})
"""Errors of a visibility API that does not serve a question, does not answer the user, or is not there."""

_COLORS: Final = (
    (re.compile(r"Waits for:"), YELLOW),
    (re.compile(r"(Starts:|Any of these admits it:|It is admitted without any change\.)"), GREEN),
    (re.compile(r"\S+ missing"), RED),
    (re.compile(r"fits$"), GREEN),
)
"""The colours of parts of lines; the first that occurs counts."""

Document = dict[str, Any]


class _Listed(NamedTuple):
    """The objects of a cluster, for an answer of this process, and the workload in question."""

    objects: StoredObjects
    key: ObjectKey


def ask_about_workload(subresource: str, arguments: Arguments) -> Document:
    """Return the answer to a question about a workload.

    Args:
        subresource: the question, as the subresource of the visibility API: ``explanation`` or ``eta``.
        arguments: the command line. For ``eta``, it has how long to wait for a better answer.

    Raises:
        CommandError: the workload does not exist, or there is no answer.
    """
    wait_s = parse_wait(arguments.wait) if subresource == ETA else 0.0
    target = read_target(arguments.target)
    if arguments.from_:
        cluster = read_cluster_of_files(arguments)
        cluster = reporting(lambda: suppose_manifests(cluster, arguments.namespace or "default"))
        return _answer(cluster, _find_in_files(cluster, target, arguments.namespace), subresource, wait_s)

    async def read(access: ClusterAccess) -> "Document | _Listed":
        key = await find_key(access, target)
        path = _workloads(access.names).path(*key, subresource)

        async def ask(*raised: int) -> Document | None:
            return await ask_server(access, "GET", path, name=key.name, raised=raised)

        answer = await (ask_until_median(ask, wait_s) if subresource == ETA else ask())
        return answer or _Listed(await list_stored_objects(access.client, access.names), key)

    listed = reporting(lambda: call_cluster(ClusterOptions.of(arguments), read, about=WORKLOAD))
    if isinstance(listed, _Listed):
        return _answer(observe_listed(listed.objects, arguments), listed.key, subresource, wait_s)
    return listed


def _workloads(names: Names) -> Resource:
    return Resource(names.visibility_group, names.version, "workloads", "Workload", namespaced=True)


async def ask_server(
    access: ClusterAccess,
    method: str,
    path: str,
    *,
    name: str = "",
    body: Any = None,
    raised: Collection[int] = (),
) -> Document | None:
    """Return the answer of the visibility API; None if the cluster does not serve the question.

    Args:
        access: the cluster.
        method: the HTTP method.
        path: the path of the subresource.
        name: the name of the object in question.
        body: the body of a POST.
        raised: HTTP statuses of errors that the caller handles.

    Raises:
        ApiError: the call failed, for example because the object does not exist.
    """
    if access.names.visibility_group not in access.groups:
        return None
    try:
        return await access.client.request_json(method, path, body=body)
    except ApiError as error:
        is_object_missing = error.is_not_found and bool(name) and error.concerns(name)
        if error.status not in _UNANSWERED or error.status in raised or is_object_missing:
            raise
        if error.status not in {404, 405}:
            warn([f"the visibility API does not answer: {error.message}"])
        return None


# --- in this process --------------------------------------------------------------------------------------


def read_cluster_of_files(arguments: Arguments) -> AskedCluster:
    """Return the cluster of the files of ``--from``, and print what is assumed.

    Raises:
        CommandError: a file cannot be read.
    """
    paths = [Path(path) for path in arguments.from_]
    files = reporting(lambda: read_object_files(paths, arguments.api_group))
    return _observed(partial(observe_files, files), arguments)


def observe_listed(objects: StoredObjects, arguments: Arguments) -> AskedCluster:
    """Return the cluster of listed objects, and print what is assumed.

    Raises:
        CommandError: the configuration file cannot be read.
    """
    return _observed(partial(observe_objects, objects), arguments)


def _observed(observe: Callable[[str | None, str], AskedCluster], arguments: Arguments) -> AskedCluster:
    file: str | None = arguments.config
    try:
        text = None if file is None else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--config: {file} cannot be read: {getattr(error, 'strerror', error)}") from error
    cluster = reporting(lambda: observe(text, file or "configuration"))
    warn(cluster.notes)
    return cluster


def _find_in_files(cluster: AskedCluster, target: Target, namespace: str | None) -> ObjectKey:
    workloads = cluster.objects.of("workloads")
    if not workloads:
        # The state comes from a log, which has no stored objects.
        keys = sorted(workload.key for workload in cluster.state.to_dump().objects.workloads)
        workloads = [{"metadata": {"namespace": key.namespace, "name": key.name}} for key in keys]
    return find_key_of_stored(workloads, target, namespace)


def _answer(cluster: AskedCluster, key: ObjectKey, subresource: str, wait_s: float) -> Document:
    """Return the answer about a workload of a cluster.

    Raises:
        CommandError: the workload does not exist, or the answer takes too long.
    """
    ask = {
        "explanation": explanation_document,
        ETA: partial(eta_document, estimate_of=cluster.estimate_of),
    }[subresource]
    seconds = max(SECONDS, wait_s)
    branch = branch_of(cluster.state, deadline_s=seconds * PATIENCE)
    document = reporting_branch_errors(
        lambda: ask(cluster.state, key, now=cluster.now, branch=branch, seconds=seconds)
    )
    if document is None:
        raise CommandError(f"workload {key} does not exist\nkubectl admitq list workloads lists what exists.")
    return document


Result = TypeVar("Result")


def reporting(read: Callable[[], Result]) -> Result:
    """Return what a function returns that reads sources.

    Raises:
        CommandError: a source cannot be read.
    """
    try:
        return read()
    except SourceError as error:
        raise CommandError(str(error)) from error


def reporting_branch_errors(ask: Callable[[], Result]) -> Result:
    """Return what a function returns that asks a branch.

    Raises:
        CommandError: the branch gave no answer.
    """
    try:
        return ask()
    except BranchError as error:
        raise CommandError(f"the question has no answer: {error}") from error


# --- output -----------------------------------------------------------------------------------------------


def warn(notes: Sequence[str]) -> None:
    """Print what is missing or assumed to standard error."""
    for note in notes:
        print(f"warning: {safe_text(note)}", file=sys.stderr)


def print_answer(document: Mapping[str, Any], output: str) -> None:
    """Print an answer as text, or as ``json`` or ``yaml``."""
    if output != "table":
        print_document(document, output)
        return
    for line in as_list(document.get("text")):
        print(paint_line(safe_text(as_text(line)), colored=has_colors()))


def paint_line(line: str, *, colored: bool) -> str:
    """Return a line of an answer, with its most important part in a colour."""
    if colored:
        for pattern, color in _COLORS:
            if found := pattern.search(line):
                return line[: found.start()] + paint(found[0], color) + line[found.end() :]
    return line
