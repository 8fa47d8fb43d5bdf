import random
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import FrameType
from typing import Any

import pytest

from admitq.core.admission_fair_sharing import PastUse
from admitq.core.limit_ranges import Limits
from admitq.core.model import (
    ContainerResources,
    ObjectKey,
    PodSet,
    PodTemplate,
    QueueingStrategy,
    Workload,
)
from admitq.core.refusals import NoFlavorFits
from admitq.core.requests import PLAIN, RequestRules, asking
from admitq.core.waiting import queue_numbers
from admitq.core.waiting.lanes import Lane
from admitq.core.waiting.order import LatestPreemptor
from admitq.core.waiting.pending import Pending, new_pending
from admitq.core.waiting.pending_queue import PendingQueue
from admitq.core.waiting.queue_checks import check_queue
from admitq.core.waiting.scheduling_key import KeyRules
from admitq.core.waiting.wait_states import (
    BACKOFF_ENDED,
    ENQUEUED,
    HEAD_OVERTAKEN,
    NEEDS_KNOWN,
    PROGRESS_MADE,
    QUEUED,
    QUOTA_RETURNED,
    TREE_EDITED,
    Backoff,
    FirstOfStrictQueue,
    HeldBack,
    ImpossibleTransition,
    InvalidWorkload,
    LaneState,
    LostInCycle,
    NamespaceNotSelected,
    QueueUnusable,
    QuotaNeed,
    RetryOnProgress,
    WaitingForPreemption,
    WaitingForQuota,
)

NO_FIT = NoFlavorFits((), "WaitingForQuota")
SMALL, LARGE, HUGE = ((PodSet("main", 1, asking({"cpu": cpu})),) for cpu in (1, 9, 90))


def workload(name: str, queued_at: int = 0, pods: tuple[PodSet, ...] = SMALL, priority: int = 0) -> Workload:
    return Workload(ObjectKey("n", name), name, "main", queued_at, pods, priority)


def queue_of(*workloads: Workload, strict: bool = False) -> PendingQueue:
    queue = PendingQueue(QueueingStrategy.STRICT_FIFO if strict else QueueingStrategy.BEST_EFFORT_FIFO)
    for each in workloads:
        queue.enter(new_pending(each), ENQUEUED)
    check_queue(queue)
    return queue


def park_first(queue: PendingQueue) -> str:
    pending = queue.pop()
    assert pending is not None
    queue.requeue_waiting(pending, WaitingForQuota(NO_FIT, pending.workload.queued_at))
    check_queue(queue)
    return pending.workload.key.name


def drained(queue: PendingQueue) -> list[str]:
    names: list[str] = []
    while (pending := queue.pop()) is not None:
        names.append(pending.workload.key.name)
        queue.remove(pending.workload.key)
        check_queue(queue)
    return names


@pytest.mark.parametrize(("together", "parked"), [(True, 2), (False, 1)])
def test_equals_are_parked_together_unless_each_is_tried_for_itself(together: bool, parked: int) -> None:
    queue = PendingQueue(QueueingStrategy.BEST_EFFORT_FIFO, equals_share_a_lane=together)
    for each in (workload("a", 1), workload("b", 2)):
        queue.enter(new_pending(each), ENQUEUED)
    assert park_first(queue) == "a"
    assert queue.inadmissible == parked
    assert drained(queue) == ([] if together else ["b"])


def test_the_first_of_all_shapes_is_next() -> None:
    queue = queue_of(workload("c", 3), workload("a", 1, LARGE), workload("d", 4, LARGE), workload("b", 2))
    assert drained(queue) == ["a", "b", "c", "d"]
    assert queue.lanes.by_key == {}


def test_a_head_in_flight_is_not_next_again() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2))
    first, second = queue.pop(), queue.pop()
    assert first is not None
    assert second is not None
    assert queue.head() is None
    queue.requeue(first)
    assert queue.head() is first


def shapes(queue: PendingQueue) -> tuple[int, ...]:
    """How many distinct shapes are to be tried, and how many are inadmissible."""
    return tuple(map(len, queue_numbers.equivalence_classes(queue)))


@pytest.mark.parametrize("reason", list(Aside))
def test_d19_shapes_of_workloads_aside_are_inadmissible(reason: Aside) -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2))
    for name in ("aside", "equal"):
        queue.set_aside(new_pending(workload(name, 3, HUGE)), reason)
    assert shapes(queue) == (2, 1)
    queue.set_aside(new_pending(workload("also", 4)), reason)
    assert shapes(queue) == (2, 2)


