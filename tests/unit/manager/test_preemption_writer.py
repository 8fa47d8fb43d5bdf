"""Preemptions are written exactly once, whatever the API server answers, and then reported."""

from collections.abc import Iterable
from typing import Any, cast

import pytest

from admitq.core.instructions import Preempt, PreemptionReason
from admitq.core.model import ObjectKey
from admitq.manager import guarded_writes
from admitq.manager.guarded_writes import GuardedWrites
from admitq.manager.preemption_writer import PreemptionWriter
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.measures.workloads import WorkloadMeasures
from admitq.metrics.registry import Metrics
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.runtime.rate_limit import CallPriority, current_priority
from admitq.runtime.store import Store
from admitq.translate.messages import EffectivePriority
from admitq_api.conditions import format_time
from admitq_api.labels import names_for

NAMES = names_for()
WORKLOADS = kinds_of(NAMES).workloads
NOW = 1_800_000_000_000_000_000
VICTIM = ObjectKey("team", "victim")
PREEMPTION = Preempt(
    VICTIM,
    "uid-victim",
    PreemptionReason.IN_COHORT_RECLAMATION,
    ObjectKey("other", "preemptor"),
    "uid-preemptor",
    ("top", "left"),
    ("top", "middle", "right"),
)
MESSAGE = (
    "Preempted to accommodate a workload (UID: uid-preemptor, JobUID: job-1) due to reclamation "
    "within the cohort; preemptor path: /top/left; preemptee path: /top/middle/right"
)
PRIORITIES = (
    "preemptor effective priority: 12 (base: 10, boost: 2); "
    "preemptee effective priority: 1 (base: 1, boost: 0)"
)

NO_ANSWER = ApiError(0, "", "no answer")
CONFLICT = ApiError(409, "Conflict", "changed since")
REFUSED = ApiError(422, "Invalid", "refused")
STORED_WITHOUT_ANSWER = "the write is stored, and its answer is lost"


def condition(type_: str, status: str = "True", reason: str = "R", message: str = "") -> dict[str, Any]:
    at = format_time(NOW)
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def workload(
    name: str, namespace: str, priority: int, *state: dict[str, Any], **metadata: Any
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            **metadata,
        },
        "spec": {"queueName": "main", "priority": priority},
        "status": {
            "conditions": list(state),
            "admission": {"clusterQueue": "right", "podSetAssignments": []},
        },
    }


def victim(*more: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return workload("victim", "team", 1, condition("QuotaReserved"), *more, **metadata)


class FakeRecorder:
    """Keeps the events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, regarding: dict[str, Any], kind: str, reason: str, note: str) -> None:
        assert kind == "Normal"
        self.events.append((regarding["metadata"]["name"], reason, note))


class World:
    """A store, an API server with scripted answers, and the writer between them."""

    def __init__(self, stored: dict[str, Any] | None, answers: Iterable[ApiError | str] = ()) -> None:
        self.api: dict[str, Any] | None = stored
        self.answers = list(answers)
        self.writes = 0
        self.priorities: list[CallPriority] = []
        self.store = Store(WORKLOADS)
        for obj in (stored, workload("preemptor", "other", 10, labels={NAMES.job_uid: "job-1"})):
            if obj is not None:
                self.store.upsert(obj)
        self.recorder = FakeRecorder()
        self.metrics = Metrics()
        self.is_same_to_core = True
        guarded = GuardedWrites(
            client=cast("Any", self),
            resource=WORKLOADS,
            workloads=self.store,
            store_answer=lambda _, obj: cast("None", self.store.upsert(obj)),
            is_same_to_core=lambda *_: self.is_same_to_core,
            metrics=self.metrics,
            field_manager="test",
        )
        self.writer = PreemptionWriter(
            writes=guarded,
            names=NAMES,
            recorder=cast("Any", self.recorder),
            measures=WorkloadMeasures(MeasureScope(self.metrics, lambda _: "right")),
            clock=lambda: NOW,
            priority_of=lambda obj: EffectivePriority(
                obj["spec"]["priority"], 2 * (obj["spec"]["priority"] > 5)
            ),
            errors=self.metrics.errors,
        )

    async def apply(self, _resource: Any, configuration: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.writes += 1
        self.priorities.append(current_priority(CallPriority.STATUS))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, ApiError):
            raise answer
        assert self.api is not None
        if configuration["metadata"]["resourceVersion"] != self.api["metadata"]["resourceVersion"]:
            raise CONFLICT
        version = str(int(self.api["metadata"]["resourceVersion"]) + 1)
        metadata = {**self.api["metadata"], "resourceVersion": version}
        self.api = {**self.api, "metadata": metadata, "status": configuration["status"]}
        if answer == STORED_WITHOUT_ANSWER:
            raise NO_ANSWER
        return self.api

    async def merge_patch(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Refuse, as the apply before it was refused."""
        self.writes += 1
        raise REFUSED

    async def get(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.priorities.append(current_priority(CallPriority.READ))
        if self.api is None:
            raise ApiError(404, "NotFound", "gone")
        return self.api

    def value(self, series: str) -> float:
        lines = self.metrics.exposition().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"admitq_{series}{{"))


