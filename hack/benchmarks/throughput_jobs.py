"""The jobs that the harness plays: they run while their Workload is admitted, and then finish.

An eviction ends a run. The harness then releases the quota of the Workload, as a job controller does after it
has stopped the job. A job that has ended before its eviction finishes, even if the write waits for its turn.
"""

import asyncio
import time
from typing import Any, Final, NamedTuple

from admitq.runtime.kinds import kinds_of
from admitq_api.labels import Names
from benchmarks.measures import AmountOverTime
from benchmarks.throughput_connection import JSON_PATCH, MERGE_PATCH, LoadConnection
from benchmarks.throughput_objects import NAMESPACE, finish_operations, release_patch
from benchmarks.throughput_shapes import PlannedWorkload, WorkloadClass
from localcluster.cluster import to_stderr

JOB_WRITES: Final = 5
"""Writes of ends and releases in progress at once, as published."""

_RETRY_AFTER_S: Final = 0.5


class PlayedJob:
    """One Workload and the run of its job."""

    __slots__ = (
        "admitted_at",
        "created_at",
        "ends_at",
        "has_ended",
        "is_evicted",
        "is_finished",
        "is_releasing",
        "kind",
        "latest",
        "name",
        "run",
    )

    def __init__(self, planned: PlannedWorkload) -> None:
        self.name = planned.name
        self.kind: WorkloadClass = planned.kind
        self.created_at: float | None = None
        self.admitted_at: float | None = None
        self.is_evicted = False
        self.is_releasing = False
        self.is_finished = False
        self.run: asyncio.TimerHandle | None = None
        """The timer of the end of the run, until the watch shows Finished or an eviction."""
        self.ends_at = 0.0
        """The end of the run."""
        self.has_ended = False
        """Whether a run was complete, so that only the write of Finished remains."""
        self.latest: dict[str, Any] | None = None
        """The Workload with its latest status, while it is evicted and holds quota."""


class _DueWrite(NamedTuple):
    """A write that is due since an instant: the end of a job, or the release of its quota."""

    due_at: float
    job: PlayedJob
    is_end: bool


