"""The manager recovers from a failure of the core: it quarantines the failing object and continues."""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

import pytest

from admitq.core import cycle, events
from admitq.core.cycle import process
from admitq.core.handlers import HANDLERS
from admitq.core.handlers import cycles as cycle_handler
from admitq.core.model import ObjectKey
from admitq.manager import recovery
from tests.unit.controllers.builders import KINDS, condition_of
from tests.unit.manager.failing_core import (
    BAD,
    CHANGED,
    OBJECTS,
    RunningManager,
    expected_failures,
    fail,
    fail_to_handle,
    has_bad_queue,
    is_bad_event,
    running_manager,
    version,
    wait_until,
)

DELETIONS = {
    events.ResourceFlavorChanged: events.ResourceFlavorDeleted,
    events.AdmissionCheckChanged: events.AdmissionCheckDeleted,
    events.TopologyChanged: events.TopologyDeleted,
    events.NodeChanged: events.NodeDeleted,
    events.PodOfOthersChanged: events.PodOfOthersDeleted,
    events.CohortChanged: events.CohortDeleted,
    events.ClusterQueueChanged: events.ClusterQueueDeleted,
    events.LocalQueueChanged: events.LocalQueueDeleted,
    events.NamespaceChanged: events.NamespaceDeleted,
    events.LimitRangeChanged: events.LimitRangeDeleted,
    events.RuntimeClassChanged: events.RuntimeClassDeleted,
}


