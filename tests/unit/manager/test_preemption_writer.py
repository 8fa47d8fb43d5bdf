"""Preemptions are written once for all, whatever the API server answers on the way, and then told of."""

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
    ("root", "mine"),
    ("root", "middle", "theirs"),
)
MESSAGE = (
    "Preempted to accommodate a workload (UID: uid-preemptor, JobUID: job-1) due to reclamation "
    "within the cohort; preemptor path: /root/mine; preemptee path: /root/middle/theirs"
)
PRIORITIES = (
    "preemptor effective priority: 12 (base: 10, boost: 2); "
    "preemptee effective priority: 1 (base: 1, boost: 0)"
)

NO_ANSWER = ApiError(0, "", "no answer")
CONFLICT = ApiError(409, "Conflict", "changed since")
REFUSED = ApiError(422, "Invalid", "refused")
LANDED = "the write lands, and its answer is lost"


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
            "admission": {"clusterQueue": "theirs", "podSetAssignments": []},
        },
    }


def victim(*more: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return workload("victim", "team", 1, condition("QuotaReserved"), *more, **metadata)


class Recorder:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def event(self, regarding: dict[str, Any], kind: str, reason: str, note: str) -> None:
        assert kind == "Normal"
        self.told.append((regarding["metadata"]["name"], reason, note))


class World:
    """A store, an API server that answers as it is told, and the writer between them."""

    def __init__(self, stored: dict[str, Any] | None, answers: Iterable[ApiError | str] = ()) -> None:
        self.api: dict[str, Any] | None = stored
        self.answers = list(answers)
        self.writes = 0
        self.priorities: list[CallPriority] = []
        self.store = Store(WORKLOADS)
        for obj in (stored, workload("preemptor", "other", 10, labels={NAMES.job_uid: "job-1"})):
            if obj is not None:
                self.store.upsert(obj)
        self.recorder = Recorder()
        self.metrics = Metrics()
        self.alike = True
        guarded = GuardedWrites(
            client=cast("Any", self),
            resource=WORKLOADS,
            workloads=self.store,
            store_answer=lambda _, obj: cast("None", self.store.upsert(obj)),
            is_same_to_core=lambda *_: self.alike,
            metrics=self.metrics,
            field_manager="test",
        )
        self.writer = PreemptionWriter(
            writes=guarded,
            names=NAMES,
            recorder=cast("Any", self.recorder),
            measures=WorkloadMeasures(MeasureScope(self.metrics, lambda _: "theirs")),
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
        if answer == LANDED:
            raise NO_ANSWER
        return self.api

    async def merge_patch(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Refused like the apply before it."""
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
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_writes, "backoff_seconds", lambda _: 0.0)


async def test_target_reports_preemptor_and_reason_and_keeps_its_quota() -> None:
    world = World(victim())
    assert await world.writer.preempt(PREEMPTION)
    assert world.api is not None
    status = world.api["status"]
    said = {one["type"]: (one["status"], one["reason"], one["message"]) for one in status["conditions"]}
    assert said["Evicted"] == ("True", "Preempted", MESSAGE)
    assert said["Preempted"] == ("True", "InCohortReclamation", MESSAGE)
    assert said["QuotaReserved"][0] == "True"
    assert status["admission"]
    assert status["schedulingStats"] == {
        "evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]
    }
    assert world.recorder.told == [
        ("victim", "Preempted", f"{MESSAGE}; {PRIORITIES}"),
        ("victim", "EvictedDueToPreempted", MESSAGE),
        (
            "preemptor",
            "PreemptedWorkload",
            f"Preempted workload team/victim (UID: uid-victim) in ClusterQueue theirs; {PRIORITIES}",
        ),
    ]
    assert world.value("preempted_workloads_total") == 1


@pytest.mark.parametrize(
    ("answers", "writes"),
    [([NO_ANSWER], 2), ([NO_ANSWER, NO_ANSWER], 3), ([LANDED], 2), ([LANDED, NO_ANSWER], 3)],
    ids=str,
)
async def test_write_is_repeated_until_certain_and_reported_once(answers: list[Any], writes: int) -> None:
    world = World(victim(), answers)
    assert await world.writer.preempt(PREEMPTION)
    assert world.writes == writes
    assert world.value("preempted_workloads_total") == 1
    assert len(world.recorder.told) == 3


async def test_a_change_that_decides_nothing_is_written_over() -> None:
    world = World(victim())
    world.api = victim(condition("PodsReady"), resourceVersion="7")
    assert await world.writer.preempt(PREEMPTION)
    assert [one["type"] for one in world.api["status"]["conditions"]][:2] == ["QuotaReserved", "PodsReady"]


@pytest.mark.parametrize(
    ("now", "alike"),
    [
        (victim(resourceVersion="7"), False),
        (victim(resourceVersion="7", uid="another"), True),
        (victim(condition("Finished"), resourceVersion="7"), True),
        (workload("victim", "team", 1, condition("QuotaReserved", "False"), resourceVersion="7"), True),
        (None, True),
    ],
    ids=["changed", "another", "finished", "released", "gone"],
)
async def test_it_does_not_stand_where_it_was_not_decided_for(
    now: dict[str, Any] | None, alike: bool
) -> None:
    world = World(victim(), [CONFLICT] if now is None else [])
    world.api, world.alike = now, alike
    assert not await world.writer.preempt(PREEMPTION)
    assert world.recorder.told == []
    assert world.value("preempted_workloads_total") == 0


@pytest.mark.parametrize("stored", [None, victim(condition("Finished")), victim(uid="another")])
async def test_workload_that_is_no_target_is_not_written(stored: dict[str, Any] | None) -> None:
    world = World(stored)
    assert not await world.writer.preempt(PREEMPTION)
    assert world.writes == 0


async def test_a_refusal_is_final() -> None:
    world = World(victim(), [REFUSED])
    assert not await world.writer.preempt(PREEMPTION)
    assert world.writes == 2, "the apply, and the merge patch that replaces it"


async def test_evicted_target_counts_and_is_not_reported_again() -> None:
    world = World(victim(condition("Evicted", reason="ClusterQueueStopped")))
    assert await world.writer.preempt(PREEMPTION)
    assert world.writes == 0
    assert world.recorder.told == []


async def test_target_evicted_by_another_writer_counts() -> None:
    world = World(victim())
    world.api = victim(condition("Evicted", reason="LocalQueueStopped"), resourceVersion="7")
    assert await world.writer.preempt(PREEMPTION)
    assert world.recorder.told == []


async def test_a_preemptor_that_is_gone_leaves_its_place_in_the_text() -> None:
    world = World(victim())
    world.store.remove({**workload("preemptor", "other", 10)})
    assert await world.writer.preempt(PREEMPTION)
    assert world.api is not None
    assert "(UID: uid-preemptor, JobUID: UNKNOWN)" in world.api["status"]["conditions"][-1]["message"]
    assert [reason for _, reason, _ in world.recorder.told] == ["Preempted", "EvictedDueToPreempted"]


async def test_preemption_is_written_and_read_again_with_the_priority_of_evictions() -> None:
    world = World(victim())
    world.api = victim(resourceVersion="7")
    assert await world.writer.preempt(PREEMPTION)
    assert world.priorities == [CallPriority.EVICTION] * 3
    assert current_priority(CallPriority.STATUS) is CallPriority.STATUS