class JobsOfLoad:
    """Plays the jobs of all Workloads. Times are seconds of the monotonic clock.

    Attributes:
        in_use: CPUs of Workloads that are admitted and not finished, as the watch shows them.
        waits: for each write, the seconds from its due time until it was sent.
        own_waits: the same for writes for which a slot was free, so that only the harness delayed them.
        is_over: set when all Workloads have finished.
    """

    def __init__(self, connection: LoadConnection, names: Names, expected: int) -> None:
        self._connection = connection
        self._workloads = kinds_of(names).workloads
        self._jobs: dict[str, PlayedJob] = {}
        self._expected = expected
        self._due: asyncio.Queue[_DueWrite | None] = asyncio.Queue()
        self._is_stopped = False
        self.in_use = AmountOverTime()
        self.waits: list[float] = []
        self.own_waits: list[float] = []
        self.admissions = 0
        self.evictions = 0
        self.finished = 0
        self.is_over = asyncio.Event()

    @property
    def all(self) -> list[PlayedJob]:
        """The jobs of all Workloads that the harness has begun to create."""
        return list(self._jobs.values())

    def expect(self, planned: PlannedWorkload) -> PlayedJob:
        """Register a Workload before its creation is sent."""
        job = self._jobs[planned.name] = PlayedJob(planned)
        return job

    def observe(self, workload: dict[str, Any]) -> None:
        """Process the state of a Workload that the watch shows."""
        job = self._jobs.get(workload["metadata"]["name"])
        if job is None or job.is_finished:
            return
        status: dict[str, Any] = workload.get("status") or {}
        true = {entry["type"] for entry in status.get("conditions") or () if entry["status"] == "True"}
        if "Finished" in true:
            job.is_finished = True
            self._end_run(job)
            self.finished += 1
            if self.finished == self._expected:
                self.is_over.set()
        elif "Evicted" in true and "QuotaReserved" in true:
            self._evict(job, workload)
        elif job.has_ended:
            job.is_evicted = False
        elif "Admitted" in true:
            job.is_evicted = False
            self._start_run(job)
        else:
            job.is_evicted = False
            self._end_run(job)

    async def write(self) -> None:
        """Send writes that are due, one after another, until `stop`. `JOB_WRITES` tasks do this."""
        while True:
            is_waiting = self._due.empty()
            write = await self._due.get()
            if write is None or self._is_stopped:
                return
            if write.is_end:
                await self._finish(write, is_waiting=is_waiting)
            else:
                await self._release(write, is_waiting=is_waiting)

    def stop(self) -> None:
        """Let each task of `write` return once its write has its answer, so that all calls are counted."""
        self._is_stopped = True
        for _ in range(JOB_WRITES):
            self._due.put_nowait(None)

    def _start_run(self, job: PlayedJob) -> None:
        if job.run is not None:
            return
        now = time.monotonic()
        if job.admitted_at is None:
            job.admitted_at = now
        self.admissions += 1
        self.in_use.change(job.kind.cpu, now)
        run_s = job.kind.run_ms / 1000
        job.ends_at = now + run_s
        job.run = asyncio.get_running_loop().call_later(run_s, self._run_is_over, job)

    def _run_is_over(self, job: PlayedJob) -> None:
        if job.run is not None:
            job.has_ended = True
            self._due.put_nowait(_DueWrite(job.ends_at, job, is_end=True))

    def _end_run(self, job: PlayedJob) -> None:
        if job.run is not None:
            job.run.cancel()
            job.run = None
            self.in_use.change(-job.kind.cpu, time.monotonic())

    def _evict(self, job: PlayedJob, workload: dict[str, Any]) -> None:
        if not job.is_evicted:
            job.is_evicted = True
            self.evictions += 1
        if job.has_ended:
            return
        self._end_run(job)
        job.latest = workload
        if not job.is_releasing:
            job.is_releasing = True
            self._due.put_nowait(_DueWrite(time.monotonic(), job, is_end=False))

    async def _finish(self, write: _DueWrite, *, is_waiting: bool) -> None:
        self._count_wait(write, is_waiting=is_waiting)
        status = await self._patch(write.job, finish_operations(), JSON_PATCH)
        # 409: other writes came first at each attempt of the API server.
        if status is None or status == 409:
            self._retry_later(write)

    async def _release(self, write: _DueWrite, *, is_waiting: bool) -> None:
        job = write.job
        evicted = job.latest
        patch = None if evicted is None or job.is_finished else release_patch(evicted, time.time_ns())
        if patch is None:
            job.is_releasing = False
            return
        self._count_wait(write, is_waiting=is_waiting)
        status = await self._patch(job, patch, MERGE_PATCH)
        if status is None or (status == 409 and job.latest is not evicted):
            self._retry_later(write)
            return
        # After a conflict with a write that the watch has not shown yet, its event starts the next attempt.
        job.is_releasing = False

    async def _patch(self, job: PlayedJob, body: Any, content_type: str) -> int | None:
        """Patch the status of a Workload. Return None if the call may succeed later."""
        path = self._workloads.path(NAMESPACE, job.name, "status")
        answer = await self._connection.call("patch", f"{self._workloads}/status", path, body, content_type)
        if answer.is_temporary:
            return None
        if answer.status >= 400 and answer.status != 409:
            to_stderr(f"Workload {job.name} could not be patched: {answer.status} {answer.excerpt}")
        return answer.status

    def _retry_later(self, write: _DueWrite) -> None:
        def put() -> None:
            self._due.put_nowait(write._replace(due_at=time.monotonic()))

        asyncio.get_running_loop().call_later(_RETRY_AFTER_S, put)

    def _count_wait(self, write: _DueWrite, *, is_waiting: bool) -> None:
        seconds = time.monotonic() - write.due_at
        self.waits.append(seconds)
        if is_waiting:
            self.own_waits.append(seconds)
