"""Reads and lists of pods that outlive a job."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from admitq.controllers.job.controller import JobController
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.controllers.pods.remaining_pods import SHORTEST_CHECK_SECONDS, STILL_REMAINING, RemainingPods
from admitq.controllers.pods.remaining_pods_finder import RemainingPodsFinder
from admitq.controllers.workload.controller import WorkloadController
from admitq.integrations.kinds.job import JOB
from admitq.runtime.client import Page
from admitq.runtime.errors import ApiError
from tests.unit.controllers.builders import (
    KINDS,
    OWNER,
    admitted,
    condition,
    instant,
    settings_with,
    timestamp,
    workload,
)
from tests.unit.controllers.pods.remaining_pods import (
    JOB_KEY,
    LIST,
    ORPHANED,
    WORKLOAD_KEY,
    add_pods,
    aged_pod,
    end_of_workload,
    orphaned_workload,
    pod,
)
from tests.unit.controllers.world import World


@pytest.fixture
def world() -> World:
    """Return a world in which Jobs are the only kind of jobs."""
    return World(settings_with(integrations=(JOB,)))


def pod_of(number: int) -> dict[str, Any]:
    return pod(f"p{number}", uid=f"uid-p{number}", labels={}, ownerReferences=[{"uid": f"uid-{number}"}])


async def test_jobs_deleted_together_share_one_list(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = RemainingPodsFinder(world.ctx, clock=iter(range(100)).__next__)
    add_pods(world, pod_of(1))
    read = world.client.list

    async def slow_list(*args: Any, **selectors: Any) -> Any:
        await asyncio.sleep(0)
        return await read(*args, **selectors)

    monkeypatch.setattr(world.client, "list", slow_list)
    results = await asyncio.gather(*(finder.find((orphaned_workload(number),)) for number in range(5)))
    named_pods = [
        {uid: [pod["metadata"]["name"] for pod in own.listed] for uid, own in remaining.items()}
        for remaining in results
    ]
    assert named_pods == [{}, {"uid-w1": ["p1"]}, {}, {}, {}]
    assert world.calls.count(LIST) == 2


async def test_pending_workloads_of_kind_without_pod_labels_share_one_list(world: World) -> None:
    finder = RemainingPodsFinder(world.ctx, clock=iter(range(100)).__next__)
    add_pods(world, pod_of(1))
    owner = {**OWNER, "apiVersion": "example.com/v1", "kind": "Example"}
    waiting = [
        workload(
            owner={**owner, "uid": f"uid-{number}"}, metadata={"name": f"e{number}", "uid": f"uid-w{number}"}
        )
        for number in range(3)
    ]
    assert list(await finder.find_without_job(waiting)) == ["uid-w1"]
    assert world.calls.count(LIST) == 1


async def test_pods_of_recent_list_are_assumed_to_remain(world: World) -> None:
    now = [10.0]
    finder = RemainingPodsFinder(world.ctx, clock=lambda: now[0])
    add_pods(world, pod_of(1))
    assert await finder.find((orphaned_workload(1),))
    world.client.api.clear()
    now[0] += SHORTEST_CHECK_SECONDS / 2
    assert await finder.find((orphaned_workload(1),)), "the list of half a second ago shows the pod"
    assert await finder.find((orphaned_workload(2),)) == {}, "that no pods remain takes a list of its own"
    now[0] += SHORTEST_CHECK_SECONDS
    assert await finder.find((orphaned_workload(1),)) == {}
    assert world.calls.count(LIST) == 3


def reporting_workload(since: float = 0, **parts: Any) -> dict[str, Any]:
    """Return an admitted Workload that reports remaining pods since that second."""
    return admitted(condition("PodsOutliveJob", True, "PodsRunning", "3 pods", since), **parts)


def listed_names(remaining: Mapping[str, RemainingPods]) -> Any:
    """Return the names of the pods that are listed for the Workload, or the empty result."""
    return remaining and sorted(pod_["metadata"]["name"] for pod_ in remaining["uid-w"].listed)


READ_ONE, READ_TWO = ["get pods/c"], ["get pods/c", "get pods/b"]

REMAINING = {
    pod_["metadata"]["name"]: pod_ for pod_ in (aged_pod("a", 1), aged_pod("b", 2), aged_pod("c", 3))
}

HAS_ENDED: dict[str, Any] = {"c": {**REMAINING["c"], "status": {"phase": "Succeeded"}}}

IS_REPLACED: dict[str, Any] = {"c": pod("c", uid="uid-new")}

IS_UNMARKED: dict[str, Any] = {"c": pod("c", uid="uid-c", labels={})}


@pytest.mark.parametrize(
    ("changed", "seconds", "calls", "expected"),
    [
        ({}, 10, READ_ONE, []),
        (IS_UNMARKED, 10, READ_ONE, []),
        ({"a": None, "b": None}, 10, READ_ONE, []),
        ({"c": None}, 10, READ_TWO, []),
        (HAS_ENDED, 10, READ_TWO, []),
        (IS_REPLACED, 10, READ_TWO, []),
        ({"b": None, "c": None}, 10, [*READ_TWO, LIST], ["a"]),
        ({"a": None, "b": None, "c": None}, 10, [*READ_TWO, LIST], {}),
        ({}, 49, READ_ONE, []),
        ({}, 50, [LIST], ["a", "b", "c"]),
        ({"a": None}, 50, [LIST], ["b", "c"]),
        ({}, 0.5, [], ["a", "b", "c"]),
    ],
    ids=[
        "all remain",
        "newest lost its marks",
        "others gone",
        "newest gone",
        "newest ended",
        "newest replaced",
        "two gone",
        "all gone",
        "just before the next list",
        "next list due",
        "next list shows fewer",
        "list of the last second",
    ],
)
async def test_check_reads_one_pod_and_lists_when_it_has_ended_or_list_is_due(
    world: World, changed: dict[str, Any], seconds: float, calls: list[str], expected: Any
) -> None:
    now, world.now = [1000.0], instant(100)
    finder = RemainingPodsFinder(world.ctx, clock=lambda: now[0])
    add_pods(world, *REMAINING.values())
    assert listed_names(await finder.find((reporting_workload(),))) == ["a", "b", "c"]
    world.client.calls.clear()
    for name, pod_ in changed.items():
        del world.client.api["pods", name]
        add_pods(world, *([pod_] if pod_ else []))
    now[0] += seconds
    assert listed_names(await finder.find((reporting_workload(),))) == expected
    assert world.calls == calls


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({}, "c"),
        ({"c": timestamp(9)}, "b"),
        ({"a": timestamp(8), "b": timestamp(9), "c": timestamp(7)}, "b"),
    ],
    ids=["newest", "not deleted", "longest grace period"],
)
async def test_pod_that_probably_ends_last_is_read(
    world: World, marks: dict[str, str], expected: str
) -> None:
    now, world.now = [1000.0], instant(100)
    finder = RemainingPodsFinder(world.ctx, clock=lambda: now[0])
    for name, pod_ in REMAINING.items():
        deleted = {"deletionTimestamp": marks[name]} if name in marks else {}
        add_pods(world, {**pod_, "metadata": {**pod_["metadata"], **deleted}, "spec": {"nodeName": "n"}})
    await finder.find((reporting_workload(),))
    now[0] += 10
    assert await finder.find((reporting_workload(),)) == {"uid-w": STILL_REMAINING}
    assert world.calls == [LIST, f"get pods/{expected}"]


EXCESS_POD = aged_pod("d", 4)

OTHERS = [
    reporting_workload(
        owner={**OWNER, "uid": f"uid-{number}"}, metadata={"name": f"w{number}", "uid": f"uid-w{number}"}
    )
    for number in range(4)
]


@pytest.mark.parametrize(
    ("workloads", "more"),
    [
        ([admitted()], []),
        ([reporting_workload(since=99)], []),
        ([reporting_workload()], [EXCESS_POD]),
        ([reporting_workload(), OTHERS[0]], []),
        ([reporting_workload(), *OTHERS], [pod_of(number) for number in range(4)]),
    ],
    ids=["not reported", "reported just now", "excess", "another Workload has no pods", "many Workloads"],
)
async def test_pods_are_listed_at_each_check_when_one_pod_is_not_enough(
    world: World, workloads: list[dict[str, Any]], more: list[dict[str, Any]]
) -> None:
    now, world.now = [1000.0], instant(100)
    finder = RemainingPodsFinder(world.ctx, clock=lambda: now[0])
    add_pods(world, *REMAINING.values(), *more)
    for _ in range(3):
        assert "uid-w" in await finder.find(workloads)
        now[0] += 10
    assert world.calls == [LIST] * 3


@pytest.mark.parametrize(("status", "calls"), [(403, [*READ_TWO, LIST]), (500, READ_ONE)])
async def test_pod_that_cannot_be_read_does_not_release_quota(
    world: World, status: int, calls: list[str]
) -> None:
    now, world.now = [1000.0], instant(100)
    finder = RemainingPodsFinder(world.ctx, clock=lambda: now[0])
    add_pods(world, *REMAINING.values())
    await finder.find((reporting_workload(),))
    world.client.calls.clear()
    world.client.fails["get"] = ApiError(status, "Forbidden" if status == 403 else "InternalError", "no")
    now[0] += 10
    if status == 403:
        assert listed_names(await finder.find((reporting_workload(),))) == ["a", "b", "c"]
    else:
        with pytest.raises(ApiError):
            await finder.find((reporting_workload(),))
    assert world.calls == calls


async def test_known_pods_are_dropped_when_list_was_due(world: World) -> None:
    now, world.now = [1000.0], instant(100)
    finder = RemainingPodsFinder(world.ctx, clock=lambda: now[0])
    add_pods(world, *REMAINING.values(), pod_of(1))
    await finder.find((reporting_workload(),))
    await finder.find(OTHERS[1:2])
    known = finder._known  # pyright: ignore[reportPrivateUsage]
    assert set(known) == {"uid-w", "uid-w1"}
    now[0] += 1000
    await finder.find(OTHERS[:1])
    assert not finder._known  # pyright: ignore[reportPrivateUsage]


async def test_restarted_list_counts_each_pod_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pages(*args: Any, **selectors: Any) -> AsyncGenerator[Page]:
        for _ in range(2):
            yield Page([REMAINING["a"]], "1", first=True)
        yield Page([REMAINING["b"]], "1", first=False)

    monkeypatch.setattr(world.client, "pages", pages)
    assert listed_names(await RemainingPodsFinder(world.ctx).find((admitted(),))) == ["a", "b"]


@pytest.mark.parametrize("owner", [OWNER, None])
async def test_status_does_not_change_while_one_pod_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch, owner: dict[str, Any] | None
) -> None:
    now, world.now = [1000.0], instant(100)
    world.put(KINDS.workloads, reporting_workload(owner=owner, metadata=ORPHANED))
    add_pods(world, *REMAINING.values())
    if owner is None:
        controller, key = WorkloadController(world.ctx, world.core), WORKLOAD_KEY
    else:
        controller, key = JobController(world.ctx, JOB, OwnerLookup(world.ctx)), JOB_KEY
    monkeypatch.setattr(controller, "_remaining_pods", RemainingPodsFinder(world.ctx, clock=lambda: now[0]))

    async def check() -> list[str]:
        now[0] += 10
        world.client.calls.clear()
        assert await controller.reconcile(key) == 15.0
        return [call for call in world.calls if "pods" in call or call.startswith(("patch", "apply"))]

    assert await check() == [LIST, "patch workloads/job-j-1/status"]
    del world.client.api["pods", "a"]
    assert await check() == READ_ONE
    assert await check() == READ_ONE
    assert end_of_workload(world) == ("PodsRunning", None)


async def test_excess_pods_are_deleted_and_counted_once(world: World) -> None:
    world.put(KINDS.workloads, admitted())
    add_pods(world, *REMAINING.values(), EXCESS_POD)
    controller = JobController(world.ctx, JOB, OwnerLookup(world.ctx))
    await controller.reconcile(JOB_KEY)
    del world.client.api["pods", "d"]
    await controller.reconcile(JOB_KEY)
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/d"]
    assert world.recorder.excess == [("job-j-1", "Job.batch", 1)]