def test_d19_requests_are_those_of_all_that_wait_without_reclaimable_pods() -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2, LARGE))
    each = queue_numbers.requests(queue)["cpu"] // 2
    pods = workload("c", 3, LARGE).pod_sets
    queue.set_aside(new_pending(workload("c", 3, LARGE)), Aside.NAMESPACE)
    assert queue_numbers.requests(queue) == {"cpu": 3 * each}
    assert park_first(queue) == "a"
    assert queue_numbers.requests(queue) == {"cpu": 3 * each}
    reclaimable = ((pods[0].name, pods[0].count),)
    queue.update(
        queue.members[ObjectKey("n", "b")], replace(workload("b", 2, LARGE), reclaimable_pods=reclaimable)
    )
    assert queue_numbers.requests(queue) == {"cpu": 2 * each}


def test_one_that_does_not_fit_parks_its_equals() -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2, LARGE), workload("c", 3))
    assert shapes(queue) == (2, 0)
    assert park_first(queue) == "a"
    assert (queue.inadmissible, queue.is_waiting) == (2, True)
    assert shapes(queue) == (1, 1)
    assert drained(queue) == ["c"]
    queue.end_waiting(TREE_EDITED)
    assert (queue.inadmissible, queue.is_waiting) == (0, False)
    assert drained(queue) == ["a", "b"]


def test_only_those_not_tried_themselves_are_bypassed() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2))
    pending = queue.pop()
    assert pending is not None
    pending.refusal = NO_FIT
    queue.requeue_waiting(pending, WaitingForQuota(NO_FIT, pending.workload.queued_at))
    assert [queue_numbers.is_bypassed(queue, ObjectKey("n", name)) for name in ("a", "b", "unknown")] == [False, True, False]
    assert [queue_numbers.refusal_of(queue, ObjectKey("n", name)) for name in ("a", "b", "unknown")] == [
        NO_FIT,
        NO_FIT,
        None,
    ]
    queue.forget_refusals()
    assert queue_numbers.is_bypassed(queue, ObjectKey("n", "a"))


def test_a_parked_shape_is_remembered_until_its_emptiness_is_looked_at() -> None:
    queue = queue_of(workload("a", 1))
    park_first(queue)
    queue.remove(ObjectKey("n", "a"))
    queue.enter(new_pending(workload("b", 2)), ENQUEUED)
    assert queue.head() is None
    queue.remove(ObjectKey("n", "b"))
    queue.lanes.drop_emptied()
    queue.enter(new_pending(workload("c", 3)), ENQUEUED)
    assert drained(queue) == ["c"]


def test_who_was_queued_before_the_refused_is_tried_itself() -> None:
    queue = queue_of(workload("a", 5), workload("b", 6))
    park_first(queue)
    queue.enter(new_pending(workload("late", 5)), ENQUEUED)
    assert queue.head() is None
    queue.update(queue.members[ObjectKey("n", "b")], workload("b", 4))
    check_queue(queue)
    assert drained(queue) == ["b", "a", "late"]


def test_strict_order_stops_at_its_first() -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2), strict=True)
    queue.block(in_flight(queue))
    assert (queue.head(), queue.inadmissible, queue.is_waiting) == (None, 0, True)
    queue.enter(new_pending(workload("urgent", 9, SMALL, priority=1)), ENQUEUED)
    assert drained(queue) == ["urgent"]
    queue.end_waiting(TREE_EDITED)
    assert drained(queue) == ["a", "b"]


def test_removing_who_blocks_unblocks() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2), strict=True)
    queue.block(in_flight(queue))
    queue.remove(ObjectKey("n", "a"))
    assert queue.blocked is None
    assert drained(queue) == ["b"]


def test_each_kind_of_aside_has_its_own_way_back() -> None:
    queue = queue_of(*(workload(reason, n) for n, reason in enumerate(Aside)))
    for reason in Aside:
        pending = queue.pop()
        assert pending is not None
        queue.set_aside(pending, reason)
        check_queue(queue)
    assert queue.inadmissible == len(Aside)
    assert queue.held_back.namespaces == ["n"]
    queue.end_waiting(TREE_EDITED)
    assert drained(queue) == [Aside.TREE]
    queue.namespace_selected("other")
    assert queue.head() is None
    queue.namespace_selected("n")
    assert drained(queue) == [Aside.NAMESPACE]
    assert queue.held_back.namespaces == []
    assert {pending.workload.uid for reason in Aside for pending in queue.aside(reason)} == {
        Aside.OWN,
        Aside.BACKOFF,
    }


