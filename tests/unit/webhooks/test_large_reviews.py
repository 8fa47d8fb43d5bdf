"""Reviews of large objects in a child process: equal responses, limits, and failures of the child."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from admitq.integrations.custom import load_enabled_and_all_kinds
from admitq.metrics.registry import Metrics
from admitq.process.unexpected_errors import LOG_ONLY, UnexpectedErrors
from admitq.serving.http import HttpRequest, HttpResponse, text
from admitq.serving.server import MEBIBYTE
from admitq_api.configuration import load_configuration
from admitq_webhooks.large_reviews import COMMAND, LARGE_BYTES, MAX_HELD_BYTES, LargeReviews
from admitq_webhooks.lookups import ClusterLookups
from admitq_webhooks.policy import configured_policy
from admitq_webhooks.review_child import LOOKUPS, StartMessage
from admitq_webhooks.routes import review_handlers
from tests.unit.serving.support import until
from tests.unit.webhooks.support import QUEUE, FakeLookups, a_job, review

CONFIGURATION = load_configuration("")
GATES = CONFIGURATION.create_feature_gates("")
START = StartMessage(CONFIGURATION, GATES)
MUTATE, VALIDATE = "/mutate-batch-v1-job", "/validate-batch-v1-job"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": "parent-uid"}
PADDING = {f"label-{number}": "x" * 20 for number in range(LARGE_BYTES // 30)}

Observed = list[tuple[str, bool]]


def a_large_job(labels: Mapping[str, str] | None = None, **options: Any) -> dict[str, Any]:
    return a_job(labels={QUEUE: "q", **PADDING, **(labels or {})}, **options)


def request(path: str, body: Any) -> HttpRequest:
    return HttpRequest("POST", path, body=body if isinstance(body, bytes) else orjson.dumps(body))


def decode_response(response: HttpResponse) -> dict[str, Any]:
    assert response.status == 200, response.body
    return orjson.loads(response.body)["response"]


@asynccontextmanager
async def large_reviews(
    lookups: ClusterLookups,
    observed: Observed | None = None,
    command: Sequence[str] = COMMAND,
    errors: UnexpectedErrors = LOG_ONLY,
) -> AsyncGenerator[LargeReviews]:
    def observe(path: str, allowed: bool, seconds: float) -> None:
        assert seconds >= 0
        if observed is not None:
            observed.append((path, allowed))

    reviews = LargeReviews(START, lookups, observe=observe, errors=errors, seconds=60, command=command)
    try:
        yield reviews
    finally:
        await reviews.stop()


def send(reviews: LargeReviews, http_request: HttpRequest) -> Coroutine[Any, Any, HttpResponse]:
    async def respond() -> HttpResponse:
        return await reviews.wrap(fail_in_server_process)(http_request)

    return respond()


async def fail_in_server_process(_: HttpRequest) -> HttpResponse:
    return text(500, "the server process reviewed a large body")


class SlowLookups(FakeLookups):
    """Lookups of namespaces that wait until the test sets `may_answer`."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        await self.may_answer.wait()
        return await super().namespace_labels(name)


def test_review_child_may_call_exactly_the_cluster_lookups() -> None:
    assert {name for name in vars(ClusterLookups) if not name.startswith("_")} == LOOKUPS


async def test_child_answers_large_reviews_like_the_server_process() -> None:
    user: dict[str, Any] = {
        "userInfo": {"username": "tenant", "groups": ["all"], "extra": {"key": ["value"]}}
    }
    running = a_large_job(suspend=False)
    bodies: dict[str, tuple[str, Any]] = {
        "mutated": (MUTATE, review(a_large_job())),
        "allowed": (VALIDATE, review(a_large_job(suspend=True))),
        "rejected": (VALIDATE, review(a_large_job({QUEUE: "no/name"}, suspend=True))),
        "rejected update": (
            VALIDATE,
            review({**running, "metadata": {**running["metadata"], "labels": PADDING}}, running),
        ),
        "job with an owner": (MUTATE, review(a_large_job(owner=OWNER), **user)),
        "other kind": (VALIDATE, review(a_large_job(), gvk=("apps", "v1", "Deployment"))),
        "no JSON": (VALIDATE, b"{" * LARGE_BYTES),
        "no review": (VALIDATE, {"padding": PADDING}),
    }
    parent = a_job(labels={QUEUE: "q"}, suspend=False)
    parent["metadata"] |= {"name": "parent", "uid": "parent-uid"}
    lookups = FakeLookups(objects={"parent": parent}, plurals={"Job": "jobs"})
    enabled, known = load_enabled_and_all_kinds(CONFIGURATION, GATES)
    observed_locally: Observed = []
    local_handlers = review_handlers(
        configured_policy(CONFIGURATION, GATES, enabled),
        lookups,
        known,
        observe=lambda path, allowed, _: observed_locally.append((path, allowed)),
    )
    observed: Observed = []
    async with large_reviews(lookups, observed) as reviews:
        for name, (path, body) in bodies.items():
            for unavailable in (False, True):
                lookups.unavailable = unavailable
                http_request = request(path, body)
                assert len(http_request.body) >= LARGE_BYTES
                lookups.object_requests.clear()
                expected, local_lookups = (
                    await local_handlers[path](http_request),
                    list(lookups.object_requests),
                )
                lookups.object_requests.clear()
                assert await send(reviews, http_request) == expected, (name, unavailable)
                assert lookups.object_requests == local_lookups, (name, unavailable)
    assert observed == observed_locally
    assert {allowed for _, allowed in observed} == {True, False}


