"""``check``: first the API server answers in a dry run, then the core. Imported only by this command."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from admitq.asking.branches import branch_of
from admitq.asking.hypotheses import Hypotheses, HypothesisOptions, IndexedObjects, read_hypotheses
from admitq.asking.listed_objects import list_stored_objects
from admitq.asking.object_files import list_files
from admitq.asking.run_time_estimates import run_time_estimates
from admitq.asking.sources import MANIFESTS, AskedCluster, hypothesis_options
from admitq.asking.stored_objects import SourceError, StoredObjects
from admitq.asking.submissions import SubmissionAnswer, submission_answers
from admitq.core.asking.submission import SubmissionVerdict
from admitq.core.model import ObjectKey
from admitq.integrations.ownership import get_controller, get_queue_name, list_prebuilt_names
from admitq.integrations.registry import load_integrations
from admitq.manifests.documents import Document, InputError, Problem, read_file, read_text
from admitq.plugin.answering import (
    PATIENCE,
    SECONDS,
    observe_listed,
    read_cluster_of_files,
    reporting_branch_errors,
    warn,
)
from admitq.plugin.checks import Check, Checks
from admitq.plugin.cluster_access import ClusterAccess, call_cluster
from admitq.plugin.command import Arguments
from admitq.plugin.dry_run import dry_run, read_referenced
from admitq.plugin.options import ClusterOptions
from admitq.plugin.remedies import CommandError
from admitq_api.json_objects import JsonObject, objects_at, text_at, with_value, without_value
from admitq_api.labels import DEFAULT_QUEUE, Names

STDIN: Final = "-"
"""The name of standard input."""

NOT_CHECKED: Final = (
    "admission webhooks and policies of the cluster",
    "fields of jobs that admitq does not read",
    "ResourceQuotas",
    "the rights to create the objects",
)
"""What only an API server can check."""


def check_files(arguments: Arguments) -> Checks:
    """Return what becomes of the objects of files.

    Raises:
        CommandError: a file cannot be read, or the cluster cannot be used.
    """
    documents = _read_documents(arguments.filename)
    if arguments.from_:
        namespace: str = arguments.namespace or "default"
        cluster = read_cluster_of_files(arguments)
        checks = Checks([*map(Check, _with_names(documents))], NOT_CHECKED)
        _ask(checks, cluster, (), namespace)
        return checks

    tried = call_cluster(ClusterOptions.of(arguments), partial(_try_in_cluster, documents))
    if tried.objects is None:
        if not tried.checks.status:
            raise CommandError(
                f"all objects are accepted, but whether jobs would run is unknown: {tried.problem}"
            )
        # The API server refuses objects, whatever else can be known.
        warn([f"whether the other objects would run is unknown: {tried.problem}"])
        return tried.checks
    _ask(tried.checks, observe_listed(tried.objects, arguments), tried.referenced, tried.namespace)
    return tried.checks


class _Tried(NamedTuple):
    """What the API server says about objects, and the objects of the cluster, or why these are not known."""

    checks: Checks
    namespace: str
    objects: StoredObjects | None = None
    referenced: Sequence[JsonObject] = ()
    problem: str = ""


async def _try_in_cluster(documents: Sequence[Document], access: ClusterAccess) -> _Tried:
    checks = Checks([await dry_run(access, document) for document in documents])
    try:
        objects = await list_stored_objects(access.client, access.names)
    except SourceError as error:
        return _Tried(checks, access.namespace, problem=str(error))
    return _Tried(checks, access.namespace, objects, await read_referenced(access, checks.accepted))


def _read_documents(paths: Sequence[str]) -> list[Document]:
    try:
        documents = [document for path in paths for document in _read_path(path)]
    except InputError as error:
        raise CommandError(str(error)) from None
    if not documents:
        raise CommandError(f"--filename: no objects in {', '.join(paths)}")
    return documents


def _read_path(path: str) -> Iterator[Document]:
    if path == STDIN:
        yield from read_text(sys.stdin.read(), "standard input")
    else:
        for file in list_files([Path(path)]):
            yield from read_file(file, str(file))


def _with_names(documents: Iterable[Document]) -> Iterator[Document]:
    """Yield the objects, with a number in place of a generated suffix of their names."""
    numbers: Counter[str] = Counter()
    for document in documents:
        prefix = text_at(document.value, ("metadata", "generateName"))
        if not prefix or text_at(document.value, ("metadata", "name")):
            yield document
            continue
        numbers[prefix] += 1
        named = with_value(document.value, ("metadata", "name"), f"{prefix}{numbers[prefix]}")
        yield replace(document, value=without_value(named, ("metadata", "generateName")))


# --- in the core ------------------------------------------------------------------------------------------


def _ask(checks: Checks, cluster: AskedCluster, referenced: Sequence[JsonObject], namespace: str) -> None:
    """Let the core answer what becomes of the accepted objects."""
    stored = IndexedObjects(cluster.objects.observed, (*cluster.objects.others, *referenced))
    settings, names = cluster.settings, cluster.objects.names
    options = hypothesis_options(settings, namespace)
    base = [Document(MANIFESTS, manifest) for manifest in cluster.objects.manifests]
    _mark_unqueued(checks, cluster, options)
    hypotheses = _read(
        checks,
        namespace,
        base,
        partial(read_hypotheses, names=names, now=cluster.now, stored=stored, options=options),
    )
    answers = _answers(cluster, hypotheses)
    for check in checks.accepted:
        own = [
            answers[key]
            for key, workload in hypotheses.workloads.items()
            if key in answers and _has_workload(check, workload, namespace)
        ]
        if own:
            check.answer = max(own, key=lambda answer: [*SubmissionVerdict].index(answer.verdict))
    for text in hypotheses.ignored:
        name, _, reason = text.partition(": ")
        for check in checks.checks:
            if str(check) == name and check.answer is None:
                check.note = reason


def _mark_unqueued(checks: Checks, cluster: AskedCluster, options: HypothesisOptions) -> None:
    """Find the jobs that admitq does not queue, because they name no queue."""
    names = cluster.objects.names
    kinds = {kind.gvk for kind in (*load_integrations(), *options.custom)}
    queues = [*cluster.objects.of("localqueues"), *cluster.objects.manifests]
    queues += [check.document.value for check in checks.accepted]
    defaults = {
        text_at(queue, ("metadata", "namespace")) or options.namespace
        for queue in queues
        if text_at(queue, ("metadata", "name")) == DEFAULT_QUEUE
        and queue.get("kind", "LocalQueue") == "LocalQueue"
    }
    for check in checks.accepted:
        obj = check.document.value
        group, _, version = text_at(obj, ("apiVersion",)).rpartition("/")
        is_job = (group, version, check.kind) in kinds
        if not is_job or (check.namespace or options.namespace) in defaults or _names_a_queue(obj, names):
            continue
        if cluster.settings.configuration.manage_jobs_without_queue_name:
            line = f"It stays suspended until its label {names.queue_name} names a LocalQueue."
            check.answer = SubmissionAnswer(SubmissionVerdict.NEVER, {}, [line])
        check.is_queued = False


def _names_a_queue(job: JsonObject, names: Names) -> bool:
    """Whether a job is queued by itself, by its owner, or by a Workload that exists."""
    return bool(
        get_queue_name(job, names)
        or get_controller(job) is not None
        or any(name for _, name in list_prebuilt_names(job, names, by_annotation=True))
    )


def _read(
    checks: Checks,
    namespace: str,
    base: Sequence[Document],
    read: Callable[[list[Document]], Hypotheses],
) -> Hypotheses:
    """Return the events of the accepted objects. Objects that are invalid are refused.

    Raises:
        CommandError: an object of ``--from`` is invalid.
    """
    while True:
        documents = [check.document for check in checks.accepted if check.is_queued]
        try:
            return read([*base, *documents])
        except InputError as error:
            if not _refuse(checks, error.problems, namespace):
                raise CommandError(str(error)) from None


def _refuse(checks: Checks, problems: Iterable[Problem], namespace: str) -> bool:
    """Add problems to the objects that have them, and return whether there are any."""
    found = False
    for check in checks.accepted:
        names = {f"{check.kind} {check.name}", f"{check.kind} {check.namespace or namespace}/{check.name}"}
        own = [problem for problem in problems if problem.object in names]
        check.problems = tuple(str(replace(problem, object="")) for problem in own)
        found = found or bool(own)
    return found


def _has_workload(check: Check, workload: JsonObject, namespace: str) -> bool:
    """Whether a Workload is that of an object, or the object itself."""
    metadata = workload["metadata"]
    if text_at(metadata, ("namespace",)) != (check.namespace or namespace):
        return False
    names = [("Workload", text_at(metadata, ("name",)))]
    names += [
        (text_at(owner, ("kind",)), text_at(owner, ("name",)))
        for owner in objects_at(metadata, ("ownerReferences",))
    ]
    return (check.kind, check.name) in names


def _answers(cluster: AskedCluster, hypotheses: Hypotheses) -> dict[ObjectKey, SubmissionAnswer]:
    workloads = [*cluster.objects.of("workloads"), *hypotheses.workloads.values()]
    queues = cluster.objects.of("localqueues")
    estimate_of = run_time_estimates(workloads, queues, cluster.now, jobs=cluster.objects.others)
    return reporting_branch_errors(
        lambda: submission_answers(
            cluster.state,
            hypotheses.events,
            [*hypotheses.workloads],
            now=cluster.now,
            branch_from=partial(branch_of, deadline_s=SECONDS * PATIENCE),
            estimate_of=estimate_of,
            seconds=SECONDS,
        )
    )