def test_namespaces_are_told_apart_and_last_while_somebody_of_them_is_aside() -> None:
    keys = [ObjectKey(namespace, name) for namespace, name in (("x", "a"), ("x", "b"), ("y", "c"))]
    queue = queue_of(*(replace(workload(key.name, n), key=key) for n, key in enumerate(keys)))
    for _ in keys:
        queue.set_aside(in_flight(queue), Aside.NAMESPACE)
    queue.remove(keys[0])
    assert queue.held_back.namespaces == ["x", "y"]
    queue.namespace_selected("x")
    assert queue.held_back.namespaces == ["y"]
    assert drained(queue) == ["b"]


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
    check_queue(queue)
    assert (queue.head() is not None) is tried


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
    check_queue(queue)
    assert (queue.head() is not None) is tried


def test_heaps_stay_in_proportion_to_who_waits() -> None:
    queue = queue_of(*(workload(f"w{n}", 1000 - n) for n in range(10)))
    for n in range(5000):
        pending = queue.members[ObjectKey("n", f"w{n % 10}")]
        queue.update(pending, replace(pending.workload, queued_at=n * 37 % 1009))
    check_queue(queue)
    (lane,) = queue.lanes.by_key.values()
    assert len(lane.heads) < 200
    assert len(drained(queue)) == 10


@pytest.mark.drawn
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
            queue.enter(new_pending(workload(name, queued_at, draw.choice((SMALL, LARGE)), priority)), ENQUEUED)
    check_queue(queue)
    assert drained(queue) == sorted(alive, key=lambda name: alive[name])


# --- claimants and those who stand ----------------------------------------------------------------------


def in_flight(queue: PendingQueue) -> Pending:
    pending = queue.pop()
    assert pending is not None
    return pending


def test_who_waits_for_others_stays_the_first() -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2))
    pending = in_flight(queue)
    queue.set_preemptor(pending)
    queue.block(pending)
    check_queue(queue)
    queue.enter(new_pending(workload("urgent", 3, priority=9)), ENQUEUED)
    assert queue.head() is None
    assert (queue.blocked, queue.is_waiting) == (pending.place, True)
    queue.end_waiting(TREE_EDITED)
    assert queue.blocked is None
    assert drained(queue) == ["a", "urgent", "b"]
    assert queue.positions.preemptor is None


def test_the_claim_passes_to_who_waits_last() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2, LARGE), workload("c", 3))
    first = in_flight(queue)
    queue.set_preemptor(first)
    queue.requeue_waiting(first, WaitingForQuota(NO_FIT, first.workload.queued_at))
    second = in_flight(queue)
    assert queue.is_claimant(first)
    queue.set_preemptor(second)
    queue.requeue(second)
    check_queue(queue)
    assert [queue.positions.is_preemptor(each.workload) for each in (first, second)] == [False, True]
    queue.end_waiting(TREE_EDITED)
    assert drained(queue) == ["b", "a", "c"]


def test_a_claim_ends_with_the_generation_that_made_it() -> None:
    queue = queue_of(workload("a", 9), workload("b", 2))
    queue.remove(ObjectKey("n", "b"))
    pending = in_flight(queue)
    queue.set_preemptor(pending)
    queue.requeue(pending)
    queue.enter(new_pending(workload("b", 2)), ENQUEUED)
    queue.update(pending, replace(pending.workload, generation=2))
    check_queue(queue)
    assert queue.positions.preemptor is None
    assert drained(queue) == ["b", "a"]


def test_who_hopes_is_woken_alone_and_who_stands_goes_on_standing() -> None:
    queue = queue_of(workload("hopeful", 1, LARGE), workload("refused", 2), workload("waiting", 3, HUGE))
    queue.park(in_flight(queue), NO_FIT, hopeful=True)
    queue.requeue_waiting(in_flight(queue), WaitingForQuota(NO_FIT, in_flight(queue).workload.queued_at))
    waiting = in_flight(queue)
    queue.set_preemptor(waiting)
    queue.block(waiting)
    queue.end_waiting(PROGRESS_MADE)
    check_queue(queue)
    assert (queue.blocked, queue.head(), shapes(queue)) == (waiting.place, None, (2, 1))
    queue.end_waiting(TREE_EDITED)
    assert drained(queue) == ["waiting", "hopeful", "refused"]


def test_who_was_refused_is_named_in_order_whoever_was_refused_first() -> None:
    queue = queue_of(workload("late", 2, LARGE))
    park_first(queue)
    queue.enter(new_pending(workload("early", 1)), ENQUEUED)
    park_first(queue)
    assert [pending.workload.key.name for pending in queue.first_refused()] == ["early", "late"]


