from itertools import permutations

from admitq.core.model import ObjectKey, Workload
from admitq.core.ordering import CycleOrder, cycle_order, queue_order
from admitq.core.settings import Gates


def workload(uid: str, priority: int, queued_at: int) -> Workload:
    return Workload(ObjectKey("n", uid), uid, "main", queued_at, (), priority)


def test_queue_order_is_by_priority_then_time_then_uid() -> None:
    expected = [workload("d", 9, 7), workload("c", 1, 2), workload("a", 1, 3), workload("b", 1, 3)]
    for given in permutations(expected):
        assert sorted(given, key=queue_order) == expected


def order_in_cycle(each: Workload, level: int) -> CycleOrder:
    return cycle_order(each, level, Gates(), preemptor=False)


def test_cycle_order_is_by_borrow_level_before_priority() -> None:
    within, near, far = workload("a", 0, 9), workload("b", 5, 1), workload("c", 9, 0)
    levels = {within.uid: 0, near.uid: 1, far.uid: 2}
    for given in permutations([within, near, far]):
        assert sorted(given, key=lambda each: order_in_cycle(each, levels[each.uid])) == [within, near, far]


def test_cycle_order_on_one_borrow_level_equals_queue_order() -> None:
    workloads = [workload("b", 1, 3), workload("a", 1, 3), workload("c", 2, 9)]
    assert sorted(workloads, key=lambda each: order_in_cycle(each, 1)) == sorted(workloads, key=queue_order)
