"""A cohort admits no more than its quota while one of its objects is quarantined."""

from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any

import pytest

from admitq.core import events
from admitq.core.handlers import cycles as cycle_handler
from tests.unit.controllers.builders import KINDS
from tests.unit.controllers.world import cluster_scoped
from tests.unit.manager.failing_core import (
    BAD,
    RunningManager,
    fail,
    fail_to_handle,
    has_bad_queue,
    running_manager,
    version,
    wait_until,
)


def _is_of(kind: str, name: str, *, also_quarantined: bool) -> Callable[..., bool]:
    """Whether an event is about an object. Events of a quarantined object count only if also_quarantined."""

    def is_bad(_world: Any, event: Any, _now: Any) -> bool:
        value = getattr(event, kind, None)
        if value is None or getattr(value, "name", None) != name:
            return False
        return also_quarantined or not getattr(value, "quarantined", False)

    return is_bad


async def _fail_cycles(cluster: RunningManager, patch: pytest.MonkeyPatch) -> list[bool]:
    defect = fail(patch, cycle_handler, "run_cycle", has_bad_queue, after=True)
    cluster.submit("waits", queue=f"-{BAD}")
    await wait_until(lambda: cluster.count("admitq_core_failures_total") >= 3)
    cluster.submit("probe", queue="-apart")
    await wait_until(lambda: cluster.is_reserved("probe"))
    return defect


async def _fail_observation(cluster: RunningManager, patch: pytest.MonkeyPatch) -> list[bool]:
    is_bad = _is_of("cluster_queue", f"cq-{BAD}", also_quarantined=False)
    defect = fail_to_handle(patch, events.ClusterQueueChanged, is_bad, after=True)
    cluster.put_queues(name=f"-{BAD}", cohort="team", preempts=True, version=900)
    return defect


async def _fail_observation_of_quota(cluster: RunningManager, patch: pytest.MonkeyPatch) -> list[bool]:
    is_bad = _is_of("cluster_queue", f"cq-{BAD}", also_quarantined=True)
    defect = fail_to_handle(patch, events.ClusterQueueChanged, is_bad, after=False)
    cluster.put_queues(name=f"-{BAD}", cohort="team", preempts=True, version=900)
    return defect


async def _fail_observation_of_cohort(cluster: RunningManager, patch: pytest.MonkeyPatch) -> list[bool]:
    defect = fail_to_handle(
        patch,
        events.CohortChanged,
        _is_of("cohort", "team", also_quarantined=True),
        after=True,
    )
    cluster.put(KINDS.cohorts, version(cluster_scoped("team", spec={"parentName": "above"}), 900))
    return defect


async def _fail_observation_of_holder(cluster: RunningManager, patch: pytest.MonkeyPatch) -> list[bool]:
    def is_bad(_world: Any, event: Any, _now: Any) -> bool:
        return event.workload.key.name == "borrower"

    defect = fail_to_handle(patch, events.WorkloadChanged, is_bad, after=False)
    borrower = cluster.world.get(KINDS.workloads, "borrower")
    cluster.put(KINDS.workloads, version(borrower, 900, labels={"a": "b"}))
    return defect


def _change_bad_queue(cluster: RunningManager, change: Callable[[dict[str, Any]], None]) -> None:
    queue = deepcopy(cluster.world.get(KINDS.cluster_queues, f"cq-{BAD}"))
    change(queue["spec"])
    cluster.put(KINDS.cluster_queues, version(queue, 900))


async def _make_policy_unreadable(cluster: RunningManager, _patch: pytest.MonkeyPatch) -> list[bool]:
    _change_bad_queue(cluster, lambda spec: spec["preemption"].update(withinClusterQueue="Sometimes"))
    return []


async def _make_quota_unreadable(cluster: RunningManager, _patch: pytest.MonkeyPatch) -> list[bool]:
    _change_bad_queue(
        cluster, lambda spec: spec["resourceGroups"][0]["flavors"][0]["resources"][0].update(nominalQuota="x")
    )
    return []


QUARANTINES = [
    pytest.param(_fail_cycles, 2, id="cycles fail with ClusterQueue"),
    pytest.param(_fail_observation, 2, id="ClusterQueue cannot be observed"),
    pytest.param(_fail_observation_of_quota, 0, id="cohort and quota of ClusterQueue cannot be observed"),
    pytest.param(_fail_observation_of_cohort, 0, id="cohort cannot be observed"),
    pytest.param(_fail_observation_of_holder, 0, id="borrower cannot be observed"),
    pytest.param(_make_policy_unreadable, 2, id="only quota of ClusterQueue is readable"),
    pytest.param(_make_quota_unreadable, 0, id="quota of ClusterQueue is unreadable"),
]


@pytest.mark.parametrize(("quarantine", "available"), QUARANTINES)
async def test_cohort_admits_no_more_than_its_quota_while_object_is_quarantined(
    monkeypatch: pytest.MonkeyPatch,
    quarantine: Callable[[RunningManager, pytest.MonkeyPatch], Awaitable[list[bool]]],
    available: int,
) -> None:
    """Two ClusterQueues have 4 CPUs each. One borrows 2; ``available`` CPUs are left to the other."""
    async with running_manager() as cluster:
        cluster.put(KINDS.cohorts, cluster_scoped("team", spec={"parentName": "above"}))
        cluster.put_queues(name=f"-{BAD}", cohort="team")
        cluster.put_queues(
            name="-other", cohort="above" if quarantine is _fail_observation_of_cohort else "team"
        )
        cluster.put_queues(name="-apart")
        cluster.submit("borrower", pods=6, queue=f"-{BAD}")
        await wait_until(lambda: cluster.is_reserved("borrower"))
        # Quarantine an object.
        defect = await quarantine(cluster, monkeypatch)
        await wait_until(lambda: cluster.count("admitq_malformed_objects") == 1)

        # The other ClusterQueue admits only as many workloads as its quota allows.
        for number in range(3):
            cluster.submit(f"small{number}", queue="-other")
        cluster.submit("apart", queue="-apart")
        await wait_until(lambda: cluster.is_reserved("apart"))
        await wait_until(
            lambda: sum(cluster.is_reserved(f"small{number}") for number in range(3)) == available
        )
        cluster.submit("further", queue="-apart")
        await wait_until(lambda: cluster.is_reserved("further"))
        assert sum(cluster.is_reserved(f"small{number}") for number in range(3)) == available

        # The cohort admits all workloads again after the repair.
        defect.clear()
        for name in ("borrower", "waits"):
            if (stored := cluster.world.stores.of(KINDS.workloads).get("ns", name)) is not None:
                cluster.delete(KINDS.workloads, dict(stored))
        cluster.put(KINDS.cohorts, version(cluster_scoped("team", spec={"parentName": "top"}), 1_000))
        cluster.put_queues(name=f"-{BAD}", cohort="team", cpu=5, version=1_000)
        cluster.submit("last", queue=f"-{BAD}")
        await wait_until(
            lambda: all(cluster.is_reserved(name) for name in ("small0", "small1", "small2", "last"))
        )
        assert cluster.count("admitq_malformed_objects") == 0
