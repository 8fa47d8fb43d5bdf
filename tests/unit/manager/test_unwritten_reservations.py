"""Reservations that a webhook of another program rejects do not delay other reservations."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from admitq.core import write_retries
from admitq.core.model import SECOND
from admitq.core.state import AdmissionState
from admitq.manager import guarded_writes
from admitq.manager.manager import Manager
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.registry import Metrics
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import NAMESPACES, Resource
from admitq.runtime.store import ObjectChange, Store
from admitq.workloads.transitions import is_reserved
from admitq_api import conditions
from admitq_api.labels import names_for
from localcluster.waiting import eventually

NAMES = names_for()
KINDS = kinds_of(NAMES)
QUOTA = 70
"""Workloads of the queue with failing writes: more than the slots for reservations."""
WEBHOOK_FAILS = ApiError(500, "InternalError", "failed calling webhook example.com")
WEBHOOK_DENIES = ApiError(403, "Forbidden", 'admission webhook "example.com" denied the request')


def named(name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    if namespace:
        metadata |= {"namespace": namespace, "creationTimestamp": "2026-03-01T10:00:00Z"}
    return {"metadata": metadata, "spec": spec}


def workload(name: str, queue: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    return named(name, {"queueName": queue, "podSets": [pod_set]}, "team")


class Cluster:
    """A manager, and an API server with a webhook that fails the applies that ``is_broken`` selects."""

    def __init__(self) -> None:
        self.is_broken: Callable[[dict[str, Any]], bool] = lambda _: False
        self.error = WEBHOOK_FAILS
        self.stored_reservations: list[str] = []
        """Names of Workloads with a stored reservation, in order."""
        self.events: list[tuple[str, str, str]] = []
        self.workloads = Store(KINDS.workloads)
        self.metrics = Metrics()
        self.state = AdmissionState()
        self.manager = Manager(
            state=self.state,
            client=cast("Any", self),
            workload_resource=KINDS.workloads,
            workloads=self.workloads,
            names=NAMES,
            recorder=cast("Any", self),
            metrics=self.metrics,
            measures=ManagerMeasures(MeasureScope(self.metrics, lambda _: None)),
            clock=time.time_ns,
            store_answer=lambda _, obj: cast("None", self.workloads.upsert(obj)),
            start=self.start,
            refresh=cast("Any", self),
            leading=lambda: True,
        )
        self.workloads.subscribe(lambda change: self.manager.observe(KINDS.workloads, change))
        self.observe(NAMESPACES, named("team", {}))
        self.observe(KINDS.resource_flavors, named("f", {}))
        for queue, quota in (("broken", QUOTA), ("healthy", 1)):
            flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": quota}]}
            group = {"coveredResources": ["cpu"], "flavors": [flavor]}
            self.observe(
                KINDS.cluster_queues,
                named(queue, {"namespaceSelector": {}, "resourceGroups": [group]}),
            )
            self.observe(KINDS.local_queues, named(queue, {"clusterQueue": queue}, "team"))

    def observe(self, resource: Resource, obj: dict[str, Any]) -> None:
        store = Store(resource)
        changes: list[ObjectChange] = []
        store.subscribe(changes.append)
        store.upsert(obj)
        self.manager.observe(resource, changes[0])

    async def apply(self, _resource: Any, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        metadata = body["metadata"]
        stored = self.stored(metadata["name"])
        if self.is_broken(body):
            raise self.error
        if metadata["resourceVersion"] != stored["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        if is_reserved(body):
            self.stored_reservations.append(metadata["name"])
        version = str(int(metadata["resourceVersion"]) + 1)
        written = {
            **stored,
            "metadata": {**stored["metadata"], "resourceVersion": version},
            "status": body["status"],
        }
        self.workloads.upsert(written)
        return written

    async def get(self, _resource: Any, name: str, **_: Any) -> dict[str, Any]:
        return self.stored(name)

    def stored(self, name: str) -> dict[str, Any]:
        obj = self.workloads.get("team", name)
        assert obj is not None
        return obj

    def finish(self, name: str) -> None:
        """Finish a Workload, as after the success of its job."""
        stored = self.stored(name)
        finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
        status = {**stored["status"], "conditions": [*stored["status"]["conditions"], finished]}
        metadata = {
            **stored["metadata"],
            "resourceVersion": str(int(stored["metadata"]["resourceVersion"]) + 1),
        }
        self.workloads.upsert({**stored, "metadata": metadata, "status": status})

    async def start(self, _obj: dict[str, Any]) -> None:
        """Start no job."""

    def event(self, regarding: dict[str, Any], kind: str, reason: str, note: str) -> None:
        self.events.append((regarding["metadata"]["name"], f"{kind} {reason}", note))

    def cluster_queue(self, _name: str) -> None:
        """Write no status."""

    def local_queue(self, _key: Any) -> None:
        """Write no status."""

    @property
    def reserving(self) -> int:
        """Return the number of reservations that the core counts for the queue with failing writes."""
        status = self.state.queries.cluster_queue_status("broken")
        assert status is not None
        return status.reserving

    @property
    def unwritten(self) -> float:
        """Return the value of the metric of unwritten decisions."""
        lines = self.metrics.exposition().decode().splitlines()
        series = [line for line in lines if line.startswith("admitq_unwritten_decisions{")]
        return sum(float(line.split()[-1]) for line in series)


@asynccontextmanager
async def running(cluster: Cluster) -> AsyncGenerator[None]:
    task = asyncio.create_task(cluster.manager.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Shorter delays would keep the CPU busy with retries of all Workloads.
    monkeypatch.setattr(write_retries, "RETRY_MAX", SECOND)
    monkeypatch.setattr(guarded_writes, "OVERDUE_SECONDS", 0.1)


def is_about_quota(message: str, after: str = "") -> bool:
    return message.startswith("The reservation in ClusterQueue broken could not be written at 20") and (
        message.endswith(f": failed calling webhook example.com; it is retried{after}")
    )


@pytest.mark.parametrize("fails_all", [True, False], ids=["every write", "reservations"])
async def test_workload_is_admitted_while_more_reservations_than_slots_fail(
    fails_all: bool,
) -> None:
    cluster = Cluster()
    names = {f"w{number}" for number in range(QUOTA)}
    cluster.is_broken = lambda body: body["metadata"]["name"] in names and (fails_all or is_reserved(body))
    for name in names:
        cluster.workloads.upsert(workload(name, "broken"))
    async with running(cluster):
        # Without assert: its description of the difference would take longer than the manager's work.
        await eventually(
            lambda: {name for name, _, note in cluster.events if is_about_quota(note)} == names,
            interval=0.01,
            what="every Workload has an event",
        )
        assert {event for _, event, _ in cluster.events} == {"Warning PendingEvaluation"}
        # A workload of the other queue is admitted meanwhile.
        cluster.workloads.upsert(workload("other", "healthy"))
        await eventually(
            lambda: is_reserved(cluster.stored("other")),
            timeout=5,
            interval=0.01,
            what="the other Workload is admitted",
        )
        assert cluster.stored_reservations == ["other"]
        if fails_all:
            assert cluster.unwritten == QUOTA
            assert cluster.reserving == QUOTA, "each of the failed writes may still take effect"
            assert all("conditions" not in cluster.stored(name).get("status", {}) for name in names)
        else:

            def has_refusal() -> bool:
                for name in names:
                    quota = conditions.find_condition(
                        cluster.stored(name)["status"]["conditions"], "QuotaReserved"
                    )
                    assert quota is not None
                    assert (quota["status"], quota["reason"]) == ("False", "PendingEvaluation")
                    assert is_about_quota(quota["message"], after=" after 1s")
                return True

            await eventually(has_refusal, interval=0.01, what="every Workload has a condition")
        # The webhook accepts all writes again.
        cluster.is_broken = lambda _: False
        await eventually(
            lambda: len(cluster.stored_reservations) == QUOTA + 1,
            interval=0.01,
            what="all Workloads are admitted",
        )
        await eventually(lambda: cluster.unwritten == 0, interval=0.01, what="nothing is retried")
    assert sorted(cluster.stored_reservations) == sorted({*names, "other"})
    assert cluster.reserving == QUOTA


async def test_quota_of_withdrawn_reservation_is_released() -> None:
    cluster = Cluster()
    cluster.is_broken = is_reserved
    cluster.workloads.upsert(workload("w", "broken"))
    async with running(cluster):
        await eventually(lambda: cluster.reserving == 1, interval=0.001, what="the core reserves")
        await eventually(lambda: cluster.reserving == 0, interval=0.001, what="the quota is given back")
        assert not is_reserved(cluster.stored("w"))


@pytest.mark.parametrize("error", [WEBHOOK_FAILS, WEBHOOK_DENIES], ids=["fails", "denies"])
async def test_next_workload_of_cluster_queue_is_admitted_while_reservation_fails(
    error: ApiError,
) -> None:
    cluster = Cluster()
    cluster.error = error
    cluster.is_broken = lambda body: body["metadata"]["name"] == "first" and is_reserved(body)
    for name in ("first", "second"):
        cluster.workloads.upsert(workload(name, "healthy"))
    async with running(cluster):
        await eventually(
            lambda: cluster.stored_reservations == ["second"], interval=0.01, what="the second is admitted"
        )

        def has_refusal() -> bool:
            quota = conditions.find_condition(
                cluster.stored("first")["status"]["conditions"], "QuotaReserved"
            )
            assert quota is not None
            return quota["status"] == "False"

        await eventually(has_refusal, interval=0.01, what="the first has a condition")
        cluster.is_broken = lambda _: False
        cluster.finish("second")
        await eventually(
            lambda: cluster.stored_reservations == ["second", "first"],
            interval=0.01,
            what="the first is admitted",
        )
