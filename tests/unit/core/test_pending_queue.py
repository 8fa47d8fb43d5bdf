"""The pending workloads of one ClusterQueue: which is the head, and what parks or holds back workloads."""

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from admitq.core.amounts import FlavorResource
from admitq.core.limit_ranges import NamespaceLimits
from admitq.core.model import ContainerResources, ObjectKey, PodSet, PodTemplate
from admitq.core.requests import DEFAULT_RULES, RequestRules
from admitq.core.waiting.pending import new_pending
from admitq.core.waiting.queue_checks import check_queue
from admitq.core.waiting.scheduling_key import KeyRules
from admitq.core.waiting.transitions import HeldBack, ImpossibleTransition
from admitq.core.waiting.wait_states import (
    BACKOFF_ENDED,
    ENQUEUED,
    TREE_EDITED,
    Backoff,
    InvalidWorkload,
    NamespaceNotSelected,
    QueueUnusable,
    QuotaNeed,
    WaitingForQuota,
)
from admitq.core.waiting.wake_index import TreeRegistration, WakeIndex
from tests.unit.core.pending_workloads import (
    CPU,
    LARGE,
    NO_FIT,
    SMALL,
    Quota,
    block_with_head,
    drain,
    enter,
    hold_back,
    lane_of,
    name_of,
    park_head,
    pop,
    preempt_for_head,
    queue_of,
    waiting_for_quota,
    workload,
)

HELD_BACK: tuple[HeldBack, ...] = (
    Backoff(7),
    Backoff(None),
    NamespaceNotSelected(),
    InvalidWorkload(),
    QueueUnusable(),
)
IDS = ("backoff", "requeue blocked", "namespace", "invalid", "unusable")


# --- lanes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shares", "parked"), [(True, 2), (False, 1)])
def test_head_without_quota_parks_workloads_of_its_lane(shares: bool, parked: int) -> None:
    queue = queue_of(workload("a", 1), workload("b", 2), rules=KeyRules(shares_lanes=shares))
    assert park_head(queue) == "a"
    assert queue.inadmissible == parked
    assert drain(queue) == ([] if shares else ["b"])


def test_head_is_the_first_workload_of_all_lanes() -> None:
    queue = queue_of(workload("c", 3), workload("a", 1, LARGE), workload("d", 4, LARGE), workload("b", 2))
    assert drain(queue) == ["a", "b", "c", "d"]
    assert queue.lanes.by_key == {}


def test_head_in_cycle_is_not_the_head_again_until_requeued() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2))
    first, _ = pop(queue), pop(queue)
    assert queue.head() is None
    queue.requeue(first)
    assert queue.head() is first


def test_parked_lane_is_inadmissible_until_its_waiting_ends() -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2, LARGE), workload("c", 3))
    assert park_head(queue) == "a"
    assert (queue.inadmissible, queue.is_waiting) == (2, True)
    assert drain(queue) == ["c"]
    queue.end_waiting(TREE_EDITED)
    assert (queue.inadmissible, queue.is_waiting) == (0, False)
    assert drain(queue) == ["a", "b"]


def test_lane_has_next_head_after_workload_was_removed_and_added_again() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2))
    park_head(queue)
    assert queue.head() is None
    queue.remove(name_of("a"))
    enter(queue, workload("a", 1))
    queue.end_waiting(TREE_EDITED)
    assert pop(queue).workload.uid == "a"
    head = queue.head()
    assert head is not None
    assert head.workload.uid == "b"


def test_emptied_lane_stays_parked_until_it_is_dropped() -> None:
    queue = queue_of(workload("a", 1))
    park_head(queue)
    queue.remove(name_of("a"))
    enter(queue, workload("b", 2))
    assert queue.head() is None
    queue.remove(name_of("b"))
    queue.lanes.drop_emptied()
    enter(queue, workload("c", 3))
    assert drain(queue) == ["c"]


def test_emptied_lanes_with_a_new_workload_are_not_dropped() -> None:
    queue = queue_of(workload("a", 1))
    park_head(queue)
    queue.remove(name_of("a"))
    enter(queue, workload("b", 2))
    queue.lanes.drop_emptied()
    check_queue(queue)
    assert queue.head() is None


def test_workload_queued_before_the_refused_one_ends_the_waiting_of_its_lane() -> None:
    queue = queue_of(workload("a", 5), workload("b", 6))
    park_head(queue)
    enter(queue, workload("late", 5))
    assert queue.head() is None
    queue.update(queue.members[name_of("b")], workload("b", 4))
    check_queue(queue)
    assert drain(queue) == ["b", "a", "late"]