@pytest.fixture(autouse=True)
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_writes, "backoff_seconds", lambda _: 0.0)


async def test_preempted_target_names_preemptor_and_reason_and_keeps_its_quota() -> None:
    world = World(victim())
    assert await world.writer.preempt(PREEMPTION)
    assert world.api is not None
    status = world.api["status"]
    conditions = {item["type"]: item for item in status["conditions"]}
    written = {name: (item["status"], item["reason"], item["message"]) for name, item in conditions.items()}
    assert written["Evicted"] == ("True", "Preempted", MESSAGE)
    assert written["Preempted"] == ("True", "InCohortReclamation", MESSAGE)
    assert written["QuotaReserved"][0] == "True"
    assert status["admission"]
    assert status["schedulingStats"] == {
        "evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]
    }
    assert world.recorder.events == [
        ("victim", "Preempted", f"{MESSAGE}; {PRIORITIES}"),
        ("victim", "EvictedDueToPreempted", MESSAGE),
        (
            "preemptor",
            "PreemptedWorkload",
            f"Preempted workload team/victim (UID: uid-victim) in ClusterQueue right; {PRIORITIES}",
        ),
    ]
    assert world.value("preempted_workloads_total") == 1


@pytest.mark.parametrize(
    ("answers", "writes"),
    [
        ([NO_ANSWER], 2),
        ([NO_ANSWER, NO_ANSWER], 3),
        ([STORED_WITHOUT_ANSWER], 2),
        ([STORED_WITHOUT_ANSWER, NO_ANSWER], 3),
    ],
    ids=str,
)
async def test_preemption_without_answer_is_rewritten_and_reported_once(
    answers: list[Any], writes: int
) -> None:
    world = World(victim(), answers)
    assert await world.writer.preempt(PREEMPTION)
    assert world.writes == writes
    assert world.value("preempted_workloads_total") == 1
    assert len(world.recorder.events) == 3


async def test_preemption_is_written_to_newer_version_that_is_same_to_core() -> None:
    world = World(victim())
    world.api = victim(condition("PodsReady"), resourceVersion="7")
    assert await world.writer.preempt(PREEMPTION)
    types = [item["type"] for item in world.api["status"]["conditions"]]
    assert types[:2] == ["QuotaReserved", "PodsReady"]


@pytest.mark.parametrize(
    ("latest", "is_same_to_core"),
    [
        (victim(resourceVersion="7"), False),
        (victim(resourceVersion="7", uid="another"), True),
        (victim(condition("Finished"), resourceVersion="7"), True),
        (workload("victim", "team", 1, condition("QuotaReserved", "False"), resourceVersion="7"), True),
        (None, True),
    ],
    ids=["changed for core", "other uid", "finished", "released", "deleted"],
)
async def test_preemption_is_not_written_to_newer_version_that_core_did_not_decide_for(
    latest: dict[str, Any] | None, is_same_to_core: bool
) -> None:
    world = World(victim(), [CONFLICT] if latest is None else [])
    world.api, world.is_same_to_core = latest, is_same_to_core
    assert not await world.writer.preempt(PREEMPTION)
    assert world.recorder.events == []
    assert world.value("preempted_workloads_total") == 0


@pytest.mark.parametrize("stored", [None, victim(condition("Finished")), victim(uid="another")])
async def test_preemption_of_workload_that_is_not_preemptible_is_not_written(
    stored: dict[str, Any] | None,
) -> None:
    world = World(stored)
    assert not await world.writer.preempt(PREEMPTION)
    assert world.writes == 0


async def test_preemption_that_api_server_refuses_is_not_retried() -> None:
    world = World(victim(), [REFUSED])
    assert not await world.writer.preempt(PREEMPTION)
    assert world.writes == 2, "the apply, and the merge patch that replaces it"


async def test_evicted_target_counts_as_preempted_without_write_or_report() -> None:
    world = World(victim(condition("Evicted", reason="ClusterQueueStopped")))
    assert await world.writer.preempt(PREEMPTION)
    assert world.writes == 0
    assert world.recorder.events == []


async def test_target_evicted_by_another_writer_counts_as_preempted_without_report() -> None:
    world = World(victim())
    world.api = victim(condition("Evicted", reason="LocalQueueStopped"), resourceVersion="7")
    assert await world.writer.preempt(PREEMPTION)
    assert world.recorder.events == []


async def test_message_names_unknown_job_if_preemptor_is_deleted() -> None:
    world = World(victim())
    world.store.remove({**workload("preemptor", "other", 10)})
    assert await world.writer.preempt(PREEMPTION)
    assert world.api is not None
    assert "(UID: uid-preemptor, JobUID: UNKNOWN)" in world.api["status"]["conditions"][-1]["message"]
    assert [reason for _, reason, _ in world.recorder.events] == ["Preempted", "EvictedDueToPreempted"]


async def test_preemption_reads_and_writes_have_eviction_call_priority() -> None:
    world = World(victim())
    world.api = victim(resourceVersion="7")
    assert await world.writer.preempt(PREEMPTION)
    assert world.priorities == [CallPriority.EVICTION] * 3
    assert current_priority(CallPriority.STATUS) is CallPriority.STATUS
