import asyncio
from collections import Counter
from collections.abc import Callable

import orjson
import pytest

from admitq.serving.http import JSON, HttpRequest, HttpResponse
from admitq_webhooks.review import parse_review
from benchmarks import webhook_load
from benchmarks.webhook_cases import (
    CASES,
    TARGETS,
    find_highest_rate,
    holds,
    is_late,
    latency_figures,
    plan_cores,
)
from benchmarks.webhook_load import (
    PATHS,
    Answer,
    EvenArrivals,
    ReplicaAddress,
    ReviewLoad,
    SentReviews,
    encode_request,
    outcome_of,
    parse_answer,
)
from benchmarks.webhook_objects import (
    BODIES,
    JOB_BYTES,
    OBJECT_BYTES,
    ObjectTooLarge,
    create_job,
    large_job,
    ordinary_job,
    pad,
)
from benchmarks.webhook_processes import busy_seconds
from tests.unit.serving.support import running_server


def answer(body: bytes, *, status: int = 200, is_last: bool = False) -> bytes:
    connection = "Connection: close\r\n" if is_last else ""
    head = f"HTTP/1.1 {status} OK\r\n{connection}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def rejected(code: int) -> bytes:
    return orjson.dumps({"response": {"uid": "1", "allowed": False, "status": {"code": code}}})


def test_reviews_are_due_once_each_at_even_intervals():
    arrivals = EvenArrivals(begin=100.0, rate=4.0, count=6)
    assert [*arrivals.take_due(99.9)] == []
    assert [*arrivals.take_due(100.0)] == [0]
    assert arrivals.next_due_at == 100.25
    assert [*arrivals.take_due(100.2)] == []
    assert [*arrivals.take_due(100.8)] == [1, 2, 3]
    assert [*arrivals.take_due(500.0)] == [4, 5]
    assert arrivals.next_due_at is None
    assert [*arrivals.take_due(501.0)] == []


@pytest.mark.parametrize("rate", [0.7, 300.0, 333.3, 4999.9])
def test_review_is_due_shortly_after_the_time_that_was_announced(rate: float):
    arrivals, due = EvenArrivals(begin=123_456.789, rate=rate, count=50), 0.0
    numbers: list[int] = []
    while (next_due := arrivals.next_due_at) is not None:
        assert next_due > due
        due = next_due
        numbers += arrivals.take_due(due + 1e-6)
    assert numbers == [*range(50)]


@pytest.mark.parametrize("missing", [0, 1, 5, 70])
def test_answer_is_parsed_when_it_is_complete(missing: int):
    received = answer(b"abcde", is_last=True) + b"next"
    shorter = received[: len(received) - len(b"next") - missing]
    expected = None if missing else Answer(200, b"abcde", is_last=True, size=len(received) - len(b"next"))
    assert parse_answer(shorter) == expected


def test_answer_ends_before_the_bytes_of_the_next_one():
    first = answer(b"one")
    parsed = parse_answer(bytearray(first + answer(b"two")))
    assert parsed == Answer(200, b"one", is_last=False, size=len(first))


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (answer(b'{"response":{"uid":"1","allowed":true}}'), "allowed"),
        (answer(rejected(429)), "429"),
        (answer(b"no answer in time", status=504), "504"),
    ],
)
def test_outcome_is_the_verdict_or_the_code(received: bytes, expected: str):
    parsed = parse_answer(received)
    assert parsed is not None
    assert outcome_of(parsed) == expected


@pytest.mark.parametrize(("create", "size"), [(ordinary_job, JOB_BYTES), (large_job, OBJECT_BYTES)])
def test_jobs_have_their_size(create: Callable[[], dict[str, object]], size: int):
    assert len(orjson.dumps(create())) == size


def test_padding_of_an_object_that_is_too_large_is_an_error():
    with pytest.raises(ObjectTooLarge):
        pad(create_job(variables=500), 5_000)


@pytest.mark.parametrize("kind", ["jobs", "objects"])
def test_bodies_are_reviews_of_new_jobs(kind: str):
    for body in BODIES[kind]():
        request = parse_review(body)
        assert (request.operation, request.kind, request.namespace) == ("CREATE", "Job", "team")


def test_latency_figures_are_milliseconds_from_due_time():
    sent = SentReviews(
        latencies=[n / 1000 for n in range(1, 1001)],
        lateness=[0.0001] * 99 + [0.002],
        outcomes=Counter({"allowed": 1000}),
        answered=1100,
        seconds=10.0,
        connections=4,
    )
    assert latency_figures(sent) == {
        "reviews_per_s": 100.0,
        "p50_ms": 500.0,
        "p99_ms": 990.0,
        "p999_ms": 999.0,
        "max_ms": 1000.0,
        "outcomes": {"allowed": 1000},
        "unanswered": 0,
        "connections": 4,
        "lateness_p99_ms": 0.1,
        "lateness_max_ms": 2.0,
    }


