"""The subresources of Workloads: why one waits, and when it starts."""

from collections.abc import Mapping
from typing import Any, Final

from admitq.asking.answers import explanation_document, forecast_start, start_document
from admitq.core.asking.forecast import Forecast
from admitq.core.model import Instant, ObjectKey
from admitq.visibility.answers import RequestRejected
from admitq.visibility.background_questions import Asked, BackgroundQuestions
from admitq.visibility.routes import Cells, Column, Question, Subresource, TableFormat
from admitq.visibility.tree_forecasts import Estimates, TreeForecasts
from admitq_api.json_objects import JsonObject, value_at

EXPLANATION: Final = "WorkloadExplanation"
ETA: Final = "WorkloadEta"


def list_workload_questions(
    questions: BackgroundQuestions, trees: TreeForecasts, estimates: Estimates, group: str
) -> tuple[Subresource, ...]:
    """Return the subresources of Workloads.

    Args:
        questions: asks the core.
        trees: the forecasts of whole cohort trees.
        estimates: returns the estimates of run times. It is called in child processes.
        group: the group of the visibility API, for errors.
    """

    async def explain(question: Question) -> dict[str, Any]:
        key, viewer = ObjectKey(question.namespace, question.name), question.viewer

        def ask(asked: Asked) -> dict[str, Any] | None:
            state, now, branch, _, seconds = asked
            return explanation_document(state, key, now=now, branch=branch, viewer=viewer, seconds=seconds)

        return _answer(EXPLANATION, question, await questions.ask(ask), group)

    async def expect(question: Question) -> dict[str, Any]:
        key = ObjectKey(question.namespace, question.name)
        kept = trees.find(key)
        if kept is not None:
            forecast, as_of, tree = kept
            document = start_document(key, forecast, now=questions.now(), as_of=as_of, tree=tree)
            return _answer(ETA, question, document, group)

        def ask(asked: Asked) -> tuple[Forecast | None, Instant]:
            state, now, branch, _, seconds = asked
            estimate_of = estimates(state, now)
            found = forecast_start(
                state, key, now=now, branch=branch, estimate_of=estimate_of, seconds=seconds
            )
            return found, now

        found, now = await questions.ask(ask)
        document = None
        if found is not None:
            document = start_document(key, found, now=now, tree=trees.begin(key, found, now))
        return _answer(ETA, question, document, group)

    return (
        Subresource(
            resource="workloads",
            name="explanation",
            method="GET",
            kind=EXPLANATION,
            summary="Return why a Workload waits, and the cheapest changes that would admit it.",
            answer=explain,
            schemas=_EXPLANATION_SCHEMAS,
            table=_EXPLANATION_TABLE,
            names_others=True,
        ),
        Subresource(
            resource="workloads",
            name="eta",
            method="GET",
            kind=ETA,
            summary="Return when a Workload is expected to start.",
            answer=expect,
            schemas=_ETA_SCHEMAS,
            table=_ETA_TABLE,
        ),
    )


def _answer(kind: str, question: Question, document: JsonObject | None, group: str) -> dict[str, Any]:
    if document is None:
        details = {"name": question.name, "group": group, "kind": "workloads"}
        raise RequestRejected(404, f'workloads.{group} "{question.name}" not found', details)
    metadata = {"namespace": question.namespace, "name": question.name}
    return {"kind": kind, "apiVersion": question.api_version, "metadata": metadata, **document}


# --- tables -----------------------------------------------------------------------------------------------


def _explanation_cells(answer: JsonObject) -> Cells:
    first = value_at(answer, ("changes", "alternatives", 0, "message"), "")
    return [
        answer["metadata"]["name"],
        answer["phase"],
        answer["positionInClusterQueue"],
        value_at(answer, ("waitsFor", "message"), ""),
        first,
    ]