def test_a_strict_queue_keeps_nobody_first() -> None:
    queue = queue_of(workload("a", 9), workload("b", 10), strict=True)
    pending = in_flight(queue)
    queue.set_preemptor(pending)
    queue.block(pending)
    queue.enter(new_pending(workload("early", 1)), ENQUEUED)
    assert queue.head() is queue.members[ObjectKey("n", "early")]
    queue.change_strategy(QueueingStrategy.BEST_EFFORT_FIFO)
    check_queue(queue)
    assert drained(queue) == ["a", "early", "b"]


def test_a_change_of_strategy_means_nothing_to_itself() -> None:
    queue = queue_of(workload("a", 1), strict=True)
    park_first(queue)
    queue.change_strategy(QueueingStrategy.STRICT_FIFO)
    assert queue.head() is None


def test_a_claimant_aside_keeps_its_claim() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2))
    first = in_flight(queue)
    queue.set_preemptor(first)
    queue.set_aside(first, Aside.OWN)
    second = in_flight(queue)
    queue.set_preemptor(second)
    queue.requeue(second)
    check_queue(queue)
    queue.requeue(first)
    assert drained(queue) == ["b", "a"]


# --- turns of LocalQueues -------------------------------------------------------------------------------


class Usage:
    """What LocalQueues are said to have used."""

    def __init__(self, **amounts: int) -> None:
        self.amounts = amounts

    def __call__(self, local_queue: ObjectKey) -> PastUse:
        return PastUse(infinite=False, amount=Fraction(self.amounts.get(local_queue.name, 0)))


def through(name: str, local_queue: str, queued_at: int = 0, priority: int = 0) -> Workload:
    return replace(workload(name, queued_at, priority=priority), queue_name=local_queue)


def test_who_used_less_goes_first_whatever_its_priority() -> None:
    queue = queue_of(through("a1", "a", 1, 9), through("b1", "b", 2), through("a2", "a", 3))
    usage = Usage(a=2, b=1)
    queue.go_by_usage(usage)
    queue.lanes.drop_emptied()
    check_queue(queue)
    assert in_flight(queue).workload.uid == "b1"
    queue.remove(ObjectKey("n", "b1"))
    queue.enter(new_pending(through("b2", "b", 4)), ENQUEUED)
    usage.amounts["b"] = 3
    queue.lanes.usage_changed(ObjectKey("n", "b"))
    queue.lanes.usage_changed(ObjectKey("n", "b"))
    check_queue(queue)
    assert drained(queue) == ["a1", "a2", "b2"]
    queue.go_by_usage(usage)
    queue.enter(new_pending(through("late", "b", 9)), ENQUEUED)
    queue.enter(new_pending(through("urgent", "a", 9, 1)), ENQUEUED)
    queue.go_by_usage(None)
    check_queue(queue)
    assert drained(queue) == ["urgent", "late"]


def test_who_is_aside_takes_turns_by_usage_when_it_comes_back() -> None:
    queue = queue_of(through("a1", "a", 1), through("b1", "b", 2))
    aside = in_flight(queue)
    queue.set_aside(aside, Aside.BACKOFF)
    queue.go_by_usage(Usage(a=2, b=1))
    check_queue(queue)
    assert aside.aside is Aside.BACKOFF
    queue.enter(aside)
    assert drained(queue) == ["b1", "a1"]


def test_who_waits_for_others_stays_first_whatever_its_queue_used() -> None:
    queue = queue_of(through("a1", "a", 1), through("b1", "b", 2))
    usage = Usage(a=1, b=2)
    queue.go_by_usage(usage)
    pending = in_flight(queue)
    queue.set_preemptor(pending)
    queue.block(pending)
    usage.amounts["a"] = 9
    queue.lanes.usage_changed(ObjectKey("n", "a"))
    check_queue(queue)
    assert queue.head() is None
    queue.end_waiting(TREE_EDITED)
    assert drained(queue) == ["a1", "b1"]


def test_usage_means_nothing_where_nobody_goes_by_it() -> None:
    queue = queue_of(through("a1", "a", 1))
    queue.lanes.usage_changed(ObjectKey("n", "a"))
    check_queue(queue)


def test_a_parked_lane_learns_its_usage_without_waking() -> None:
    queue = queue_of(through("a1", "a", 1), through("b1", "b", 2))
    usage = Usage(a=1, b=2)
    queue.go_by_usage(usage)
    assert park_first(queue) == "a1"
    usage.amounts["a"] = 5
    queue.lanes.usage_changed(ObjectKey("n", "a"))
    check_queue(queue)
    queue.end_waiting(TREE_EDITED)
    assert drained(queue) == ["b1", "a1"]


