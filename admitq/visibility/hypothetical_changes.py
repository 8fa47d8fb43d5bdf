"""What if? Resources that users create like a review: hypothetical changes in, their effects out.

``whatif`` takes any objects, ``localwhatif`` those of one namespace.
"""

from collections.abc import Mapping
from typing import Any, Final

from admitq.asking.answers import what_if_document
from admitq.manifests.documents import InputError
from admitq.visibility.background_questions import Asked, BackgroundQuestions
from admitq.visibility.hypothetical_cluster import HypotheticalCluster
from admitq.visibility.reviews import InvalidObjects, Lists, Review, create_resources
from admitq.visibility.routes import KINDS, Question, Subresource
from admitq.visibility.workload_questions import HEAD, START, TEXT, list_of, object_of

WHAT_IF: Final = "whatif"
LOCAL_WHAT_IF: Final = "localwhatif"


def list_hypothetical_changes(
    questions: BackgroundQuestions, cluster: HypotheticalCluster
) -> tuple[Subresource, ...]:
    """Return the resources by which users ask about hypothetical changes."""
    summaries = {
        WHAT_IF: "Return what hypothetical objects and deletions change.",
        LOCAL_WHAT_IF: "Return what hypothetical objects and deletions of a namespace change.",
    }
    review = Review(summaries, ("objects", "deletions"), _SCHEMAS, _suppose)
    return create_resources(review, questions, cluster)


def _suppose(
    cluster: HypotheticalCluster, lists: Lists, question: Question, asked: Asked
) -> dict[str, Any] | InvalidObjects:
    """Return what changes do."""
    from admitq.asking.hypotheses import read_hypotheses  # noqa: PLC0415 loads slowly
    from admitq.asking.hypothesis_inputs import list_documents  # noqa: PLC0415 loads slowly

    state, now, branch, _, seconds = asked
    try:
        hypotheses = read_hypotheses(
            list_documents(lists["objects"], "spec.objects"),
            list_documents(lists["deletions"], "spec.deletions"),
            names=cluster.names,
            now=now,
            stored=cluster.stored,
            options=cluster.options(question.namespace),
        )
    except InputError as error:
        return InvalidObjects(tuple(map(str, error.problems)))
    for workload in hypotheses.workloads.values():
        cluster.run_times.observe_workload(workload)
    document = what_if_document(
        state,
        hypotheses.events,
        now=now,
        branch=branch,
        estimate_of=cluster.estimates(state, now),
        viewer=question.viewer,
        seconds=seconds,
    )
    new = [{"namespace": key.namespace, "name": key.name} for key in hypotheses.new_workloads]
    return {**document, "newWorkloads": new, "ignored": list(hypotheses.ignored)}


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
