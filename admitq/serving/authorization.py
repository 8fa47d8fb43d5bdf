"""Authentication and authorization of callers by TokenReviews and SubjectAccessReviews.

Answers are cached, negative ones for a shorter time, so that most scrapes cause no call. Reviews of unknown
tokens are limited in rate, so that callers cannot cause a flood of calls to the API server.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, cast

from admitq.serving.expiring_cache import ExpiringAnswers
from admitq.serving.http import Handler, HttpRequest, HttpResponse, text

GRANTED_SECONDS: Final = 60.0
REFUSED_SECONDS: Final = 5.0
REMEMBERED: Final = 1024
REVIEWS_OF_PEER: Final = (10.0, 20)
"""The reviews that one peer may cause: per second, and in a burst."""
REVIEWS_OF_ALL: Final = (50.0, 100)
"""The reviews that all peers together may cause."""
LONGEST_TOKEN: Final = 16 * 1024


class ReviewFailed(Exception):
    """The API server did not answer a review."""


class Reviews(Protocol):
    """Creates reviews; the answers are the reviews with their status."""

    async def create_token_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        """Authenticate a token.

        Raises:
            ReviewFailed: there was no answer.
        """
        ...

    async def create_subject_access_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        """Check a permission of a user.

        Raises:
            ReviewFailed: there was no answer.
        """
        ...


class AuthorizationDecision(Enum):
    """The decision about a request; the value is the HTTP status."""

    ALLOWED = 200
    UNAUTHENTICATED = 401
    FORBIDDEN = 403
    TOO_MANY = 429
    UNAVAILABLE = 503


_EXPLANATIONS: Final[Mapping[AuthorizationDecision, str]] = {
    AuthorizationDecision.UNAUTHENTICATED: "a valid bearer token is needed",
    AuthorizationDecision.FORBIDDEN: "the caller has no permission: grant get on this nonResourceURL",
    AuthorizationDecision.TOO_MANY: "too many unknown tokens, try again later",
    AuthorizationDecision.UNAVAILABLE: "the API server did not answer, try again",
}


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]


class TokenAuthenticator:
    """Returns the users of bearer tokens, by TokenReviews.

    Args:
        reviews: creates reviews at the API server.
        audiences: the audiences that tokens must have; empty for that of the API server.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        reviews: Reviews,
        *,
        audiences: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviews = reviews
        self._audiences = audiences
        self._users: ExpiringAnswers[User | None] = ExpiringAnswers(clock, REMEMBERED)
        self._clock = clock
        self._of_all = _Bucket(*REVIEWS_OF_ALL, clock)
        self._of_peer: OrderedDict[str, _Bucket] = OrderedDict()
        self._asking: dict[bytes, asyncio.Lock] = {}

    async def authenticate(self, authorization: str, *, peer: str = "") -> User | AuthorizationDecision:
        """Return the user of a bearer token, or the decision if there is none.

        Args:
            authorization: the header of that name; empty without one.
            peer: the address of the caller.
        """
        digest, token = read_bearer_token(authorization)
        if not token:
            return AuthorizationDecision.UNAUTHENTICATED
        async with self.one_at_a_time(digest):
            try:
                return await self.find_user(digest, token, peer)
            except ReviewFailed:
                return AuthorizationDecision.UNAVAILABLE
            finally:
                self.end(digest)

    def one_at_a_time(self, digest: bytes) -> asyncio.Lock:
        """Return the lock of a token: equal calls at the same time cause one review. Call ``end`` with it."""
        return self._asking.setdefault(digest, asyncio.Lock())

    def end(self, digest: bytes) -> None:
        """Forget the lock of a token."""
        self._asking.pop(digest, None)

    async def find_user(self, digest: bytes, token: str, peer: str) -> User | AuthorizationDecision:
        """Return the user of a token, or the decision if there is none.

        Raises:
            ReviewFailed: the API server did not answer.
        """
        known, user = self._users.recall(digest)
        if not known:
            if not self.may_review(peer):
                return AuthorizationDecision.TOO_MANY
            user = await self._review(token)
            self._users.remember(digest, user, GRANTED_SECONDS if user else REFUSED_SECONDS)
        return AuthorizationDecision.UNAUTHENTICATED if user is None else user

    def may_review(self, peer: str) -> bool:
        """Count a review that a peer causes; return whether its rate is below the limits."""
        bucket = self._of_peer.pop(peer, None) or _Bucket(*REVIEWS_OF_PEER, self._clock)
        self._of_peer[peer] = bucket
        if len(self._of_peer) > REMEMBERED:
            self._of_peer.popitem(last=False)
        return bucket.take() and self._of_all.take()

    async def _review(self, token: str) -> User | None:
        spec: dict[str, Any] = {"token": token}
        if self._audiences:
            spec["audiences"] = list(self._audiences)
        answer = await self._reviews.create_token_review(
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        )
        status = cast("Mapping[str, Any]", answer.get("status") or {})
        if status.get("authenticated") is not True:
            return None
        if self._audiences and not set(self._audiences) & set(status.get("audiences") or ()):
            return None
        user = cast("Mapping[str, Any]", status.get("user") or {})
        extra = cast("Mapping[str, list[str]]", user.get("extra") or {})
        return User(
            str(user.get("username") or ""),
            str(user.get("uid") or ""),
            tuple(user.get("groups") or ()),
            tuple((key, tuple(values)) for key, values in extra.items()),
        )


