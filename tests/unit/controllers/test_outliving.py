"""Pods that outlive their job: which they are, and that their Workload keeps its quota until they end."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import pytest

from admitq.controllers.indexes import group_key, resource_of
from admitq.controllers.job.controller import JobController
from admitq.controllers.job.owners import Owners
from admitq.controllers.outliving import (
    CONFIRMED,
    SHORTEST_DELAY_SECONDS,
    Remaining,
    excess_of,
    next_list,
    next_look,
)
from admitq.controllers.outliving_pods import OutlivingPods
from admitq.controllers.pod_index import belongs_to, may_run
from admitq.controllers.workload.controller import WorkloadController
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.mpijob import MPI_JOB
from admitq.integrations.kinds.pod import POD
from admitq.integrations.paths import with_value
from admitq.runtime.client import Page
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS
from admitq.runtime.store import Key
from tests.unit.controllers.builders import (
    FINISHED,
    KINDS,
    NAMES,
    OWNER,
    TEMPLATE,
    Object,
    admitted,
    at,
    condition,
    condition_of,
    job,
    reserved,
    settings_with,
    time,
    workload,
)
from tests.unit.controllers.world import World

JOB_KEY = Key("ns", "j")
WORKLOAD_KEY = Key("ns", "job-j-1")
GONE = {"labels": {NAMES.job_uid: "uid-j"}}
LIST = "list pods"


def pod(name: str = "p", *, spec: Any = None, status: Any = None, **metadata: Any) -> Object:
    labels = {NAMES.podset: "main", "batch.kubernetes.io/controller-uid": "uid-j"}
    return {
        "metadata": {"name": name, "namespace": "ns", "labels": labels, **metadata},
        "spec": spec or {},
        "status": status or {"phase": "Running"},
    }


@pytest.fixture
def world() -> World:
    """A process that works on Jobs alone."""
    return World(settings_with(integrations=(JOB,)))


def with_pods(world: World, *pods: Object) -> World:
    for one in pods:
        world.client.api["pods", one["metadata"]["name"]] = one
    return world


async def reconcile_job(world: World) -> float | None:
    return await JobController(world.ctx, JOB, Owners(world.ctx)).reconcile(JOB_KEY)


async def reconcile_workload(world: World) -> float | None:
    return await WorkloadController(world.ctx, world.core).reconcile(WORKLOAD_KEY)


def state(world: World) -> tuple[str | None, str | None]:
    """The reasons of PodsOutliveJob and of Finished."""
    stored = world.get(KINDS.workloads, "job-j-1")
    outlived, finished = (condition_of(stored, type_) for type_ in ("PodsOutliveJob", "Finished"))
    return outlived and outlived[1], finished and finished[1]


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (pod(), True),
        (pod(status={"phase": "Pending"}), True),
        (pod(status={}), True),
        (pod(spec={"nodeName": "n"}, deletionTimestamp=time(0)), True),
        (pod(deletionTimestamp=time(0)), False),
        (pod(status={"phase": "Succeeded"}), False),
        (pod(status={"phase": "Failed"}), False),
        (pod(spec={"schedulingGates": [{"name": "example.com/other"}]}), True),
        (pod(spec={"schedulingGates": [{"name": NAMES.elastic_gate}]}), False),
        (pod(spec={"schedulingGates": [{"name": NAMES.admission_gate}]}), False),
    ],
)
def test_pod_may_run_until_it_has_ended_unless_it_cannot_start(one: Object, expected: bool) -> None:
    assert may_run(one, NAMES) is expected


FIVE_PODS = {"podSets": [{"name": "main", "count": 5, "template": TEMPLATE}]}
FOR_FIVE = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 5, "flavors": {}}]}
SLICE = {"annotations": {NAMES.workload_slice_name: "job-j-0"}}
BARE: Object = {"labels": {}}
OF_JOB: Object = {"labels": {"batch.kubernetes.io/controller-uid": "uid-j"}}


@pytest.mark.parametrize(
    ("metadata", "of", "expected"),
    [
        ({**BARE, "annotations": {NAMES.workload: "job-j-1"}}, admitted(owner=None), True),
        ({**BARE, "annotations": {NAMES.workload: "another"}}, admitted(), False),
        ({**BARE, **SLICE}, admitted(metadata=SLICE), True),
        ({**BARE, **SLICE}, admitted(), False),
        ({**BARE, "ownerReferences": [{"uid": "uid-j"}]}, admitted(), True),
        ({**BARE, "ownerReferences": [{"uid": "another"}]}, admitted(), False),
        ({**BARE, "uid": "uid-p"}, admitted(owner={"kind": "Pod", "name": "p", "uid": "uid-p"}), True),
        ({"labels": {"jobset.sigs.k8s.io/jobset-uid": "uid-j"}}, admitted(), True),
        (OF_JOB, admitted(owner=None, metadata=GONE), True),
        (OF_JOB, admitted(owner=None), False),
    ],
)
def test_pod_belongs_to_workload_that_its_annotation_or_the_uid_of_its_job_names(
    metadata: Object, of: Object, expected: bool
) -> None:
    assert belongs_to(pod(**metadata), of, NAMES) is expected


@pytest.mark.parametrize(("seconds", "expected"), [(0, 1.0), (2, 1.0), (8, 4.0), (1000, 15.0)])
def test_next_look_is_later_the_longer_pods_remain(seconds: int, expected: float) -> None:
    outlived = admitted(condition("PodsOutliveJob", True, "PodsRunning", since=100))
    assert next_look(outlived, at(100 + seconds)) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(0, 15.0), (30, 15.0), (80, 40.0), (1000, 120.0)])
def test_next_list_is_later_the_longer_pods_remain(seconds: int, expected: float) -> None:
    outlived = admitted(condition("PodsOutliveJob", True, "PodsRunning", since=100))
    assert next_list(outlived, at(100 + seconds)) == expected


@pytest.mark.parametrize("gone", [None, job(deletionTimestamp=time(9))], ids=["gone", "going"])
async def test_workload_is_released_after_one_list_when_no_pods_outlive_its_job(
    world: World, gone: Object | None
) -> None:
    world.put(KINDS.workloads, admitted())
    if gone is not None:
        world.put(JOBS, gone)
    with_pods(world, pod("ended", status={"phase": "Succeeded"}))
    await reconcile_job(world)
    assert world.calls.count(LIST) == 1
    assert state(world) == (None, "OwnerNotFound")


@pytest.mark.parametrize("gone", [None, job(deletionTimestamp=time(9))], ids=["gone", "going"])
async def test_workload_keeps_quota_while_pods_outlive_its_job(world: World, gone: Object | None) -> None:
    world.put(KINDS.workloads, admitted())
    if gone is not None:
        world.put(JOBS, gone)
    with_pods(world, pod("b"), pod("a"))
    assert await reconcile_job(world) == 1.0
    assert state(world) == ("PodsRunning", None)
    stored = world.get(KINDS.workloads, "job-j-1")
    assert condition_of(stored, "PodsOutliveJob") == (
        "True",
        "PodsRunning",
        "2 pods can still run after the end of the job: a, b. Delete them to release the quota",
    )
    assert stored["metadata"]["finalizers"]
    world.client.api.clear()
    await reconcile_job(world)
    assert state(world) == (None, "OwnerNotFound")


async def test_workload_of_an_earlier_job_keeps_quota_beside_the_new_job(world: World) -> None:
    world.put(KINDS.workloads, admitted(owner={**OWNER, "uid": "uid-old"}))
    world.put(JOBS, job())
    with_pods(world, pod(labels={NAMES.podset: "main", "batch.kubernetes.io/controller-uid": "uid-old"}))
    assert await reconcile_job(world) == 1.0
    assert state(world) == ("PodsRunning", None)
    assert await reconcile_job(world) == 1.0, "the new job's own steps do not end the looks"


async def test_no_pods_are_listed_for_workload_that_has_finished(world: World) -> None:
    world.put(KINDS.workloads, admitted(FINISHED))
    with_pods(world, pod())
    await reconcile_job(world)
    assert LIST not in world.calls


@pytest.mark.parametrize("made", [workload, reserved])
@pytest.mark.parametrize("owner", [OWNER, None])
async def test_pods_of_a_gone_job_that_was_never_admitted_are_deleted(
    world: World, made: Callable[[], dict[str, Any]], owner: Object | None
) -> None:
    obj = made()
    if owner is None:
        del obj["metadata"]["ownerReferences"]
        obj["metadata"]["labels"] = {NAMES.job_uid: "uid-j"}
    world.put(KINDS.workloads, obj)
    labels = {"batch.kubernetes.io/controller-uid": "uid-j"}
    with_pods(world, pod("a", uid="uid-a", labels=labels), pod("other", uid="uid-o", labels={}))
    await (reconcile_workload(world) if owner is None else reconcile_job(world))
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/a"]
    world.client.api.clear()
    await (reconcile_workload(world) if owner is None else reconcile_job(world))
    assert state(world) == (None, "OwnerNotFound")


def aged(name: str, second: int, **metadata: Any) -> Object:
    return pod(name, uid=f"uid-{name}", creationTimestamp=time(second), **metadata)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([aged("a", 1), aged("b", 2), aged("c", 3)], []),
        ([aged("d", 4), aged("b", 2), aged("e", 5), aged("c", 3), aged("a", 1)], ["e", "d"]),
        ([aged("a", 1, deletionTimestamp=time(9)), *(aged(name, 2) for name in "bcd")], []),
        ([aged(name, 1, labels={}) for name in "abcd"], ["d"]),
        ([aged(name, 1, labels={NAMES.podset: "another"}) for name in "abcd"], []),
    ],
)
def test_excess_pods_of_a_gone_job_are_the_newest_beyond_what_was_admitted(
    found: list[Object], expected: list[str]
) -> None:
    assert [one["metadata"]["name"] for one in excess_of(admitted(), found, NAMES)] == expected


SEVERAL = {"podSets": [{"name": name, "count": 2, "template": TEMPLATE} for name in ("one", "two")]}
FOR_BOTH = {
    "clusterQueue": "cq",
    "podSetAssignments": [{"name": name, "count": 2, "flavors": {}} for name in ("one", "two")],
}


@pytest.mark.parametrize(
    ("make", "named", "expected"),
    [
        (admitted, {}, ["e"]),
        (admitted, {"a": "one", "b": "one"}, ["e"]),
        (admitted, {"c": "one", "d": "one", "e": "one"}, ["e"]),
        (admitted, dict.fromkeys("abcde", "one"), ["e", "d", "c"]),
        (workload, {"a": "one"}, ["e", "d", "c", "b", "a"]),
        (workload, {"a": "of another"}, ["e", "d", "c", "b", "a"]),
    ],
    ids=["none named", "oldest named", "newest named", "all named", "never admitted", "unknown podset"],
)
def test_pods_that_name_no_podset_share_the_room_that_is_left(
    make: Callable[..., Object], named: dict[str, str], expected: list[str]
) -> None:
    found = [
        aged(name, number, labels={NAMES.podset: named[name]} if name in named else {})
        for number, name in enumerate("abcde")
    ]
    given = {} if make is workload else {"admission": FOR_BOTH}
    of = make(spec=SEVERAL, **given)
    assert [one["metadata"]["name"] for one in excess_of(of, found, NAMES)] == expected


def slice_of(make: Callable[..., Object], name: str, replaces: str = "", **parts: Any) -> Object:
    notes = dict(SLICE["annotations"])
    if replaces:
        notes[NAMES.workload_slice_replacement_for] = f"ns/{replaces}"
    return make(metadata={"name": name, "uid": f"uid-{name}", "annotations": notes}, **parts)


HELD_SLICE = slice_of(admitted, "held")
LARGER_SLICE = slice_of(workload, "larger", "held", spec=FIVE_PODS)
REPLACING_SLICE = slice_of(admitted, "larger", "held", spec=FIVE_PODS, admission=FOR_FIVE)


@pytest.mark.parametrize(
    ("slices", "charged", "expected"),
    [
        ([HELD_SLICE], HELD_SLICE, ["f", "e", "d"]),
        ([HELD_SLICE, LARGER_SLICE], HELD_SLICE, ["f", "e", "d"]),
        ([HELD_SLICE, LARGER_SLICE], LARGER_SLICE, []),
        ([HELD_SLICE, REPLACING_SLICE], REPLACING_SLICE, ["f"]),
        ([HELD_SLICE, REPLACING_SLICE], HELD_SLICE, []),
        ([LARGER_SLICE], LARGER_SLICE, ["f", "e", "d", "c", "b", "a"]),
    ],
)
def test_excess_pods_of_slices_are_those_beyond_the_one_that_is_charged(
    slices: list[Object], charged: Object, expected: list[str]
) -> None:
    found = [aged(name, number) for number, name in enumerate("abcdef")]
    assert [one["metadata"]["name"] for one in excess_of(charged, found, NAMES, slices)] == expected


async def test_orphaned_pods_of_a_slice_without_owner_are_deleted_down_to_its_grant(world: World) -> None:
    def orphaned(one: Object) -> Object:
        metadata = {**one["metadata"], **GONE}
        del metadata["ownerReferences"]
        return {**one, "metadata": metadata}

    world.put(KINDS.workloads, orphaned(HELD_SLICE), orphaned(LARGER_SLICE))
    with_pods(
        world, *(aged(name, number, annotations=SLICE["annotations"]) for number, name in enumerate("abcd"))
    )
    controller = WorkloadController(world.ctx, world.core)
    for name in ("larger", "held"):
        await controller.reconcile(Key("ns", name))
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/d"]
    assert world.told.excess == [("held", "", 1)]


@pytest.mark.parametrize("gone", [False, True], ids=["held by a finalizer", "gone"])
async def test_pods_of_a_job_of_another_kind_that_was_never_admitted_are_deleted(gone: bool) -> None:
    world = World(settings_with(integrations=(MPI_JOB, POD)))
    owner = {**OWNER, "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"}
    world.put(KINDS.workloads, workload(owner=owner))
    if not gone:
        going = mpi_job({})
        world.put(resource_of(MPI_JOB), with_value(going, ("metadata", "deletionTimestamp"), time(9)))
    owned = {"ownerReferences": [{"uid": "uid-j"}]}
    with_pods(world, aged("a", 1, labels={}, **owned), aged("other", 1, labels={}))
    controller = JobController(world.ctx, MPI_JOB, Owners(world.ctx))
    await controller.reconcile(JOB_KEY)
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/a"]
    assert world.told.excess == [("job-j-1", "MPIJob.kubeflow.org", 1)]
    world.client.api.clear()
    await controller.reconcile(JOB_KEY)
    assert state(world) == (None, "OwnerNotFound")


async def test_pods_of_a_going_job_with_a_selector_of_its_own_are_found_by_their_owner(world: World) -> None:
    world.put(KINDS.workloads, workload())
    world.put(JOBS, job({"manualSelector": True}, deletionTimestamp=time(9)))
    with_pods(world, aged("a", 1, labels={}, ownerReferences=[{"uid": "uid-j"}]))
    await reconcile_job(world)
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/a"]


async def test_pods_of_a_raised_job_that_was_orphaned_are_deleted_down_to_its_grant(world: World) -> None:
    world.put(KINDS.workloads, admitted())
    with_pods(world, *(aged(name, number) for number, name in enumerate("abcde")))
    assert await reconcile_job(world) == 1.0
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/e", "delete pods/d"]
    assert [event[:2] for event in world.told.events] == [(name, "ExcessPodDeleted") for name in "ed"]
    assert world.told.excess == [("job-j-1", "Job.batch", 1)] * 2
    assert state(world) == ("PodsRunning", None)


async def test_nothing_is_released_when_pods_cannot_be_listed(world: World) -> None:
    world.put(KINDS.workloads, admitted())
    world.client.fails["list"] = ApiError(403, "Forbidden", "no")
    with pytest.raises(ApiError):
        await reconcile_job(world)
    assert state(world) == (None, None)


async def test_workload_without_owner_keeps_quota_while_orphaned_pods_run(world: World) -> None:
    world.put(KINDS.workloads, admitted(owner=None, metadata=GONE))
    with_pods(world, pod())
    assert await reconcile_workload(world) == 1.0
    assert state(world) == ("PodsRunning", None)
    assert await reconcile_workload(world) == 1.0
    world.client.api.clear()
    await reconcile_workload(world)
    assert state(world) == (None, "OwnerNotFound")


async def test_deleted_workload_without_owner_is_held_while_orphaned_pods_run(world: World) -> None:
    going = {**GONE, "deletionTimestamp": time(0)}
    world.put(KINDS.workloads, admitted(owner=None, metadata=going))
    with_pods(world, pod())
    await reconcile_workload(world)
    stored = world.get(KINDS.workloads, "job-j-1")
    assert stored["metadata"]["finalizers"]
    assert state(world) == ("PodsRunning", None)


def named(number: int) -> Object:
    """The Workload of a deleted job of its own."""
    metadata = {"name": f"job-{number}", "uid": f"uid-w{number}"}
    return admitted(owner={**OWNER, "uid": f"uid-{number}"}, metadata=metadata)


def pod_of(number: int) -> Object:
    return pod(f"p{number}", uid=f"uid-p{number}", labels={}, ownerReferences=[{"uid": f"uid-{number}"}])


async def test_jobs_that_go_together_share_a_list(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    outliving = OutlivingPods(world.ctx, clock=iter(range(100)).__next__)
    with_pods(world, pod_of(1))
    read = world.client.list

    async def slowly(*args: Any, **selectors: Any) -> Any:
        await asyncio.sleep(0)
        return await read(*args, **selectors)

    monkeypatch.setattr(world.client, "list", slowly)
    found = await asyncio.gather(*(outliving.of((named(number),)) for number in range(5)))
    named_pods = [
        {uid: [pod["metadata"]["name"] for pod in own.listed] for uid, own in one.items()} for one in found
    ]
    assert named_pods == [{}, {"uid-w1": ["p1"]}, {}, {}, {}]
    assert world.calls.count(LIST) == 2


async def test_waiting_workloads_of_a_job_without_labelled_pods_share_a_list(world: World) -> None:
    outliving = OutlivingPods(world.ctx, clock=iter(range(100)).__next__)
    with_pods(world, pod_of(1))
    owner = {**OWNER, "apiVersion": "example.com/v1", "kind": "Example"}
    waiting = [
        workload(
            owner={**owner, "uid": f"uid-{number}"}, metadata={"name": f"e{number}", "uid": f"uid-w{number}"}
        )
        for number in range(3)
    ]
    assert list(await outliving.of_gone(waiting)) == ["uid-w1"]
    assert world.calls.count(LIST) == 1


async def test_pods_of_a_recent_list_are_taken_to_remain(world: World) -> None:
    now = [10.0]
    outliving = OutlivingPods(world.ctx, clock=lambda: now[0])
    with_pods(world, pod_of(1))
    assert await outliving.of((named(1),))
    world.client.api.clear()
    now[0] += SHORTEST_DELAY_SECONDS / 2
    assert await outliving.of((named(1),)), "the list of half a second ago shows the pod"
    assert await outliving.of((named(2),)) == {}, "that no pods remain takes a list of its own"
    now[0] += SHORTEST_DELAY_SECONDS
    assert await outliving.of((named(1),)) == {}
    assert world.calls.count(LIST) == 3


def reporting(since: float = 0, **parts: Any) -> Object:
    """An admitted Workload whose status reports pods since that second."""
    return admitted(condition("PodsOutliveJob", True, "PodsRunning", "3 pods", since), **parts)


def names_of(found: Mapping[str, Remaining]) -> Any:
    """Names of the pods that are listed for the Workload; None if there are none."""
    return found and sorted(one["metadata"]["name"] for one in found["uid-w"].listed)


READ, READ_TWO = ["get pods/c"], ["get pods/c", "get pods/b"]
REMAINING = {one["metadata"]["name"]: one for one in (aged("a", 1), aged("b", 2), aged("c", 3))}
HAS_ENDED: Object = {"c": {**REMAINING["c"], "status": {"phase": "Succeeded"}}}
IS_REPLACED: Object = {"c": pod("c", uid="uid-new")}
IS_UNMARKED: Object = {"c": pod("c", uid="uid-c", labels={})}


@pytest.mark.parametrize(
    ("changed", "seconds", "calls", "expected"),
    [
        ({}, 10, READ, []),
        (IS_UNMARKED, 10, READ, []),
        ({"a": None, "b": None}, 10, READ, []),
        ({"c": None}, 10, READ_TWO, []),
        (HAS_ENDED, 10, READ_TWO, []),
        (IS_REPLACED, 10, READ_TWO, []),
        ({"b": None, "c": None}, 10, [*READ_TWO, LIST], ["a"]),
        ({"a": None, "b": None, "c": None}, 10, [*READ_TWO, LIST], {}),
        ({}, 49, READ, []),
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
async def test_look_reads_one_pod_and_lists_when_it_has_ended_or_a_list_is_due(
    world: World, changed: Object, seconds: float, calls: list[str], expected: Any
) -> None:
    now, world.now = [1000.0], at(100)
    outliving = OutlivingPods(world.ctx, clock=lambda: now[0])
    with_pods(world, *REMAINING.values())
    assert names_of(await outliving.of((reporting(),))) == ["a", "b", "c"]
    world.client.calls.clear()
    for name, one in changed.items():
        del world.client.api["pods", name]
        with_pods(world, *([one] if one else []))
    now[0] += seconds
    assert names_of(await outliving.of((reporting(),))) == expected
    assert world.calls == calls


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({}, "c"),
        ({"c": time(9)}, "b"),
        ({"a": time(8), "b": time(9), "c": time(7)}, "b"),
    ],
    ids=["newest", "not deleted", "longest grace period"],
)
async def test_pod_that_probably_ends_last_is_read(
    world: World, marks: dict[str, str], expected: str
) -> None:
    now, world.now = [1000.0], at(100)
    outliving = OutlivingPods(world.ctx, clock=lambda: now[0])
    for name, one in REMAINING.items():
        deleted = {"deletionTimestamp": marks[name]} if name in marks else {}
        with_pods(world, {**one, "metadata": {**one["metadata"], **deleted}, "spec": {"nodeName": "n"}})
    await outliving.of((reporting(),))
    now[0] += 10
    assert await outliving.of((reporting(),)) == {"uid-w": CONFIRMED}
    assert world.calls == [LIST, f"get pods/{expected}"]


EXCESS = aged("d", 4)
OTHERS = [
    reporting(
        owner={**OWNER, "uid": f"uid-{number}"}, metadata={"name": f"w{number}", "uid": f"uid-w{number}"}
    )
    for number in range(4)
]


@pytest.mark.parametrize(
    ("workloads", "more"),
    [
        ([admitted()], []),
        ([reporting(since=99)], []),
        ([reporting()], [EXCESS]),
        ([reporting(), OTHERS[0]], []),
        ([reporting(), *OTHERS], [pod_of(number) for number in range(4)]),
    ],
    ids=["not reported", "reported just now", "excess", "another has no pods", "many at once"],
)
async def test_pods_are_listed_at_each_look_where_one_pod_does_not_say_enough(
    world: World, workloads: list[Object], more: list[Object]
) -> None:
    now, world.now = [1000.0], at(100)
    outliving = OutlivingPods(world.ctx, clock=lambda: now[0])
    with_pods(world, *REMAINING.values(), *more)
    for _ in range(3):
        assert "uid-w" in await outliving.of(workloads)
        now[0] += 10
    assert world.calls == [LIST] * 3


@pytest.mark.parametrize(("status", "calls"), [(403, [*READ_TWO, LIST]), (500, READ)])
async def test_pod_that_cannot_be_read_does_not_release_quota(
    world: World, status: int, calls: list[str]
) -> None:
    now, world.now = [1000.0], at(100)
    outliving = OutlivingPods(world.ctx, clock=lambda: now[0])
    with_pods(world, *REMAINING.values())
    await outliving.of((reporting(),))
    world.client.calls.clear()
    world.client.fails["get"] = ApiError(status, "Forbidden" if status == 403 else "InternalError", "no")
    now[0] += 10
    if status == 403:
        assert names_of(await outliving.of((reporting(),))) == ["a", "b", "c"]
    else:
        with pytest.raises(ApiError):
            await outliving.of((reporting(),))
    assert world.calls == calls


async def test_remembered_pods_are_dropped_when_a_list_was_due(world: World) -> None:
    now, world.now = [1000.0], at(100)
    outliving = OutlivingPods(world.ctx, clock=lambda: now[0])
    with_pods(world, *REMAINING.values(), pod_of(1))
    await outliving.of((reporting(),))
    await outliving.of(OTHERS[1:2])
    known = outliving._known  # pyright: ignore[reportPrivateUsage]
    assert set(known) == {"uid-w", "uid-w1"}
    now[0] += 1000
    await outliving.of(OTHERS[:1])
    assert not outliving._known  # pyright: ignore[reportPrivateUsage]


async def test_list_that_begins_again_counts_each_pod_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pages(*args: Any, **selectors: Any) -> AsyncGenerator[Page]:
        for _ in range(2):
            yield Page([REMAINING["a"]], "1", first=True)
        yield Page([REMAINING["b"]], "1", first=False)

    monkeypatch.setattr(world.client, "pages", pages)
    assert names_of(await OutlivingPods(world.ctx).of((admitted(),))) == ["a", "b"]


@pytest.mark.parametrize("owner", [OWNER, None])
async def test_status_is_left_as_it_is_while_one_pod_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch, owner: Object | None
) -> None:
    now, world.now = [1000.0], at(100)
    world.put(KINDS.workloads, reporting(owner=owner, metadata=GONE))
    with_pods(world, *REMAINING.values())
    if owner is None:
        controller, key = WorkloadController(world.ctx, world.core), WORKLOAD_KEY
    else:
        controller, key = JobController(world.ctx, JOB, Owners(world.ctx)), JOB_KEY
    monkeypatch.setattr(controller, "_outliving", OutlivingPods(world.ctx, clock=lambda: now[0]))

    async def look() -> list[str]:
        now[0] += 10
        world.client.calls.clear()
        assert await controller.reconcile(key) == 15.0
        return [call for call in world.calls if "pods" in call or call.startswith(("patch", "apply"))]

    assert await look() == [LIST, "patch workloads/job-j-1/status"]
    del world.client.api["pods", "a"]
    assert await look() == READ
    assert await look() == READ
    assert state(world) == ("PodsRunning", None)


async def test_excess_pods_are_deleted_and_counted_once(world: World) -> None:
    world.put(KINDS.workloads, admitted())
    with_pods(world, *REMAINING.values(), EXCESS)
    controller = JobController(world.ctx, JOB, Owners(world.ctx))
    await controller.reconcile(JOB_KEY)
    del world.client.api["pods", "d"]
    await controller.reconcile(JOB_KEY)
    assert [call for call in world.calls if call.startswith("delete")] == ["delete pods/d"]
    assert world.told.excess == [("job-j-1", "Job.batch", 1)]


EVICTED = condition("Evicted", True, "Preempted", "preempted")
RAISED = {"parallelism": 5, "completions": 9}
SYNC = {"labels": {NAMES.queue_name: "lq", NAMES.prebuilt_workload_name: "job-j-1"}}


@pytest.mark.parametrize(
    ("held", "stopped", "expected"),
    [
        (admitted(EVICTED), job(), ("QuotaReserved", "False", "PendingEvaluation")),
        (admitted(), job(RAISED), None),
        (admitted(metadata={"deletionTimestamp": time(1)}), job(), None),
        (admitted(metadata=GONE), job(RAISED, **SYNC), ("Finished", "True", "OutOfSync")),
    ],
    ids=["evicted", "raised", "Workload deleted", "prebuilt Workload out of sync"],
)
async def test_quota_of_a_stopped_job_is_kept_until_its_pods_have_ended(
    world: World, held: Object, stopped: Object, expected: tuple[str, ...] | None
) -> None:
    world.put(KINDS.workloads, held)
    world.put(JOBS, stopped)
    with_pods(world, pod(spec={"nodeName": "n"}, deletionTimestamp=time(0)))
    assert await reconcile_job(world) == 1.0
    kept = world.get(KINDS.workloads, "job-j-1")
    assert condition_of(kept, "QuotaReserved")[0] == "True"
    assert kept["metadata"]["finalizers"]
    assert state(world) == ("PodsRunning", None)
    world.client.api.clear()
    await reconcile_job(world)
    freed = world.stores.of(KINDS.workloads).get("ns", "job-j-1")
    is_gone = freed is None or not freed["metadata"].get("finalizers")
    assert is_gone is (expected is None)
    if freed is not None and expected is not None:
        assert condition_of(freed, "PodsOutliveJob") is None
        assert condition_of(freed, expected[0])[:2] == expected[1:]


def mpi_job(status: Object) -> Object:
    replicas = {"Worker": {"replicas": 3, "template": TEMPLATE}}
    spec = {"runPolicy": {"suspend": False}, "mpiReplicaSpecs": replicas}
    owned = job()["metadata"]
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": owned} | {
        "spec": spec,
        "status": status,
    }


async def test_quota_of_a_finished_job_is_kept_while_its_operator_leaves_pods_running() -> None:
    world = World(settings_with(integrations=(MPI_JOB,)))
    owner = {**OWNER, "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"}
    world.put(KINDS.workloads, admitted(owner=owner))
    ended = mpi_job({"conditions": [{"type": "Succeeded", "status": "True"}]})
    world.put(resource_of(MPI_JOB), ended)
    with_pods(world, pod(labels={}, annotations={NAMES.workload: "job-j-1"}))
    assert await JobController(world.ctx, MPI_JOB, Owners(world.ctx)).reconcile(JOB_KEY) == 1.0
    assert state(world) == ("PodsRunning", None)
    world.client.api.clear()
    await JobController(world.ctx, MPI_JOB, Owners(world.ctx)).reconcile(JOB_KEY)
    assert state(world) == (None, "Succeeded")


async def test_no_pods_are_listed_for_a_job_that_ends_after_them_or_is_started(world: World) -> None:
    world.put(KINDS.workloads, admitted())
    world.put(JOBS, job({"suspend": False}, {"conditions": [{"type": "Complete", "status": "True"}]}))
    await reconcile_job(world)
    assert state(world) == (None, "Succeeded")
    world.put(KINDS.workloads, admitted())
    world.put(JOBS, job())
    await reconcile_job(world)
    assert LIST not in world.calls


async def test_group_keeps_quota_while_a_pod_runs_that_lost_its_label() -> None:
    world = World(settings_with(integrations=(POD,)))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    metadata = {"name": "g", "annotations": {NAMES.is_group_workload: "true"}}
    held = admitted(owner=None, metadata={**metadata, "ownerReferences": [owner]})
    world.put(KINDS.workloads, held)
    with_pods(world, pod(uid="uid-p", labels={}))
    controller = JobController(world.ctx, POD, Owners(world.ctx))
    again = await controller.reconcile(Key("ns", group_key("g")))
    stored = world.get(KINDS.workloads, "g")
    assert again == 1.0
    assert condition_of(stored, "Finished") is None
    assert condition_of(stored, "PodsOutliveJob") is not None
