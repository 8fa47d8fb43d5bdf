"""The API server authorizes callers of an endpoint. Answers are cached, and reviews are rate limited."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from admitq.serving.authorization import (
    GRANTED_SECONDS,
    LONGEST_TOKEN,
    REFUSED_SECONDS,
    REMEMBERED,
    REVIEWS_OF_ALL,
    REVIEWS_OF_PEER,
    AuthorizationDecision,
    Authorizer,
    ReviewFailed,
    require_authorization,
)
from admitq.serving.http import HttpRequest, HttpResponse

USER: dict[str, Any] = {
    "username": "system:serviceaccount:monitoring:prometheus",
    "uid": "u",
    "groups": ["g"],
    "extra": {"k": ["v"]},
}


@dataclass
class FakeReviewApi:
    """Answers reviews of some tokens and of the permissions of their users."""

    users: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"good": USER, "poor": {"username": "poor"}}
    )
    permitted: set[str] = field(default_factory=lambda: {USER["username"]})
    audiences: list[str] = field(default_factory=list)
    is_down: bool = False
    requests: list[Mapping[str, Any]] = field(default_factory=list)

    async def create_token_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        await self._record(review)
        user = self.users.get(review["spec"]["token"])
        if user is None:
            return {"status": {"authenticated": False, "error": "unknown token"}}
        return {"status": {"authenticated": True, "user": user, "audiences": self.audiences}}

    async def create_subject_access_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        await self._record(review)
        return {"status": {"allowed": review["spec"]["user"] in self.permitted}}

    async def _record(self, review: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        if self.is_down:
            raise ReviewFailed("down")
        self.requests.append(review)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def decide(authorizer: Authorizer, token: str, **options: Any) -> AuthorizationDecision:
    return await authorizer.decide(f"Bearer {token}", path="/metrics", **options)


async def test_authorized_caller_is_allowed_after_two_reviews() -> None:
    api = FakeReviewApi()
    assert await decide(Authorizer(api), "good") is AuthorizationDecision.ALLOWED
    token_review, access_review = api.requests
    assert token_review["spec"] == {"token": "good"}
    assert access_review["spec"] == {
        "user": USER["username"],
        "uid": "u",
        "groups": ["g"],
        "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "bearer", "Basic Z29vZA==", "good", "Bearer " + "x" * (LONGEST_TOKEN + 1)],
)
async def test_request_without_valid_header_is_unauthenticated_without_review(header: str) -> None:
    api = FakeReviewApi()
    assert await Authorizer(api).decide(header, path="/metrics") is AuthorizationDecision.UNAUTHENTICATED
    assert api.requests == []


@pytest.mark.parametrize(
    ("token", "decision"),
    [("bad", AuthorizationDecision.UNAUTHENTICATED), ("poor", AuthorizationDecision.FORBIDDEN)],
    ids=["unknown", "without permission"],
)
async def test_token_without_access_is_refused(token: str, decision: AuthorizationDecision) -> None:
    assert await decide(Authorizer(FakeReviewApi()), token) is decision


async def test_token_for_another_audience_is_unauthenticated() -> None:
    api = FakeReviewApi(audiences=["other"])
    assert (
        await decide(Authorizer(api, audiences=("metrics",)), "good") is AuthorizationDecision.UNAUTHENTICATED
    )
    api = FakeReviewApi(audiences=["metrics"])
    assert await decide(Authorizer(api, audiences=("metrics",)), "good") is AuthorizationDecision.ALLOWED
    assert api.requests[0]["spec"]["audiences"] == ["metrics"]


async def test_answers_are_cached_until_they_expire() -> None:
    api, clock = FakeReviewApi(), Clock()
    authorizer = Authorizer(api, clock=clock)
    for token, seconds, requests in (("good", GRANTED_SECONDS, 2), ("bad", REFUSED_SECONDS, 1)):
        api.requests.clear()
        first = await decide(authorizer, token)
        clock.now += seconds - 0.1
        assert await decide(authorizer, token) is first
        assert len(api.requests) == requests
        clock.now += 0.2
        assert await decide(authorizer, token) is first
        assert len(api.requests) == 2 * requests


async def test_refused_permission_is_reviewed_again_after_it_expires() -> None:
    api, clock = FakeReviewApi(), Clock()
    authorizer = Authorizer(api, clock=clock)
    assert await decide(authorizer, "poor") is AuthorizationDecision.FORBIDDEN
    api.permitted.add("poor")
    assert await decide(authorizer, "poor") is AuthorizationDecision.FORBIDDEN
    clock.now += REFUSED_SECONDS + 0.1
    assert await decide(authorizer, "poor") is AuthorizationDecision.ALLOWED


async def test_each_path_is_reviewed_separately() -> None:
    api = FakeReviewApi()
    authorizer = Authorizer(api)
    await decide(authorizer, "good")
    await authorizer.decide("Bearer good", path="/debug")
    paths = [
        review["spec"]["nonResourceAttributes"]["path"] for review in api.requests if "user" in review["spec"]
    ]
    assert paths == ["/metrics", "/debug"]


async def test_concurrent_calls_share_one_review() -> None:
    api = FakeReviewApi()
    authorizer = Authorizer(api)
    decisions = await asyncio.gather(*(decide(authorizer, "good") for _ in range(50)))
    assert set(decisions) == {AuthorizationDecision.ALLOWED}
    assert len(api.requests) == 2


async def test_reviews_of_one_peer_are_rate_limited_without_blocking_other_peers() -> None:
    api, clock = FakeReviewApi(), Clock()
    authorizer = Authorizer(api, clock=clock)
    decisions = [await decide(authorizer, f"bad-{n}", peer="192.0.2.1") for n in range(100)]
    burst = REVIEWS_OF_PEER[1]
    assert decisions == [AuthorizationDecision.UNAUTHENTICATED] * burst + [AuthorizationDecision.TOO_MANY] * (
        100 - burst
    )
    assert len(api.requests) == burst
    assert await decide(authorizer, "good", peer="192.0.2.2") is AuthorizationDecision.ALLOWED
    clock.now += 1
    assert await decide(authorizer, "bad-1000", peer="192.0.2.1") is AuthorizationDecision.UNAUTHENTICATED


async def test_reviews_of_all_peers_together_are_rate_limited() -> None:
    api = FakeReviewApi()
    authorizer = Authorizer(api, clock=Clock())
    for peer in range(500):
        await decide(authorizer, f"bad-{peer}", peer=str(peer))
    assert len(api.requests) == REVIEWS_OF_ALL[1]


async def test_cache_is_bounded_and_contains_no_token() -> None:
    api, clock = FakeReviewApi(), Clock()
    authorizer = Authorizer(api, clock=clock)
    for number in range(REMEMBERED + 50):
        clock.now += 0.03
        await decide(authorizer, f"secret-token-{number}", peer=str(number))
    cached = authorizer._tokens._users._entries  # pyright: ignore[reportPrivateUsage]
    assert len(cached) == REMEMBERED
    assert not any(b"secret" in key for key in cached)


async def test_only_cached_callers_are_allowed_while_api_server_is_down() -> None:
    api = FakeReviewApi()
    authorizer = Authorizer(api)
    await decide(authorizer, "good")
    api.is_down = True
    assert await decide(authorizer, "good") is AuthorizationDecision.ALLOWED
    assert await decide(authorizer, "other") is AuthorizationDecision.UNAVAILABLE


@pytest.mark.parametrize(("token", "status"), [("good", 200), ("poor", 403), ("bad", 401), ("", 401)])
async def test_protected_handler_serves_only_authorized_callers(token: str, status: int) -> None:
    served_requests: list[HttpRequest] = []

    async def serve_secret(request: HttpRequest) -> HttpResponse:
        served_requests.append(request)
        return HttpResponse(200, b"secret")

    handler = require_authorization(serve_secret, Authorizer(FakeReviewApi()))
    response = await handler(HttpRequest("GET", "/metrics", headers={"authorization": f"Bearer {token}"}))
    assert response.status == status
    assert bool(served_requests) is (status == 200)
    assert (b"secret" in response.body) is (status == 200)
    assert (response.headers.get("WWW-Authenticate") == "Bearer") is (status == 401)
