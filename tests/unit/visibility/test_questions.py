"""Questions about Workloads: answers of child processes, what callers see of others, and limits."""

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from admitq.core.asking.course import EstimateOf
from admitq.core.asking.execution import EndlessDecisionsError
from admitq.core.model import Instant
from admitq.core.state import AdmissionState
from admitq.serving.access_reviews import AccessReviews
from admitq.serving.authorization import TokenAuthenticator
from admitq.serving.front_proxy import FrontProxyUsers
from admitq.serving.http import HttpRequest, HttpResponse
from admitq.visibility.answers import RequestRejected
from admitq.visibility.background_questions import Asked, BackgroundQuestions
from admitq.visibility.handler import VisibilityHandler
from admitq.visibility.tree_forecasts import TreeForecasts
from admitq.visibility.workload_questions import list_workload_questions
from admitq_api.labels import DEFAULT_GROUP, names_for
from tests.unit.asking.test_answers import FULL, HOUR, NOW, job, observing_state
from tests.unit.visibility.test_visibility import TABLE

NAMES = names_for(DEFAULT_GROUP)
GROUP = NAMES.visibility_group
WAITS = f"/apis/{GROUP}/v1beta2/namespaces/ours/workloads/waits"


@dataclass
class TenantReviews:
    """Grants everything in namespaces, and everything else if ``everywhere``."""

    everywhere: bool = False
    reviewed: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    async def create_token_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        assert review["spec"]["token"] == "good"
        return {"status": {"authenticated": True, "user": {"username": "anna"}}}

    async def create_subject_access_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        attributes = review["spec"]["resourceAttributes"]
        self.reviewed.append(attributes)
        return {"status": {"allowed": self.everywhere or "namespace" in attributes}}


def estimates(_state: AdmissionState, _now: Instant) -> EstimateOf:
    return lambda _: HOUR


def handler_of(
    questions: BackgroundQuestions, reviews: TenantReviews | None = None, trees: TreeForecasts | None = None
) -> VisibilityHandler:
    api = reviews or TenantReviews()
    trees = trees or TreeForecasts(AdmissionState(), estimates)
    return VisibilityHandler(
        names=NAMES,
        routes=list_workload_questions(questions, trees, estimates, GROUP),
        front_proxy=FrontProxyUsers(),
        tokens=TokenAuthenticator(api),
        access=AccessReviews(api),
        checks={},
        is_synced=lambda: True,
    )


async def get(handler: VisibilityHandler, path: str, accept: str = "") -> HttpResponse:
    lines = [("Accept", accept)] if accept else []
    request = HttpRequest("GET", path, headers={"authorization": "Bearer good"}, header_lines=lines, peer="p")
    return await handler.handle(request)


@pytest.fixture
def state() -> AdmissionState:
    """A state in which one workload waits for two others, one of them in another namespace."""
    return observing_state(*FULL, job("ours/waits"))


@pytest.fixture
def questions(state: AdmissionState) -> BackgroundQuestions:
    """Questions about the state, with a generous deadline."""
    return BackgroundQuestions(state, deadline=60, seconds=60, clock=lambda: NOW)


@pytest.mark.parametrize(
    ("everywhere", "holder"),
    [(False, "a workload of another namespace holds 3m"), (True, "workload theirs/first holds 3m")],
)
async def test_explanation_names_other_namespaces_to_callers_with_permission_in_all(
    questions: BackgroundQuestions, everywhere: bool, holder: str
) -> None:
    reviews = TenantReviews(everywhere)
    response = await get(handler_of(questions, reviews), f"{WAITS}/explanation")
    answer = orjson.loads(response.body)
    assert (response.status, answer["kind"], answer["metadata"]["name"]) == (
        200,
        "WorkloadExplanation",
        "waits",
    )
    assert any(holder in line for line in answer["text"])
    assert (b"theirs" in response.body) is everywhere
    own, all_namespaces = reviews.reviewed
    assert own == {
        "verb": "get",
        "group": GROUP,
        "resource": "workloads",
        "subresource": "explanation",
        "namespace": "ours",
        "name": "waits",
    }
    assert all_namespaces == {key: own[key] for key in ("verb", "group", "resource", "subresource")}


async def test_eta_has_times_and_needs_one_review(questions: BackgroundQuestions) -> None:
    reviews = TenantReviews()
    answer = orjson.loads((await get(handler_of(questions, reviews), f"{WAITS}/eta")).body)
    assert (answer["kind"], answer["p50"]) == ("WorkloadEta", "2023-11-14T23:03:20Z")
    assert len(reviews.reviewed) == 1


