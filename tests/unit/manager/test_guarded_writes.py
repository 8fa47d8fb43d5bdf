"""Guarded writes of decisions: lost answers, concurrent writes of other programs, and repeated failures."""

import asyncio
import gc
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from admitq.core.model import Admission, ObjectKey, PodSetAssignment
from admitq.manager import guarded_writes
from admitq.manager.guarded_writes import (
    CONCURRENT_OVERDUE_REQUESTS,
    CONCURRENT_REQUESTS,
    DecisionKind,
    GuardedWrites,
    WorkloadDecision,
)
from admitq.metrics.registry import Metrics
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.runtime.rate_limit import CallPriority, current_priority
from admitq.runtime.store import Store
from admitq.runtime.write_scheduler import WriteScheduler
from admitq.workloads.admission_patches import pending_patch, reservation_patch
from admitq.workloads.transitions import is_reserved
from admitq_api import conditions
from admitq_api.labels import names_for
from localcluster.waiting import eventually

WORKLOADS = kinds_of(names_for()).workloads
KEY = ObjectKey("team", "w")
ADMISSION = Admission("cq", (PodSetAssignment("main", (("cpu", "f"),), (("cpu", 1000),), 1),))
NO_ANSWER = ApiError(0, "Timeout", "no answer")
WEBHOOK_FAILS = ApiError(500, "InternalError", "failed calling webhook")
FORBIDDEN = ApiError(403, "Forbidden", "denied")
CONFLICT = ApiError(409, "Conflict", "the conflict is an answer of a webhook")
LEFTOVER = {"clusterQueue": "other", "podSetAssignments": [{"name": "main", "count": 1}]}


def workload(**status: Any) -> dict[str, Any]:
    metadata = {
        "name": "w",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2026-03-01T10:00:00Z",
    }
    return {"metadata": metadata, "spec": {"queueName": "lq"}, "status": status}


