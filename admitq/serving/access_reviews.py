"""Permissions of users on resources, checked by SubjectAccessReviews of the API server.

Answers are cached, grants longer than refusals. Equal reviews at the same time are one call. Without an
answer in time, a review fails, and the caller must reject the request.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from admitq.serving.authorization import ReviewFailed, Reviews, User
from admitq.serving.expiring_cache import ExpiringAnswers

GRANTED_SECONDS: Final = 60.0
"""How long a granted permission is cached. A revoked permission remains effective for up to this time."""
REFUSED_SECONDS: Final = 5.0
REMEMBERED: Final = 4096
DEADLINE_SECONDS: Final = 2.0
"""The longest time for an answer: less than the timeout of a webhook."""
CALLS_AT_ONCE: Final = 32
"""The most concurrent calls to the API server. Further reviews fail at once."""


@dataclass(frozen=True, slots=True)
class Access:
    """An access, in the terms of RBAC.

    Attributes:
        verb: ``update`` and so on.
        group: of the resource; empty for the core group.
        resource: its plural.
        subresource: ``status`` and so on; empty for the object itself.
        namespace: where; empty for cluster-scoped resources and for all namespaces.
        name: of the object; empty for any.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}/{self.subresource}" if self.subresource else f"{self.verb} {resource}"


@dataclass(frozen=True, slots=True)
class PathAccess:
    """An access to a path that is no resource, such as a discovery document."""

    verb: str
    path: str

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


class AccessReviews:
    """Checks and caches the permissions of users.

    Args:
        reviews: creates reviews at the API server.
        clock: monotonic, in seconds.
        deadline: the longest time for one answer, in seconds.
    """

    def __init__(
        self,
        reviews: Reviews,
        *,
        clock: Callable[[], float] = time.monotonic,
        deadline: float = DEADLINE_SECONDS,
    ) -> None:
        self._reviews = reviews
        self._deadline = deadline
        self._answers: ExpiringAnswers[bool] = ExpiringAnswers(clock, REMEMBERED)
        self._calls: dict[bytes, asyncio.Task[bool]] = {}

    async def may(self, user: User, access: Access | PathAccess) -> bool:
        """Return whether the user has this access.

        Raises:
            ReviewFailed: there was no answer in time, or there are too many concurrent reviews.
        """
        key = _key(user, access)
        known, permitted = self._answers.recall(key)
        if known:
            return permitted is True
        call = self._calls.get(key)
        if call is None:
            if len(self._calls) >= CALLS_AT_ONCE:
                raise ReviewFailed("too many SubjectAccessReviews at the same time")
            call = asyncio.create_task(self._ask(key, user, access), name=f"may {access}")
            self._calls[key] = call
            call.add_done_callback(lambda done: self._close(key, done))
        # If one caller is cancelled, the call must continue for the others.
        return await asyncio.shield(call)

    def _close(self, key: bytes, call: asyncio.Task[bool]) -> None:
        self._calls.pop(key, None)
        if not call.cancelled():
            call.exception()

    async def _ask(self, key: bytes, user: User, access: Access | PathAccess) -> bool:
        try:
            async with asyncio.timeout(self._deadline):
                answer = await self._reviews.create_subject_access_review(_review(user, access))
        except TimeoutError as error:
            raise ReviewFailed("SubjectAccessReview: no answer in time") from error
        status = answer.get("status")
        stated = cast("Mapping[str, Any]", status) if isinstance(status, Mapping) else {}
        permitted = stated.get("allowed") is True and stated.get("denied") is not True
        self._answers.remember(key, permitted, GRANTED_SECONDS if permitted else REFUSED_SECONDS)
        return permitted


def _attributes(access: Access | PathAccess) -> dict[str, Any]:
    """Return the part of a review that describes the access."""
    if isinstance(access, PathAccess):
        return {"nonResourceAttributes": asdict(access)}
    fields = {field: value for field, value in asdict(access).items() if value or field == "group"}
    return {"resourceAttributes": fields}


def _review(user: User, access: Access | PathAccess) -> Mapping[str, Any]:
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            **_attributes(access),
        },
    }


def _key(user: User, access: Access | PathAccess) -> bytes:
    """Return a short key, even for long names and many groups. JSON separates the fields."""
    identity = (user.name, user.uid, user.groups, user.extra, _attributes(access))
    return hashlib.sha256(json.dumps(identity).encode("utf-8", "surrogatepass")).digest()