@pytest.mark.parametrize(
    ("subresource", "cells"),
    [
        ("eta", ["waits", "2023-11-14T23:03:20Z", "2023-11-14T23:03:20Z", "2023-11-14T23:03:20Z"]),
        ("explanation", ["waits", "Pending", 0]),
    ],
)
async def test_answer_is_a_table_of_one_row(
    questions: BackgroundQuestions, subresource: str, cells: list[Any]
) -> None:
    table = orjson.loads((await get(handler_of(questions), f"{WAITS}/{subresource}", TABLE)).body)
    (row,) = table["rows"]
    assert row["cells"][: len(cells)] == cells
    assert len(row["cells"]) == len(table["columnDefinitions"])


@pytest.mark.parametrize("subresource", ["explanation", "eta"])
async def test_workload_that_does_not_exist_is_not_found(
    questions: BackgroundQuestions, subresource: str
) -> None:
    path = f"{WAITS.removesuffix('waits')}none/{subresource}"
    response = await get(handler_of(questions), path)
    assert response.status == 404
    assert orjson.loads(response.body)["message"] == f'workloads.{GROUP} "none" not found'


async def test_eta_without_median_begins_a_forecast_of_the_tree_which_answers_later(
    state: AdmissionState,
) -> None:
    """The first question has no time for a simulation."""
    questions = BackgroundQuestions(state, deadline=60, seconds=0, clock=lambda: NOW)
    trees = TreeForecasts(state, estimates, clock=lambda: NOW)
    handler = handler_of(questions, trees=trees)

    async def ask() -> Any:
        return orjson.loads((await get(handler, f"{WAITS}/eta")).body)

    first = await ask()
    assert (first["p50"], first["bounds"], first["asOf"]) == (None, ["RealTime"], "2023-11-14T22:13:20Z")
    assert first["treeForecast"] == {"phase": "Waiting", "simulations": 0, "askAgainSeconds": 1}
    assert "A forecast of the whole cohort tree begins soon: ask again in 1s" in first["text"]
    forecasts = asyncio.create_task(trees.run())
    async with asyncio.timeout(60):
        while (later := await ask())["treeForecast"]["phase"] != "Complete":
            await asyncio.sleep(0.001)
    forecasts.cancel()
    assert (later["p50"], later["treeForecast"]["askAgainSeconds"]) == ("2023-11-14T23:03:20Z", None)
    assert "Simulated from 2023-11-14T22:13:20Z, 0s ago" in later["text"]


# --- limits -----------------------------------------------------------------------------------------------


def stall(_asked: Asked) -> None:
    while True:
        time.sleep(1)


async def test_question_beyond_the_limit_is_rejected_at_once(state: AdmissionState) -> None:
    questions = BackgroundQuestions(state, most=1, deadline=60)
    first = asyncio.create_task(questions.ask(stall))
    await asyncio.sleep(0)
    response = await get(handler_of(questions), f"{WAITS}/eta")
    assert (response.status, response.headers["Retry-After"]) == (429, "1")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert (await get(handler_of(questions), f"{WAITS}/eta")).status == 200


def die(_asked: Asked) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def decide_endlessly(_asked: Asked) -> None:
    raise EndlessDecisionsError("endless")


@pytest.mark.parametrize(
    ("question", "deadline", "code", "message"),
    [
        (stall, 0.2, 503, "no answer within 0.2 s, try again later"),
        (die, 60, 500, "the question failed: the child process ended with signal SIGKILL"),
        (decide_endlessly, 60, 500, "the question failed: endless"),
    ],
)
async def test_question_without_answer_is_an_error_and_frees_its_place(
    state: AdmissionState, question: Any, deadline: float, code: int, message: str
) -> None:
    questions = BackgroundQuestions(state, most=1, deadline=deadline)
    with pytest.raises(RequestRejected, match=message) as rejected:
        await questions.ask(question)
    assert rejected.value.code == code
    assert await BackgroundQuestions(state, deadline=60).ask(lambda asked: asked.seconds) == 1.0


async def test_question_does_not_change_the_state(state: AdmissionState) -> None:
    before = state.to_dict()
    handler = handler_of(BackgroundQuestions(state, deadline=60, clock=lambda: NOW))
    for subresource in ("explanation", "eta"):
        assert (await get(handler, f"{WAITS}/{subresource}")).status == 200
    assert state.to_dict() == before
