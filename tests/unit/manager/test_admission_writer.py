"""The admission writer writes refusals and reservations, and emits their events."""

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
from admitq.runtime.write_scheduler import WriteScheduler
from admitq.translate.messages import Explanation
from admitq_api import conditions
from admitq_api.labels import names_for
from localcluster.waiting import eventually
from tests.unit.manager.test_guarded_writes import ADMISSION as CORE_ADMISSION
from tests.unit.manager.test_guarded_writes import Server, workload

NOW = 1_800_000_000_000_000_000
KEY = ObjectKey("team", "w")


class FakeWrites:
    """Takes one write, of the status of a Workload."""

    def __init__(self, **status: Any) -> None:
        self.status = status
        self.priority: CallPriority | None = None
        self.scheduler = WriteScheduler()
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


class FakeRecorder:
    """Keeps the events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, _regarding: dict[str, Any], kind: str, reason: str, note: str) -> None:
        self.events.append((kind, reason, note))


@asynccontextmanager
async def running_writer(
    writes: FakeWrites,
    recorder: FakeRecorder,
    *,
    has_detailed_reasons: bool = True,
    is_pending: Callable[[ObjectKey], bool] = lambda _: True,
    errors: UnexpectedErrors = LOG_ONLY,
) -> AsyncGenerator[AdmissionWriter]:
    """Run a writer until the end of the block."""
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
async def test_refusal_is_written_with_detailed_reasons_only_if_enabled(
    refusal: Refusal, has_detailed_reasons: bool, reason: str, event: str
) -> None:
    writes, recorder = FakeWrites(), FakeRecorder()
    async with running_writer(writes, recorder, has_detailed_reasons=has_detailed_reasons) as writer:
        writer.schedule_report(ReportPending(KEY, "uid", refusal, ()))
        status = await asyncio.wait_for(writes.written, 10)
    quota = conditions.find_condition(status["conditions"], "QuotaReserved") or {}
    assert (quota.get("status"), quota.get("reason")) == ("False", reason)
    assert writes.priority is CallPriority.STATUS
    assert recorder.events == [("Warning", event, quota.get("message"))]


ADMISSION = {"clusterQueue": "cq", "podSetAssignments": []}


async def test_a2_refusal_of_workload_with_leftover_admission_removes_it() -> None:
    released = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "x",
        "message": "",
        "lastTransitionTime": "",
    }
    writes, recorder = FakeWrites(conditions=[released], admission=ADMISSION), FakeRecorder()
    async with running_writer(writes, recorder) as writer:
        writer.schedule_report(ReportPending(KEY, "uid", PodsNotReady(), ()))
        status = await asyncio.wait_for(writes.written, 10)
    assert status["admission"] is None


@pytest.mark.parametrize("parts", [{"admission": ADMISSION}, {}])
async def test_a2_refusal_of_reserved_workload_is_not_written(parts: dict[str, Any]) -> None:
    reserved = {"type": "QuotaReserved", "status": "True"}
    writes, recorder = FakeWrites(conditions=[reserved], **parts), FakeRecorder()
    async with running_writer(writes, recorder) as writer:
        await writer.write_pending(KEY, "uid", Explanation("Misconfigured", "m"), ())
    assert not writes.written.done()
    assert not recorder.events


async def test_backoff_of_report_grows_with_each_failed_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes, recorder, attempts = FakeWrites(), FakeRecorder(), list[int]()
    failures = [ApiError(503, "ServiceUnavailable", "down")] * 3
    monkeypatch.setattr(admission_writer, "backoff_seconds", lambda attempt: attempts.append(attempt) or 0)
    write_patch = writes.write_patch

    async def fail_first(_obj: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return await write_patch(_obj, patch)

    writes.write_patch = fail_first
    async with running_writer(writes, recorder) as writer:
        writer.schedule_report(ReportPending(KEY, "uid", PodsNotReady(), ()))
        await asyncio.wait_for(writes.written, 10)
    assert attempts == [1, 2, 3]


async def test_reservation_of_another_program_is_not_reported_as_own() -> None:
    other_admission = {"clusterQueue": "other", "podSetAssignments": [{"name": "main", "count": 1}]}
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
    newer = workload(conditions=[reserved], admission=other_admission)
    newer["metadata"]["resourceVersion"] = "5"
    server, recorder = Server(workload(), newer=newer), FakeRecorder()
    server.writes.is_same_to_core = lambda *_: False
    async with running_writer(cast("FakeWrites", server.writes), recorder) as writer:
        assert await writer.reserve(ReserveQuota(KEY, "u", CORE_ADMISSION, admit=True)) is None
    assert server.stored["status"]["admission"] == other_admission
    assert not recorder.events


async def test_reservation_with_lost_answer_is_reported() -> None:
    server, recorder = Server(workload(), lost_answers=1), FakeRecorder()
    async with running_writer(cast("FakeWrites", server.writes), recorder) as writer:
        assert await writer.reserve(ReserveQuota(KEY, "u", CORE_ADMISSION, admit=True)) == server.stored
    assert server.priorities == [CallPriority.RESERVATION] * 2
    assert [reason for _, reason, _ in recorder.events] == ["QuotaReserved", "Admitted"]


async def test_refusal_of_workload_that_is_no_longer_pending_is_not_written() -> None:
    writes, recorder = FakeWrites(), FakeRecorder()
    other = ObjectKey("team", "other")
    async with running_writer(writes, recorder, is_pending=lambda key: key == other) as writer:
        writer.schedule_report(ReportPending(KEY, "uid", PodsNotReady(), ()))
        writer.schedule_report(ReportPending(other, "uid", NamespaceMismatch(), ()))
        await asyncio.wait_for(writes.written, 10)
    assert [reason for _, reason, _ in recorder.events] == ["Misconfigured"]


async def test_refusal_of_workload_that_is_admitted_soon_is_not_written() -> None:
    server, recorder = Server(workload()), FakeRecorder()
    async with running_writer(cast("FakeWrites", server.writes), recorder) as writer:
        writer.schedule_report(ReportPending(KEY, "u", PodsNotReady(), ()))
        assert await writer.reserve(ReserveQuota(KEY, "u", CORE_ADMISSION, admit=True)) == server.stored
        await until_reports_were_due(writer)
    assert [reason for _, reason, _ in recorder.events] == ["QuotaReserved", "Admitted"]


async def test_only_the_latest_refusal_is_written() -> None:
    writes, recorder = FakeWrites(), FakeRecorder()
    async with running_writer(writes, recorder) as writer:
        for refusal in (PodsNotReady(), PreemptionGated(), NamespaceMismatch()):
            writer.schedule_report(ReportPending(KEY, "uid", refusal, ()))
        await asyncio.wait_for(writes.written, 10)
    assert [reason for _, reason, _ in recorder.events] == ["Misconfigured"]


async def test_refusal_states_what_is_true_when_a_slot_is_free() -> None:
    writes, recorder = FakeWrites(), FakeRecorder()
    slots = [await writes.scheduler.take(CallPriority.STATUS) for _ in range(8)]
    async with running_writer(writes, recorder) as writer:
        writer.schedule_report(ReportPending(KEY, "uid", PodsNotReady(), ()))
        await eventually(lambda: writes.scheduler.count_waiting(CallPriority.STATUS) == 1)
        writer.schedule_report(ReportPending(KEY, "uid", NamespaceMismatch(), ()))
        writes.scheduler.release(slots[0])
        await asyncio.wait_for(writes.written, 10)
    assert [reason for _, reason, _ in recorder.events] == ["Misconfigured"]


@pytest.mark.parametrize(
    ("slowness", "seconds"), [(1.0, 1.0), (40.0, 5.0), (1000.0, 30.0)], ids=["idle", "slow", "stalled"]
)
async def test_reports_are_delayed_longer_while_the_api_server_is_slow(
    slowness: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []
    monkeypatch.setattr(WriteScheduler, "slowness", slowness)
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda delay, *_: delays.append(delay))
    async with running_writer(FakeWrites(), FakeRecorder()) as writer:
        writer.schedule_report(ReportPending(KEY, "uid", PodsNotReady(), ()))
    assert delays == [seconds]


async def until_reports_were_due(writer: AdmissionWriter) -> None:
    """Wait until the report of another workload, which is due later, was processed."""
    checked: list[ObjectKey] = []
    writer.is_pending = lambda key: bool(checked.append(key))
    writer.schedule_report(ReportPending(ObjectKey("team", "later"), "uid", PodsNotReady(), ()))
    await eventually(lambda: checked)
    assert checked == [ObjectKey("team", "later")]
