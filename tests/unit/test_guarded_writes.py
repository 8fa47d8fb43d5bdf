"""Applies of the admission whose answer is lost, or that meet another program's write."""

import asyncio
import gc
from typing import Any, cast

import pytest

from admitq import guarded_writes
from admitq.core.model import Admission, ObjectKey, PodSetAssignment
from admitq.guarded_writes import GuardedWrites
from admitq.reservation import reservation_patch
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.runtime.rate_limit import CallPriority, current_priority
from admitq.runtime.store import Store
from admitq.transitions import is_reserved
from admitq_api.labels import names_for

Object = dict[str, Any]

WORKLOADS = kinds_of(names_for()).workloads
KEY = ObjectKey("team", "w")
ADMISSION = Admission("cq", (PodSetAssignment("main", (("cpu", "f"),), (("cpu", 1000),), 1),))
NO_ANSWER = ApiError(0, "Timeout", "no answer")
LEFTOVER = {"clusterQueue": "other", "podSetAssignments": [{"name": "main", "count": 1}]}


def workload(**status: Any) -> Object:
    metadata = {
        "name": "w",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2026-03-01T10:00:00Z",
    }
    return {"metadata": metadata, "spec": {"queueName": "lq"}, "status": status}


class Server:
    """One Workload that is applied; ``lost`` answers to applies never arrive."""

    def __init__(self, stored: Object, *, lost: int = 0, newer: Object | None = None) -> None:
        self.stored, self.lost, self.newer = stored, lost, newer
        self.applied = 0
        self.priorities: list[CallPriority] = []
        self.store = Store(WORKLOADS)
        self.store.upsert(stored)
        self.writes = GuardedWrites(
            client=cast("Any", self),
            resource=WORKLOADS,
            workloads=self.store,
            observed=lambda _, obj: cast("None", self.store.upsert(obj)),
            decides_alike=lambda *_: True,
            field_manager="admitq-admission",
        )

    async def apply(self, _resource: Any, body: Object, **_: Any) -> Object:
        self.priorities.append(current_priority(CallPriority.STATUS))
        if self.newer is not None:
            self.stored, self.newer = self.newer, None
        version = self.stored["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            raise ApiError(409, "Conflict", "the object has been modified")
        self.applied += 1
        metadata = {**self.stored["metadata"], "resourceVersion": str(int(version) + 1)}
        self.stored = {**self.stored, "metadata": metadata, "status": body["status"]}
        if self.lost:
            self.lost -= 1
            raise NO_ANSWER
        return self.stored

    async def get(self, *_: Any, **__: Any) -> Object:
        return self.stored

    async def reserve(self) -> Object | None:
        return await self.writes.until_certain(
            KEY,
            "u",
            lambda obj: reservation_patch(obj, ADMISSION, admit=True, now=0),
            stands=is_reserved,
        )


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_writes, "backoff", lambda _: 0.0)


async def test_a2_apply_whose_answer_is_lost_is_applied_once() -> None:
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
        async with writes.sole_writer(KEY):
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
    assert not writes._writing  # pyright: ignore[reportPrivateUsage]
