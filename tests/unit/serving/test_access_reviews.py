"""Access reviews are cached, shared by equal calls, limited in number, and denied without a clear answer."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from admitq.serving.access_reviews import (
    CALLS_AT_ONCE,
    GRANTED_SECONDS,
    REFUSED_SECONDS,
    Access,
    AccessReviews,
    PathAccess,
)
from admitq.serving.authorization import ReviewFailed, User

ANNA = User("anna", "u", ("team",), (("scopes", ("a", "b")),))
UPDATE = Access("update", "admitq.dev", "workloads", "status", "team")


@dataclass
class FakeReviewApi:
    """Answers reviews with a status, while answers are released."""

    status: Any = field(default_factory=lambda: {"allowed": True})
    released: asyncio.Event = field(default_factory=asyncio.Event)
    is_down: bool = False
    requests: list[Mapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.released.set()

    async def create_token_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError

    async def create_subject_access_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        self.requests.append(review)
        await self.released.wait()
        if self.is_down:
            raise ReviewFailed("down")
        return {"status": self.status}


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


async def test_access_review_names_user_and_resource() -> None:
    api = FakeReviewApi()
    assert await AccessReviews(api).may(ANNA, UPDATE)
    assert [review["spec"] for review in api.requests] == [
        {
            "user": "anna",
            "uid": "u",
            "groups": ["team"],
            "extra": {"scopes": ["a", "b"]},
            "resourceAttributes": {
                "verb": "update",
                "group": "admitq.dev",
                "resource": "workloads",
                "subresource": "status",
                "namespace": "team",
            },
        }
    ]


@pytest.mark.parametrize(
    ("status", "permitted"),
    [
        ({"allowed": True}, True),
        ({"allowed": True, "denied": True}, False),
        ({"allowed": False}, False),
        ({"allowed": "yes"}, False),
        ({}, False),
        (None, False),
        ("odd", False),
    ],
)
async def test_access_is_granted_only_by_clear_answer(status: Any, permitted: bool) -> None:
    assert await AccessReviews(FakeReviewApi(status)).may(ANNA, UPDATE) is permitted


@pytest.mark.parametrize(("allowed", "seconds"), [(True, GRANTED_SECONDS), (False, REFUSED_SECONDS)])
async def test_answer_is_cached_until_it_expires(allowed: bool, seconds: float) -> None:
    api, clock = FakeReviewApi({"allowed": allowed}), Clock()
    reviews = AccessReviews(api, clock=clock)
    for now, expected_requests in ((0.0, 1), (seconds - 0.1, 1), (seconds, 2)):
        clock.now = now
        assert await reviews.may(ANNA, UPDATE) is allowed
        assert len(api.requests) == expected_requests


@pytest.mark.parametrize(
    ("user", "access"),
    [
        (replace(ANNA, name="bert"), UPDATE),
        (replace(ANNA, uid="v"), UPDATE),
        (replace(ANNA, groups=("team", "admins")), UPDATE),
        (replace(ANNA, extra=(("scopes", ("ab",)),)), UPDATE),
        (ANNA, replace(UPDATE, namespace="other")),
        (ANNA, replace(UPDATE, verb="patch")),
        (ANNA, replace(UPDATE, subresource="")),
        (ANNA, replace(UPDATE, name="one")),
    ],
)
async def test_cached_answer_is_not_used_for_other_user_or_access(user: User, access: Access) -> None:
    api = FakeReviewApi()
    reviews = AccessReviews(api)
    assert await reviews.may(ANNA, UPDATE)
    api.status = {"allowed": False}
    assert not await reviews.may(user, access)
    assert len(api.requests) == 2


async def test_concurrent_equal_questions_share_one_request_despite_cancelled_caller() -> None:
    api = FakeReviewApi()
    api.released.clear()
    reviews = AccessReviews(api)
    calls = [asyncio.create_task(reviews.may(ANNA, UPDATE)) for _ in range(5)]
    await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.sleep(0)
    api.released.set()
    assert await asyncio.gather(*calls[1:]) == [True] * 4
    assert len(api.requests) == 1


async def test_review_that_exceeds_deadline_fails_and_is_not_cached() -> None:
    api = FakeReviewApi()
    api.released.clear()
    reviews = AccessReviews(api, deadline=0.01)
    with pytest.raises(ReviewFailed, match="no answer in time"):
        await reviews.may(ANNA, UPDATE)
    api.released.set()
    assert await reviews.may(ANNA, UPDATE)


async def test_failed_review_is_not_cached() -> None:
    api = FakeReviewApi(is_down=True)
    reviews = AccessReviews(api)
    for _ in range(2):
        with pytest.raises(ReviewFailed, match="down"):
            await reviews.may(ANNA, UPDATE)
    assert len(api.requests) == 2


async def test_review_beyond_limit_of_open_requests_fails_at_once() -> None:
    api = FakeReviewApi()
    api.released.clear()
    reviews = AccessReviews(api)
    users = [replace(ANNA, name=f"user-{number}") for number in range(CALLS_AT_ONCE)]
    calls = [asyncio.create_task(reviews.may(user, UPDATE)) for user in users]
    await asyncio.sleep(0)
    with pytest.raises(ReviewFailed, match="too many"):
        await reviews.may(ANNA, UPDATE)
    api.released.set()
    assert all(await asyncio.gather(*calls))
    assert await reviews.may(ANNA, UPDATE)


@pytest.mark.parametrize(
    ("access", "text"),
    [
        (UPDATE, "update workloads.admitq.dev/status"),
        (Access("delete", "", "pods", namespace="team"), "delete pods"),
    ],
)
def test_access_is_printed_as_verb_and_resource(access: Access, text: str) -> None:
    assert str(access) == text


async def test_access_review_of_path_names_the_path() -> None:
    api = FakeReviewApi()
    access = PathAccess("get", "/openapi/v2")
    assert await AccessReviews(api).may(ANNA, access)
    assert api.requests[0]["spec"]["nonResourceAttributes"] == {"verb": "get", "path": "/openapi/v2"}
    assert "resourceAttributes" not in api.requests[0]["spec"]
    assert str(access) == "get /openapi/v2"