@pytest.mark.parametrize(
    ("change", "is_retried"),
    [
        ({"generation": 2}, False),
        ({"priority": 1}, True),
        ({"pod_sets": LARGE}, True),
        ({"reclaimable_pods": (("main", 1),)}, True),
        ({"has_closed_preemption_gate": True}, True),
    ],
)
def test_parked_workload_is_retried_if_its_scheduling_key_changed(
    change: dict[str, Any], *, is_retried: bool
) -> None:
    queue = queue_of(workload("a", 1))
    park_head(queue)
    pending = queue.members[name_of("a")]
    queue.update(pending, replace(pending.workload, **change))
    check_queue(queue)
    assert (queue.head() is not None) is is_retried


def test_size_of_heaps_is_bounded_after_many_changes() -> None:
    queue = queue_of(*(workload(f"w{n}", 1000 - n) for n in range(10)))
    for n in range(5000):
        pending = queue.members[name_of(f"w{n % 10}")]
        queue.update(pending, replace(pending.workload, queued_at=n * 37 % 1009))
    check_queue(queue)
    (lane,) = queue.lanes.by_key.values()
    assert len(lane.positions) < 200
    assert len(queue.lanes.unparked_positions) < 200
    assert len(drain(queue)) == 10


@pytest.mark.drawn
def test_queue_keeps_its_order_in_a_random_history() -> None:
    draw = random.Random(7)  # noqa: S311 a history, not a secret
    queue = queue_of()
    alive: dict[str, tuple[int, int, str]] = {}
    for n in range(3000):
        if alive and draw.random() < 0.45:
            name = draw.choice(sorted(alive))
            del alive[name]
            queue.remove(name_of(name))
        else:
            name, queued_at, priority = f"w{n}", draw.randrange(50), draw.randrange(3)
            alive[name] = (-priority, queued_at, name)
            each = workload(name, queued_at, draw.choice((SMALL, LARGE)), priority)
            queue.enter(new_pending(each), ENQUEUED)
    check_queue(queue)
    assert drain(queue) == sorted(alive, key=lambda name: alive[name])


def test_workload_that_is_queued_cannot_enter_again() -> None:
    queue = queue_of(workload("a", 1))
    with pytest.raises(ImpossibleTransition, match="enqueued: Queued does not become Queued"):
        queue.enter(queue.members[name_of("a")], ENQUEUED)


# --- needs ----------------------------------------------------------------------------------------------


def test_lane_with_met_need_waits_until_a_cycle_takes_its_head() -> None:
    cpu_quota = Quota()
    queue = queue_of(workload("a", 1), workload("b", 2), registration=cpu_quota.registration)
    park_head(queue, 5)
    assert queue.head() is None
    assert cpu_quota.give_back(4) == []
    assert queue.head() is None
    assert cpu_quota.give_back(1) == ["q"]
    head = queue.members[name_of("a")]
    assert queue.head() is head
    assert isinstance(lane_of(queue, "a").state, WaitingForQuota)
    assert queue.inadmissible == 2
    assert pop(queue) is head
    assert queue.inadmissible == 0
    queue.requeue(head)
    check_queue(queue)
    assert drain(queue) == ["a", "b"]


def test_lane_whose_need_is_no_longer_met_has_no_head() -> None:
    cpu_quota = Quota()
    queue = queue_of(workload("a", 1), registration=cpu_quota.registration)
    park_head(queue, 5)
    assert cpu_quota.give_back(5) == ["q"]
    cpu_quota.take(1)
    assert queue.head() is None


@pytest.mark.parametrize("flavor", ["default", "spot"])
def test_lane_with_several_needs_has_a_head_when_any_of_them_is_met(flavor: str) -> None:
    cpu_quotas = {name: Quota() for name in ("default", "spot")}
    cells = {FlavorResource(name, "cpu"): cpu_quota.cell for name, cpu_quota in cpu_quotas.items()}
    registration = TreeRegistration("q", cells, WakeIndex())
    queue = queue_of(workload("a", 1), registration=registration)
    pending = pop(queue)
    state = WaitingForQuota(NO_FIT, 1, tuple(QuotaNeed(cause, 9) for cause in cells))
    queue.requeue_waiting(pending, state)
    check_queue(queue)
    assert [each.key for each in queue.lanes.waiting.indexed] == [lane_of(queue, "a").key]
    cpu_quotas[flavor].give_back(9)
    assert registration.index.met_by_return(cpu_quotas[flavor].cell) == [registration]
    assert drain(queue) == ["a"]
    assert registration.needs == {}


