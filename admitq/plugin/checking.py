"""``check``: first the API server answers in a dry run, then the core. Imported only by this command.

The visibility API asks the core if the cluster serves it. Otherwise, or for files, this process does.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from admitq.asking.branches import branch_of
from admitq.asking.hypotheses import Hypotheses
from admitq.asking.hypothesis_inputs import IndexedObjects, name_documents
from admitq.asking.listed_objects import list_stored_objects
from admitq.asking.object_checks import (
    NOT_CHECKED,
    NOT_QUEUED,
    REFUSED,
    CheckedCluster,
    ObjectCheck,
    ObjectChecks,
    check_objects,
)
from admitq.asking.object_files import list_files
from admitq.asking.run_time_estimates import run_time_estimates
from admitq.asking.sources import MANIFESTS, AskedCluster, hypothesis_options
from admitq.asking.stored_objects import SourceError, StoredObjects
from admitq.asking.submissions import SubmissionAnswer, submission_answers
from admitq.core.asking.submission import SubmissionVerdict
from admitq.core.model import ObjectKey
from admitq.manifests.documents import Document, InputError, read_file, read_text
from admitq.plugin.answering import (
    PATIENCE,
    SECONDS,
    observe_listed,
    read_cluster_of_files,
    reporting_branch_errors,
    warn,
)
from admitq.plugin.checks import exit_status
from admitq.plugin.cluster_access import ClusterAccess, call_cluster
from admitq.plugin.command import Arguments
from admitq.plugin.dry_run import dry_run, read_referenced
from admitq.plugin.options import ClusterOptions
from admitq.plugin.remedies import CommandError
from admitq.plugin.reviews import InvalidReview, ReviewResource, create_review, with_places
from admitq_api.json_objects import JsonObject, as_list, as_text, objects_at, text_at

STDIN: Final = "-"
"""The name of standard input."""

CHECK: Final = ReviewResource("Check", "check")
LOCAL_CHECK: Final = ReviewResource("LocalCheck", "localcheck")


def check_files(arguments: Arguments) -> ObjectChecks:
    """Return what becomes of the objects of files.

    Raises:
        CommandError: a file cannot be read, or the cluster cannot be used.
    """
    documents = _read_documents(arguments.filename)
    if arguments.from_:
        namespace: str = arguments.namespace or "default"
        cluster = read_cluster_of_files(arguments)
        checks = ObjectChecks([*map(ObjectCheck, name_documents(documents))], NOT_CHECKED)
        _ask(checks, cluster, (), namespace)
        return checks

    tried = call_cluster(ClusterOptions.of(arguments), partial(_try_in_cluster, documents))
    if tried.problem:
        if not exit_status(tried.checks):
            raise CommandError(
                f"all objects are accepted, but whether jobs would run is unknown: {tried.problem}"
            )
        # The API server refuses objects, whatever else can be known.
        warn([f"whether the other objects would run is unknown: {tried.problem}"])
    elif tried.objects is not None:
        _ask(tried.checks, observe_listed(tried.objects, arguments), tried.referenced, tried.namespace)
    return tried.checks


class _Tried(NamedTuple):
    """What a cluster says about objects.

    The checks are complete if there are neither objects of the cluster nor a problem.

    Attributes:
        checks: what the API server says, and the visibility API if it answers.
        namespace: the namespace of objects that state none.
        objects: the objects of the cluster, for an answer of this process.
        referenced: the objects that the jobs name.
        problem: why it is not known whether jobs would run.
    """

    checks: ObjectChecks
    namespace: str
    objects: StoredObjects | None = None
    referenced: Sequence[JsonObject] = ()
    problem: str = ""


async def _try_in_cluster(documents: Sequence[Document], access: ClusterAccess) -> _Tried:
    checks = ObjectChecks([await dry_run(access, document) for document in documents])
    referenced = await read_referenced(access, [check.document.value for check in checks.accepted])
    try:
        if await ask_visibility_api(access, checks, referenced):
            return _Tried(checks, access.namespace)
        objects = await list_stored_objects(access.client, access.names)
    except (SourceError, InvalidReview) as error:
        return _Tried(checks, access.namespace, problem=str(error))
    return _Tried(checks, access.namespace, objects, referenced)


async def ask_visibility_api(
    access: ClusterAccess, checks: ObjectChecks, referenced: Sequence[JsonObject]
) -> bool:
    """Let the visibility API answer what becomes of the accepted objects; return whether it has answered.

    Raises:
        InvalidReview: it cannot answer for these objects, for example because they are of other namespaces.
    """
    documents = [check.document for check in checks.accepted]
    if not documents:
        return True
    spec = {"objects": [*(document.value for document in documents), *referenced]}
    status = await create_review(access, CHECK, LOCAL_CHECK, spec, documents)
    if status is None:
        return False
    # Answers about the objects that the jobs name come last. They are not shown.
    for check, answer in zip(checks.accepted, objects_at(status, ("objects",)), strict=False):
        _complete(check, answer, documents)
    return True


def _complete(check: ObjectCheck, answer: Mapping[str, Any], documents: Sequence[Document]) -> None:
    """Add what the visibility API says about an object."""
    verdict, lines = text_at(answer, ("verdict",)), [as_text(line) for line in as_list(answer.get("text"))]
    if verdict == REFUSED:
        problems = map(as_text, as_list(answer.get("problems")))
        check.problems = tuple(with_places(problem, documents) for problem in problems)
    elif verdict in [*SubmissionVerdict]:
        check.answer = SubmissionAnswer(SubmissionVerdict(verdict), answer, lines)
    else:
        check.is_queued, check.note = verdict != NOT_QUEUED, "\n".join(lines)


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


# --- in this process --------------------------------------------------------------------------------------


def _ask(
    checks: ObjectChecks, cluster: AskedCluster, referenced: Sequence[JsonObject], namespace: str
) -> None:
    """Let the core answer what becomes of the accepted objects.

    Raises:
        CommandError: an object of ``--from`` is invalid.
    """
    objects = cluster.objects
    checked = CheckedCluster(
        objects.names,
        cluster.now,
        IndexedObjects(objects.observed, (*objects.others, *referenced)),
        hypothesis_options(cluster.settings, namespace),
        cluster.settings.configuration.manage_jobs_without_queue_name,
        [Document(MANIFESTS, manifest) for manifest in objects.manifests],
    )
    try:
        check_objects(checks, checked, partial(_answers, cluster))
    except InputError as error:
        raise CommandError(str(error)) from None


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
