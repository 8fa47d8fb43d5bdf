"""Resources that users create like a review: objects in, the answer in the status. Nothing is stored.

A child process answers. It may change everything it uses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import orjson

from admitq.visibility.answers import RequestRejected
from admitq.visibility.background_questions import Asked, BackgroundQuestions
from admitq.visibility.hypothetical_cluster import HypotheticalCluster
from admitq.visibility.routes import KINDS, NAMESPACED, Question, Subresource

_MOST_PROBLEMS: Final = 20
"""The number of problems in one error."""

Lists = Mapping[str, list[Any]]
"""The lists of a request, by their fields in its specification."""


class InvalidObjects(NamedTuple):
    """The problems of objects about which there is no answer."""

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Review:
    """A question that users ask by creating a resource like a review.

    Attributes:
        summaries: what each of its resources returns, for the OpenAPI documents. The resources are in
            `KINDS`. A namespaced one is about the objects of its namespace.
        fields: the fields of its specification, which are lists. One of them must have items.
        schemas: the JSON schemas of each resource.
        ask: returns the status of the answer to the lists of a request, in a child process.
    """

    summaries: Mapping[str, str]
    fields: Sequence[str]
    schemas: Mapping[str, Mapping[str, Mapping[str, Any]]]
    ask: Callable[[HypotheticalCluster, Lists, Question, Asked], dict[str, Any] | InvalidObjects]


def create_resources(
    review: Review, questions: BackgroundQuestions, cluster: HypotheticalCluster
) -> tuple[Subresource, ...]:
    """Return the resources of a review."""
    return tuple(_create_resource(review, name, questions, cluster) for name in review.summaries)


def _create_resource(
    review: Review, resource: str, questions: BackgroundQuestions, cluster: HypotheticalCluster
) -> Subresource:
    kind = KINDS[resource]

    async def answer(question: Question) -> dict[str, Any]:
        body = _read_body(question, kind)
        lists = _read_lists(body, review.fields)
        if not cluster.is_loaded:
            raise RequestRejected(503, f"{resource} is not loaded yet, try again")
        status = await questions.ask(lambda asked: review.ask(cluster, lists, question, asked))
        if isinstance(status, InvalidObjects):
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

    return Subresource(
        resource=resource,
        name="",
        method="POST",
        kind=kind,
        summary=review.summaries[resource],
        answer=answer,
        schemas=review.schemas[resource],
        names_others=resource in NAMESPACED,
    )


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


def _read_lists(body: Mapping[str, Any], names: Sequence[str]) -> Lists:
    """Read the lists of a request.

    Raises:
        RequestRejected: the specification is malformed, or has no items.
    """
    either = " or ".join(names)
    spec: object = body.get("spec")
    if not isinstance(spec, Mapping):
        raise RequestRejected(400, f"spec: must be an object with {either}")
    fields = cast("Mapping[str, Any]", spec)
    for name in fields:
        if name not in names:
            raise RequestRejected(400, f"spec.{name[:100]}: unknown field: write {either}")
    lists: dict[str, list[Any]] = {}
    for name in names:
        value: object = fields.get(name)
        if value is not None and not isinstance(value, list):
            raise RequestRejected(400, f"spec.{name}: must be a list of objects")
        lists[name] = cast("list[Any]", value or [])
    if not any(lists.values()):
        raise RequestRejected(400, f"spec: must have {either}")
    return lists