def test_lane_with_met_need_is_ordered_among_ready_lanes() -> None:
    cpu_quota = Quota()
    queue = queue_of(workload("second", 2, LARGE), registration=cpu_quota.registration)
    park_head(queue, 5)
    enter(queue, workload("first", 1), workload("third", 3))
    cpu_quota.give_back(5)
    assert drain(queue) == ["first", "second", "third"]


def test_lane_with_met_need_has_no_head_when_needs_do_not_end_waiting() -> None:
    cpu_quota = Quota()
    queue = queue_of(workload("a", 1), registration=cpu_quota.registration, takes_head_by_need=False)
    park_head(queue, 5)
    assert cpu_quota.give_back(5) == ["q"]
    assert queue.head() is None


def test_emptied_lane_with_met_need_has_no_head() -> None:
    cpu_quota = Quota()
    queue = queue_of(workload("a", 1), registration=cpu_quota.registration)
    park_head(queue, 5)
    queue.remove(name_of("a"))
    check_queue(queue)
    assert cpu_quota.registration.needs == {}
    assert cpu_quota.give_back(5) == []
    assert queue.head() is None
    enter(queue, workload("b", 2))
    assert cpu_quota.registration.needs == {CPU: 5}
    assert drain(queue) == ["b"]


def test_parked_lane_is_indexed_under_its_first_workload() -> None:
    cpu_quota = Quota()
    queue = queue_of(workload("b", 2), workload("c", 3), registration=cpu_quota.registration)
    park_head(queue, 5)
    enter(queue, workload("a", 2))
    cpu_quota.give_back(5)
    for name in ("a", "b", "c"):
        head = queue.head()
        assert head is not None
        assert head.workload.key.name == name
        queue.remove(head.workload.key)
        check_queue(queue)
    assert queue.head() is None


def test_parked_lane_that_waits_for_any_return_stays_parked_with_new_first_workload() -> None:
    queue = queue_of(workload("b", 2))
    park_head(queue)
    enter(queue, workload("a", 2))
    assert queue.head() is None
    queue.end_waiting(TREE_EDITED)
    assert drain(queue) == ["a", "b"]


def test_lane_that_no_amount_can_help_waits_for_no_return() -> None:
    cpu_quota = Quota()
    queue = queue_of(workload("a", 1), registration=cpu_quota.registration)
    pending = pop(queue)
    queue.requeue_waiting(pending, replace(waiting_for_quota(pending), needs=()))
    check_queue(queue)
    index = cpu_quota.registration.index
    assert (index.names, index.waiting_for_any_return, index.with_needs) == (["q"], {}, {})
    assert list(queue.lanes.waiting.indexed) == []
    assert queue.is_waiting


# --- the first of a StrictFIFO queue --------------------------------------------------------------------


def test_strict_queue_stops_at_blocking_head_unless_urgent_workload_overtakes() -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2), strict=True)
    block_with_head(queue)
    assert (queue.head(), queue.inadmissible, queue.is_waiting) == (None, 0, True)
    enter(queue, workload("urgent", 9, SMALL, priority=1))
    assert drain(queue) == ["urgent"]
    queue.end_waiting(TREE_EDITED)
    assert drain(queue) == ["a", "b"]


def test_strict_queue_continues_when_its_blocking_head_is_removed() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2), strict=True)
    block_with_head(queue)
    queue.remove(name_of("a"))
    assert queue.blocking_head is None
    assert drain(queue) == ["b"]


def test_strict_queue_ignores_a_change_to_its_own_strategy() -> None:
    queue = queue_of(workload("a", 1), strict=True)
    park_head(queue)
    queue.change_strategy(queue.positions.strategy)
    assert queue.head() is None


# --- workloads that are held back -----------------------------------------------------------------------


