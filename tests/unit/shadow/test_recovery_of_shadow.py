"""A shadow quarantines an object that the core fails on, and still compares all other workloads."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from admitq.app import shadow
from admitq.app.settings import load_settings
from admitq.app.shadow import ShadowPart, ShadowSettings
from admitq.core import cycle, events
from admitq.core.events import WorkloadChanged
from admitq.core.handlers import HANDLERS, cycles
from admitq.runtime.credentials import Credentials
from admitq.runtime.resources import Resource
from admitq.runtime.store import ObjectChange
from tests.unit.controllers.builders import KINDS
from tests.unit.manager.failing_core import (
    BAD,
    CHANGED,
    OBJECTS,
    Cluster,
    expected_failures,
    fail,
    fail_to_handle,
    is_bad_event,
    version,
    wait_until,
)

ASSIGNMENT = {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}


class FollowedCluster(Cluster):
    """Objects that a shadow follows."""

    def __init__(self) -> None:
        super().__init__()
        nowhere = Credentials("http://127.0.0.1:9")
        settings = ShadowSettings(patience=3600)
        self.part: Any = ShadowPart(
            load_settings(None), nowhere, self.metrics, "test", lambda _: None, settings
        )
        self._version = 10
        self.follow(self._deliver)

    def _deliver(self, resource: Resource, change: ObjectChange) -> None:
        store = self.part._stores[resource]
        if change.new is None:
            store.remove(version(change.object, 3_000))
        else:
            store.upsert(change.new)

    async def admit_when_expected(self, name: str, queue: str = "") -> None:
        """Submit a workload. Once the shadow expects its reservation, write it as the manager in charge."""
        self._version += 2
        self.submit(name, queue=queue, version=self._version)
        await wait_until(lambda: self._is_expected(name))
        self.submit(name, queue=queue, version=self._version + 1, assignment=ASSIGNMENT)

    def _is_expected(self, name: str) -> bool:
        return any(key.name == name for key in self.part._shadow._expected.reservations)

    async def wait_for_agreements(self, decisions: int) -> None:
        """Wait until this number of decisions was compared, and check that none differs."""
        await wait_until(lambda: self.count("admitq_shadow_decisions_total") == decisions)
        assert self.count("admitq_shadow_disagreements_total") == 0

    @property
    def quarantined(self) -> float:
        return self.count("admitq_malformed_objects")

    @property
    def failures(self) -> float:
        return self.count("admitq_core_failures_total")


@asynccontextmanager
async def running_shadow(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[FollowedCluster]:
    """Run a shadow until the end of the block, and check that it did not stop before."""
    monkeypatch.setattr(shadow, "PAUSE_SECONDS", 0.001)
    cluster = FollowedCluster()
    cluster.put_queues()
    cluster.put_queues(name="-2")
    task = asyncio.create_task(cluster.part._run())
    try:
        yield cluster
        assert not task.done()
        cluster.part._shadow.state.validate()
    finally:
        task.cancel()


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize("event", OBJECTS, ids=lambda event: event.__name__)
async def test_object_that_handler_fails_on_is_quarantined_by_shadow_until_it_changes(
    monkeypatch: pytest.MonkeyPatch, event: type[Any], after: bool
) -> None:
    defect = fail_to_handle(monkeypatch, event, is_bad_event, after=after)
    async with running_shadow(monkeypatch) as cluster:
        resource, obj = OBJECTS[event]
        cluster.put(resource, obj)
        await cluster.admit_when_expected("good")
        await cluster.wait_for_agreements(1)
        assert (cluster.failures, cluster.quarantined) == (expected_failures(event), 1)
        defect.clear()
        if event is events.NamespaceChanged:
            cluster.put(resource, version(obj, 1_001, labels={"a": "b"}))
        elif event in CHANGED:
            cluster.put(resource, version({**obj, **CHANGED[event]}, 1_001))
        else:
            cluster.delete(resource, obj)
        assert cluster.quarantined == 0
        await cluster.admit_when_expected("another")
        await cluster.wait_for_agreements(2)


HEADS = [
    (HANDLERS, WorkloadChanged, lambda _world, event, _now: BAD in repr(event) and event.workload.pod_sets),
    *(
        (cycle, name, lambda *arguments: any(_name_of(argument) == BAD for argument in arguments))
        for name in ("nominate", "refusal_of", "reserve")
    ),
]


def _name_of(argument: Any) -> str:
    workload = getattr(argument, "workload", None)
    return "" if workload is None else workload.key.name


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize(("owner", "name", "is_bad"), HEADS, ids=[str(name) for _, name, _ in HEADS])
async def test_workload_that_core_fails_on_is_not_compared_until_it_changes(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: Any, is_bad: Any, after: bool
) -> None:
    if owner is HANDLERS:
        defect = fail_to_handle(monkeypatch, name, is_bad, after=after)
    else:
        defect = fail(monkeypatch, owner, name, is_bad, after=after)
    async with running_shadow(monkeypatch) as cluster:
        cluster.submit(BAD)
        await wait_until(lambda: cluster.quarantined == 1)
        await cluster.admit_when_expected("good", queue="-2")
        await cluster.wait_for_agreements(1)
        cluster.submit(BAD, version=1_000, assignment=ASSIGNMENT)
        await cluster.admit_when_expected("another")
        await cluster.wait_for_agreements(2)
        failures = cluster.failures
        defect.clear()
        cluster.delete(KINDS.workloads, cluster.world.get(KINDS.workloads, BAD))
        assert cluster.quarantined == 0
        await cluster.admit_when_expected("third")
        await cluster.wait_for_agreements(3)
        assert cluster.failures == failures <= 2


async def test_cluster_queue_that_cycles_fail_with_is_quarantined_by_shadow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def has_bad_queue(_world: Any, heads: Any, _now: Any) -> bool:
        return any(queue.spec.name == f"cq-{BAD}" for queue, _ in heads)

    fail(monkeypatch, cycles, "run_cycle", has_bad_queue, after=True)
    async with running_shadow(monkeypatch) as cluster:
        cluster.put_queues(name=f"-{BAD}")
        cluster.submit(BAD, queue=f"-{BAD}")
        await cluster.admit_when_expected("good")
        await wait_until(lambda: cluster.quarantined == 1 and not cluster.part._recovery.is_rebuild_due)
        # Decisions during a rebuild of the state are not compared.
        failures, compared = cluster.failures, round(cluster.count("admitq_shadow_decisions_total"))
        await cluster.admit_when_expected("another", queue="-2")
        cluster.submit(BAD, queue=f"-{BAD}", version=1_000, assignment=ASSIGNMENT)
        await cluster.wait_for_agreements(compared + 1)
        assert cluster.failures == failures


async def test_shadow_recovers_from_core_failure_without_known_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defect = fail(monkeypatch, cycles, "take_heads", lambda _world: True, after=False)
    async with running_shadow(monkeypatch) as cluster:
        cluster.submit("waits")
        await wait_until(lambda: cluster.failures >= 3)
        defect.clear()
        await cluster.admit_when_expected("good")
        await cluster.wait_for_agreements(1)
        assert cluster.failures < 20
        assert cluster.quarantined == 0