_EXPLANATION_TABLE: Final = TableFormat(
    (
        Column("Name", "string", "The name of the Workload.", "name"),
        Column("Phase", "string", "The phase of the Workload."),
        Column("In ClusterQueue", "integer", "The number of workloads of the ClusterQueue before this one."),
        Column("Waits for", "string", "What the Workload waits for."),
        Column("Cheapest change", "string", "The cheapest change that would admit it."),
    ),
    _explanation_cells,
)

_ETA_TABLE: Final = TableFormat(
    (
        Column("Name", "string", "The name of the Workload.", "name"),
        Column("Not before", "string", "No start before this time is expected."),
        Column("P50", "string", "The time at which half of the simulations have started it."),
        Column("P90", "string", "The time at which nine of ten simulations have started it."),
    ),
    lambda answer: [answer["metadata"]["name"], answer["notBefore"], answer["p50"], answer["p90"]],
)

# --- schemas ----------------------------------------------------------------------------------------------

HEAD: Final[Mapping[str, Any]] = {
    "apiVersion": {"type": "string", "description": "The version of this object."},
    "kind": {"type": "string", "description": "The kind of this object."},
}
TEXT: Final[Mapping[str, Any]] = {
    "type": "array",
    "items": {"type": "string"},
    "description": "The answer as lines of text.",
}
_METADATA: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "The namespace and the name of the Workload.",
    "x-kubernetes-preserve-unknown-fields": True,
}


def _of(type: str, description: str) -> dict[str, Any]:  # noqa: A002 the name in the schema
    return {"type": type, "description": description}


def object_of(description: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object. Without properties, it may have any fields."""
    if not properties:
        return {**_of("object", description), "x-kubernetes-preserve-unknown-fields": True}
    return {**_of("object", description), "properties": properties}


def list_of(description: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {**_of("array", description), "items": item}


_NAMED: Final = object_of(
    "Namespace and name; null if the caller may not see them.",
    namespace=_of("string", "The namespace."),
    name=_of("string", "The name."),
)

_EXPLANATION_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    EXPLANATION: object_of(
        "Why a Workload waits, and the cheapest changes that would admit it.",
        **HEAD,
        metadata=_METADATA,
        workload=_NAMED,
        phase=_of("string", "The phase of the Workload."),
        priority=_of("integer", "Its priority."),
        localQueueName=_of("string", "Its LocalQueue."),
        clusterQueueName=_of("string", "Its ClusterQueue; null without one."),
        positionInLocalQueue=_of("integer", "How many Workloads of the LocalQueue come first."),
        positionInClusterQueue=_of("integer", "How many Workloads of the ClusterQueue come first."),
        waitsFor=object_of("What it waits for: reason and message; null if it is admitted."),
        flavors=list_of(
            "For each podset and flavor: whether it fits, what is missing, and what holds it.",
            object_of("The verdict on a flavor."),
        ),
        changes=object_of("The cheapest changes that would admit it."),
        text=TEXT,
    )
}

START: Final[Mapping[str, Any]] = {
    "notBefore": _of("string", "No start before this time is expected."),
    "p50": _of("string", "Half of the simulations have started it by then; null if not known."),
    "p90": _of("string", "Nine of ten simulations have started it by then; null if not known."),
    "basis": object_of("What the times rest on: simulations, known run times, and sources of estimates."),
    "bounds": list_of("The bounds at which simulations ended before the start.", _of("string", "A bound.")),
}
"""The fields of an expected start."""

_ETA_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    ETA: object_of(
        "When a Workload is expected to start.",
        **HEAD,
        metadata=_METADATA,
        workload=_NAMED,
        asOf=_of("string", "The time from which the simulations began."),
        **START,
        treeForecast=object_of(
            "The forecast of all pending Workloads of the cohort tree; null if there is none.",
            phase=_of("string", "Waiting, Running, Complete or Failed."),
            simulations=_of("integer", "How many of its simulations have ended."),
            askAgainSeconds=_of(
                "integer", "After how many seconds to ask again for more; null if there will be no more."
            ),
        ),
        text=TEXT,
    )
}
