"""The harness of `hack/bench throughput`: create Workloads on time, watch them, and play their jobs."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from admitq.runtime.kinds import kinds_of
from admitq_api.labels import Names
from benchmarks import throughput_objects
from benchmarks.bounded_tasks import stopped_after, tasks_beside
from benchmarks.harness_probes import IdleShare, mean, rounded, sample_lags, summary
from benchmarks.measures import percentile_of_unsorted
from benchmarks.object_feed import ObjectFeed
from benchmarks.throughput_connection import LoadConnection, ThroughputFailed, until_answered
from benchmarks.throughput_jobs import JOB_WRITES, JobsOfLoad
from benchmarks.throughput_shapes import LoadShape, PlannedWorkload
from localcluster.cluster import to_stderr

MOST_CREATORS: Final = 100
"""Creations in progress at once, at most. Each queue creates the workloads of a class one after another."""

_PROGRESS_EVERY_S: Final = 5.0
_SAMPLE_EVERY_S: Final = 0.5
# At least this share of the machine idle: the API server could have done more.
_FREE_SHARE: Final = 0.1


class ThroughputHarness:
    """Plays one load shape.

    Args:
        shape: the load.
        names: the names of the API group.
        creating: the connection for creations.
        playing: the connection for the watch and for the writes of jobs.
        failure: returns why the queue manager does not run any more, or None if it runs.
    """

    def __init__(
        self,
        shape: LoadShape,
        names: Names,
        creating: LoadConnection,
        playing: LoadConnection,
        failure: Callable[[], str | None],
    ) -> None:
        self._shape = shape
        self._names = names
        self._creating = creating
        workloads = kinds_of(names).workloads
        self._resource = str(workloads)
        self._path = workloads.path(throughput_objects.NAMESPACE)
        self._failure = failure
        self.jobs = JobsOfLoad(playing, names, shape.workloads)
        self._feed = ObjectFeed(playing, self._resource, self._path, self._observe)
        self._created = 0
        self._late: list[float] = []
        self._own_late: list[float] = []
        self._late_while_idle: list[float] = []
        self._lags: list[float] = []
        self._idle = IdleShare()
        self._begin = 0.0
        self._end = 0.0

    @property
    def wall_s(self) -> float:
        """The seconds from the first creation until the last Workload had finished, or the timeout."""
        return self._end - self._begin

    async def run(self, timeout_s: float) -> None:
        """Run until all Workloads have finished, or until the timeout.

        Raises:
            ThroughputFailed: the API server refused a call, or the queue manager ended.
        """
        await self._feed.list()
        self._begin = time.monotonic()
        self.jobs.in_use.begin(self._begin)
        beside = (self._feed.watch(), self._report(), self._sample_idle(), sample_lags(self._lags))
        async with tasks_beside(*beside), asyncio.TaskGroup() as writers:
            for _ in range(JOB_WRITES):
                writers.create_task(self.jobs.write())
            async with stopped_after(timeout_s):
                await self._create_all()
                await self.jobs.is_over.wait()
            self._end = time.monotonic()
            self.jobs.stop()

    def result(self) -> dict[str, Any]:
        """Return the figures of a finished run."""
        jobs, shape = self.jobs, self._shape
        in_use = jobs.in_use.mean(self._end) / shape.quota_cpu
        return {
            "workloads": shape.workloads,
            "created": self._created,
            "finished": jobs.finished,
            "wall_s": round(self.wall_s, 1),
            "bound_s": round(shape.bound_s, 1),
            "ratio": round(self.wall_s / shape.bound_s, 2),
            "admissions_per_s": round(jobs.admissions / self.wall_s, 1),
            "admit_mean_s": self._by_class(mean),
            "admit_p99_s": self._by_class(lambda waits: percentile_of_unsorted(waits, 99)),
            "use": round(in_use, 3),
            "evictions": jobs.evictions,
        }

    def harness_result(self) -> dict[str, Any]:
        """Return the figures that show whether the harness was the limit."""
        return {
            "creators": creators_of(self._shape),
            "create_late_s": summary(self._late),
            "create_own_late_s": summary(self._own_late),
            "create_late_while_idle_s": summary(self._late_while_idle),
            "job_write_wait_s": summary(self.jobs.waits),
            "job_write_own_wait_s": summary(self.jobs.own_waits),
            "loop_lag_s": summary(self._lags),
        }

    def _by_class(self, figure: Callable[[list[float]], float | None]) -> dict[str, float | None]:
        """Return a figure of the times from the answer to the creation until Admitted was seen, by class."""
        waits: dict[str, list[float]] = {kind.name: [] for kind in self._shape.classes}
        for job in self.jobs.all:
            if job.admitted_at is not None and job.created_at is not None:
                # The watch can show an admission before the answer to the creation arrives.
                waits[job.kind.name].append(max(0.0, job.admitted_at - job.created_at))
        return {name: rounded(figure(values)) for name, values in waits.items()}

    async def _create_all(self) -> None:
        planned = self._shape.planned()
        async with asyncio.TaskGroup() as group:
            for _ in range(creators_of(self._shape)):
                group.create_task(self._create_some(planned))

    async def _create_some(self, planned: Iterator[PlannedWorkload]) -> None:
        """Create workloads from the common sequence, each when it is due, or at once if it is late."""
        for workload in planned:
            due = self._begin + workload.due_s
            early = due - time.monotonic()
            if early > 0:
                await asyncio.sleep(early)
            late = time.monotonic() - due
            self._late.append(late)
            if early > 0:
                self._own_late.append(late)
            if self._idle.value >= _FREE_SHARE:
                self._late_while_idle.append(late)
            job = self.jobs.expect(workload)
            body = throughput_objects.workload(workload, self._names)
            job.created_at = await until_answered(self._creating, "create", self._resource, self._path, body)
            self._created += 1

    def _observe(self, kind: str, workload: dict[str, Any]) -> None:
        if kind != "DELETED":
            self.jobs.observe(workload)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_EVERY_S)
            if reason := self._failure():
                raise ThroughputFailed(reason)
            to_stderr(
                f"{time.monotonic() - self._begin:6.0f} s  created {self._created}, "
                f"admitted {self.jobs.admissions}, finished {self.jobs.finished}, "
                f"evicted {self.jobs.evictions} of {self._shape.workloads}"
            )

    async def _sample_idle(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE_EVERY_S)
            self._idle.sample()


def creators_of(shape: LoadShape) -> int:
    """Return the number of creations of a load that are in progress at once, at most."""
    return min(MOST_CREATORS, shape.queues * len(shape.classes))
