"""Writes what the core decided about a Workload: its reservation, or why it waits.

One Workload is written by one task at a time, and each write carries the version that it was made from.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from admitq import explain
from admitq.core.amounts import Amounts
from admitq.core.instructions import ReportPending, ReserveQuota
from admitq.core.model import SECOND, Instant, ObjectKey
from admitq.logs import logger
from admitq.measures import Measures
from admitq.reservation import pending_patch, queued_since, reservation_patch
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.events import EventRecorder
from admitq.runtime.resources import Object, Resource
from admitq.runtime.store import Store
from admitq_api.conditions import Reason
from admitq_api.labels import Names

log = logger(__name__)

CONCERN: Final = "admission"
"""What the field manager of these writes is named after."""
RESERVATIONS_AT_ONCE: Final = 64
REPORT_WRITERS: Final = 4
REPORT_INTERVAL_SECONDS: Final = 1.0
"""Between two writes about why one workload waits."""
RETRY_BASE_SECONDS: Final = 0.05
RETRY_MAX_SECONDS: Final = 30.0


def backoff(attempt: int) -> float:
    """Seconds to wait before another attempt, the first being 1."""
    return min(RETRY_MAX_SECONDS, RETRY_BASE_SECONDS * 2 ** min(attempt - 1, 10))


@dataclass
class AdmissionWriter:
    """Writes reservations and refusals, and tells of them by events and metrics.

    Args:
        client: for the writes.
        resource: Workloads.
        workloads: the store of Workloads.
        names: the names of the API group.
        recorder: where Kubernetes events go.
        measures: where it is counted what happened to workloads.
        clock: wall time in nanoseconds.
        observed: takes the answer to one of our own writes into the stores.
        decides_alike: whether two versions of a Workload are the same to the core.
        tracks_pods_ready: whether Workloads tell if their pods are ready.
        tell_reasons: whether each cause of waiting has a reason of its own; otherwise all are Pending.
    """

    client: Client
    resource: Resource
    workloads: Store
    names: Names
    recorder: EventRecorder
    measures: Measures
    clock: Callable[[], Instant]
    observed: Callable[[Resource, Object], None]
    decides_alike: Callable[[Object, Object], bool]
    tracks_pods_ready: bool = True
    tell_reasons: bool = True

    _reports: dict[ObjectKey, ReportPending] = field(default_factory=dict[ObjectKey, ReportPending])
    _reports_due: "asyncio.Queue[ObjectKey]" = field(default_factory=asyncio.Queue)
    _reported_at: dict[ObjectKey, float] = field(default_factory=dict[ObjectKey, float])
    _writing: dict[ObjectKey, asyncio.Lock] = field(default_factory=dict[ObjectKey, asyncio.Lock])
    _reservations: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(RESERVATIONS_AT_ONCE))

    async def run(self) -> None:
        """Write refusals until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(REPORT_WRITERS):
                tasks.create_task(self._write_reports())

    def forget(self, key: ObjectKey) -> None:
        """A Workload is gone."""
        self._reports.pop(key, None)
        self._reported_at.pop(key, None)

    # --- reservations -----------------------------------------------------------------------------

    async def reserve(self, instruction: ReserveQuota) -> Object | None:
        """Write a reservation and tell of it.

        Returns:
            The Workload as it now is, or None if it is certain that the reservation does not stand.
        """
        self.forget(instruction.key)
        async with self._reservations, self._sole_writer(instruction.key):
            written = await self._write_reservation(instruction)
        if written is not None:
            self._tell_reserved(instruction, written)
        return written

    async def _write_reservation(self, instruction: ReserveQuota) -> Object | None:
        """Write a reservation until it is certain whether it stands; None if it does not.

        A write without an answer may still take effect, however late. So the very same write, upon the
        same version of the object, is sent again until one answer is final: at most one of them can land,
        and the quota stays counted until it is known. After a conflict the reservation is written upon the
        newer version if nothing has changed in it that the decision was made from.
        """
        key = instruction.key
        obj = self.workloads.get(key.namespace, key.name)
        attempt = 0
        while obj is not None and obj["metadata"]["uid"] == instruction.uid:
            try:
                written = await self.client.merge_patch(
                    self.resource,
                    key.name,
                    reservation_patch(
                        obj,
                        instruction.admission,
                        admit=instruction.admit,
                        now=self.clock(),
                        tracks_pods_ready=self.tracks_pods_ready,
                    ),
                    namespace=key.namespace,
                    subresource="status",
                    field_manager=self.names.field_manager(CONCERN),
                )
            except ApiError as error:
                if error.is_transient:
                    attempt += 1
                    await asyncio.sleep(backoff(attempt))
                    continue
                current = await self._read(key)
                if current is None or current["metadata"]["uid"] != instruction.uid:
                    return None
                if (current.get("status") or {}).get("admission"):
                    # An earlier attempt of ours may be what the last one conflicted with.
                    return current
                if not (error.is_conflict and self.decides_alike(obj, current)):
                    log.info("reservation was refused", workload=str(key), error=str(error))
                    return None
                obj = current
                continue
            self.observed(self.resource, written)
            return written
        return None

    async def _read(self, key: ObjectKey) -> Object | None:
        """Read a Workload, however long it takes; None if it does not exist."""
        attempt = 0
        while True:
            try:
                obj = await self.client.get(self.resource, key.name, namespace=key.namespace)
            except ApiError as error:
                if error.is_not_found:
                    return None
                if not error.is_transient:
                    raise
                attempt += 1
                await asyncio.sleep(backoff(attempt))
                continue
            self.observed(self.resource, obj)
            return obj

    def _tell_reserved(self, instruction: ReserveQuota, obj: Object) -> None:
        queue = instruction.admission.cluster_queue
        waited = max(0, self.clock() - queued_since(obj)) / SECOND
        note = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited:.0f}s"
        considered = explain.flavors_considered(instruction.attempts)
        if considered:
            note = f"{note}; Flavors considered: {considered}"
        self.recorder.event(obj, "Normal", "QuotaReserved", note)
        self.measures.quota_reserved(obj, queue, waited)
        if instruction.admit:
            self.recorder.event(
                obj,
                "Normal",
                "Admitted",
                f"Admitted by ClusterQueue {queue}, wait time since reservation was 0s",
            )
            self.measures.admitted(obj, queue, waited, 0.0)

    # --- refusals ---------------------------------------------------------------------------------

    def schedule_report(self, instruction: ReportPending) -> None:
        """Have a refusal written: at once, or a while after the last one of the same workload.

        What is missing changes with every pod that ends somewhere; only the last word is worth a write.
        """
        key = instruction.key
        if key not in self._reports:
            loop = asyncio.get_running_loop()
            pause = (
                self._reported_at.get(key, -REPORT_INTERVAL_SECONDS) + REPORT_INTERVAL_SECONDS - loop.time()
            )
            if pause > 0:
                loop.call_later(pause, self._reports_due.put_nowait, key)
            else:
                self._reports_due.put_nowait(key)
        self._reports[key] = instruction

    async def _write_reports(self) -> None:
        while True:
            key = await self._reports_due.get()
            instruction = self._reports.pop(key, None)
            if instruction is None:
                continue
            self._reported_at[key] = asyncio.get_running_loop().time()
            reason, message = explain.pending_condition(instruction.refusal, product=self.names.product)
            if not self.tell_reasons:
                reason = Reason.PENDING
            try:
                async with self._sole_writer(key):
                    await self.report(key, instruction.uid, reason, message, instruction.resource_requests)
            except ApiError as error:
                await self._report_again(instruction, error)
            except Exception:
                log.exception("refusal was not written", workload=str(key))

    @asynccontextmanager
    async def _sole_writer(self, key: ObjectKey) -> AsyncGenerator[None]:
        """Keep two writes of ours about one workload from meeting, for the later would be refused."""
        lock = self._writing.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._writing.pop(key, None)

    async def _report_again(self, instruction: ReportPending, error: ApiError) -> None:
        if not (error.is_conflict or error.is_transient):
            if not error.is_not_found:
                log.warning("refusal was not written", workload=str(instruction.key), error=error.message)
            return
        await asyncio.sleep(RETRY_BASE_SECONDS)
        if instruction.key not in self._reports:
            self._reports[instruction.key] = instruction
            self._reports_due.put_nowait(instruction.key)

    async def report(
        self,
        key: ObjectKey,
        uid: str,
        reason: str,
        message: str,
        resource_requests: tuple[tuple[str, Amounts], ...],
    ) -> None:
        """Write why a Workload waits, unless it says so already or holds quota.

        Raises:
            ApiError: the write was refused or got no answer.
        """
        obj = self.workloads.get(key.namespace, key.name)
        if obj is None or obj["metadata"]["uid"] != uid or (obj.get("status") or {}).get("admission"):
            return
        patch = pending_patch(
            obj,
            reason=reason,
            message=message,
            resource_requests=resource_requests,
            now=self.clock(),
            tracks_pods_ready=self.tracks_pods_ready,
        )
        if patch is None:
            return
        written = await self.client.merge_patch(
            self.resource,
            key.name,
            patch,
            namespace=key.namespace,
            subresource="status",
            field_manager=self.names.field_manager(CONCERN),
        )
        self.observed(self.resource, written)
        self.recorder.event(written, "Warning", reason, message)
