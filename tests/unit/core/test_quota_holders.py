"""Holders of quota are listed in candidate order after any changes."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.ledger import Reservation
from admitq.core.model import Instant, ObjectKey, Workload
from admitq.core.quota_holders import QuotaHolders, preemption_order


@dataclass(eq=False)
class Holder:
    workload: Workload
    held: Reservation | None
    reserved_at: Instant = 0
    is_leaving: bool = False


def holder(
    name: str, priority: int = 0, since: int = 0, queue: str | None = "q", leaving: bool = False
) -> Holder:
    key = ObjectKey("default", name)
    held = None if queue is None else Reservation(queue, key, (), admitted=True)
    return Holder(Workload(key, f"uid-{name}", "q", 0, (), priority=priority), held, since, leaving)


def names(holders: QuotaHolders[Holder], queue: str = "q", leaving: bool = False) -> list[str]:
    line = holders.leaving(queue) if leaving else holders.staying(queue)
    return [each.workload.key.name for _, each in line]


def test_holders_are_ordered_by_priority_then_latest_reservation_then_uid() -> None:
    holders = QuotaHolders[Holder]()
    for each in (
        holder("d", priority=1, since=9),
        holder("b", priority=0, since=1),
        holder("c", priority=0, since=0),
        holder("a2", priority=0, since=5),
        holder("a1", priority=0, since=5),
    ):
        holders.put(each)
    assert names(holders) == ["a1", "a2", "b", "c", "d"]


def test_leaving_holder_is_listed_only_among_leaving_ones() -> None:
    holders = QuotaHolders[Holder]()
    moving = holder("a")
    holders.put(moving)
    moving.is_leaving = True
    holders.put(moving)
    assert (names(holders), names(holders, leaving=True)) == ([], ["a"])


def test_holder_with_changed_priority_gets_new_place() -> None:
    holders = QuotaHolders[Holder]()
    first, second = holder("a", priority=1), holder("b", priority=2)
    holders.put(first)
    holders.put(second)
    assert names(holders) == ["a", "b"]
    first.workload = replace(first.workload, priority=3)
    holders.put(first)
    assert names(holders) == ["b", "a"]
    holders.put(first)
    assert names(holders) == ["b", "a"]


def test_moved_holder_is_listed_only_in_its_new_cluster_queue() -> None:
    holders = QuotaHolders[Holder]()
    holders.put(holder("a"))
    holders.put(holder("a", queue="other"))
    assert (names(holders), names(holders, "other"), len(holders)) == ([], ["a"], 1)


def test_workload_without_quota_is_no_holder() -> None:
    holders = QuotaHolders[Holder]()
    holders.put(holder("a"))
    holders.put(holder("a", queue=None))
    holders.put(holder("b", queue=None))
    holders.remove(ObjectKey("default", "c"))
    assert (names(holders), len(holders)) == ([], 0)


def test_new_holder_is_inserted_in_order_among_many() -> None:
    holders = QuotaHolders[Holder]()
    for number in range(100):
        holders.put(holder(f"{number:03}", priority=number))
    assert len(names(holders)) == 100
    holders.put(holder("new", priority=50))
    assert names(holders)[50:53] == ["050", "new", "051"]


def test_traces_of_removed_holders_are_cleaned_up() -> None:
    holders = QuotaHolders[Holder]()
    for number in range(1000):
        holders.put(holder(f"{number:03}"))
        holders.remove(ObjectKey("default", f"{number:03}"))
    holders.put(holder("last"))
    assert holders.traces < 100
    assert names(holders) == ["last"]


def test_at_most_64_entries_of_removed_holders_are_kept() -> None:
    holders = QuotaHolders[Holder]()
    all_names = [f"{number:03}" for number in range(400)]
    for name in all_names[:300]:
        holders.put(holder(name))
    assert names(holders) == all_names[:300]
    for name in all_names[300:]:
        holders.put(holder(name))
    beyond: list[int] = []
    for name in all_names[:390]:
        holders.remove(ObjectKey("default", name))
        beyond.append(holders.traces - len(holders))
    assert max(beyond) == 64
    assert names(holders) == all_names[390:]


@pytest.mark.parametrize("leaving", [False, True])
def test_holder_put_again_leaves_a_trace_only_if_it_changed(leaving: bool) -> None:
    holders = QuotaHolders[Holder]()
    changing = holder("a", leaving=leaving)
    for _ in range(2):
        holders.put(changing)
        holders.put(changing)
        assert holders.traces == 0
        assert names(holders, leaving=leaving) == ["a"]
    changing.workload = replace(changing.workload, priority=1)
    holders.put(changing)
    assert (names(holders, leaving=leaving), holders.traces) == (["a"], 1)


@pytest.mark.parametrize("leaving", [False, True])
def test_holders_listed_from_a_place_include_that_place(leaving: bool) -> None:
    holders = QuotaHolders[Holder]()
    for number, name in enumerate("abcd"):
        holders.put(holder(name, priority=number, leaving=leaving))
    line = holders.leaving if leaving else holders.staying
    places = {each.workload.key.name: place for place, each in line("q")}
    assert [each.workload.key.name for _, each in line("q", places["c"])] == ["c", "d"]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.sampled_from(["q", "other", None]),
            st.integers(0, 2),
            st.integers(0, 2),
            st.booleans(),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_remaining_holders_are_in_order_after_any_history(
    history: list[tuple[int, str | None, int, int, bool, bool]],
) -> None:
    holders, model = QuotaHolders[Holder](), dict[str, Holder]()
    for name, queue, priority, since, leaving, reads in history:
        each = holder(str(name), priority, since, queue, leaving)
        holders.put(each)
        model.pop(str(name), None)
        if queue is not None:
            model[str(name)] = each
        if reads:
            names(holders)
    assert len(holders) == len(model)
    for queue in ("q", "other"):
        for leaving in (False, True):
            expected = [
                each
                for each in model.values()
                if each.held is not None and each.held.cluster_queue == queue and each.is_leaving == leaving
            ]
            expected.sort(key=preemption_order)
            assert names(holders, queue, leaving) == [each.workload.key.name for each in expected]