@pytest.mark.parametrize(
    ("latencies", "unanswered", "expected"),
    [
        ([0.001] * 99 + [5.0], 0, True),
        ([0.001] * 98 + [5.0] * 2, 0, False),
        ([0.001] * 100, 1, False),
        ([], 0, False),
    ],
)
def test_rate_holds_if_p99_is_within_bound_and_all_are_answered(
    latencies: list[float], unanswered: int, expected: bool
):
    assert holds(SentReviews(latencies=latencies, unanswered=unanswered), 10) is expected


@pytest.mark.parametrize(("lateness", "expected"), [(0.001, False), (0.004, True)])
def test_load_is_late_if_it_uses_a_quarter_of_the_bound(lateness: float, expected: bool):
    assert is_late(SentReviews(lateness=[lateness] * 10), 10) is expected


@pytest.mark.parametrize("limit", [45.0, 290.0, 300.0, 301.0, 1234.0, 9000.0])
async def test_highest_rate_is_within_precision_of_the_limit(limit: float):
    async def does_hold(rate: float) -> bool:
        return rate <= limit

    found = await find_highest_rate(does_hold, start=300.0)
    assert found is not None
    assert limit / 1.05 <= found <= limit


async def test_highest_rate_is_none_if_the_lowest_rate_fails():
    async def does_hold(_: float) -> bool:
        return False

    assert await find_highest_rate(does_hold, start=300.0) is None


async def test_highest_rate_survives_one_failure_of_each_rate():
    failed: set[float] = set()

    async def does_hold(rate: float) -> bool:
        if rate not in failed:
            failed.add(rate)
            return False
        return rate <= 1000

    found = await find_highest_rate(does_hold, start=300.0)
    assert found is not None
    assert found >= 1000 / 1.05


@pytest.mark.parametrize(
    ("cores", "replicas", "servers", "others"),
    [
        ([0, 1], 1, ((0,),), (1,)),
        ([0, 1], 2, ((0, 1),) * 2, (0, 1)),
        ([0, 1], 4, ((0, 1),) * 4, (0, 1)),
        ([4, 5, 6, 7], 2, ((4,), (5,)), (6, 7)),
        ([3], 1, ((3,),), (3,)),
    ],
)
def test_each_webhook_has_its_own_core_if_one_is_left_for_the_load(
    cores: list[int], replicas: int, servers: tuple[tuple[int, ...], ...], others: tuple[int, ...]
):
    plan = plan_cores(cores, replicas)
    assert (plan.servers, plan.others) == (servers, others)
    assert plan.is_separate == (len(cores) > replicas)


def test_targets_are_cases_without_search():
    assert [CASES[name].p99_ms for name in TARGETS] == [10, 100]
    assert not any(CASES[name].is_search for name in TARGETS)


def test_busy_time_excludes_idle_and_guest_time():
    stat = "cpu  100 200 300 999999 888888 10 20 30 777 666\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert busy_seconds(stat) == 6.6


def test_request_has_a_body_of_its_length():
    head, body = encode_request("/validate-batch-v1-job", b"{}\r\n\r\n").split(b"\r\n\r\n", 1)
    assert body == b"{}\r\n\r\n"
    assert b"Content-Length: 6" in head


async def test_load_sends_reviews_while_earlier_reviews_wait_for_their_answers():
    received: list[str] = []
    all_sent = asyncio.Event()

    async def answer_when_all_are_sent(request: HttpRequest) -> HttpResponse:
        received.append(request.path)
        if len(received) == 12:
            all_sent.set()
        await all_sent.wait()
        return HttpResponse(200, b'{"response":{"allowed":true}}', JSON)

    async with running_server(answer_when_all_are_sent) as server:
        replica = ReplicaAddress(server.port, server.ca.certificate)
        load = ReviewLoad((replica,), "jobs", rate=100.0, seconds=0.1, warm_up_seconds=0.02)
        sent = await webhook_load.send(load)
    assert Counter(received) == dict.fromkeys(PATHS, 6)
    assert sent.outcomes == {"allowed": 10}
    assert (len(sent.latencies), len(sent.lateness), sent.unanswered, sent.answered) == (10, 10, 0, 12)
    assert sent.connections == 12


async def test_load_reuses_connections_and_records_rejections():
    async def reject(_: HttpRequest) -> HttpResponse:
        return HttpResponse(200, rejected(429), JSON)

    async with running_server(reject) as first, running_server(reject) as second:
        replicas = tuple(ReplicaAddress(server.port, server.ca.certificate) for server in (first, second))
        load = ReviewLoad(replicas, "jobs", rate=500.0, seconds=1.0, warm_up_seconds=0.0)
        sent = await webhook_load.send(load)
    assert sent.outcomes == {"429": 500}
    assert sent.connections < 500
