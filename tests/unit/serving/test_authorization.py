"""The cluster authorizes readers of an endpoint; answers are cached, and reviews are rate limited."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from admitq.serving.authorization import (
    GRANTED_SECONDS,
    LONGEST_TOKEN,
    QUESTIONS_OF_ALL,
    QUESTIONS_OF_PEER,
    REFUSED_SECONDS,
    REMEMBERED,
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
class Cluster:
    """Knows some tokens, and what their users may do."""

    users: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"good": USER, "poor": {"username": "poor"}}
    )
    permitted: set[str] = field(default_factory=lambda: {USER["username"]})
    audiences: list[str] = field(default_factory=list)
    down: bool = False
    asked: list[Mapping[str, Any]] = field(default_factory=list)

    async def create_token_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        await self._note(review)
        user = self.users.get(review["spec"]["token"])
        if user is None:
            return {"status": {"authenticated": False, "error": "unknown token"}}
        return {"status": {"authenticated": True, "user": user, "audiences": self.audiences}}

    async def create_subject_access_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        await self._note(review)
        return {"status": {"allowed": review["spec"]["user"] in self.permitted}}

    async def _note(self, review: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        if self.down:
            raise ReviewFailed("down")
        self.asked.append(review)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def decide(authorizer: Authorizer, token: str, **options: Any) -> AuthorizationDecision:
    return await authorizer.decide(f"Bearer {token}", path="/metrics", **options)


async def test_authenticated_and_authorized_caller_is_served() -> None:
    cluster = Cluster()
    assert await decide(Authorizer(cluster), "good") is AuthorizationDecision.ALLOWED
    token_review, access_review = cluster.asked
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
async def test_request_without_token_causes_no_review(header: str) -> None:
    cluster = Cluster()
    assert await Authorizer(cluster).decide(header, path="/metrics") is AuthorizationDecision.UNAUTHENTICATED
    assert cluster.asked == []


async def test_an_unknown_token_is_turned_away_and_a_known_one_without_permission_too() -> None:
    authorizer = Authorizer(Cluster())
    assert await decide(authorizer, "bad") is AuthorizationDecision.UNAUTHENTICATED
    assert await decide(authorizer, "poor") is AuthorizationDecision.FORBIDDEN


async def test_token_for_another_audience_is_refused() -> None:
    cluster = Cluster(audiences=["other"])
    assert (
        await decide(Authorizer(cluster, audiences=("metrics",)), "good")
        is AuthorizationDecision.UNAUTHENTICATED
    )
    cluster = Cluster(audiences=["metrics"])
    assert await decide(Authorizer(cluster, audiences=("metrics",)), "good") is AuthorizationDecision.ALLOWED
    assert cluster.asked[0]["spec"]["audiences"] == ["metrics"]


async def test_answers_are_remembered_as_long_as_they_hold() -> None:
    cluster, clock = Cluster(), Clock()
    authorizer = Authorizer(cluster, clock=clock)
    for token, seconds, questions in (("good", GRANTED_SECONDS, 2), ("bad", REFUSED_SECONDS, 1)):
        cluster.asked.clear()
        first = await decide(authorizer, token)
        clock.now += seconds - 0.1
        assert await decide(authorizer, token) is first
        assert len(cluster.asked) == questions
        clock.now += 0.2
        assert await decide(authorizer, token) is first
        assert len(cluster.asked) == 2 * questions


async def test_a_permission_that_was_refused_is_asked_for_again_soon() -> None:
    cluster, clock = Cluster(), Clock()
    authorizer = Authorizer(cluster, clock=clock)
    assert await decide(authorizer, "poor") is AuthorizationDecision.FORBIDDEN
    cluster.permitted.add("poor")
    assert await decide(authorizer, "poor") is AuthorizationDecision.FORBIDDEN
    clock.now += REFUSED_SECONDS + 0.1
    assert await decide(authorizer, "poor") is AuthorizationDecision.ALLOWED


async def test_each_path_has_a_permission_of_its_own() -> None:
    cluster = Cluster()
    authorizer = Authorizer(cluster)
    await decide(authorizer, "good")
    await authorizer.decide("Bearer good", path="/debug")
    paths = [
        review["spec"]["nonResourceAttributes"]["path"]
        for review in cluster.asked
        if "user" in review["spec"]
    ]
    assert paths == ["/metrics", "/debug"]


async def test_simultaneous_calls_cause_one_review() -> None:
    cluster = Cluster()
    authorizer = Authorizer(cluster)
    decisions = await asyncio.gather(*(decide(authorizer, "good") for _ in range(50)))
    assert set(decisions) == {AuthorizationDecision.ALLOWED}
    assert len(cluster.asked) == 2


async def test_one_peer_cannot_flood_the_api_server_nor_keep_others_out() -> None:
    cluster, clock = Cluster(), Clock()
    authorizer = Authorizer(cluster, clock=clock)
    decisions = [await decide(authorizer, f"bad-{n}", peer="192.0.2.1") for n in range(100)]
    at_once = QUESTIONS_OF_PEER[1]
    assert decisions == [AuthorizationDecision.UNAUTHENTICATED] * at_once + [
        AuthorizationDecision.TOO_MANY
    ] * (100 - at_once)
    assert len(cluster.asked) == at_once
    assert await decide(authorizer, "good", peer="192.0.2.2") is AuthorizationDecision.ALLOWED
    clock.now += 1
    assert await decide(authorizer, "bad-1000", peer="192.0.2.1") is AuthorizationDecision.UNAUTHENTICATED


async def test_many_peers_together_have_a_limit_too() -> None:
    cluster = Cluster()
    authorizer = Authorizer(cluster, clock=Clock())
    for peer in range(500):
        await decide(authorizer, f"bad-{peer}", peer=str(peer))
    assert len(cluster.asked) == QUESTIONS_OF_ALL[1]


async def test_what_is_remembered_is_bounded_and_holds_no_token() -> None:
    cluster, clock = Cluster(), Clock()
    authorizer = Authorizer(cluster, clock=clock)
    for number in range(REMEMBERED + 50):
        clock.now += 0.03
        await decide(authorizer, f"secret-token-{number}", peer=str(number))
    remembered = authorizer._users._entries  # pyright: ignore[reportPrivateUsage]
    assert len(remembered) == REMEMBERED
    assert not any(b"secret" in key for key in remembered)


async def test_only_cached_callers_are_served_while_the_api_server_is_down() -> None:
    cluster = Cluster()
    authorizer = Authorizer(cluster)
    await decide(authorizer, "good")
    cluster.down = True
    assert await decide(authorizer, "good") is AuthorizationDecision.ALLOWED
    assert await decide(authorizer, "other") is AuthorizationDecision.UNAVAILABLE


@pytest.mark.parametrize(("token", "status"), [("good", 200), ("poor", 403), ("bad", 401), ("", 401)])
async def test_protected_handler_serves_only_authorized_callers(token: str, status: int) -> None:
    reached: list[HttpRequest] = []

    async def secret(request: HttpRequest) -> HttpResponse:
        reached.append(request)
        return HttpResponse(200, b"secret")

    handler = require_authorization(secret, Authorizer(Cluster()))
    response = await handler(HttpRequest("GET", "/metrics", headers={"authorization": f"Bearer {token}"}))
    assert response.status == status
    assert bool(reached) is (status == 200)
    assert (b"secret" in response.body) is (status == 200)
    assert (response.headers.get("WWW-Authenticate") == "Bearer") is (status == 401)
