"""What becomes of objects that are submitted now: refused, accepted, or queued and then run or wait.

The plugin checks objects that the API server has accepted in a dry run. The visibility API checks the objects
of a request.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from admitq.asking.hypotheses import Hypotheses, read_hypotheses
from admitq.asking.hypothesis_inputs import WORKLOAD, HypothesisOptions
from admitq.asking.submissions import SubmissionAnswer
from admitq.core.asking.submission import SubmissionVerdict
from admitq.core.model import Instant, ObjectKey
from admitq.integrations.ownership import get_controller, get_queue_name, list_prebuilt_names
from admitq.integrations.registry import load_integrations
from admitq.manifests.documents import Document, InputError, Problem
from admitq.manifests.objects import Manifests, ObjectId, ObjectLookup
from admitq.translate.submissions import verdict_text
from admitq_api.json_objects import JsonObject, objects_at, text_at
from admitq_api.labels import DEFAULT_QUEUE, Names

ACCEPTED: Final = "Accepted"
REFUSED: Final = "Refused"
NOT_QUEUED: Final = "NotQueued"
"""Verdicts about objects without a workload: no job, refused, or a job without a queue."""

NOT_CHECKED: Final = (
    "admission webhooks and policies of the cluster",
    "fields of jobs that admitq does not read",
    "ResourceQuotas",
    "the rights to create the objects",
)
"""What only an API server can check."""

_WORDS: Final[Mapping[str, str]] = {
    ACCEPTED: "accepted",
    REFUSED: "refused",
    NOT_QUEUED: "accepted, and not queued, because it names no queue",
    **{verdict: verdict_text(verdict) for verdict in SubmissionVerdict},
}


@dataclass(slots=True, eq=False)
class ObjectCheck:
    """An object, and what becomes of it.

    Attributes:
        document: the object.
        problems: why it is refused; empty if it is accepted.
        answer: what becomes of its Workload; None if it has none.
        is_queued: whether admitq queues it, if it is a job.
        note: what else is to be said about it; may be empty.
    """

    document: Document
    problems: tuple[str, ...] = ()
    answer: SubmissionAnswer | None = None
    is_queued: bool = True
    note: str = ""

    @property
    def name(self) -> str:
        """The name of the object, or the begin of a generated one."""
        value = self.document.value
        return text_at(value, ("metadata", "name")) or text_at(value, ("metadata", "generateName"))

    @property
    def namespace(self) -> str:
        """The namespace of the object; empty without one."""
        return text_at(self.document.value, ("metadata", "namespace"))

    @property
    def kind(self) -> str:
        """The kind of the object."""
        return text_at(self.document.value, ("kind",))

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"

    @property
    def verdict(self) -> str:
        """The verdict about the object."""
        if self.problems:
            return REFUSED
        if self.answer is not None:
            return self.answer.verdict
        return ACCEPTED if self.is_queued else NOT_QUEUED

    @property
    def words(self) -> str:
        """The verdict, to be read after the name of the object."""
        return _WORDS[self.verdict]

    @property
    def lines(self) -> Iterator[str]:
        """What else there is to say about the object, as lines of text."""
        answer = () if self.answer is None else self.answer.lines
        for text in (*self.problems, *answer, self.note):
            yield from text.splitlines()

    def to_json(self) -> dict[str, Any]:
        """Return the object, and what becomes of it, as JSON values."""
        return {
            "apiVersion": text_at(self.document.value, ("apiVersion",)),
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            **({} if self.answer is None else self.answer.json),
            "verdict": str(self.verdict),
            "problems": list(self.problems),
            "text": [*self.lines],
        }


@dataclass(slots=True, eq=False)
class ObjectChecks:
    """The checked objects, and what was not checked."""

    checks: list[ObjectCheck]
    not_checked: tuple[str, ...] = ()

    @property
    def accepted(self) -> list[ObjectCheck]:
        """The objects without problems."""
        return [check for check in self.checks if not check.problems]

    def to_json(self) -> dict[str, Any]:
        """Return what becomes of objects as JSON values."""
        return {
            "objects": [check.to_json() for check in self.checks],
            "notChecked": list(self.not_checked),
            "text": [*self.list_lines()],
        }

    def list_lines(
        self,
        show_words: Callable[[ObjectCheck], str] = lambda check: check.words,
        show_text: Callable[[str], str] = str,
    ) -> Iterator[str]:
        """Yield what becomes of objects as lines of text.

        Args:
            show_words: returns the verdict about an object as it is to be printed.
            show_text: returns another part of a line as it is to be printed.
        """
        for check in self.checks:
            yield f"{show_text(str(check))}: {show_words(check)}"
            yield from (f"  {show_text(line)}" for line in check.lines)
        if self.not_checked:
            yield f"Not checked: {', '.join(self.not_checked)}"


class CheckedCluster(NamedTuple):
    """The cluster to which objects are submitted.

    Attributes:
        names: the names of the API group.
        now: the instant of the submission, in nanoseconds since the Unix epoch.
        stored: the stored objects.
        options: how manifests are read.
        manages_jobs_without_queue: whether jobs that name no queue stay suspended.
        manifests: further manifests that are submitted before.
    """

    names: Names
    now: Instant
    stored: ObjectLookup
    options: HypothesisOptions
    manages_jobs_without_queue: bool = False
    manifests: Sequence[Document] = ()


def check_objects(
    checks: ObjectChecks,
    cluster: CheckedCluster,
    answer: Callable[[Hypotheses], Mapping[ObjectKey, SubmissionAnswer]],
) -> None:
    """Find out what becomes of the objects without problems.

    Args:
        checks: the objects. Each has a name.
        cluster: the cluster.
        answer: returns what becomes of Workloads.

    Raises:
        InputError: an object is out of the scope of the options, or a further manifest is invalid.
    """
    _check_scope(checks, cluster)
    _mark_unqueued(checks, cluster)
    hypotheses = _read(checks, cluster)
    answers = answer(hypotheses)
    found: dict[ObjectId, list[SubmissionAnswer]] = {}
    for key, workload in hypotheses.workloads.items():
        for name in (*_list_sources(workload), *hypotheses.sources.get(key, ())) if key in answers else ():
            found.setdefault(name, []).append(answers[key])
    for check in checks.accepted:
        own = found.get(_identity(check, cluster.options), ())
        if own:
            check.answer = max(own, key=lambda each: [*SubmissionVerdict].index(each.verdict))
    reasons = {name: reason for name, _, reason in (text.partition(": ") for text in hypotheses.ignored)}
    for check in checks.accepted:
        if check.answer is None:
            check.note = reasons.get(str(check), "")


def _check_scope(checks: ObjectChecks, cluster: CheckedCluster) -> None:
    options = cluster.options
    manifests = Manifests(
        cluster.names, options.how, options.custom, namespace=options.namespace, with_serving=True
    )
    problems: list[Problem] = []
    for check in checks.accepted if options.is_local else ():
        try:
            name = manifests.identify(check.document, check.kind)
        except InputError:
            # The object is invalid, and is refused when it is read.
            continue
        error = None if name is None else options.find_scope_error(name, check.document)
        if error is not None:
            problems += error.problems
    if problems:
        raise InputError(problems)


def _identity(check: ObjectCheck, options: HypothesisOptions) -> ObjectId:
    return ObjectId(check.kind, check.namespace or options.namespace, check.name)


def _list_sources(workload: JsonObject) -> Iterator[ObjectId]:
    """Yield the identities of a Workload and of its owners."""
    metadata = workload["metadata"]
    namespace = text_at(metadata, ("namespace",))
    yield ObjectId(WORKLOAD, namespace, text_at(metadata, ("name",)))
    for owner in objects_at(metadata, ("ownerReferences",)):
        yield ObjectId(text_at(owner, ("kind",)), namespace, text_at(owner, ("name",)))


def _mark_unqueued(checks: ObjectChecks, cluster: CheckedCluster) -> None:
    """Find the jobs that admitq does not queue, because they name no queue."""
    names, options = cluster.names, cluster.options
    kinds = {kind.gvk for kind in (*load_integrations(), *options.custom)}
    queues = [*cluster.manifests, *(check.document for check in checks.accepted)]
    defaults = {
        text_at(queue.value, ("metadata", "namespace")) or options.namespace
        for queue in queues
        if (text_at(queue.value, ("kind",)), text_at(queue.value, ("metadata", "name")))
        == ("LocalQueue", DEFAULT_QUEUE)
    }
    for check in checks.accepted:
        obj, namespace = check.document.value, check.namespace or options.namespace
        group, _, version = text_at(obj, ("apiVersion",)).rpartition("/")
        if (group, version, check.kind) not in kinds or _names_a_queue(obj, names):
            continue
        if (
            namespace in defaults
            or cluster.stored.get(ObjectId("LocalQueue", namespace, DEFAULT_QUEUE)) is not None
        ):
            continue
        if cluster.manages_jobs_without_queue:
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


def _read(checks: ObjectChecks, cluster: CheckedCluster) -> Hypotheses:
    """Return the events of the accepted objects. Objects that are invalid are refused.

    Raises:
        InputError: a manifest that is not checked is invalid.
    """
    while True:
        documents = [check.document for check in checks.accepted if check.is_queued]
        try:
            return read_hypotheses(
                [*cluster.manifests, *documents],
                names=cluster.names,
                now=cluster.now,
                stored=cluster.stored,
                options=cluster.options,
            )
        except InputError as error:
            if not _refuse(checks, error.problems, cluster.options.namespace):
                raise


def _refuse(checks: ObjectChecks, problems: Iterable[Problem], namespace: str) -> bool:
    """Add problems to the objects that have them, and return whether there are any."""
    by_object: dict[str, list[Problem]] = {}
    for problem in problems:
        by_object.setdefault(problem.object, []).append(problem)
    found = False
    for check in checks.accepted:
        names = {f"{check.kind} {check.name}", f"{check.kind} {check.namespace or namespace}/{check.name}"}
        own = [problem for name in sorted(names) for problem in by_object.get(name, ())]
        check.problems = tuple(str(replace(problem, object="")) for problem in own)
        found = found or bool(own)
    return found