class Server:
    """An API server with one Workload. The first ``lost_answers`` answers to applies never arrive.

    A step of the script may fail an apply before it takes effect.
    """

    def __init__(
        self,
        stored: dict[str, Any],
        *,
        lost_answers: int = 0,
        newer: dict[str, Any] | None = None,
        script: "Iterable[Callable[[Server, dict[str, Any]], None]]" = (),
    ) -> None:
        self.stored, self.lost_answers, self.newer = stored, lost_answers, newer
        self.script = list(script)
        self.delayed: dict[str, Any] = {}
        self.applied = 0
        self.priorities: list[CallPriority] = []
        self.withdrawals = 0
        self.metrics = Metrics()
        self.scheduler = WriteScheduler()
        self.store = Store(WORKLOADS)
        self.store.upsert(stored)
        self.writes = GuardedWrites(
            client=cast("Any", self),
            resource=WORKLOADS,
            workloads=self.store,
            store_answer=lambda _, obj: cast("None", self.store.upsert(obj)),
            is_same_to_core=lambda *_: True,
            metrics=self.metrics,
            field_manager="admitq-admission",
        )

    async def apply(self, _resource: Any, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.priorities.append(current_priority(CallPriority.STATUS))
        if self.script:
            self.script.pop(0)(self, body)
        self.store_apply(body)
        if self.lost_answers:
            self.lost_answers -= 1
            raise NO_ANSWER
        return self.stored

    def store_apply(self, body: dict[str, Any]) -> None:
        """Let an apply take effect, or raise a conflict."""
        if self.newer is not None:
            self.stored, self.newer = self.newer, None
        version = self.stored["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            raise ApiError(409, "Conflict", "the object has been modified")
        self.applied += 1
        metadata = {**self.stored["metadata"], "resourceVersion": str(int(version) + 1)}
        self.stored = {**self.stored, "metadata": metadata, "status": body["status"]}

    async def get(self, *_: Any, **__: Any) -> dict[str, Any]:
        return self.stored

    async def reserve(self, *, can_be_withdrawn: bool = False) -> dict[str, Any] | None:
        return await self.writes.write_decision(self.decision(can_be_withdrawn=can_be_withdrawn))

    def decision(self, *, can_be_withdrawn: bool = False) -> WorkloadDecision:
        return WorkloadDecision(
            DecisionKind.RESERVATION,
            KEY,
            "u",
            lambda obj: reservation_patch(obj, ADMISSION, admit=True, now=0),
            is_written_in=is_reserved,
            withdrawal_patch_of=self.withdrawal if can_be_withdrawn else lambda *_: None,
        )

    def withdrawal(self, obj: dict[str, Any], error: ApiError) -> dict[str, Any] | None:
        self.withdrawals += 1
        message = f"{self.withdrawals}: {error}"
        return pending_patch(obj, reason="PendingEvaluation", message=message, now=0)

    @property
    def unwritten(self) -> float:
        """Return the value of the metric of unwritten decisions."""
        lines = self.metrics.exposition().decode().splitlines()
        series = [line for line in lines if line.startswith("admitq_unwritten_decisions{")]
        return sum(float(line.split()[-1]) for line in series)


@pytest.fixture(autouse=True)
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_writes, "backoff_seconds", lambda _: 0.0)


async def test_a2_reservation_with_lost_answer_is_applied_once() -> None:
    server = Server(workload(), lost_answers=1)
    written = await server.reserve()
    assert written == server.stored
    assert is_reserved(server.stored)
    assert server.applied == 1


async def test_a2_newer_version_with_leftover_admission_does_not_count_as_reserved() -> None:
    newer = workload(admission=LEFTOVER)
    newer["metadata"]["resourceVersion"] = "5"
    server = Server(workload(), newer=newer)
    written = await server.reserve()
    assert written is not None
    assert server.applied == 1
    assert written["status"]["admission"]["clusterQueue"] == "cq"


@pytest.mark.parametrize("cancelled", ["none", "waiting writer", "next writer"])
async def test_exclusive_writer_excludes_writer_that_arrives_as_lock_is_released(cancelled: str) -> None:
    writes = Server(workload()).writes
    inside, most_inside, written = 0, 0, 0

    async def write() -> None:
        nonlocal inside, most_inside, written
        async with writes.exclusive_writer(KEY):
            inside += 1
            most_inside = max(most_inside, inside)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            inside -= 1
            written += 1

    async def write_twice() -> None:
        await write()
        # Here the lock is free, and the first of the next writers is about to take it.
        if cancelled == "next writer":
            next_writers[0].cancel()
        await write()

    first_writer = asyncio.create_task(write_twice())
    next_writers = [asyncio.create_task(write()) for _ in range(3)]
    await asyncio.sleep(0)
    if cancelled == "waiting writer":
        next_writers[0].cancel()
    await asyncio.wait([first_writer, *next_writers])
    first_writer.result()
    assert most_inside == 1
    assert written == (5 if cancelled == "none" else 4)
    next_writers.clear()
    gc.collect()  # frames that a cancellation was raised through hold locks
    assert not writes._locks  # pyright: ignore[reportPrivateUsage]


# --- decisions that cannot be written -------------------------------------------------------------

Step = Callable[[Server, dict[str, Any]], None]


def fails(error: ApiError) -> Step:
    """Raise an error instead of the apply."""

    def step(_server: Server, _body: dict[str, Any]) -> None:
        raise error

    return step


def is_delayed(server: Server, body: dict[str, Any]) -> None:
    """Delay the apply, and time out."""
    server.delayed = body
    raise NO_ANSWER


def delayed_apply_arrives(server: Server, _body: dict[str, Any]) -> None:
    """Store the delayed apply just before this one."""
    server.store_apply(server.delayed)


def answer_is_lost(server: Server, body: dict[str, Any]) -> None:
    """Store the apply, and time out."""
    server.store_apply(body)
    raise NO_ANSWER


@pytest.mark.parametrize(
    ("script", "is_written"),
    [
        ([fails(WEBHOOK_FAILS)], False),
        ([is_delayed], False),
        ([is_delayed, delayed_apply_arrives], True),
        ([fails(WEBHOOK_FAILS)] * 4, True),
        ([fails(WEBHOOK_FAILS), fails(FORBIDDEN)] * 2, True),
        ([fails(WEBHOOK_FAILS), answer_is_lost], True),
    ],
    ids=[
        "reservation fails once",
        "reservation is delayed",
        "delayed reservation arrives before withdrawal",
        "reservation and withdrawal fail twice",
        "withdrawal is refused",
        "answer to withdrawal is lost",
    ],
)
async def test_overdue_reservation_is_either_written_or_withdrawn(
    monkeypatch: pytest.MonkeyPatch, script: list[Step], is_written: bool
) -> None:
    monkeypatch.setattr(guarded_writes, "OVERDUE_SECONDS", 0.0)
    server = Server(workload(), script=script)
    written = await server.reserve(can_be_withdrawn=True)
    assert (written is not None) == is_written == is_reserved(server.stored)
    assert not server.script
    assert server.unwritten == 0
    if server.delayed:
        with pytest.raises(ApiError, match="modified"):
            server.store_apply(server.delayed)


async def test_withdrawal_without_effect_is_not_taken_for_withdrawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guarded_writes, "OVERDUE_SECONDS", 0.0)
    server = Server(workload(), script=[is_delayed])
    store_apply = server.store_apply

    def store_only_reservations(body: dict[str, Any]) -> None:
        if is_reserved(body):
            store_apply(body)

    monkeypatch.setattr(server, "store_apply", store_only_reservations)
    assert await server.reserve(can_be_withdrawn=True) == server.stored
    assert is_reserved(server.stored)


