"""Holders of quota are listed in candidate order, whatever happened before."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.ledger import Reservation
from admitq.core.model import Instant, ObjectKey, Workload
from admitq.core.quota_holders import QuotaHolders, preemption_order


@dataclass(eq=False)
class Someone:
    workload: Workload
    held: Reservation | None
    reserved_at: Instant = 0
    is_leaving: bool = False


def someone(
    name: str, priority: int = 0, since: int = 0, queue: str | None = "q", leaving: bool = False
) -> Someone:
    key = ObjectKey("default", name)
    held = None if queue is None else Reservation(queue, key, (), admitted=True)
    return Someone(Workload(key, f"uid-{name}", "q", 0, (), priority=priority), held, since, leaving)


def names(holders: QuotaHolders[Someone], queue: str = "q", leaving: bool = False) -> list[str]:
    line = holders.leaving(queue) if leaving else holders.staying(queue)
    return [each.workload.key.name for _, each in line]


def test_lower_priority_then_more_recently_reserved_then_uid() -> None:
    holders = QuotaHolders[Someone]()
    for each in (
        someone("d", priority=1, since=9),
        someone("b", priority=0, since=1),
        someone("c", priority=0, since=0),
        someone("a2", priority=0, since=5),
        someone("a1", priority=0, since=5),
    ):
        holders.put(each)
    assert names(holders) == ["a1", "a2", "b", "c", "d"]


def test_leaving_holder_moves_to_the_leaving_line() -> None:
    holders = QuotaHolders[Someone]()
    each = someone("a")
    holders.put(each)
    each.is_leaving = True
    holders.put(each)
    assert (names(holders), names(holders, leaving=True)) == ([], ["a"])


def test_changed_holder_gets_a_new_place() -> None:
    holders = QuotaHolders[Someone]()
    first, second = someone("a", priority=1), someone("b", priority=2)
    holders.put(first)
    holders.put(second)
    assert names(holders) == ["a", "b"]
    first.workload = replace(first.workload, priority=3)
    holders.put(first)
    assert names(holders) == ["b", "a"]
    holders.put(first)
    assert names(holders) == ["b", "a"]


def test_moved_holder_is_only_in_the_new_line() -> None:
    holders = QuotaHolders[Someone]()
    holders.put(someone("a"))
    holders.put(someone("a", queue="other"))
    assert (names(holders), names(holders, "other"), len(holders)) == ([], ["a"], 1)


def test_workload_without_quota_is_no_holder() -> None:
    holders = QuotaHolders[Someone]()
    holders.put(someone("a"))
    holders.put(someone("a", queue=None))
    holders.put(someone("b", queue=None))
    holders.remove(ObjectKey("default", "c"))
    assert (names(holders), len(holders)) == ([], 0)


def test_a_newcomer_is_inserted_among_many() -> None:
    holders = QuotaHolders[Someone]()
    for number in range(100):
        holders.put(someone(f"{number:03}", priority=number))
    assert len(names(holders)) == 100
    holders.put(someone("new", priority=50))
    assert names(holders)[50:53] == ["050", "new", "051"]


def test_traces_of_leavers_are_cleaned_away() -> None:
    holders = QuotaHolders[Someone]()
    for number in range(1000):
        holders.put(someone(f"{number:03}"))
        holders.remove(ObjectKey("default", f"{number:03}"))
    holders.put(someone("last"))
    assert holders.traces < 100
    assert names(holders) == ["last"]


def test_at_most_64_entries_beyond_present_holders_are_kept() -> None:
    holders = QuotaHolders[Someone]()
    everybody = [f"{number:03}" for number in range(400)]
    for name in everybody[:300]:
        holders.put(someone(name))
    assert names(holders) == everybody[:300]
    for name in everybody[300:]:
        holders.put(someone(name))
    beyond: list[int] = []
    for name in everybody[:390]:
        holders.remove(ObjectKey("default", name))
        beyond.append(holders.traces - len(holders))
    assert max(beyond) == 64
    assert names(holders) == everybody[390:]


@pytest.mark.parametrize("leaving", [False, True])
def test_holder_put_again_leaves_a_trace_only_if_it_changed(leaving: bool) -> None:
    holders = QuotaHolders[Someone]()
    each = someone("a", leaving=leaving)
    for _ in range(2):
        holders.put(each)
        holders.put(each)
        assert holders.traces == 0
        assert names(holders, leaving=leaving) == ["a"]
    each.workload = replace(each.workload, priority=1)
    holders.put(each)
    assert (names(holders, leaving=leaving), holders.traces) == (["a"], 1)


@pytest.mark.parametrize("leaving", [False, True])
def test_holders_since_a_place_are_those_from_it_on(leaving: bool) -> None:
    holders = QuotaHolders[Someone]()
    for number, name in enumerate("abcd"):
        holders.put(someone(name, priority=number, leaving=leaving))
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
def test_order_of_the_remaining_holders_after_any_history(
    history: list[tuple[int, str | None, int, int, bool, bool]],
) -> None:
    holders, model = QuotaHolders[Someone](), dict[str, Someone]()
    for name, queue, priority, since, leaving, look in history:
        each = someone(str(name), priority, since, queue, leaving)
        holders.put(each)
        model.pop(str(name), None)
        if queue is not None:
            model[str(name)] = each
        if look:
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
