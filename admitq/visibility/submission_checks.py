"""Would it run? Resources that users create like a review: manifests in, what becomes of them out.

``check`` takes any objects, ``localcheck`` those of one namespace. Only the API server can check further
rules, such as those of other webhooks.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from admitq.asking.answers import NodeName, find_visible_nodes
from admitq.asking.submissions import SubmissionAnswer, submission_answers
from admitq.core.model import ObjectKey
from admitq.core.state import AdmissionState
from admitq.manifests.documents import InputError
from admitq.translate.viewers import Viewer
from admitq.visibility.background_questions import Asked, BackgroundQuestions
from admitq.visibility.hypothetical_cluster import HypotheticalCluster
from admitq.visibility.reviews import InvalidObjects, Lists, Review, create_resources
from admitq.visibility.routes import KINDS, Question, Subresource
from admitq.visibility.workload_questions import HEAD, TEXT, list_of, object_of
from admitq_api.json_objects import text_at

if TYPE_CHECKING:
    # They load slowly, and are loaded before questions are answered (``HypotheticalCluster.load``).
    from admitq.asking.hypotheses import Hypotheses
    from admitq.asking.object_checks import ObjectCheck

CHECK: Final = "check"
LOCAL_CHECK: Final = "localcheck"


def list_submission_checks(
    questions: BackgroundQuestions, cluster: HypotheticalCluster
) -> tuple[Subresource, ...]:
    """Return the resources by which users ask what becomes of objects."""
    summaries = {
        CHECK: "Return what would become of objects.",
        LOCAL_CHECK: "Return what would become of objects of a namespace.",
    }
    return create_resources(Review(summaries, ("objects",), _SCHEMAS, _check), questions, cluster)


def _check(
    cluster: HypotheticalCluster, lists: Lists, question: Question, asked: Asked
) -> dict[str, Any] | InvalidObjects:
    """Return what becomes of objects."""
    from admitq.asking.hypothesis_inputs import list_documents, name_documents  # noqa: PLC0415 loads slowly
    from admitq.asking.object_checks import (  # noqa: PLC0415 loads slowly
        NOT_CHECKED,
        CheckedCluster,
        ObjectCheck,
        ObjectChecks,
        check_objects,
    )

    viewer = question.viewer

    def answer(hypotheses: "Hypotheses") -> dict[ObjectKey, SubmissionAnswer]:
        _require_visible_queues(checks.accepted, asked.state, viewer)
        for workload in hypotheses.workloads.values():
            cluster.run_times.observe_workload(workload)
        return submission_answers(
            asked.state,
            hypotheses.events,
            [*hypotheses.workloads],
            now=asked.now,
            branch_from=asked.branch_from,
            estimate_of=cluster.estimates(asked.state, asked.now),
            viewer=viewer,
            seconds=asked.seconds,
        )

    try:
        documents = name_documents(list_documents(lists["objects"], "spec.objects"))
        checks = ObjectChecks([ObjectCheck(document) for document in documents], NOT_CHECKED)
        checked = CheckedCluster(
            cluster.names,
            asked.now,
            cluster.stored,
            cluster.options(question.namespace),
            cluster.manages_jobs_without_queue,
        )
        check_objects(checks, checked, answer)
    except InputError as error:
        return InvalidObjects(tuple(map(str, error.problems)))
    return checks.to_json()


def _require_visible_queues(checks: Iterable["ObjectCheck"], state: AdmissionState, viewer: Viewer) -> None:
    """Check that hypothetical LocalQueues name ClusterQueues that the viewer may see.

    Answers show the flavors, the quota and the use of a ClusterQueue. A user of a namespace learns these of
    the ClusterQueues of its stored LocalQueues only.

    Raises:
        InputError: a LocalQueue names another ClusterQueue.
    """
    nodes = find_visible_nodes(state, viewer)
    if nodes is None:
        return
    path = ("spec", "clusterQueue")
    for check in checks:
        queue = text_at(check.document.value, path)
        if check.kind == "LocalQueue" and NodeName(is_cohort=False, name=queue) not in nodes:
            raise check.document.error(
                path,
                f"you may not ask about ClusterQueue {queue}, because no stored LocalQueue of the namespace "
                "names it: create the LocalQueue first",
            )


# --- schemas ----------------------------------------------------------------------------------------------

_STRING: Final = {"type": "string"}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_ANSWER: Final = object_of(
    "An object, and what becomes of it.",
    apiVersion=_text("Group and version of the object."),
    kind=_text("The kind of the object."),
    namespace=_text("The namespace of the object; empty if it states none."),
    name=_text("The name of the object."),
    verdict=_text(
        "Admitted, Waits or Never for an object with a Workload; else Accepted, NotQueued or Refused."
    ),
    problems=list_of("Why the object is refused.", _STRING),
    workload=object_of("Namespace and name of the Workload."),
    localQueue=_text("The LocalQueue."),
    clusterQueue={"type": "string", "description": "The ClusterQueue; null if it is not known."},
    podSets=list_of("The flavors that each podset gets.", object_of("A podset.")),
    admissionChecks=list_of("The admission checks that must succeed before the start.", _STRING),
    preempted=list_of("The Workloads that are preempted. Hidden ones are null.", object_of("A Workload.")),
    forecast=object_of("When the Workload starts, as in a WorkloadEta; null if it does not wait."),
    explanation=object_of("Why the Workload waits, as in a WorkloadExplanation; null if it does not wait."),
    text=TEXT,
)

_SCHEMAS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    resource: {
        KINDS[resource]: object_of(
            f"Objects of {where}, and what would become of them. Nothing is stored.",
            **HEAD,
            metadata=object_of("It may be empty."),
            spec=object_of(
                "The objects.",
                objects=list_of(
                    "Whole manifests.", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                ),
            ),
            status=object_of(
                "What would become of the objects.",
                objects=list_of("An answer for each object, in their order.", _ANSWER),
                notChecked=list_of("What only the API server can check.", _STRING),
                text=TEXT,
            ),
        )
    }
    for resource, where in ((CHECK, "a cluster"), (LOCAL_CHECK, "a namespace"))
}
