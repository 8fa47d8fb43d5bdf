"""The harness of `hack/bench throughput --shape pods`: create Jobs, and watch until all of their pods run."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from admitq.runtime.resources import JOBS, PODS
from admitq_api.labels import Names
from benchmarks import job_objects
from benchmarks.api_calls import ApiCallKey
from benchmarks.bounded_tasks import stopped_after, tasks_beside
from benchmarks.harness_probes import IdleShare, rounded, sample_lags, summary
from benchmarks.measures import percentile_of_unsorted
from benchmarks.object_feed import ObjectFeed
from benchmarks.pods_forms import POD, PodsForm, RunningPods
from benchmarks.throughput_connection import LoadConnection, ThroughputFailed, until_answered
from localcluster.cluster import to_stderr

CREATORS: Final = 16
"""Creations in progress at once. More would only wait in the API server's queues."""

_PROGRESS_EVERY_S: Final = 5.0


class PodsHarness:
    """Creates the Jobs of one form as fast as possible.

    Args:
        form: the load.
        queue: the LocalQueue of the Jobs; None without a queue manager.
        names: the names of the API group.
        connection: `CREATORS` + 1 connections, of which one is for the watch.
        failure: returns why the queue manager does not run any more, or None if it runs.
    """

    def __init__(
        self,
        form: PodsForm,
        queue: str | None,
        names: Names,
        connection: LoadConnection,
        failure: Callable[[], str | None],
    ) -> None:
        self._form = form
        self._queue = queue
        self._names = names
        self._connection = connection
        self._failure = failure
        self._pods = RunningPods(form)
        self._feed = ObjectFeed(
            connection,
            str(PODS),
            PODS.path(job_objects.NAMESPACE),
            self._observe,
            fields="status.phase=Running",
        )
        self._over = asyncio.Event()
        self._created = 0
        self._lags: list[float] = []
        self._idle = IdleShare()
        self._begin = 0.0
        self._created_at = 0.0
        self._end = 0.0

    @property
    def wall_s(self) -> float:
        """The seconds from the first creation until all pods ran, or the timeout."""
        return self._end - self._begin

    @property
    def calls(self) -> Counter[ApiCallKey]:
        """The calls of the harness."""
        return self._connection.calls

    async def run(self, timeout_s: float) -> None:
        """Run until all pods run, or until the timeout.

        Raises:
            ThroughputFailed: the API server refused a call, or the queue manager ended.
        """
        await self._feed.list()
        self._begin = time.monotonic()
        self._idle.sample()
        async with tasks_beside(self._feed.watch(), self._report(), sample_lags(self._lags)):
            async with stopped_after(timeout_s):
                await self._create_all()
                await self._over.wait()
            self._end = time.monotonic()
            self._idle.sample()

    def result(self) -> dict[str, Any]:
        """Return the figures of a finished run."""
        starts = tuple(self._pods.starts.values())
        return {
            "jobs": self._form.jobs,
            "pods_per_job": self._form.pods_per_job,
            "nodes": self._form.nodes,
            "running": self._pods.count,
            "wall_s": round(self.wall_s, 1),
            "pods_per_s": round(self._pods.count / self.wall_s, 1),
            "start_p50_s": rounded(percentile_of_unsorted(starts, 50)),
            "start_p99_s": rounded(percentile_of_unsorted(starts, 99)),
            "idle_share": round(self._idle.value, 3),
        }

    def harness_result(self) -> dict[str, Any]:
        """Return the figures that show whether the harness was the limit."""
        return {
            "creators": CREATORS,
            "create_all_s": round(self._created_at - self._begin, 1),
            "loop_lag_s": summary(self._lags),
        }

    async def _create_all(self) -> None:
        numbers = iter(range(self._form.jobs))
        async with asyncio.TaskGroup() as group:
            for _ in range(CREATORS):
                group.create_task(self._create_some(numbers))
        self._created_at = time.monotonic()

    async def _create_some(self, numbers: Iterator[int]) -> None:
        path = JOBS.path(job_objects.NAMESPACE)
        for number in numbers:
            name = f"job-{number:05}"
            job = job_objects.job(name, self._form.pods_per_job, POD, queue=self._queue, names=self._names)
            self._pods.create(name, time.monotonic())
            await until_answered(self._connection, "create", str(JOBS), path, job)
            self._created += 1

    def _observe(self, kind: str, pod: dict[str, Any]) -> None:
        self._pods.observe(kind, pod, time.monotonic())
        if self._pods.are_complete:
            self._over.set()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_EVERY_S)
            if reason := self._failure():
                raise ThroughputFailed(reason)
            to_stderr(
                f"{time.monotonic() - self._begin:6.0f} s  created {self._created} of {self._form.jobs} "
                f"Jobs, running {self._pods.count} of {self._form.pods} pods"
            )
