"""What if? Resources that users create like a review: hypothetical changes in, their effects out.

Nothing is stored. ``whatif`` takes any objects, ``localwhatif`` those of one namespace.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import orjson

from admitq.asking.answers import what_if_document
from admitq.asking.run_time_estimates import RunTimeRecords
from admitq.core.asking.course import EstimateOf
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.integrations.base import Integration
from admitq.manifests.documents import InputError
from admitq.translate.read_options import ReadOptions
from admitq.translate.viewers import Viewer
from admitq.visibility.answers import RequestRejected
from admitq.visibility.background_questions import Asked, BackgroundQuestions
from admitq.visibility.routes import KINDS, Question, Subresource
from admitq.visibility.workload_questions import HEAD, START, TEXT, list_of, object_of
from admitq_api.labels import Names

if TYPE_CHECKING:
    # Defaults and checks of manifests load slowly. The process is ready before (``load``).
    from admitq.asking.hypotheses import HypothesisOptions
    from admitq.manifests.objects import ObjectLookup

WHAT_IF: Final = "whatif"
LOCAL_WHAT_IF: Final = "localwhatif"

_FIELDS: Final = ("objects", "deletions")
_MOST_PROBLEMS: Final = 20
"""The number of problems in one error."""


@dataclass(slots=True, eq=False)
class HypotheticalCluster:
    """What hypothetical changes are applied to, besides the state of the core.

    Attributes:
        names: the names of the API group.
        stored: the stored objects.
        run_times: the run times of the observed Workloads.
        how: how Workloads are read.
        custom: the job kinds of the configuration.
        partial_admission: whether jobs with a minimum of pods may run with fewer pods.
    """

    names: Names
    stored: "ObjectLookup"
    run_times: RunTimeRecords
    how: ReadOptions = field(default_factory=ReadOptions)
    custom: tuple[Integration, ...] = ()
    partial_admission: bool = True
    is_loaded: bool = field(default=False, init=False)
    """Whether questions can be answered."""

    def load(self) -> None:
        """Read one manifest, so that child processes need to import and load nothing.

        This takes a second. It may run in another thread.
        """
        from admitq.asking.hypotheses import list_documents, read_hypotheses  # noqa: PLC0415 loads slowly

        queue = {
            "apiVersion": self.names.api_version,
            "kind": "ClusterQueue",
            "metadata": {"name": "queue"},
            "spec": {},
        }
        read_hypotheses(list_documents([queue], "objects"), names=self.names, now=0, options=self.options())
        self.is_loaded = True

    def options(self, namespace: str = "") -> "HypothesisOptions":
        """Return how manifests are read: those of one namespace, or all."""
        from admitq.asking.hypotheses import HypothesisOptions  # noqa: PLC0415 loads slowly

        return HypothesisOptions(
            self.how, self.custom, self.partial_admission, namespace or "default", is_local=bool(namespace)
        )

    def estimates(self, state: AdmissionState, now: Instant) -> EstimateOf:
        """Return the estimates of run times for a state."""

        def cluster_queue_of(key: ObjectKey) -> str:
            local_queue = state.queries.world.local_queues.get(key)
            return "" if local_queue is None else local_queue.spec.cluster_queue

        return self.run_times.estimates(cluster_queue_of, now)


class _Changes(NamedTuple):
    """The changes of a request, as in its specification."""

    objects: list[Any]
    deletions: list[Any]


class _Invalid(NamedTuple):
    """The problems of changes that cannot be read."""

    problems: tuple[str, ...]


class _Suppose(NamedTuple):
    """The question what changes do. It is asked in a child process, which may change everything it uses."""

    cluster: HypotheticalCluster
    changes: _Changes
    namespace: str
    """The namespace in which objects may change; empty: in all."""
    viewer: Viewer

    def __call__(self, asked: Asked) -> dict[str, Any] | _Invalid:
        """Return the status of the answer."""
        from admitq.asking.hypotheses import list_documents, read_hypotheses  # noqa: PLC0415 loads slowly

        state, now, branch, seconds = asked
        cluster = self.cluster
        try:
            hypotheses = read_hypotheses(
                list_documents(self.changes.objects, "spec.objects"),
                list_documents(self.changes.deletions, "spec.deletions"),
                names=cluster.names,
                now=now,
                stored=cluster.stored,
                options=cluster.options(self.namespace),
            )
        except InputError as error:
            return _Invalid(tuple(map(str, error.problems)))
        for workload in hypotheses.workloads.values():
            cluster.run_times.observe_workload(workload)
        document = what_if_document(
            state,
            hypotheses.events,
            now=now,
            branch=branch,
            estimate_of=cluster.estimates(state, now),
            viewer=self.viewer,
            seconds=seconds,
        )
        new = [{"namespace": key.namespace, "name": key.name} for key in hypotheses.new_workloads]
        return {**document, "newWorkloads": new, "ignored": list(hypotheses.ignored)}


def list_hypothetical_changes(
    questions: BackgroundQuestions, cluster: HypotheticalCluster
) -> tuple[Subresource, ...]:
    """Return the resources by which users ask about hypothetical changes."""
    return tuple(
        Subresource(
            resource=resource,
            name="",
            method="POST",
            kind=KINDS[resource],
            summary=summary,
            answer=_answer(questions, cluster, resource),
            schemas=_SCHEMAS[resource],
            names_others=resource == LOCAL_WHAT_IF,
        )
        for resource, summary in (
            (WHAT_IF, "Return what hypothetical objects and deletions change."),
            (LOCAL_WHAT_IF, "Return what hypothetical objects and deletions of a namespace change."),
        )
    )


def _answer(
    questions: BackgroundQuestions, cluster: HypotheticalCluster, resource: str
) -> Callable[[Question], Any]:
    kind = KINDS[resource]

    async def answer(question: Question) -> dict[str, Any]:
        body = _read_body(question, kind)
        suppose = _Suppose(cluster, _read_changes(body), question.namespace, question.viewer)
        if not cluster.is_loaded:
            raise RequestRejected(503, "questions about changes are not loaded yet, try again")
        status = await questions.ask(suppose)
        if isinstance(status, _Invalid):
            shown = status.problems[:_MOST_PROBLEMS]
            more = len(status.problems) - len(shown)
            raise RequestRejected(400, "\n".join([*shown, *([f"{more} more problems"] if more else [])]))
        metadata = {"namespace": question.namespace} if question.namespace else {}
        return {
            "kind": kind,
            "apiVersion": question.api_version,
            "metadata": metadata,
            "spec": body["spec"],
            "status": status,
        }

    return answer


def _read_body(question: Question, kind: str) -> dict[str, Any]:
    """Read the object of a request.

    Raises:
        RequestRejected: the body is no such object.
    """
    try:
        body: object = orjson.loads(question.body)
    except orjson.JSONDecodeError as error:
        raise RequestRejected(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise RequestRejected(400, f"the body must be an object of kind {kind}")
    stated = cast("dict[str, Any]", body)
    for name, expected in (("apiVersion", question.api_version), ("kind", kind)):
        if stated.get(name, expected) != expected:
            raise RequestRejected(400, f"{name}: must be {expected}")
    return stated


def _read_changes(body: Mapping[str, Any]) -> _Changes:
    """Read the changes of a request.

    Raises:
        RequestRejected: the specification is malformed, or has no changes.
    """
    spec: object = body.get("spec")
    if not isinstance(spec, Mapping):
        raise RequestRejected(400, "spec: must be an object with objects or deletions")
    lists: list[list[Any]] = []
    fields = cast("Mapping[str, Any]", spec)
    for name in fields:
        if name not in _FIELDS:
            raise RequestRejected(400, f"spec.{name[:100]}: unknown field: write {' or '.join(_FIELDS)}")
    for name in _FIELDS:
        value: object = fields.get(name)
        if value is not None and not isinstance(value, list):
            raise RequestRejected(400, f"spec.{name}: must be a list of objects")
        lists.append(cast("list[Any]", value or []))
    if not any(lists):
        raise RequestRejected(400, "spec: must have objects or deletions")
    return _Changes(*lists)


# --- schemas ----------------------------------------------------------------------------------------------

_OBJECT: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _entries(description: str) -> dict[str, Any]:
    return list_of(description, _OBJECT)


_STATUS: Final = object_of(
    "What the changes lead to. Hidden workloads are null, and positions begin with 0.",
    admitted=_entries("Workloads that get quota only with the changes."),
    preempted=_entries("Workloads that are preempted only with the changes."),
    drained=_entries("Workloads that are evicted because their queue is stopped."),
    notAdmitted=_entries("Workloads that get no quota with the changes."),
    reassigned=_entries("Workloads that get other quota with the changes."),
    positions=_entries("Changed positions of pending workloads."),
    starts=list_of(
        "Changed starts of some pending workloads.",
        object_of(
            "The expected starts without and with the changes, and the difference in seconds.",
            workload=object_of("Namespace and name."),
            before=object_of("The start without the changes.", **START),
            after=object_of("The start with the changes.", **START),
            seconds={"type": "integer", "description": "The delay of the median; null if not known."},
        ),
    ),
    usage=_entries("Changed usage of ClusterQueues and cohorts."),
    shares=_entries("Changed shares of ClusterQueues and cohorts."),
    more=object_of("The number of entries that are left out, by the name of the list."),
    newWorkloads=_entries("The Workloads of new jobs."),
    ignored=list_of("Objects on which no decision depends.", {"type": "string"}),
    text=TEXT,
)

_SCHEMAS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    resource: {
        KINDS[resource]: object_of(
            f"Hypothetical changes of {where}, and what they lead to. Nothing is stored.",
            **HEAD,
            metadata=object_of("It may be empty."),
            spec=object_of(
                "The changes.",
                objects=_entries("Whole manifests of objects to create or to replace."),
                deletions=list_of(
                    "Objects to delete.",
                    object_of(
                        "The identity of an object.",
                        apiVersion={"type": "string", "description": "Group and version."},
                        kind={"type": "string", "description": "The kind."},
                        namespace={"type": "string", "description": "The namespace."},
                        name={"type": "string", "description": "The name."},
                    ),
                ),
            ),
            status=_STATUS,
        )
    }
    for resource, where in ((WHAT_IF, "a cluster"), (LOCAL_WHAT_IF, "a namespace"))
}
