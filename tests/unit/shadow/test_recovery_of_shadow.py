"""A defect of the core costs a shadow the object that it fails on, and no comparison of other workloads."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from admitq.app import shadow
from admitq.app.settings import load_settings
from admitq.app.shadow import ShadowPart, ShadowSettings
from admitq.core import cycle
from admitq.core import events as happened
from admitq.core.events import WorkloadChanged
from admitq.core.handlers import HANDLERS, cycles
from admitq.runtime.credentials import Credentials
from admitq.runtime.resources import Resource
from admitq.runtime.store import Change
from tests.unit.controllers.builders import KINDS
from tests.unit.manager.test_recovery import (
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


class Followed(Cluster):
    """Objects that a shadow follows."""

    def __init__(self) -> None:
        super().__init__()
        nowhere = Credentials("http://127.0.0.1:9")
        how = ShadowSettings(patience=3600)
        self.part: Any = ShadowPart(load_settings(None), nowhere, self.metrics, "test", lambda _: None, how)
        self._version = 10
        self.follow(self._deliver)

    def _deliver(self, resource: Resource, change: Change) -> None:
        store = self.part._stores[resource]
        if change.new is None:
            store.remove(version(change.object, 3_000))
        else:
            store.upsert(change.new)

    async def admit(self, name: str, queue: str = "") -> None:
        """Have a workload wait, and be given quota by the manager in charge when the shadow expects that."""
        self._version += 2
        self.submit(name, queue=queue, version=self._version)
        await wait_until(lambda: self._is_expected(name))
        self.submit(name, queue=queue, version=self._version + 1, assignment=ASSIGNMENT)

    def _is_expected(self, name: str) -> bool:
        return any(key.name == name for key in self.part._shadow._expected.reservations)

    async def agrees(self, decisions: int) -> None:
        """Wait for as many decisions to be compared, none of which differs."""
        await wait_until(lambda: self.count("admitq_shadow_decisions_total") == decisions)
        assert self.count("admitq_shadow_disagreements_total") == 0

    @property
    def left_out(self) -> float:
        return self.count("admitq_malformed_objects")

    @property
    def failures(self) -> float:
        return self.count("admitq_core_failures_total")


@asynccontextmanager
async def followed(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Followed]:
    """A shadow that runs until the end of the block, and not less."""
    monkeypatch.setattr(shadow, "PAUSE_SECONDS", 0.001)
    made = Followed()
    made.put_queues()
    made.put_queues(name="-2")
    task = asyncio.create_task(made.part._run())
    try:
        yield made
        assert not task.done()
        made.part._shadow.state.validate()
    finally:
        task.cancel()


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize("event", OBJECTS, ids=lambda one: one.__name__)
async def test_object_that_a_handler_fails_on_is_left_out_of_the_comparison_until_it_changes(
    monkeypatch: pytest.MonkeyPatch, event: type[Any], after: bool
) -> None:
    exists = fail_to_handle(monkeypatch, event, is_bad_event, after=after)
    async with followed(monkeypatch) as here:
        resource, obj = OBJECTS[event]
        here.put(resource, obj)
        await here.admit("good")
        await here.agrees(1)
        assert (here.failures, here.left_out) == (expected_failures(event), 1)
        exists.clear()
        if event is happened.NamespaceChanged:
            here.put(resource, version(obj, 1_001, labels={"a": "b"}))
        elif event in CHANGED:
            here.put(resource, version({**obj, **CHANGED[event]}, 1_001))
        else:
            here.delete(resource, obj)
        assert here.left_out == 0
        await here.admit("another")
        await here.agrees(2)


HEADS = [
    (HANDLERS, WorkloadChanged, lambda _world, event, _now: BAD in repr(event) and event.workload.pod_sets),
    *(
        (cycle, name, lambda *arguments: any(_name_of(one) == BAD for one in arguments))
        for name in ("nominate", "refusal_of", "reserve")
    ),
]


def _name_of(argument: Any) -> str:
    workload = getattr(argument, "workload", None)
    return "" if workload is None else workload.key.name


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize(("owner", "name", "concerns"), HEADS, ids=[str(name) for _, name, _ in HEADS])
async def test_workload_that_the_core_fails_on_is_left_out_of_the_comparison_until_it_changes(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: Any, concerns: Any, after: bool
) -> None:
    if owner is HANDLERS:
        exists = fail_to_handle(monkeypatch, name, concerns, after=after)
    else:
        exists = fail(monkeypatch, owner, name, concerns, after=after)
    async with followed(monkeypatch) as here:
        here.submit(BAD)
        await wait_until(lambda: here.left_out == 1)
        await here.admit("good", queue="-2")
        await here.agrees(1)
        here.submit(BAD, version=1_000, assignment=ASSIGNMENT)
        await here.admit("another")
        await here.agrees(2)
        failures = here.failures
        exists.clear()
        here.delete(KINDS.workloads, here.world.get(KINDS.workloads, BAD))
        assert here.left_out == 0
        await here.admit("third")
        await here.agrees(3)
        assert here.failures == failures <= 2


async def test_cluster_queue_that_cycles_fail_with_is_left_out_of_the_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def concerns(_world: Any, of: Any, _now: Any) -> bool:
        return any(queue.spec.name == f"cq-{BAD}" for queue, _ in of)

    fail(monkeypatch, cycles, "run_cycle", concerns, after=True)
    async with followed(monkeypatch) as here:
        here.put_queues(name=f"-{BAD}")
        here.submit(BAD, queue=f"-{BAD}")
        await here.admit("good")
        await wait_until(lambda: here.left_out == 1 and not here.part._recovery.is_rebuild_due)
        # What is done while a new state is made is not compared.
        failures, compared = here.failures, round(here.count("admitq_shadow_decisions_total"))
        await here.admit("another", queue="-2")
        here.submit(BAD, queue=f"-{BAD}", version=1_000, assignment=ASSIGNMENT)
        await here.agrees(compared + 1)
        assert here.failures == failures


async def test_shadow_goes_on_after_a_failure_that_no_object_is_known_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exists = fail(monkeypatch, cycles, "take_heads", lambda _world: True, after=False)
    async with followed(monkeypatch) as here:
        here.submit("waits")
        await wait_until(lambda: here.failures >= 3)
        exists.clear()
        await here.admit("good")
        await here.agrees(1)
        assert here.failures < 20
        assert here.left_out == 0
