"""Writes of reservations, and of the reasons why Workloads wait."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from admitq.core.amounts import Amounts
from admitq.core.instructions import ReportPending, ReportSecondPass, ReserveQuota
from admitq.core.model import SECOND, Admission, Instant, ObjectKey
from admitq.core.refusals import PreemptionGated
from admitq.manager.guarded_writes import (
    DecisionKind,
    GuardedWrites,
    Patch,
    WorkloadDecision,
    backoff_seconds,
)
from admitq.process.logs import logger
from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.runtime.errors import ApiError, NotLeadingError
from admitq.runtime.events import EventRecorder
from admitq.runtime.rate_limit import CallPriority, call_priority
from admitq.translate import messages
from admitq.translate.messages import Explanation
from admitq.workloads.admission_patches import pending_patch, queued_since, reservation_patch
from admitq.workloads.stored_admissions import has_admission
from admitq.workloads.transitions import is_reserved
from admitq_api.conditions import Reason
from admitq_api.labels import Names

log = logger(__name__)

CONCURRENT_REPORTS: Final = 4
REPORT_INTERVAL_SECONDS: Final = 1.0
"""The shortest time between two writes of the reason why a Workload waits."""
USUAL_SLOWNESS: Final = 8.0
"""The slowness of the API server up to which the delay of a report does not grow."""
LONGEST_REPORT_DELAY_SECONDS: Final = 30.0
"""The longest time for which a workload must wait before the reason is written."""

COARSE_REASONS: Final[Mapping[str, Reason]] = {
    Reason.ADMISSION_GATED: Reason.ADMISSION_GATED,
    Reason.WAITING_FOR_PODS_READY: Reason.WAITING,
}
"""By detailed reason, the reason without detail; all other detailed reasons become Pending."""


@dataclass
class AdmissionWriter:
    """Writes reservations and refusals to Workloads, and records events about them.

    Args:
        writes: writes statuses of Workloads.
        names: the names of the API group.
        recorder: records Kubernetes events.
        clock: wall time in nanoseconds.
        is_pending: whether the core counts a workload as pending now. A refusal is written some time after
            the cycle. Meanwhile another program may have put the workload on hold, or the workload finished.
        retry_delay: the nanoseconds for which the core holds a workload back if its reservation cannot be
            written.
        tracks_pods_ready: whether Workloads have the condition PodsReady.
        has_detailed_reasons: whether each cause of waiting has its own reason; otherwise the reason is
            Pending.
        by_hostname_prefix: whether topology assignments may have a slice for each prefix of host names.
        errors: reports unexpected exceptions. An exception prevents one status or one event.
    """

    writes: GuardedWrites
    names: Names
    recorder: EventRecorder
    clock: Callable[[], Instant]
    is_pending: Callable[[ObjectKey], bool]
    retry_delay: Callable[[ObjectKey], Instant]
    tracks_pods_ready: bool = True
    has_detailed_reasons: bool = True
    by_hostname_prefix: bool = True
    errors: UnexpectedErrors = LOG_ONLY

    _reports: dict[ObjectKey, ReportPending] = field(default_factory=dict[ObjectKey, ReportPending])
    _reports_due: "asyncio.Queue[ObjectKey]" = field(default_factory=asyncio.Queue)
    _transient_failures: int = 0
    """Consecutive refusals that could not be written because of a transient error of the API server."""
    _withdrawn: set[ObjectKey] = field(default_factory=set[ObjectKey])
    """Workloads whose last reservation could not be written."""

    async def run(self) -> None:
        """Write refusals until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONCURRENT_REPORTS):
                tasks.create_task(self._write_reports())

    def forget(self, key: ObjectKey) -> None:
        """Forget a Workload that was deleted."""
        self._reports.pop(key, None)
        self._withdrawn.discard(key)

    # --- reservations -----------------------------------------------------------------------------

    async def reserve(self, instruction: ReserveQuota) -> dict[str, Any] | None:
        """Write a reservation and record events about it.

        If the reservation cannot be written for ``OVERDUE_SECONDS``, a write of the reason replaces it.

        Returns:
            The stored Workload; None if it is certain that the reservation has no effect.
        """
        was_withdrawn = instruction.key in self._withdrawn
        self.forget(instruction.key)
        withdrawal = _Withdrawal(self, instruction)
        with call_priority(CallPriority.RESERVATION):
            written = await self.writes.write_decision(
                WorkloadDecision(
                    DecisionKind.RESERVATION,
                    instruction.key,
                    instruction.uid,
                    lambda obj: reservation_patch(
                        obj,
                        instruction.admission,
                        admit=instruction.admit,
                        now=self.clock(),
                        tracks_pods_ready=self.tracks_pods_ready,
                        by_hostname_prefix=self.by_hostname_prefix,
                    ),
                    is_written_in=partial(_has_reservation, admission=instruction.admission),
                    withdrawal_patch_of=withdrawal.patch,
                    is_overdue=was_withdrawn,
                )
            )
        if written is not None:
            # The reservation has its effect even if its event cannot be recorded.
            with self.errors.contain(ErrorPart.REPORT, instruction.key):
                self._record_reservation(instruction, written)
        elif (
            withdrawal.is_recorded
            and self.writes.latest_version(instruction.key, instruction.uid) is not None
        ):
            self._withdrawn.add(instruction.key)
        return written

    def _record_reservation(self, instruction: ReserveQuota, obj: dict[str, Any]) -> None:
        queue = instruction.admission.cluster_queue
        waited = max(0, self.clock() - queued_since(obj)) / SECOND
        note = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited:.0f}s"
        considered = messages.flavors_considered(instruction.considered_flavors)
        if considered:
            note = f"{note}; Flavors considered: {considered}"
        self.recorder.event(obj, "Normal", "QuotaReserved", note)
        if instruction.admit:
            self.recorder.event(
                obj,
                "Normal",
                "Admitted",
                f"Admitted by ClusterQueue {queue}, wait time since reservation was 0s",
            )

    # --- refusals ---------------------------------------------------------------------------------

    def schedule_report(self, instruction: ReportPending) -> None:
        """Schedule the write of a refusal. It is dropped if the workload is admitted before it is due.

        A refusal is due after ``REPORT_INTERVAL_SECONDS``, and later while the API server is slow. The
        missing amounts change whenever a pod of the cluster ends. Only the latest refusal is written.
        """
        key = instruction.key
        if key not in self._reports:
            loop = asyncio.get_running_loop()
            loop.call_later(self._report_delay(), self._reports_due.put_nowait, key)
        self._reports[key] = instruction

    def _report_delay(self) -> float:
        """Return for how many seconds a workload must wait before the reason is written.

        The slower the API server is, the more do others need its time, and the more workloads are admitted
        before their report.
        """
        factor = max(1.0, self.writes.scheduler.slowness / USUAL_SLOWNESS)
        return min(LONGEST_REPORT_DELAY_SECONDS, REPORT_INTERVAL_SECONDS * factor)

    async def _write_reports(self) -> None:
        while True:
            key = await self._reports_due.get()
            with self.errors.contain(ErrorPart.REPORT, key):
                await self._write_report(key)

    async def _write_report(self, key: ObjectKey) -> None:
        if key not in self._reports:
            return
        async with self.writes.scheduler.slot(CallPriority.STATUS):
            instruction = self._reports.pop(key, None)
            if instruction is not None and self.is_pending(key):
                await self._write_refusal(instruction)

    async def _write_refusal(self, instruction: ReportPending) -> None:
        key = instruction.key
        why = self.apply_reason_detail(messages.pending_condition(instruction.refusal))
        try:
            async with self.writes.exclusive_writer(key):
                await self.write_pending(
                    key,
                    instruction.uid,
                    why,
                    instruction.resource_requests,
                    gated=isinstance(instruction.refusal, PreemptionGated),
                )
        except ApiError as error:
            self._retry_report(instruction, error)
        except NotLeadingError as error:
            log.info("pending reason not written, leadership lost", workload=str(key), error=str(error))
        else:
            self._transient_failures = 0

    def _retry_report(self, instruction: ReportPending, error: ApiError) -> None:
        if not (error.is_conflict or error.is_transient):
            if not error.is_not_found:
                log.warning("pending reason not written", workload=str(instruction.key), error=error.message)
            return
        self._transient_failures = self._transient_failures + 1 if error.is_transient else 0
        if instruction.key not in self._reports:
            self._reports[instruction.key] = instruction
            seconds = backoff_seconds(max(1, self._transient_failures))
            asyncio.get_running_loop().call_later(seconds, self._reports_due.put_nowait, instruction.key)

    def record_second_pass_failure(self, instruction: ReportSecondPass) -> None:
        """Record in an event why the pods of a Workload with reserved quota cannot be placed."""
        obj = self.writes.latest_version(instruction.key, instruction.uid)
        if obj is not None:
            note = messages.pending_condition(instruction.refusal).message
            self.recorder.event(obj, "Warning", "SecondPassFailed", note)

    def apply_reason_detail(self, why: Explanation) -> Explanation:
        """Return the explanation, with a coarse reason if detailed reasons are disabled."""
        reason = why.reason if self.has_detailed_reasons else COARSE_REASONS.get(why.reason, Reason.PENDING)
        return Explanation(reason, why.message)

    async def write_pending(
        self,
        key: ObjectKey,
        uid: str,
        why: Explanation,
        resource_requests: tuple[tuple[str, Amounts], ...],
        *,
        gated: bool = False,
    ) -> None:
        """Write why a Workload waits, unless its status states that already or quota is reserved.

        Args:
            key: the Workload.
            uid: the UID of the Workload.
            why: reason and message.
            resource_requests: the resource requests by podset.
            gated: whether the Workload waits because of a closed preemption gate.

        Raises:
            ApiError: the API server rejected the write or did not answer.
        """
        obj = self.writes.latest_version(key, uid)
        if obj is None or is_reserved(obj):
            return
        patch = pending_patch(
            obj,
            reason=why.reason,
            message=why.message,
            resource_requests=resource_requests,
            now=self.clock(),
            gated=gated,
            tracks_pods_ready=self.tracks_pods_ready,
        )
        if patch is not None:
            self.record_pending_event(await self.writes.write_patch(obj, patch), why)

    def record_pending_event(self, obj: dict[str, Any], why: Explanation) -> None:
        """Record in an event why a Workload waits."""
        # Without detailed reasons, all these events have the reason Pending.
        self.recorder.event(
            obj, "Warning", why.reason if self.has_detailed_reasons else Reason.PENDING, why.message
        )