def read_bearer_token(authorization: str) -> tuple[bytes, str]:
    """Return the digest and the token of an Authorization header; the token is empty without a valid one.

    Only digests of tokens are cached, so that memory holds no credentials.
    """
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or len(token) > LONGEST_TOKEN:
        token = ""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest(), token


class Authorizer:
    """Decides calls by TokenReview and SubjectAccessReview.

    Args:
        reviews: creates reviews at the API server.
        audiences: the audiences that tokens must have; empty for that of the API server.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        reviews: Reviews,
        *,
        audiences: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviews = reviews
        self._tokens = TokenAuthenticator(reviews, audiences=audiences, clock=clock)
        self._permissions: ExpiringAnswers[bool] = ExpiringAnswers(clock, REMEMBERED)

    async def decide(
        self, authorization: str, *, path: str, verb: str = "get", peer: str = ""
    ) -> AuthorizationDecision:
        """Decide a call.

        Args:
            authorization: the header of that name; empty without one.
            path: the requested path, as a nonResourceURL.
            verb: the HTTP method in lower case.
            peer: the address of the caller.
        """
        digest, token = read_bearer_token(authorization)
        if not token:
            return AuthorizationDecision.UNAUTHENTICATED
        async with self._tokens.one_at_a_time(digest):
            try:
                user = await self._tokens.find_user(digest, token, peer)
                if isinstance(user, AuthorizationDecision):
                    return user
                return await self._decide(digest, user, path, verb, peer)
            except ReviewFailed:
                return AuthorizationDecision.UNAVAILABLE
            finally:
                self._tokens.end(digest)

    async def _decide(
        self, digest: bytes, user: User, path: str, verb: str, peer: str
    ) -> AuthorizationDecision:
        question = digest + f"{verb} {path}".encode()
        known, permitted = self._permissions.recall(question)
        if not known:
            if not self._tokens.may_review(peer):
                return AuthorizationDecision.TOO_MANY
            permitted = await self._authorize(user, path, verb)
            self._permissions.remember(question, permitted, GRANTED_SECONDS if permitted else REFUSED_SECONDS)
        return AuthorizationDecision.ALLOWED if permitted else AuthorizationDecision.FORBIDDEN

    async def _authorize(self, user: User, path: str, verb: str) -> bool:
        answer = await self._reviews.create_subject_access_review(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": user.name,
                    "uid": user.uid,
                    "groups": list(user.groups),
                    "extra": {key: list(values) for key, values in user.extra},
                    "nonResourceAttributes": {"path": path, "verb": verb},
                },
            }
        )
        status = cast("Mapping[str, Any]", answer.get("status") or {})
        return status.get("allowed") is True and status.get("denied") is not True


def require_authorization(handler: Handler, authorizer: Authorizer) -> Handler:
    """Return a handler that serves only authorized callers."""

    async def handle(request: HttpRequest) -> HttpResponse:
        decision = await authorizer.decide(
            request.headers.get("authorization", ""),
            path=request.path,
            verb=request.method.lower(),
            peer=request.peer,
        )
        if decision is AuthorizationDecision.ALLOWED:
            return await handler(request)
        refusal = text(decision.value, _EXPLANATIONS[decision])
        if decision is AuthorizationDecision.UNAUTHENTICATED:
            return HttpResponse(
                refusal.status, refusal.body, refusal.content_type, {"WWW-Authenticate": "Bearer"}
            )
        return refusal

    return handle


class _Bucket:
    """A token bucket that rejects instead of waiting."""

    def __init__(self, per_second: float, at_once: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._at_once = at_once
        self._clock = clock
        self._tokens = float(at_once)
        self._at = clock()

    def take(self) -> bool:
        """Take a token; return whether there was one."""
        now = self._clock()
        self._tokens = min(self._at_once, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
