import random
from dataclasses import replace

import pytest

from admitq.core.model import ObjectKey, PodSet, QueueingStrategy, Workload
from admitq.core.queues import Aside, PendingQueue, new_pending
from admitq.core.refusals import NoFlavorFits
from admitq.core.requests import asking

NO_FIT = NoFlavorFits((), "WaitingForQuota")
SMALL, LARGE = (PodSet("main", 1, asking({"cpu": 1})),), (PodSet("main", 1, asking({"cpu": 9})),)


def workload(name: str, queued_at: int = 0, pods: tuple[PodSet, ...] = SMALL, priority: int = 0) -> Workload:
    return Workload(ObjectKey("n", name), name, "main", queued_at, pods, priority)


def queue_of(*workloads: Workload, strict: bool = False) -> PendingQueue:
    queue = PendingQueue(QueueingStrategy.STRICT_FIFO if strict else QueueingStrategy.BEST_EFFORT_FIFO)
    for each in workloads:
        queue.enter(new_pending(each))
    queue.check()
    return queue


def park_first(queue: PendingQueue) -> str:
    pending = queue.pop()
    assert pending is not None
    queue.park(pending, NO_FIT)
    queue.check()
    return pending.workload.key.name


def drained(queue: PendingQueue) -> list[str]:
    names: list[str] = []
    while (pending := queue.pop()) is not None:
        names.append(pending.workload.key.name)
        queue.remove(pending.workload.key)
        queue.check()
    return names


def test_the_first_of_all_shapes_is_next() -> None:
    queue = queue_of(workload("c", 3), workload("a", 1, LARGE), workload("d", 4, LARGE), workload("b", 2))
    assert drained(queue) == ["a", "b", "c", "d"]
    assert queue.lanes == {}


def test_a_head_in_flight_is_not_next_again() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2))
    first, second = queue.pop(), queue.pop()
    assert first is not None
    assert second is not None
    assert queue.first() is None
    queue.enter(first)
    assert queue.first() is first


def test_one_that_does_not_fit_parks_its_equals() -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2, LARGE), workload("c", 3))
    assert queue.shapes == (2, 0)
    assert park_first(queue) == "a"
    assert (queue.inadmissible, queue.is_asleep) == (2, True)
    assert queue.shapes == (1, 1)
    assert drained(queue) == ["c"]
    queue.wake()
    assert (queue.inadmissible, queue.is_asleep) == (0, False)
    assert drained(queue) == ["a", "b"]


def test_only_those_not_tried_themselves_are_bypassed() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2))
    pending = queue.pop()
    assert pending is not None
    pending.refusal = NO_FIT
    queue.park(pending, NO_FIT)
    assert [queue.is_bypassed(ObjectKey("n", name)) for name in ("a", "b", "unknown")] == [False, True, False]
    assert [queue.refusal_of(ObjectKey("n", name)) for name in ("a", "b", "unknown")] == [
        NO_FIT,
        NO_FIT,
        None,
    ]
    queue.forget_refusals()
    assert queue.is_bypassed(ObjectKey("n", "a"))


def test_a_parked_shape_is_remembered_until_its_emptiness_is_looked_at() -> None:
    queue = queue_of(workload("a", 1))
    park_first(queue)
    queue.remove(ObjectKey("n", "a"))
    queue.enter(new_pending(workload("b", 2)))
    assert queue.first() is None
    queue.remove(ObjectKey("n", "b"))
    queue.drop_empty_lanes()
    queue.enter(new_pending(workload("c", 3)))
    assert drained(queue) == ["c"]


def test_strict_order_stops_at_its_first() -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2), strict=True)
    assert park_first(queue) == "a"
    assert (queue.first(), queue.inadmissible, queue.is_asleep) == (None, 0, True)
    queue.enter(new_pending(workload("urgent", 9, SMALL, priority=1)))
    assert drained(queue) == ["urgent"]
    queue.wake()
    assert drained(queue) == ["a", "b"]


def test_removing_who_blocks_unblocks() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2), strict=True)
    park_first(queue)
    queue.remove(ObjectKey("n", "a"))
    assert queue.blocked is None
    assert drained(queue) == ["b"]


def test_each_kind_of_aside_has_its_own_way_back() -> None:
    queue = queue_of(*(workload(reason, n) for n, reason in enumerate(Aside)))
    for reason in Aside:
        pending = queue.pop()
        assert pending is not None
        queue.set_aside(pending, reason)
        queue.check()
    assert queue.inadmissible == len(Aside)
    assert queue.namespaces_aside() == ["n"]
    queue.wake()
    assert drained(queue) == [Aside.TREE]
    queue.wake_namespace("other")
    assert queue.first() is None
    queue.wake_namespace("n")
    assert drained(queue) == [Aside.NAMESPACE]
    assert queue.namespaces_aside() == []
    assert {pending.workload.uid for reason in Aside for pending in queue.aside(reason)} == {
        Aside.OWN,
        Aside.BACKOFF,
    }


@pytest.mark.parametrize(
    ("change", "tried"),
    [
        ({"generation": 2}, False),
        ({"priority": 1}, True),
        ({"pod_sets": LARGE}, True),
        ({"reclaimable_pods": (("main", 1),)}, True),
        ({"has_closed_preemption_gate": True}, True),
    ],
)
def test_a_parked_workload_is_tried_again_if_its_shape_changed(
    change: dict[str, object], *, tried: bool
) -> None:
    queue = queue_of(workload("a", 1))
    park_first(queue)
    pending = queue.members[ObjectKey("n", "a")]
    queue.update(pending, replace(pending.workload, **change))  # pyright: ignore[reportArgumentType]
    queue.check()
    assert (queue.first() is not None) is tried


@pytest.mark.parametrize(
    ("reason", "tried"), [(Aside.OWN, True), (Aside.BACKOFF, True), (Aside.NAMESPACE, False)]
)
def test_a_workload_aside_is_tried_again_if_what_keeps_it_may_have_changed(
    reason: Aside, *, tried: bool
) -> None:
    queue = queue_of(workload("a", 1))
    pending = queue.pop()
    assert pending is not None
    queue.set_aside(pending, reason)
    queue.update(pending, replace(pending.workload, generation=2))
    queue.check()
    assert (queue.first() is not None) is tried


def test_heaps_stay_in_proportion_to_who_waits() -> None:
    queue = queue_of(*(workload(f"w{n}", 1000 - n) for n in range(10)))
    for n in range(5000):
        pending = queue.members[ObjectKey("n", f"w{n % 10}")]
        queue.update(pending, replace(pending.workload, queued_at=n * 37 % 1009))
    queue.check()
    (lane,) = queue.lanes.values()
    assert len(lane.places) < 200
    assert len(drained(queue)) == 10


def test_any_mix_of_comings_and_goings_keeps_the_order() -> None:
    draw = random.Random(7)  # noqa: S311 a history, not a secret
    queue = PendingQueue(QueueingStrategy.BEST_EFFORT_FIFO)
    alive: dict[str, tuple[int, int, str]] = {}
    for n in range(3000):
        if alive and draw.random() < 0.45:
            name = draw.choice(sorted(alive))
            del alive[name]
            queue.remove(ObjectKey("n", name))
        else:
            name, queued_at, priority = f"w{n}", draw.randrange(50), draw.randrange(3)
            alive[name] = (-priority, queued_at, name)
            queue.enter(new_pending(workload(name, queued_at, draw.choice((SMALL, LARGE)), priority)))
    queue.check()
    assert drained(queue) == sorted(alive, key=lambda name: alive[name])