def test_every_event_of_an_object_is_in_tables() -> None:
    others = {
        events.WorkloadChanged,
        events.WorkloadDeleted,
        events.ReservationFailed,
        events.ReservationDiscarded,
        events.TopologyAssignmentFailed,
        events.PreemptionFailed,
        events.CyclesRequested,
    }
    assert {*OBJECTS, *DELETIONS.values(), *others} == set(HANDLERS)


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize("event", OBJECTS, ids=lambda event: event.__name__)
async def test_object_that_core_fails_on_is_quarantined_until_it_changes(
    monkeypatch: pytest.MonkeyPatch, event: type[Any], after: bool
) -> None:
    defect = fail_to_handle(monkeypatch, event, is_bad_event, after=after)
    async with running_manager() as cluster:
        cluster.put_queues()
        resource, obj = OBJECTS[event]
        cluster.put(resource, obj)
        cluster.submit("good")
        await wait_until(lambda: cluster.is_reserved("good"))
        assert cluster.count("admitq_core_failures_total") == expected_failures(event)
        assert cluster.count("admitq_malformed_objects") == 1
        assert "InternalError" in cluster.reasons
        defect.clear()
        cluster.put(resource, version(obj, 1_000))
        assert cluster.count("admitq_malformed_objects") == 1, "the core reads nothing that changed"
        if event is events.NamespaceChanged:
            cluster.put(resource, version(obj, 1_001, labels={"a": "b"}))
        elif event in CHANGED:
            cluster.put(resource, version({**obj, **CHANGED[event]}, 1_001))
        else:
            cluster.delete(resource, obj)
        assert cluster.count("admitq_malformed_objects") == 0
        cluster.submit("another")
        await wait_until(lambda: cluster.is_reserved("another"))


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize("event", DELETIONS, ids=lambda event: event.__name__)
async def test_object_is_removed_although_core_fails_on_its_deletion(
    monkeypatch: pytest.MonkeyPatch, event: type[Any], after: bool
) -> None:
    fail_to_handle(monkeypatch, DELETIONS[event], is_bad_event, after=after)
    async with running_manager() as cluster:
        cluster.put_queues()
        resource, obj = OBJECTS[event]
        cluster.put(resource, obj)
        cluster.delete(resource, obj)
        cluster.submit("good")
        await wait_until(lambda: cluster.is_reserved("good"))
        assert cluster.count("admitq_core_failures_total") == 1
        assert cluster.count("admitq_malformed_objects") == 0


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
async def test_workload_that_core_fails_on_keeps_its_quota(
    monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    def is_bad(_world: Any, event: Any, _now: Any) -> bool:
        # The core observes a quarantined Workload without its podsets.
        return BAD in repr(event) and bool(event.workload.pod_sets)

    defect = fail_to_handle(monkeypatch, events.WorkloadChanged, is_bad, after=after)
    async with running_manager() as cluster:
        cluster.put_queues(cpu=4)
        usage = {"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}
        cluster.submit(BAD, pods=3, assignment=usage)
        cluster.submit("large", pods=2)
        cluster.submit("small")
        await wait_until(lambda: cluster.is_reserved("small"))
        assert not cluster.is_reserved("large")
        assert cluster.state.queries.usage_of_workload(ObjectKey("ns", BAD)) != ()
        assert "InternalError" in cluster.reasons
        defect.clear()
        cluster.delete(KINDS.workloads, cluster.world.get(KINDS.workloads, BAD))
        await wait_until(lambda: cluster.is_reserved("large"))


async def _submit_fitting(cluster: RunningManager) -> None:
    """Submit the bad workload, which fits."""
    cluster.submit(BAD)


async def _submit_too_large(cluster: RunningManager) -> None:
    """Submit the bad workload, which exceeds the quota."""
    cluster.submit(BAD, pods=9)


async def _submit_preemptor(cluster: RunningManager) -> None:
    """Submit the bad workload, which may preempt another one."""
    cluster.put_queues(name="-1", preempts=True)
    cluster.submit("victim", pods=4, queue="-1")
    await wait_until(lambda: cluster.is_reserved("victim"))
    cluster.submit(BAD, pods=2, priority=9, queue="-1")


async def _submit_too_large_and_free_quota(cluster: RunningManager) -> None:
    """Have the refusal of the bad workload refreshed."""
    cluster.submit("ended")
    await wait_until(lambda: cluster.is_reserved("ended"))
    cluster.submit(BAD, pods=9)
    await wait_until(lambda: condition_of(cluster.world.get(KINDS.workloads, BAD), "QuotaReserved"))
    cluster.delete(KINDS.workloads, cluster.world.get(KINDS.workloads, "ended"))


_REQUEUE = import_module("admitq.core.cycle.requeue")
STEPS: list[tuple[Any, str, Callable[[RunningManager], Awaitable[None]]]] = [
    (cycle, "nominate", _submit_fitting),
    (cycle, "refusal_of", _submit_fitting),
    *((process, step.__name__, _submit_fitting) for step in process.STEPS_IF_FITTING),
    (cycle, "reserve", _submit_fitting),
    (cycle, "requeue", _submit_too_large),
    (_REQUEUE, "_park", _submit_too_large),
    (cycle, "note_needs", _submit_too_large),
    *((process, step.__name__, _submit_preemptor) for step in process.STEPS),
    (_REQUEUE, "_requeue_or_block", _submit_preemptor),
    (
        import_module("admitq.core.cycle.outdated_refusals"),
        "inadmissibility",
        _submit_too_large_and_free_quota,
    ),
]
"""Functions of a cycle, and a function that submits the bad workload so that the cycle calls them."""


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize(
    ("owner", "name", "submit_bad"), STEPS, ids=lambda value: getattr(value, "__name__", str(value))
)
async def test_head_that_cycle_fails_on_is_quarantined_until_it_changes(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    submit_bad: Callable[[RunningManager], Awaitable[None]],
    after: bool,
) -> None:
    def is_bad(*arguments: Any) -> bool:
        workloads = [getattr(argument, "workload", argument) for argument in arguments]
        keys = [getattr(workload, "key", None) for workload in workloads]
        return any(getattr(key, "name", None) == BAD for key in keys)

    function = getattr(owner, name)
    defect = fail(monkeypatch, owner, name, is_bad, after=after)
    for steps in ("STEPS", "STEPS_IF_FITTING"):
        replaced = tuple(
            getattr(owner, name) if step is function else step for step in getattr(process, steps)
        )
        monkeypatch.setattr(process, steps, replaced)
    async with running_manager() as cluster:
        cluster.put_queues()
        cluster.put_queues(name="-2")
        await submit_bad(cluster)
        await wait_until(lambda: cluster.count("admitq_core_failures_total") == 1)
        cluster.submit("good", queue="-2")
        await wait_until(lambda: cluster.is_reserved("good"))
        assert cluster.count("admitq_core_failures_total") == 1
        assert "InternalError" in cluster.reasons

        def is_reported() -> bool:
            quota = condition_of(cluster.world.get(KINDS.workloads, BAD), "QuotaReserved") or ()
            return quota[:2] == ("False", "Misconfigured")

        await wait_until(is_reported)
        defect.clear()
        cluster.world.client.version += 1
        cluster.submit(BAD, queue="-2", version=cluster.world.client.version)
        await wait_until(lambda: cluster.is_reserved(BAD))
        assert cluster.count("admitq_malformed_objects") == 0


async def test_reservation_in_progress_is_counted_by_rebuilt_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_to_handle(monkeypatch, events.ResourceFlavorChanged, is_bad_event, after=False)
    async with running_manager() as cluster:
        cluster.put_queues(cpu=4)
        held = cluster.hold_calls("apply", "first")
        cluster.submit("first", pods=3)
        await wait_until(held.started.is_set)
        cluster.put(*OBJECTS[events.ResourceFlavorChanged])
        cluster.submit("second", pods=3)
        cluster.submit("third", pods=1)
        await wait_until(lambda: cluster.is_reserved("third"))
        assert not cluster.is_reserved("second")
        held.released.set()
        await wait_until(lambda: cluster.is_reserved("first"))
        assert cluster.count("admitq_core_failures_total") == 1


async def test_object_deleted_during_rebuild_is_not_in_rebuilt_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_to_handle(monkeypatch, events.ResourceFlavorChanged, is_bad_event, after=False)
    monkeypatch.setattr(recovery, "_OBJECTS_PER_TURN", 1)
    async with running_manager() as cluster:
        cluster.put_queues(cpu=4)
        usage = {"name": "main", "count": 4, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "4"}}
        cluster.submit("deleted", pods=4, assignment=usage)
        cluster.call_after_read(
            "deleted", lambda: cluster.delete(KINDS.workloads, cluster.world.get(KINDS.workloads, "deleted"))
        )
        cluster.put(*OBJECTS[events.ResourceFlavorChanged])
        cluster.submit("good", pods=4)
        await wait_until(lambda: cluster.is_reserved("good"))


async def test_core_failure_without_known_object_is_retried_with_backoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defect = fail(monkeypatch, cycle_handler, "take_heads", lambda _world: True, after=False)
    async with running_manager() as cluster:
        cluster.put_queues()
        cluster.submit("good")
        await wait_until(lambda: cluster.count("admitq_core_failures_total") >= 3)
        defect.clear()
        await wait_until(lambda: cluster.is_reserved("good"))
        assert cluster.count("admitq_core_failures_total") < 20
        assert cluster.count("admitq_malformed_objects") == 0


@pytest.mark.parametrize("after", [False, True], ids=["before the cycle", "after the cycle"])
@pytest.mark.parametrize("cohorts", [("", ""), ("team", "team"), ("", "team")], ids=repr)
async def test_cluster_queue_that_cycles_fail_with_is_quarantined_until_it_changes(
    monkeypatch: pytest.MonkeyPatch, cohorts: tuple[str, str], after: bool
) -> None:
    defect = fail(monkeypatch, cycle_handler, "run_cycle", has_bad_queue, after=after)
    async with running_manager() as cluster:
        for name in ("-1", "-2", "-3"):
            cluster.put_queues(name=name, cohort=cohorts[0])
        cluster.put_queues(name=f"-{BAD}", cohort=cohorts[1])
        cluster.submit(BAD, queue=f"-{BAD}")
        await wait_until(lambda: cluster.count("admitq_core_failures_total") >= 3)
        for name in ("-1", "-2"):
            cluster.submit(f"good{name}", queue=name)
            await wait_until(lambda name=name: cluster.is_reserved(f"good{name}"))
        await wait_until(lambda: cluster.count("admitq_malformed_objects") == 1)
        assert (f"cq-{BAD}", "InternalError") in {event[:2] for event in cluster.world.recorder.events}
        assert not cluster.is_reserved(BAD)
        failures = cluster.count("admitq_core_failures_total")
        cluster.submit("good-3", queue="-3")
        await wait_until(lambda: cluster.is_reserved("good-3"))
        assert cluster.count("admitq_core_failures_total") == failures
        defect.clear()
        cluster.put_queues(cpu=5, name=f"-{BAD}", cohort=cohorts[1], version=1_000)
        await wait_until(lambda: cluster.is_reserved(BAD))
        assert cluster.count("admitq_malformed_objects") == 0


async def test_no_cluster_queue_is_quarantined_while_every_cycle_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defect = fail(monkeypatch, cycle_handler, "run_cycle", lambda *_: True, after=True)
    async with running_manager() as cluster:
        for name in ("-1", "-2", "-3"):
            cluster.put_queues(name=name)
            cluster.submit(f"good{name}", queue=name)
        await wait_until(lambda: cluster.count("admitq_core_failures_total") >= 5)
        defect.clear()
        for name in ("-1", "-2", "-3"):
            await wait_until(lambda name=name: cluster.is_reserved(f"good{name}"))
        assert cluster.count("admitq_malformed_objects") == 0
