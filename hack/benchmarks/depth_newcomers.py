"""Newcomers of the load `depth`: Workloads that fit, created one after another beside many that wait."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from admitq.runtime.kinds import kinds_of
from admitq_api.labels import Names
from benchmarks import stored_workloads
from benchmarks.stored_workloads import Queue, WorkloadSize
from benchmarks.throughput_connection import JSON_PATCH, LoadConnection, ThroughputFailed, until_answered
from benchmarks.throughput_objects import finish_operations

SIZE: Final = WorkloadSize(pods=1, pod_cpu=2)
"""What a newcomer requests."""
NAME_PREFIX: Final = "newcomer-"
"""The beginning of the names of newcomers."""

_PATIENCE_S: Final = 60.0


@dataclass(frozen=True)
class NewcomerTimes:
    """The times of one newcomer, in seconds.

    Attributes:
        created: from the creation until its answer.
        admitted: from the creation until the watch showed the admission.
        ended: from the write of its end until the watch showed it.
    """

    created: float
    admitted: float
    ended: float

    @property
    def waited(self) -> float:
        """The seconds from the answer to the creation until the admission was seen."""
        # The watch can show an admission before the answer arrives.
        return max(0.0, self.admitted - self.created)


class _Expected:
    """The newcomer that the watch must show, and when it has shown its states."""

    def __init__(self, queue: Queue, name: str) -> None:
        self.queue = queue
        self.name = name
        loop = asyncio.get_running_loop()
        self.seen: dict[str, asyncio.Future[float]] = {
            "Admitted": loop.create_future(),
            "Finished": loop.create_future(),
        }

    def observe(self, workload: Mapping[str, Any], now: float) -> None:
        """Process a state of any Workload."""
        metadata = workload["metadata"]
        if (metadata["namespace"], metadata["name"]) != (self.queue.namespace, self.name):
            return
        for condition in (workload.get("status") or {}).get("conditions") or ():
            seen = self.seen.get(condition["type"])
            if seen is not None and not seen.done() and condition["status"] == "True":
                seen.set_result(now)


class Newcomers:
    """Creates newcomers, and finishes each before the next.

    Args:
        connection: a connection for the watch and for two writes at once.
        names: the names of the API group.
        owners: the uid of the owner of the Workloads of each queue. The newcomers take turns in the queues.
    """

    def __init__(self, connection: LoadConnection, names: Names, owners: Mapping[Queue, str]) -> None:
        self._connection = connection
        self._names = names
        self._owners = dict(owners)
        self._queues: Sequence[Queue] = list(owners)
        self._workloads = kinds_of(names).workloads
        self._expected: _Expected | None = None
        self._count = 0

    async def watch(self, version: str) -> None:
        """Show the newcomers what the API server stores, until the task is cancelled.

        Args:
            version: the resourceVersion after which the watch begins.

        Raises:
            ThroughputFailed: the watch ended.
        """
        events = self._connection.watch(str(self._workloads), self._workloads.path(), version)
        async with aclosing(events):
            async for event in events:
                if event["type"] == "ERROR":
                    raise ThroughputFailed(f"the watch failed: {event['object'].get('message')}")
                if self._expected is not None and event["type"] != "BOOKMARK":
                    self._expected.observe(event["object"], time.monotonic())
        raise ThroughputFailed("the watch of Workloads ended")

    async def next(self) -> NewcomerTimes | None:
        """Create a newcomer and finish it. Return its times, or None if it is not admitted in a minute.

        Raises:
            ThroughputFailed: the API server refused a call, or the end is not seen in a minute.
        """
        queue, name = self._queues[self._count % len(self._queues)], f"{NAME_PREFIX}{self._count}"
        self._count += 1
        expected = self._expected = _Expected(queue, name)
        body = stored_workloads.workload(queue, name, self._owners[queue], self._names, SIZE)
        # No controller removes it, and the finalizer of a finished Workload is of no use here.
        del body["metadata"]["finalizers"]
        resource, path = str(self._workloads), self._workloads.path(queue.namespace)
        began = time.monotonic()
        created_at = await until_answered(self._connection, "create", resource, path, body)
        try:
            admitted_at = await asyncio.wait_for(expected.seen["Admitted"], _PATIENCE_S)
        except TimeoutError:
            return None
        ending_at = time.monotonic()
        await self._finish(queue, name)
        try:
            ended_at = await asyncio.wait_for(expected.seen["Finished"], _PATIENCE_S)
        except TimeoutError:
            raise ThroughputFailed(f"the watch did not show the end of {name}") from None
        return NewcomerTimes(created_at - began, admitted_at - began, ended_at - ending_at)

    async def _finish(self, queue: Queue, name: str) -> None:
        path = self._workloads.path(queue.namespace, name, "status")
        resource = f"{self._workloads}/status"
        answer = await self._connection.call("patch", resource, path, finish_operations(), JSON_PATCH)
        if answer.status != 200:
            raise ThroughputFailed(f"patch {path}: {answer.status} {answer.excerpt}")
