"""Questions that the plugin asks the visibility API with objects in the body, like a review."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from admitq.manifests.documents import Document
from admitq.plugin.answering import ask_server
from admitq.plugin.cluster_access import ClusterAccess
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq_api.json_objects import JsonObject, object_at

_FORBIDDEN: Final = 403
_INVALID: Final = frozenset({400, 422})
_PLACE: Final = re.compile(r"spec\.objects\[(\d+)\]")
"""The place of an object in errors of the visibility API."""


class ReviewResource(NamedTuple):
    """A resource of the visibility API that users create to ask a question."""

    kind: str
    plural: str


class InvalidReview(Exception):
    """The visibility API cannot answer for the objects of a question."""


async def create_review(
    access: ClusterAccess,
    of_cluster: ReviewResource,
    of_namespace: ReviewResource,
    spec: Mapping[str, Any],
    documents: Sequence[Document],
) -> JsonObject | None:
    """Return the status of an answer; None if the cluster does not serve the question.

    The question is about the whole cluster. If the user may not ask that, it is about the namespace alone.

    Args:
        access: the cluster.
        of_cluster: the resource for the whole cluster.
        of_namespace: the resource for one namespace.
        spec: the question.
        documents: the first of its objects, for errors.

    Raises:
        InvalidReview: the visibility API cannot answer for these objects.
        ApiError: the call failed.
    """
    try:
        try:
            answer = await _post(access, of_cluster, "", spec)
        except ApiError as error:
            if not error.is_forbidden:
                raise
            answer = await _post(access, of_namespace, access.namespace, spec)
    except ApiError as error:
        if error.status in _INVALID:
            raise InvalidReview(with_places(error.message, documents)) from error
        raise
    return None if answer is None else object_at(answer, ("status",))


async def _post(
    access: ClusterAccess, review: ReviewResource, namespace: str, spec: Mapping[str, Any]
) -> dict[str, Any] | None:
    names = access.names
    resource = Resource(
        names.visibility_group, names.version, review.plural, review.kind, namespaced=bool(namespace)
    )
    metadata = {"namespace": namespace} if namespace else {}
    body = {"apiVersion": resource.api_version, "kind": review.kind, "metadata": metadata, "spec": spec}
    raised = () if namespace else (_FORBIDDEN,)
    return await ask_server(access, "POST", resource.path(namespace or None), body=body, raised=raised)


def with_places(message: str, documents: Sequence[Document]) -> str:
    """Return a text of the server with files and lines in place of numbers of objects."""

    def place(match: re.Match[str]) -> str:
        index = int(match[1])
        return str(documents[index].place()) if index < len(documents) else "options"

    return _PLACE.sub(place, message)