def test_each_state_that_holds_back_ends_by_its_own_event() -> None:
    queue = queue_of()
    for number, (state, name) in enumerate(zip(HELD_BACK, IDS, strict=True)):
        hold_back(queue, state, workload(name, number))
    assert queue.inadmissible == len(queue.held_back) == len(HELD_BACK)
    assert queue.held_back.namespaces == ["n"]
    queue.end_waiting(TREE_EDITED)
    assert drain(queue) == ["unusable"]
    queue.namespace_selected("other")
    assert queue.head() is None
    queue.namespace_selected("n")
    assert drain(queue) == ["namespace"]
    assert queue.held_back.namespaces == []
    assert {pending.workload.uid for pending in queue.held_back} == {"backoff", "requeue blocked", "invalid"}


@pytest.mark.parametrize("state", HELD_BACK, ids=IDS)
def test_head_that_is_held_back_leaves_its_lane(state: HeldBack) -> None:
    queue = queue_of(workload("a", 1))
    pending = pop(queue)
    if isinstance(state, Backoff):
        queue.requeue(pending)
    queue.hold_back(pending, state)
    check_queue(queue)
    assert (pending.lane, pending.state, queue.lanes.by_key) == (None, state, {})
    queue.remove(name_of("a"))
    check_queue(queue)
    assert (queue.inadmissible, queue.registration.index.is_empty) == (0, True)


def test_held_back_workload_can_change_to_backoff() -> None:
    queue = queue_of()
    pending = hold_back(queue, InvalidWorkload(), workload("a", 1))
    queue.hold_back(pending, Backoff(7))
    check_queue(queue)
    assert queue.held_back.of_kind(InvalidWorkload) == []
    assert queue.held_back.of_kind(Backoff) == [pending]


def test_workloads_of_other_namespaces_stay_held_back() -> None:
    keys = [ObjectKey(namespace, name) for namespace, name in (("x", "a"), ("x", "b"), ("y", "c"))]
    queue = queue_of()
    for number, key in enumerate(keys):
        hold_back(queue, NamespaceNotSelected(), replace(workload(key.name, number), key=key))
    queue.remove(keys[0])
    assert queue.held_back.namespaces == ["x", "y"]
    queue.namespace_selected("x")
    assert queue.held_back.namespaces == ["y"]
    assert drain(queue) == ["b"]


@pytest.mark.parametrize(
    ("state", "is_retried"),
    [(InvalidWorkload(), True), (Backoff(7), True), (NamespaceNotSelected(), False)],
)
def test_held_back_workload_is_retried_if_change_can_end_its_state(
    state: HeldBack, *, is_retried: bool
) -> None:
    queue = queue_of()
    pending = hold_back(queue, state, workload("a", 1))
    queue.update(pending, replace(pending.workload, generation=2))
    check_queue(queue)
    assert (queue.head() is not None) is is_retried


# --- changed requests -----------------------------------------------------------------------------------


def test_workloads_move_to_lane_of_their_changed_requests() -> None:
    rules = {"n": DEFAULT_RULES}
    queue = queue_of(rules=KeyRules(lambda namespace: rules[namespace]))
    bare = (PodSet("main", 1, PodTemplate((ContainerResources(),))),)
    enter(queue, *(workload(name, pods=bare) for name in ("a", "b")))
    assert park_head(queue) == "a"
    backoff = hold_back(queue, Backoff(7), workload("c", pods=bare))
    hold_back(queue, InvalidWorkload(), workload("d", pods=bare))
    rules["n"] = RequestRules(limits=NamespaceLimits(default_requests=(("cpu", Fraction(1)),)))
    for pending in list(queue.members.values()):
        queue.update_requests(pending)
    queue.lanes.drop_emptied()
    check_queue(queue)
    assert drain(queue) == ["a", "b", "d"]
    assert backoff.state == Backoff(7)
    queue.enter(backoff, BACKOFF_ENDED)
    assert drain(queue) == ["c"]


def test_workload_that_requests_the_same_as_before_stays_parked() -> None:
    queue = queue_of(workload("a"))
    park_head(queue)
    queue.update_requests(queue.members[name_of("a")])
    assert queue.head() is None


def test_blocking_head_is_evaluated_again_if_a_bound_on_its_requests_changed() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2), strict=True)
    block_with_head(queue)
    queue.update_requests(queue.members[name_of("b")])
    assert queue.head() is None
    queue.update_requests(queue.members[name_of("a")])
    check_queue(queue)
    assert drain(queue) == ["a", "b"]


def test_removed_preemptor_is_no_longer_the_latest_preemptor() -> None:
    queue = queue_of(workload("a", 1))
    preempt_for_head(queue)
    queue.remove(name_of("a"))
    check_queue(queue)
    assert queue.positions.preemptor is None
