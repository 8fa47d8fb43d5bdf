"""Why a workload waits: what its status and an event tell of it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from admitq.core.instructions import ReportPending, ReserveQuota
from admitq.core.model import ObjectKey
from admitq.core.refusals import NamespaceMismatch, PodsNotReady, PreemptionGated, Refusal
from admitq.manager import admission_writer
from admitq.manager.admission_writer import AdmissionWriter
from admitq.manager.guarded_writes import GuardedWrites
from admitq.process.unexpected_errors import LOG_ONLY, UnexpectedErrors
from admitq.runtime.errors import ApiError
from admitq.runtime.events import EventRecorder
from admitq.runtime.rate_limit import CallPriority, current_priority
from admitq.translate.messages import Explanation
from admitq_api import conditions
from admitq_api.labels import names_for
from tests.unit.manager.test_guarded_writes import ADMISSION as ADMISSION_OF_CORE
from tests.unit.manager.test_guarded_writes import Server, workload

NOW = 1_800_000_000_000_000_000
KEY = ObjectKey("team", "w")


class Writes:
    """A Workload that is written once."""

    def __init__(self, **status: Any) -> None:
        self.status = status
        self.priority: CallPriority | None = None
        self.written: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def latest_version(self, _key: ObjectKey, uid: str) -> dict[str, Any]:
        metadata = {"name": "w", "namespace": "team", "uid": uid, "resourceVersion": "1"}
        return {"metadata": metadata, "status": self.status}

    @asynccontextmanager
    async def exclusive_writer(self, _key: ObjectKey) -> AsyncGenerator[None]:
        yield

    async def write_patch(self, _obj: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
        self.priority = current_priority(CallPriority.STATUS)
        self.written.set_result(patch["status"])
        return patch


class Recorder:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def event(self, _regarding: dict[str, Any], kind: str, reason: str, note: str) -> None:
        self.told.append((kind, reason, note))


@asynccontextmanager
async def writing(
    writes: Writes,
    recorder: Recorder,
    *,
    has_detailed_reasons: bool = True,
    is_pending: Callable[[ObjectKey], bool] = lambda _: True,
    errors: UnexpectedErrors = LOG_ONLY,
) -> AsyncGenerator[AdmissionWriter]:
    """A writer that runs."""
    writer = AdmissionWriter(
        writes=cast("GuardedWrites", writes),
        names=names_for(),
        recorder=cast("EventRecorder", recorder),
        clock=lambda: NOW,
        is_pending=is_pending,
        retry_delay=lambda _: 0,
        has_detailed_reasons=has_detailed_reasons,
        errors=errors,
    )
    running = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@pytest.mark.parametrize(
    ("refusal", "has_detailed_reasons", "reason", "event"),
    [
        (NamespaceMismatch(), True, "Misconfigured", "Misconfigured"),
        (PodsNotReady(), True, "WaitingForPodsReady", "WaitingForPodsReady"),
        (NamespaceMismatch(), False, "Pending", "Pending"),
        (PodsNotReady(), False, "Waiting", "Pending"),
        (PreemptionGated(), False, "AdmissionGated", "Pending"),
    ],
)
async def test_refusal_has_the_enabled_reasons(
    refusal: Refusal, has_detailed_reasons: bool, reason: str, event: str
) -> None:
    writes, recorder = Writes(), Recorder()
    async with writing(writes, recorder, has_detailed_reasons=has_detailed_reasons) as writer:
        writer.schedule_report(ReportPending(KEY, "uid", refusal, ()))
        status = await asyncio.wait_for(writes.written, 10)
    quota = conditions.find_condition(status["conditions"], "QuotaReserved") or {}
    assert (quota.get("status"), quota.get("reason")) == ("False", reason)
    assert writes.priority is CallPriority.STATUS
    assert recorder.told == [("Warning", event, quota.get("message"))]


ADMISSION = {"clusterQueue": "cq", "podSetAssignments": []}


async def test_a2_refusal_of_workload_with_leftover_admission_is_written() -> None:
    released = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "x",
        "message": "",
        "lastTransitionTime": "",
    }
    writes, recorder = Writes(conditions=[released], admission=ADMISSION), Recorder()
    async with writing(writes, recorder) as writer:
        writer.schedule_report(ReportPending(KEY, "uid", PodsNotReady(), ()))
        status = await asyncio.wait_for(writes.written, 10)
    assert status["admission"] is None


@pytest.mark.parametrize("parts", [{"admission": ADMISSION}, {}])
async def test_a2_refusal_of_reserved_workload_is_not_written(parts: dict[str, Any]) -> None:
    reserved = {"type": "QuotaReserved", "status": "True"}
    writes, recorder = Writes(conditions=[reserved], **parts), Recorder()
    async with writing(writes, recorder) as writer:
        await writer.write_pending(KEY, "uid", Explanation("Misconfigured", "m"), ())
    assert not writes.written.done()
    assert not recorder.told


async def test_retries_become_rarer_while_requests_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes, recorder, waits = Writes(), Recorder(), list[int]()
    failures = [ApiError(503, "ServiceUnavailable", "down")] * 3
    monkeypatch.setattr(admission_writer, "backoff_seconds", lambda attempt: waits.append(attempt) or 0)
    answered = writes.write_patch

    async def once(_obj: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return await answered(_obj, patch)

    writes.write_patch = once
    async with writing(writes, recorder) as writer:
        writer.schedule_report(ReportPending(KEY, "uid", PodsNotReady(), ()))
        await asyncio.wait_for(writes.written, 10)
    assert waits == [1, 2, 3]


async def test_reservation_of_another_program_is_not_reported_as_this_one() -> None:
    theirs = {"clusterQueue": "other", "podSetAssignments": [{"name": "main", "count": 1}]}
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
    newer = workload(conditions=[reserved], admission=theirs)
    newer["metadata"]["resourceVersion"] = "5"
    server, recorder = Server(workload(), newer=newer), Recorder()
    server.writes.is_same_to_core = lambda *_: False
    async with writing(cast("Writes", server.writes), recorder) as writer:
        assert await writer.reserve(ReserveQuota(KEY, "u", ADMISSION_OF_CORE, admit=True)) is None
    assert server.stored["status"]["admission"] == theirs
    assert not recorder.told


async def test_reservation_of_which_the_answer_was_lost_is_reported() -> None:
    server, recorder = Server(workload(), lost=1), Recorder()
    async with writing(cast("Writes", server.writes), recorder) as writer:
        assert await writer.reserve(ReserveQuota(KEY, "u", ADMISSION_OF_CORE, admit=True)) == server.stored
    assert server.priorities == [CallPriority.RESERVATION] * 2
    assert [reason for _, reason, _ in recorder.told] == ["QuotaReserved", "Admitted"]


async def test_refusal_of_workload_that_waits_no_longer_is_not_written() -> None:
    writes, recorder = Writes(), Recorder()
    other = ObjectKey("team", "other")
    async with writing(writes, recorder, is_pending=lambda key: key == other) as writer:
        writer.schedule_report(ReportPending(KEY, "uid", PodsNotReady(), ()))
        writer.schedule_report(ReportPending(other, "uid", NamespaceMismatch(), ()))
        await asyncio.wait_for(writes.written, 10)
    assert [reason for _, reason, _ in recorder.told] == ["Misconfigured"]
