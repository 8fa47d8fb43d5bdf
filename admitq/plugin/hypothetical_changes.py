"""Questions about hypothetical changes: asked of the visibility API, or answered in this process.

Imported only by the command ``whatif``.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from admitq.asking.answers import what_if_document
from admitq.asking.branches import branch_of
from admitq.asking.hypotheses import read_hypotheses
from admitq.asking.hypothesis_inputs import IndexedObjects
from admitq.asking.listed_objects import list_stored_objects
from admitq.asking.run_time_estimates import run_time_estimates
from admitq.asking.sources import AskedCluster, hypothesis_options, suppose_manifests
from admitq.asking.stored_objects import StoredObjects
from admitq.integrations.registry import load_integrations
from admitq.manifests.documents import Document, InputError, read_file, read_text
from admitq.manifests.objects import Manifests, ObjectId
from admitq.plugin.answer_waits import parse_wait
from admitq.plugin.answering import (
    PATIENCE,
    SECONDS,
    observe_listed,
    read_cluster_of_files,
    reporting,
    reporting_branch_errors,
    warn,
)
from admitq.plugin.cluster_access import ClusterAccess, call_cluster
from admitq.plugin.command import Arguments
from admitq.plugin.dry_run import read_referenced
from admitq.plugin.object_edits import DELETE, Edit, apply_edits, read_deletion, read_edits
from admitq.plugin.options import ClusterOptions
from admitq.plugin.remedies import CommandError
from admitq.plugin.reviews import InvalidReview, ReviewResource, create_review
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq.translate.metadata import key_of
from admitq.translate.read_options import ReadOptions
from admitq_api.json_objects import JsonObject, as_list, as_text, value_at, with_value
from admitq_api.labels import Names

_STANDARD_INPUT: Final = "-"
WHAT_IF: Final = ReviewResource("WhatIf", "whatif")
LOCAL_WHAT_IF: Final = ReviewResource("LocalWhatIf", "localwhatif")

_RESOURCES: Final = {
    "ClusterQueue": "cluster_queues",
    "LocalQueue": "local_queues",
    "Workload": "workloads",
}

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Changes:
    """What a command line changes: manifests, edits of stored objects, and deletions.

    ``referenced`` are objects of the cluster that jobs of the manifests name, such as the runtime of a
    TrainJob. They do not change.
    """

    documents: tuple[Document, ...]
    edits: tuple[Edit, ...]
    deletions: tuple[JsonObject, ...]
    referenced: tuple[JsonObject, ...] = ()


def ask_what_if(arguments: Arguments) -> dict[str, Any]:
    """Return the answer to a question about hypothetical changes.

    Raises:
        CommandError: the command line names no change, an object is invalid, or there is no answer.
    """
    documents = [document for path in arguments.filename for document in _read_manifests(path)]
    options = [*arguments.quota, *arguments.cohort, *arguments.stop, *arguments.delete, *arguments.priority]
    if not documents and not options:
        raise CommandError(
            "no change to ask about\n"
            "Name manifests with -f FILE, or use --quota, --cohort, --stop, --delete or --priority."
        )
    wait_s = parse_wait(arguments.wait)
    if arguments.from_:
        namespace = arguments.namespace or "default"
        files = read_cluster_of_files(arguments)
        cluster = reporting(lambda: suppose_manifests(files, namespace))
        changes = _changes(documents, arguments, namespace, cluster.objects.names)
        return _answer(cluster, changes, namespace, wait_s)

    async def ask(access: ClusterAccess) -> "dict[str, Any] | tuple[StoredObjects, Changes, str]":
        changes = _changes(documents, arguments, access.namespace, access.names)
        referenced = await read_referenced(access, _with_namespaces(documents, access))
        changes = replace(changes, referenced=tuple(referenced))
        answer = await ask_visibility_api(access, changes)
        if answer is not None:
            return answer
        return await list_stored_objects(access.client, access.names), changes, access.namespace

    found = reporting(lambda: _reporting(lambda: call_cluster(ClusterOptions.of(arguments), ask)))
    if isinstance(found, dict):
        return found
    objects, changes, namespace = found
    return _answer(observe_listed(objects, arguments), changes, namespace, wait_s)


def _read_manifests(path: str) -> list[Document]:
    def read() -> list[Document]:
        if path == _STANDARD_INPUT:
            return read_text(sys.stdin.read(), "standard input")
        return read_file(Path(path), path)

    return _reporting(read)


def _changes(documents: Sequence[Document], arguments: Arguments, namespace: str, names: Names) -> Changes:
    edits = read_edits(
        namespace,
        quotas=arguments.quota,
        cohorts=arguments.cohort,
        stops=arguments.stop,
        priorities=arguments.priority,
    )
    jobs = [(kind.api_version, kind.kind, kind.plural) for kind in load_integrations()]
    deletions = [read_deletion(text, namespace, names, jobs) for text in arguments.delete]
    return Changes(tuple(documents), tuple(edits), tuple(deletions))


def _reporting(read: Callable[[], Result]) -> Result:
    try:
        return read()
    except InputError as error:
        raise CommandError(str(error)) from error


# --- the visibility API -------------------------------------------------------------------------------


async def ask_visibility_api(access: ClusterAccess, changes: Changes) -> dict[str, Any] | None:
    """Return the answer of the visibility API; None if the cluster does not serve the question.

    It asks about the whole cluster. If the user may not do that, it asks about the namespace alone.
    """
    if access.names.visibility_group not in access.groups:
        return None
    stored = {edit.target: await _get(access, edit.target) for edit in changes.edits}
    edited = apply_edits(changes.edits, stored.get, access.names)
    objects = [*_with_namespaces(changes.documents, access), *edited, *changes.referenced]
    spec = {"objects": objects, "deletions": [*changes.deletions]}
    try:
        status = await create_review(access, WHAT_IF, LOCAL_WHAT_IF, spec, changes.documents)
    except InvalidReview as error:
        raise CommandError(str(error)) from error
    if status is None:
        return None
    _warn_of_ignored([as_text(reason) for reason in as_list(status.get("ignored"))])
    return {**status}


def _warn_of_ignored(reasons: Sequence[str]) -> None:
    warn([f"ignored: {reason}" for reason in reasons])


async def _get(access: ClusterAccess, target: ObjectId) -> JsonObject | None:
    resource: Resource = getattr(access.kinds, _RESOURCES[target.kind])
    try:
        return await access.client.get(resource, target.name, target.namespace or None)
    except ApiError as error:
        if error.is_not_found:
            return None
        raise


def _with_namespaces(documents: Sequence[Document], access: ClusterAccess) -> list[JsonObject]:
    """Return manifests with the namespace of the command where they state none.

    Raises:
        InputError: a manifest has no kind or no name.
    """
    manifests = Manifests(
        access.names, ReadOptions(), namespace=access.namespace, with_serving=True, with_nodes=True
    )
    objects: list[JsonObject] = []
    for document in documents:
        kind = value_at(document.value, ("kind",))
        if not isinstance(kind, str) or not kind:
            raise document.error(("kind",), "is required")
        name: ObjectId | None = manifests.identify(document, kind)
        # Only the server knows the kinds of its configuration. It ignores all others.
        namespace = access.namespace if name is None else name.namespace
        is_given = not namespace or value_at(document.value, ("metadata", "namespace"))
        objects.append(
            document.value if is_given else with_value(document.value, ("metadata", "namespace"), namespace)
        )
    return objects


# --- in this process ----------------------------------------------------------------------------------


def _answer(cluster: AskedCluster, changes: Changes, namespace: str, wait_s: float) -> dict[str, Any]:
    """Return the answer about a cluster of stored objects.

    Raises:
        CommandError: an object is invalid or does not exist, or the answer takes too long.
    """
    objects = cluster.objects
    stored = IndexedObjects(objects.observed, (*objects.others, *changes.referenced))
    if changes.edits and not objects.observed:
        raise CommandError("a state dump has no whole objects to change\nWrite whole manifests with -f.")
    edited = apply_edits(changes.edits, lambda target: stored.get(ObjectId(*target)), objects.names)
    hypotheses = _reporting(
        lambda: read_hypotheses(
            [*changes.documents, *(Document("options", obj) for obj in edited)],
            [Document(DELETE, obj) for obj in changes.deletions],
            names=objects.names,
            now=cluster.now,
            stored=stored,
            options=hypothesis_options(cluster.settings, namespace),
        )
    )
    _warn_of_ignored(hypotheses.ignored)
    present = [obj for obj in objects.of("workloads") if key_of(obj) not in hypotheses.workloads]
    estimate_of = run_time_estimates(
        [*present, *hypotheses.workloads.values()],
        objects.of("localqueues"),
        cluster.now,
        jobs=objects.others,
    )
    seconds = max(SECONDS, wait_s)
    branch = branch_of(cluster.state, deadline_s=seconds * PATIENCE)
    ask = partial(what_if_document, cluster.state, hypotheses.events)
    return reporting_branch_errors(
        lambda: ask(now=cluster.now, branch=branch, estimate_of=estimate_of, seconds=seconds)
    )
