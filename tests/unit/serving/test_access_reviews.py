"""What users may do: asked once at a time, remembered, bounded, and refused where there is no answer."""

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
)
from admitq.serving.authorization import ReviewFailed, User

ANNA = User("anna", "u", ("team",), (("scopes", ("a", "b")),))
UPDATE = Access("update", "admitq.dev", "workloads", "status", "team")


@dataclass
class Cluster:
    """Answers reviews with a status, once it is let."""

    status: Any = field(default_factory=lambda: {"allowed": True})
    let: asyncio.Event = field(default_factory=asyncio.Event)
    down: bool = False
    asked: list[Mapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.let.set()

    async def create_token_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError

    async def create_subject_access_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(review)
        await self.let.wait()
        if self.down:
            raise ReviewFailed("down")
        return {"status": self.status}


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


async def test_access_review_names_user_and_resource_as_rbac_does() -> None:
    cluster = Cluster()
    assert await AccessReviews(cluster).may(ANNA, UPDATE)
    assert [one["spec"] for one in cluster.asked] == [
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
async def test_access_is_granted_by_a_clear_answer_alone(status: Any, permitted: bool) -> None:
    assert await AccessReviews(Cluster(status)).may(ANNA, UPDATE) is permitted


@pytest.mark.parametrize(("allowed", "seconds"), [(True, GRANTED_SECONDS), (False, REFUSED_SECONDS)])
async def test_answer_is_remembered_until_its_time_is_over(allowed: bool, seconds: float) -> None:
    cluster, clock = Cluster({"allowed": allowed}), Clock()
    reviews = AccessReviews(cluster, clock=clock)
    for now, asked in ((0.0, 1), (seconds - 0.1, 1), (seconds, 2)):
        clock.now = now
        assert await reviews.may(ANNA, UPDATE) is allowed
        assert len(cluster.asked) == asked


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
async def test_answer_is_never_used_for_another_question(user: User, access: Access) -> None:
    cluster = Cluster()
    reviews = AccessReviews(cluster)
    assert await reviews.may(ANNA, UPDATE)
    cluster.status = {"allowed": False}
    assert not await reviews.may(user, access)
    assert len(cluster.asked) == 2


async def test_equal_questions_at_the_same_time_are_one_call_and_survive_a_caller_that_leaves() -> None:
    cluster = Cluster()
    cluster.let.clear()
    reviews = AccessReviews(cluster)
    calls = [asyncio.create_task(reviews.may(ANNA, UPDATE)) for _ in range(5)]
    await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.sleep(0)
    cluster.let.set()
    assert await asyncio.gather(*calls[1:]) == [True] * 4
    assert len(cluster.asked) == 1


async def test_question_without_answer_in_time_fails_and_is_asked_again() -> None:
    cluster = Cluster()
    cluster.let.clear()
    reviews = AccessReviews(cluster, deadline=0.01)
    with pytest.raises(ReviewFailed, match="no answer in time"):
        await reviews.may(ANNA, UPDATE)
    cluster.let.set()
    assert await reviews.may(ANNA, UPDATE)


async def test_failed_call_is_no_answer() -> None:
    cluster = Cluster(down=True)
    reviews = AccessReviews(cluster)
    for _ in range(2):
        with pytest.raises(ReviewFailed, match="down"):
            await reviews.may(ANNA, UPDATE)
    assert len(cluster.asked) == 2


async def test_open_calls_are_bounded_and_further_questions_fail_at_once() -> None:
    cluster = Cluster()
    cluster.let.clear()
    reviews = AccessReviews(cluster)
    users = [replace(ANNA, name=f"user-{number}") for number in range(CALLS_AT_ONCE)]
    calls = [asyncio.create_task(reviews.may(user, UPDATE)) for user in users]
    await asyncio.sleep(0)
    with pytest.raises(ReviewFailed, match="too many"):
        await reviews.may(ANNA, UPDATE)
    cluster.let.set()
    assert all(await asyncio.gather(*calls))
    assert await reviews.may(ANNA, UPDATE)


@pytest.mark.parametrize(
    ("access", "text"),
    [
        (UPDATE, "update workloads.admitq.dev/status"),
        (Access("delete", "", "pods", namespace="team"), "delete pods"),
    ],
)
def test_access_reads_as_rbac_writes_it(access: Access, text: str) -> None:
    assert str(access) == text
