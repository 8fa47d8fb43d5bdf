from itertools import permutations

from admitq.core.model import ObjectKey, Workload
from admitq.core.ordering import CycleOrder, cycle_order, queue_order
from admitq.core.settings import Gates


def workload(uid: str, priority: int, queued_at: int) -> Workload:
    return Workload(ObjectKey("n", uid), uid, "main", queued_at, (), priority)


def test_in_a_queue_priority_then_time_then_uid() -> None:
    expected = [workload("d", 9, 7), workload("c", 1, 2), workload("a", 1, 3), workload("b", 1, 3)]
    for given in permutations(expected):
        assert sorted(given, key=queue_order) == expected


def in_cycle(each: Workload, level: int) -> CycleOrder:
    return cycle_order(each, level, Gates(), preemptor=False)


def test_in_a_cycle_nearness_of_quota_goes_first() -> None:
    within, near, far = workload("a", 0, 9), workload("b", 5, 1), workload("c", 9, 0)
    levels = {within.uid: 0, near.uid: 1, far.uid: 2}
    for given in permutations([within, near, far]):
        assert sorted(
            given, key=lambda each: cycle_order(each, levels[each.uid], Gates(), preemptor=False)
        ) == [within, near, far]


def test_on_one_level_the_order_is_that_of_queues() -> None:
    some = [workload("b", 1, 3), workload("a", 1, 3), workload("c", 2, 9)]
    assert sorted(some, key=lambda each: cycle_order(each, 1, Gates(), preemptor=False)) == sorted(
        some, key=queue_order
    )