@dataclass
class _Withdrawal:
    """Withdraws a reservation that cannot be written, and reports the error.

    The withdrawal writes to the Workload that no quota is reserved, and why. An event has the same message,
    and is recorded even if the withdrawal cannot be written.
    """

    writer: AdmissionWriter
    instruction: ReserveQuota
    is_recorded: bool = False

    def patch(self, obj: dict[str, Any], error: ApiError) -> Patch | None:
        """Return the patch that withdraws the reservation; None if ``obj`` has a reservation."""
        if is_reserved(obj):
            return None
        writer, now = self.writer, self.writer.clock()
        queue = self.instruction.admission.cluster_queue
        if not self.is_recorded:
            self.is_recorded = True
            # Until the withdrawal is written, the manager retries this reservation.
            unwritten = messages.unwritten_reservation(queue, error.message, now)
            writer.record_pending_event(obj, writer.apply_reason_detail(unwritten))
        delay = writer.retry_delay(self.instruction.key)
        why = writer.apply_reason_detail(messages.unwritten_reservation(queue, error.message, now, delay))
        return pending_patch(
            obj,
            reason=why.reason,
            message=why.message,
            now=now,
            tracks_pods_ready=writer.tracks_pods_ready,
        )


def _has_reservation(obj: dict[str, Any], admission: Admission) -> bool:
    """Whether the Workload has exactly this reservation. Another program may have written a different one."""
    return is_reserved(obj) and has_admission(obj, admission)
