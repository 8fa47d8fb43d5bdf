"""Serves the visibility API to callers that the API server authorizes.

A caller is the user that a front proxy names, or the user of a bearer token. Each request needs a permission:
for a subresource, the verb on this subresource of the named object; for a document, the verb on its path.
Permission is checked before anything is looked up, so that errors show nothing to other callers.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from admitq.serving.access_reviews import Access, AccessReviews, PathAccess
from admitq.serving.authorization import AuthorizationDecision, ReviewFailed, TokenAuthenticator, User
from admitq.serving.front_proxy import FrontProxyUsers
from admitq.serving.health import Check
from admitq.serving.http import HttpRequest, HttpResponse, text
from admitq.translate.viewers import EVERYTHING, Viewer
from admitq.visibility.answers import RequestRejected, json_response
from admitq.visibility.documents import create_documents
from admitq.visibility.negotiation import wants_table
from admitq.visibility.routes import (
    SUCCESSES,
    VERBS,
    Question,
    ResourcePath,
    Subresource,
    list_versions,
    parse_path,
)
from admitq.visibility.tables import make_table
from admitq_api.labels import Names

LIVENESS_PATHS: Final = frozenset({"/livez", "/healthz"})
READINESS_PATH: Final = "/readyz"

UNSENT_BYTES: Final = 128 * 2**20
"""The largest size of all answers that are not sent yet. Further requests must wait, which limits memory."""

_PROBLEMS: Final[Mapping[AuthorizationDecision, tuple[int, str]]] = {
    AuthorizationDecision.UNAUTHENTICATED: (401, "Unauthorized: a valid bearer token is needed"),
    AuthorizationDecision.TOO_MANY: (429, "too many unknown tokens, try again later"),
    AuthorizationDecision.UNAVAILABLE: (503, "the API server did not answer a TokenReview, try again"),
}


@dataclass
class VisibilityHandler:
    """Answers the requests of the visibility API.

    Args:
        names: the names of the API group.
        routes: the subresources.
        front_proxy: the users of forwarded requests.
        tokens: the users of bearer tokens.
        access: the permissions of users.
        checks: the readiness checks of the process.
        is_synced: whether the queues are complete; until then, questions get 503.
    """

    names: Names
    routes: Sequence[Subresource]
    front_proxy: FrontProxyUsers
    tokens: TokenAuthenticator
    access: AccessReviews
    checks: Mapping[str, Check]
    is_synced: Callable[[], bool]
    _unsent: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._group = self.names.visibility_group
        self._versions = list_versions(self.names)
        self._documents = create_documents(self.names, self.routes)
        self._by_path = {(route.resource, route.name): route for route in self.routes}

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer a request. Errors are ``Status`` objects."""
        try:
            return await (self._probe(request.path) or self._answer(request))
        except RequestRejected as rejected:
            return rejected.response
        except ReviewFailed as error:
            problem = f"the API server did not answer a review, try again: {error}"
            return RequestRejected(503, problem).response

    def _probe(self, path: str) -> Awaitable[HttpResponse] | None:
        """Answer a probe, which needs no permission; None for all other paths."""
        if path in LIVENESS_PATHS:
            return _answer_alive()
        return self._answer_ready() if path == READINESS_PATH else None

    async def _answer_ready(self) -> HttpResponse:
        results = [(name, await check()) for name, check in self.checks.items()]
        problems = [f"{name}: {problem}" for name, problem in results if problem is not None]
        return text(503, "\n".join(problems)) if problems else text(200, "ok")

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        user = await self._authenticate(request)
        where = parse_path(request.path, self._group)
        if where is None:
            return await self._send_document(request, user)
        verb = VERBS.get(request.method, request.method.lower())
        access = where.access(self._group, verb)
        await self._authorize(user, access)
        return await self._ask(request, where, lambda: self._find_viewer(user, access))

    async def _authenticate(self, request: HttpRequest) -> User:
        forwarded = self.front_proxy.find_user(request)
        if forwarded is not None:
            return forwarded
        header = request.headers.get("authorization", "")
        user = await self.tokens.authenticate(header, peer=request.peer)
        if isinstance(user, AuthorizationDecision):
            raise RequestRejected(*_PROBLEMS[user])
        return user

    async def _authorize(self, user: User, access: Access | PathAccess) -> None:
        if await self.access.may(user, access):
            return
        who = f'User "{user.name}" cannot {access.verb}'
        if isinstance(access, PathAccess):
            raise RequestRejected(403, f'forbidden: {who} path "{access.path[:200]}"')
        scope = f'in the namespace "{access.namespace}"' if access.namespace else "at the cluster scope"
        resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
        raise RequestRejected(
            403,
            f'{access.resource}.{access.group} "{access.name}" is forbidden: {who} resource "{resource}" '
            f'in API group "{access.group}" {scope}',
            {"name": access.name, "group": access.group, "kind": access.resource},
        )

    async def _find_viewer(self, user: User, access: Access) -> Viewer:
        """Return what a caller may see: all namespaces with the same permission in all of them."""
        if await self.access.may(user, replace(access, namespace="", name="")):
            return EVERYTHING
        return Viewer(frozenset({access.namespace}))

    async def _send_document(self, request: HttpRequest, user: User) -> HttpResponse:
        path = request.path.rstrip("/") or "/"
        await self._authorize(user, PathAccess(request.method.lower(), path))
        document = self._documents.get(path)
        if document is None:
            raise RequestRejected(404, "the server could not find the requested resource")
        _require_method(request, "GET")
        return json_response(document)

    async def _ask(
        self, request: HttpRequest, where: ResourcePath, find_viewer: Callable[[], Awaitable[Viewer]]
    ) -> HttpResponse:
        route = self._by_path.get((where.resource, where.subresource))
        if (
            route is None
            or where.version not in self._versions
            or bool(where.namespace) != route.is_namespaced
            or bool(where.name) != bool(route.name)
        ):
            raise RequestRejected(404, "the server could not find the requested resource")
        _require_method(request, route.method)
        as_table = self._negotiate(request, route)
        if not self.is_synced():
            raise RequestRejected(503, "the queues are not complete yet, try again")
        if self._unsent > UNSENT_BYTES:
            raise RequestRejected(429, "too many large answers at the same time, try again later")
        question = Question(
            f"{self._group}/{where.version}",
            where.namespace,
            where.name,
            request.query,
            request.body,
            await find_viewer() if route.names_others else EVERYTHING,
        )
        answer: dict[str, Any] = await route.answer(question)
        if as_table and route.table is not None:
            answer = make_table(answer, route.table, request.query.get("includeObject", ""))
        return self._hold(json_response(answer, SUCCESSES[route.method]))

    def _negotiate(self, request: HttpRequest, route: Subresource) -> bool:
        """Return whether to answer with a table.

        Raises:
            RequestRejected: the client accepts no representation that the subresource has.
        """
        as_table = wants_table(",".join(request.header_values("accept")))
        if as_table is None or (as_table and route.table is None):
            raise RequestRejected(406, "only application/json is served, as the object or as=Table")
        return as_table

    def _hold(self, response: HttpResponse) -> HttpResponse:
        """Count the size of an answer until it is sent."""
        size = len(response.body)
        self._unsent += size

        def release() -> None:
            self._unsent -= size

        return replace(response, on_sent=release)


async def _answer_alive() -> HttpResponse:
    return text(200, "ok")


def _require_method(request: HttpRequest, method: str) -> None:
    """Check the method of a request; HEAD is allowed wherever GET is.

    Raises:
        RequestRejected: the path is not served for this method.
    """
    if request.method != method and (request.method, method) != ("HEAD", "GET"):
        raise RequestRejected(405, f"the server does not allow {request.method[:20]} on this resource")