@pytest.mark.parametrize(
    ("command", "lookups"),
    [
        pytest.param([sys.executable, "-c", "pass"], FakeLookups(), id="child ends"),
        pytest.param(
            [
                COMMAND[0],
                "-c",
                f"from admitq_webhooks import routes; routes.encode_verdict = None; {COMMAND[2]}",
            ],
            FakeLookups(),
            id="review fails in the child",
        ),
        pytest.param(
            COMMAND,
            FakeLookups(namespaces=None),  # type: ignore[reportArgumentType]
            id="lookup fails",
        ),
    ],
)
async def test_unexpected_error_in_large_review_is_counted_by_route(
    command: Sequence[str], lookups: FakeLookups
) -> None:
    metrics = Metrics()
    metrics.add_webhook_routes([MUTATE, VALIDATE])
    async with large_reviews(lookups, command=command, errors=metrics.errors) as reviews:
        assert not decode_response(await send(reviews, request(MUTATE, review(a_large_job()))))["allowed"]
    lines = metrics.render().decode().splitlines()
    counted = {
        line.partition('route="')[2] for line in lines if line.startswith("admitq_unexpected_errors_total")
    }
    assert {f'{MUTATE}"}} 1.0', f'{VALIDATE}"}} 0.0', '"} 0.0'} == counted


async def test_small_review_is_answered_without_starting_child() -> None:
    async def respond_locally(_: HttpRequest) -> HttpResponse:
        return text(200, "local")

    async with large_reviews(FakeLookups(), command=["/no/such/program"]) as reviews:
        answer = await reviews.wrap(respond_locally)(request(MUTATE, review(a_job(labels={QUEUE: "q"}))))
    assert answer == text(200, "local")


@pytest.mark.parametrize("command", [[sys.executable, "-c", "pass"], ["/no/such/program"]])
async def test_review_fails_with_500_when_child_exits(command: list[str]) -> None:
    observed: Observed = []
    async with large_reviews(FakeLookups(), observed, command) as reviews:
        for _ in range(2):
            response = decode_response(await send(reviews, request(MUTATE, review(a_large_job()))))
            assert (response["uid"], response["allowed"]) == ("the-uid", False)
            assert response["status"]["code"] == 500
    assert observed == [(MUTATE, False)] * 2


async def test_large_reviews_beyond_size_or_time_limit_fail_and_later_reviews_succeed() -> None:
    lookups, observed = SlowLookups(), Observed()
    http_request = request(MUTATE, review(a_large_job(annotations={"padding": "x" * MEBIBYTE})))
    count = MAX_HELD_BYTES // len(http_request.body)
    async with large_reviews(lookups, observed) as reviews:
        # Reviews that wait for a lookup fill the size limit; another review is rejected.
        waiting = [asyncio.create_task(send(reviews, http_request)) for _ in range(count)]
        await until(lambda: reviews.held_bytes == count * len(http_request.body))
        rejected = decode_response(await send(reviews, http_request))
        assert (rejected["uid"], rejected["allowed"]) == ("the-uid", False)
        assert (rejected["status"]["code"], rejected["status"]["reason"]) == (429, "TooManyRequests")
        assert (await send(reviews, request(MUTATE, b" " * len(http_request.body)))).status == 503
        # The waiting reviews succeed once the lookup answers.
        lookups.may_answer.set()
        assert all(decode_response(response)["allowed"] for response in await asyncio.gather(*waiting))

        # Reviews that exceed the time limit fail.
        lookups.may_answer.clear()
        child, reviews.seconds = reviews.process, 0.05
        for _ in range(2):
            late = decode_response(await send(reviews, http_request))
            assert (late["allowed"], late["status"]["code"]) == (False, 504)
        await until(lambda: reviews.held_bytes == len(http_request.body))
        # The same child then answers the next review.
        reviews.seconds = 60
        lookups.may_answer.set()
        assert decode_response(await send(reviews, http_request))["allowed"]
        assert reviews.process is child
    assert observed.count((MUTATE, True)) == count + 1
    assert observed.count((MUTATE, False)) == 4
    assert reviews.held_bytes == 0


async def test_stuck_child_is_replaced() -> None:
    lookups = SlowLookups()
    http_request = request(MUTATE, review(a_large_job()))
    async with large_reviews(lookups) as reviews:
        reviews.stuck_seconds = 0.05
        assert decode_response(await send(reviews, http_request))["status"]["code"] == 500
        reviews.stuck_seconds = 60
        lookups.may_answer.set()
        assert decode_response(await send(reviews, http_request))["allowed"]


async def test_child_killed_between_reviews_is_replaced() -> None:
    http_request = request(MUTATE, review(a_large_job()))
    async with large_reviews(FakeLookups()) as reviews:
        assert decode_response(await send(reviews, http_request))["allowed"]
        child = reviews.process
        assert child is not None
        child.kill()
        await child.wait()
        assert decode_response(await send(reviews, http_request))["allowed"]
        assert reviews.process not in (None, child)