@pytest.mark.parametrize(
    ("script", "is_written"),
    [
        ([fails(FORBIDDEN)], False),
        ([fails(NO_ANSWER), fails(FORBIDDEN)], True),
        ([fails(CONFLICT)], False),
        ([fails(NO_ANSWER), fails(CONFLICT)], True),
    ],
    ids=["refused", "refused after timeout", "conflict without newer version", "conflict after timeout"],
)
async def test_refused_write_is_final_unless_earlier_write_may_still_arrive(
    script: list[Step], is_written: bool
) -> None:
    server = Server(workload(), script=script)
    written = await server.reserve()
    assert (written is not None) == is_written == is_reserved(server.stored)


async def test_refused_reservation_is_withdrawn_at_once_with_error_as_message() -> None:
    server = Server(workload(), script=[fails(FORBIDDEN)])
    assert await server.reserve(can_be_withdrawn=True) is None
    status: dict[str, Any] = server.stored["status"]
    quota = conditions.find_condition(status["conditions"], "QuotaReserved")
    assert quota is not None
    assert (quota["status"], quota["message"]) == ("False", f"1: {FORBIDDEN}")
    assert server.unwritten == 0


async def test_read_is_retried_after_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    server, errors = Server(workload(), lost_answers=1), [FORBIDDEN]
    get = server.get

    async def fail_first(*args: Any, **named: Any) -> dict[str, Any]:
        if errors:
            raise errors.pop()
        return await get(*args, **named)

    monkeypatch.setattr(server, "get", fail_first)
    assert await server.reserve() == server.stored
    assert not errors


async def test_other_writer_gets_workload_between_attempts_of_overdue_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guarded_writes, "OVERDUE_SECONDS", 0.0)
    monkeypatch.setattr(guarded_writes, "backoff_seconds", lambda _: 3600.0)
    server = Server(workload(), script=[fails(WEBHOOK_FAILS)])
    reserving = asyncio.create_task(server.reserve())
    await eventually(lambda: server.unwritten == 1, interval=0.001, what="the first attempt failed")
    async with asyncio.timeout(10), server.writes.exclusive_writer(KEY):
        assert not reserving.done()
    reserving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reserving
    assert server.unwritten == 0


async def test_hanging_overdue_decisions_use_separate_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(workload())
    running_requests, answers = 0, asyncio.Event()
    kind = DecisionKind.PREEMPTION

    async def wait_for_answer(_obj: dict[str, Any], _patch: dict[str, Any]) -> dict[str, Any]:
        nonlocal running_requests
        running_requests += 1
        await answers.wait()
        return server.stored

    monkeypatch.setattr(server.writes, "write_patch", wait_for_answer)
    monkeypatch.setattr(server.writes, "latest_version", lambda *_: server.stored)

    async def count_requests() -> int:
        for _ in range(20):
            await asyncio.sleep(0)
        return running_requests

    def start_write(number: int, *, is_overdue: bool) -> "asyncio.Task[dict[str, Any] | None]":
        key = ObjectKey("team", f"{number} {is_overdue}")
        patch_of = server.decision().patch_of
        decision = WorkloadDecision(kind, key, "u", patch_of, is_reserved, is_overdue=is_overdue)
        return asyncio.create_task(server.writes.write_decision(decision))

    tasks = [start_write(number, is_overdue=True) for number in range(100)]
    assert await count_requests() == CONCURRENT_OVERDUE_REQUESTS
    tasks += [start_write(number, is_overdue=False) for number in range(100)]
    assert await count_requests() == CONCURRENT_OVERDUE_REQUESTS + CONCURRENT_REQUESTS[kind]
    answers.set()
    await asyncio.gather(*tasks)
