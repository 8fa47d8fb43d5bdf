"""Applies of the admission with a lost answer, beside another program's write, or that always fail."""

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
CONFLICT = ApiError(409, "Conflict", "a webhook may answer so, too")
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
    """One Workload that is applied; ``lost`` answers to applies never arrive.

    A step of the script may fail an apply before it takes effect.
    """

    def __init__(
        self,
        stored: dict[str, Any],
        *,
        lost: int = 0,
        newer: dict[str, Any] | None = None,
        script: "Iterable[Callable[[Server, dict[str, Any]], None]]" = (),
    ) -> None:
        self.stored, self.lost, self.newer = stored, lost, newer
        self.script = list(script)
        self.late: dict[str, Any] = {}
        self.applied = 0
        self.priorities: list[CallPriority] = []
        self.withdrawals = 0
        self.metrics = Metrics()
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
        self.land(body)
        if self.lost:
            self.lost -= 1
            raise NO_ANSWER
        return self.stored

    def land(self, body: dict[str, Any]) -> None:
        """Have an apply take effect, or conflict."""
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

    async def reserve(self, *, withdraws: bool = False) -> dict[str, Any] | None:
        return await self.writes.write_decision(self.decision(withdraws=withdraws))

    def decision(self, *, withdraws: bool = False) -> WorkloadDecision:
        return WorkloadDecision(
            DecisionKind.RESERVATION,
            KEY,
            "u",
            lambda obj: reservation_patch(obj, ADMISSION, admit=True, now=0),
            is_written_in=is_reserved,
            withdrawal_patch_of=self.withdrawal if withdraws else lambda *_: None,
        )

    def withdrawal(self, obj: dict[str, Any], error: ApiError) -> dict[str, Any] | None:
        self.withdrawals += 1
        message = f"{self.withdrawals}: {error}"
        return pending_patch(obj, reason="PendingEvaluation", message=message, now=0)

    @property
    def unwritten(self) -> float:
        """What the metric counts."""
        lines = self.metrics.exposition().decode().splitlines()
        return sum(float(one.split()[-1]) for one in lines if one.startswith("admitq_unwritten_decisions{"))


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_writes, "backoff_seconds", lambda _: 0.0)


async def test_a2_apply_with_lost_answer_is_applied_once() -> None:
    server = Server(workload(), lost=1)
    written = await server.reserve()
    assert written == server.stored
    assert is_reserved(server.stored)
    assert server.applied == 1


async def test_a2_leftover_admission_in_a_newer_version_is_no_reservation() -> None:
    newer = workload(admission=LEFTOVER)
    newer["metadata"]["resourceVersion"] = "5"
    server = Server(workload(), newer=newer)
    written = await server.reserve()
    assert written is not None
    assert server.applied == 1
    assert written["status"]["admission"]["clusterQueue"] == "cq"


@pytest.mark.parametrize("cancelled", ["no writer", "a writer that waits", "the writer that is next"])
async def test_sole_writer_keeps_out_writer_that_arrives_as_another_leaves(cancelled: str) -> None:
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
        # Here the lock is free, and the first of those that wait is about to take it.
        if cancelled == "the writer that is next":
            waiting[0].cancel()
        await write()

    leaving = asyncio.create_task(write_twice())
    waiting = [asyncio.create_task(write()) for _ in range(3)]
    await asyncio.sleep(0)
    if cancelled == "a writer that waits":
        waiting[0].cancel()
    await asyncio.wait([leaving, *waiting])
    leaving.result()
    assert most_inside == 1
    assert written == (5 if cancelled == "no writer" else 4)
    waiting.clear()
    gc.collect()  # of what a cancellation was raised through
    assert not writes._locks  # pyright: ignore[reportPrivateUsage]


# --- decisions that cannot be written -------------------------------------------------------------

Step = Callable[[Server, dict[str, Any]], None]


def fails(error: ApiError) -> Step:
    """The apply takes no effect."""

    def step(_server: Server, _body: dict[str, Any]) -> None:
        raise error

    return step


def is_late(server: Server, body: dict[str, Any]) -> None:
    """The apply is held up on its way, and the client gets no answer."""
    server.late = body
    raise NO_ANSWER


def arrives(server: Server, _body: dict[str, Any]) -> None:
    """The apply that was held up arrives just before this one."""
    server.land(server.late)


def is_lost(server: Server, body: dict[str, Any]) -> None:
    """The apply takes effect, and the client gets no answer."""
    server.land(body)
    raise NO_ANSWER