# --- what it costs --------------------------------------------------------------------------------------


def lines_run(call: Callable[[], object]) -> int:
    """How many lines run until a call ends: what it costs, on any machine."""
    count = 0

    def line(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(line)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def usage_of_another_changes(queue: PendingQueue, usage: Usage) -> None:
    usage.amounts["b"] += 1
    queue.lanes.usage_changed(ObjectKey("n", "b"))


def lane_is_emptied(queue: PendingQueue, _usage: Usage) -> None:
    queue.remove(ObjectKey("n", "b1"))
    queue.lanes.drop_emptied()


def hopeful_are_woken(queue: PendingQueue, _usage: Usage) -> None:
    queue.end_waiting(PROGRESS_MADE)


@pytest.mark.parametrize("change", [usage_of_another_changes, lane_is_emptied, hopeful_are_woken])
def test_cost_does_not_grow_with_parked_lanes_that_are_not_concerned(
    change: Callable[[PendingQueue, Usage], None],
) -> None:
    def cost(others: int) -> int:
        waiting = [through(f"a{number}", "a", number, number) for number in range(others)]
        queue, usage = queue_of(*waiting, through("b1", "b", others)), Usage(a=1, b=2)
        queue.go_by_usage(usage)
        while (pending := queue.pop()) is not None:
            queue.park(pending, NO_FIT, hopeful=pending.workload.uid == "b1")
        queue.lanes.drop_emptied()
        result = lines_run(lambda: change(queue, usage))
        check_queue(queue)
        return result

    assert cost(others=300) == cost(others=3)


# --- what decides over requests -------------------------------------------------------------------------


def test_a_workload_moves_to_the_lane_of_what_it_now_asks_for() -> None:
    rules = {"n": PLAIN}
    queue = PendingQueue(QueueingStrategy.BEST_EFFORT_FIFO, lambda namespace: rules[namespace])
    bare = (PodSet("main", 1, PodTemplate((ContainerResources(),))),)
    for name in ("a", "b"):
        queue.enter(new_pending(workload(name, pods=bare)), ENQUEUED)
    assert park_first(queue) == "a"
    aside = new_pending(workload("c", pods=bare))
    queue.set_aside(aside, Aside.BACKOFF)
    wrong = new_pending(workload("d", pods=bare))
    queue.set_aside(wrong, Aside.OWN)
    rules["n"] = RequestRules(limits=Limits(default_requests=(("cpu", Fraction(1)),)))
    for pending in list(queue.members.values()):
        queue.readjust(pending)
    queue.lanes.drop_emptied()
    check_queue(queue)
    assert drained(queue) == ["a", "b", "d"]
    assert aside.aside is Aside.BACKOFF


def test_what_asks_for_the_same_as_before_stays_parked() -> None:
    queue = queue_of(workload("a"))
    park_first(queue)
    queue.readjust(queue.members[ObjectKey("n", "a")])
    assert queue.head() is None


# --- its own checks -------------------------------------------------------------------------------------


def _misplace(queue: PendingQueue) -> None:
    pending = queue.members[ObjectKey("n", "a")]
    pending.place = new_pending(workload("a", 99)).place


def _change_shape(queue: PendingQueue) -> None:
    queue.members[ObjectKey("n", "a")].workload = replace(workload("a", 1), has_closed_preemption_gate=True)


def _keep_claim(queue: PendingQueue) -> None:
    pending = in_flight(queue)
    queue.set_preemptor(pending)
    queue.requeue(pending)
    queue.lanes[queue.shape_of(pending.workload)].size -= 1
    del queue.members[pending.workload.key]


def _keep_blocked(queue: PendingQueue) -> None:
    queue._blocked = new_pending(workload("gone", 1)).place  # pyright: ignore[reportPrivateUsage]


def _miscount(queue: PendingQueue) -> None:
    queue.lanes.parked_workloads += 1


def _forget_front(queue: PendingQueue) -> None:
    in_flight(queue).in_flight = False


def _forget_index(queue: PendingQueue) -> None:
    park_first(queue)
    [lane] = queue.lanes.by_key.values()
    lane.is_hopeful = True


@pytest.mark.parametrize(
    "damage",
    [_misplace, _change_shape, _keep_claim, _keep_blocked, _miscount, _forget_front, _forget_index],
)
def test_damage_is_seen(damage: Callable[[PendingQueue], None]) -> None:
    queue = queue_of(workload("a", 1))
    damage(queue)
    with pytest.raises(AssertionError):
        check_queue(queue)