@pytest.mark.parametrize(
    ("script", "is_written"),
    [
        ([fails(WEBHOOK_FAILS)], False),
        ([is_late], False),
        ([is_late, arrives], True),
        ([fails(WEBHOOK_FAILS)] * 4, True),
        ([fails(WEBHOOK_FAILS), fails(FORBIDDEN)] * 2, True),
        ([fails(WEBHOOK_FAILS), is_lost], True),
    ],
    ids=[
        "withdrawn",
        "withdrawn while the reservation is on its way",
        "reserved before it is withdrawn",
        "neither can be written for a while",
        "withdrawal refused",
        "answer to the withdrawal lost",
    ],
)
async def test_overdue_reservation_stands_or_is_withdrawn(
    monkeypatch: pytest.MonkeyPatch, script: list[Step], is_written: bool
) -> None:
    monkeypatch.setattr(guarded_writes, "OVERDUE_SECONDS", 0.0)
    server = Server(workload(), script=script)
    written = await server.reserve(withdraws=True)
    assert (written is not None) == is_written == is_reserved(server.stored)
    assert not server.script
    assert server.unwritten == 0
    if server.late:
        with pytest.raises(ApiError, match="modified"):
            server.land(server.late)


async def test_withdrawal_that_changes_nothing_does_not_end_the_uncertainty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guarded_writes, "OVERDUE_SECONDS", 0.0)
    server = Server(workload(), script=[is_late])
    landed = server.land

    def land(body: dict[str, Any]) -> None:
        if is_reserved(body):
            landed(body)

    monkeypatch.setattr(server, "land", land)
    assert await server.reserve(withdraws=True) == server.stored
    assert is_reserved(server.stored)


@pytest.mark.parametrize(
    ("script", "is_written"),
    [
        ([fails(FORBIDDEN)], False),
        ([fails(NO_ANSWER), fails(FORBIDDEN)], True),
        ([fails(CONFLICT)], False),
        ([fails(NO_ANSWER), fails(CONFLICT)], True),
    ],
    ids=["refused", "refused after no answer", "conflict without a newer version", "that after no answer"],
)
async def test_refusal_is_final_unless_an_earlier_write_may_still_land(
    script: list[Step], is_written: bool
) -> None:
    server = Server(workload(), script=script)
    written = await server.reserve()
    assert (written is not None) == is_written == is_reserved(server.stored)


async def test_refused_reservation_is_withdrawn_at_once() -> None:
    server = Server(workload(), script=[fails(FORBIDDEN)])
    assert await server.reserve(withdraws=True) is None
    status: dict[str, Any] = server.stored["status"]
    quota = conditions.find_condition(status["conditions"], "QuotaReserved")
    assert quota is not None
    assert (quota["status"], quota["message"]) == ("False", f"1: {FORBIDDEN}")
    assert server.unwritten == 0


async def test_reading_that_is_refused_is_not_final(monkeypatch: pytest.MonkeyPatch) -> None:
    server, refusals = Server(workload(), lost=1), [FORBIDDEN]
    reading = server.get

    async def get(*args: Any, **named: Any) -> dict[str, Any]:
        if refusals:
            raise refusals.pop()
        return await reading(*args, **named)

    monkeypatch.setattr(server, "get", get)
    assert await server.reserve() == server.stored
    assert not refusals


async def test_other_writes_of_a_workload_take_their_turn_between_two_attempts(
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


async def test_requests_that_hang_for_overdue_decisions_take_no_slots_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(workload())
    on_their_way, answered = 0, asyncio.Event()
    kind = DecisionKind.PREEMPTION

    async def once(_obj: dict[str, Any], _patch: dict[str, Any]) -> dict[str, Any]:
        nonlocal on_their_way
        on_their_way += 1
        await answered.wait()
        return server.stored

    monkeypatch.setattr(server.writes, "write_patch", once)
    monkeypatch.setattr(server.writes, "latest_version", lambda *_: server.stored)

    async def settled() -> int:
        for _ in range(20):
            await asyncio.sleep(0)
        return on_their_way

    def begin(number: int, *, is_overdue: bool) -> "asyncio.Task[dict[str, Any] | None]":
        key = ObjectKey("team", f"{number} {is_overdue}")
        patch_of = server.decision().patch_of
        decision = WorkloadDecision(kind, key, "u", patch_of, is_reserved, is_overdue=is_overdue)
        return asyncio.create_task(server.writes.write_decision(decision))

    tasks = [begin(number, is_overdue=True) for number in range(100)]
    assert await settled() == CONCURRENT_OVERDUE_REQUESTS
    tasks += [begin(number, is_overdue=False) for number in range(100)]
    assert await settled() == CONCURRENT_OVERDUE_REQUESTS + CONCURRENT_REQUESTS[kind]
    answered.set()
    await asyncio.gather(*tasks)
