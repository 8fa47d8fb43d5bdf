"""Candidates of other ClusterQueues are removed at once if a preemptor also needs candidates of its own.

The differential test compares the victims with those of the same search without removals by sums, and with
those of the reference model.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from random import Random
from unittest import mock

import pytest

from admitq.core.instructions import PreemptionReason
from admitq.core.model import ResourceQuota
from admitq.core.preemption import TreeIndexes, find_victims
from admitq.core.preemption.candidates import Candidate
from admitq.core.preemption.classical import _ClassicalSearch  # pyright: ignore[reportPrivateUsage]
from admitq.core.settings import CoreSettings
from admitq.core.supposed_usage import SupposedUsage
from tests.unit.core.quota_trees import QuotaTrees, policy, stated
from tests.unit.core.test_preemption_laws import Case, draw_amounts, find_targets

RECLAIMS = policy(within="LowerPriority", reclaim="Any")
OWN, OTHER = str(PreemptionReason.IN_CLUSTER_QUEUE), str(PreemptionReason.IN_COHORT_RECLAMATION)


class Searches:
    """Counts the searches that removed candidates by sums, and those that could not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_sums = self.one_by_one = 0
        find = _ClassicalSearch._find_in_bulk  # pyright: ignore[reportPrivateUsage]

        def counted(
            search: _ClassicalSearch, is_enough: Callable[[], bool], *, may_borrow: bool
        ) -> list[Candidate] | None:
            found = find(search, is_enough, may_borrow=may_borrow)
            self.by_sums += found is not None
            self.one_by_one += found is None
            return found

        monkeypatch.setattr(_ClassicalSearch, "_find_in_bulk", counted)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    return Searches(monkeypatch)


def trees_with_borrowers(borrowers: int = 2, running: int = 3) -> QuotaTrees:
    """Return a ClusterQueue of 10 and some of 2. Each of the latter runs two workloads of 2, and so borrows.

    Args:
        borrowers: the number of ClusterQueues that borrow.
        running: how many workloads of 2 the first ClusterQueue runs.
    """
    trees = QuotaTrees()
    trees.queue("own", of=10, preemption=RECLAIMS)
    for borrower in range(borrowers):
        trees.queue(f"other-{borrower}", of=2)
        for number in range(2):
            trees.add_holder(f"other-{borrower}", f"other-{borrower}-{number}", 2, since=number)
    for number in range(running):
        trees.add_holder("own", f"own-{number}", 2, since=number)
    return trees


def test_others_and_own_candidates_are_preempted_if_all_are_needed(searches: Searches) -> None:
    assert trees_with_borrowers().victims("own", 8, priority=1) == [
        ("other-0-1", OTHER),
        ("other-1-1", OTHER),
        ("own-2", OWN),
        ("own-1", OWN),
    ]
    assert (searches.by_sums, searches.one_by_one) == (1, 0)


def test_candidates_of_others_that_are_not_needed_are_spared(searches: Searches) -> None:
    trees = trees_with_borrowers()
    trees.cohort("all", of=2)
    assert trees.victims("own", 8, priority=1) == [("other-0-1", OTHER), ("own-1", OWN), ("own-2", OWN)]
    assert (searches.by_sums, searches.one_by_one) == (1, 0)


def test_search_stops_at_the_other_candidate_that_suffices_after_own_leaving_ones(searches: Searches) -> None:
    trees = trees_with_borrowers(borrowers=3, running=0)
    trees.add_holder("own", "leaving", 4, evicted=True)
    assert trees.victims("own", 8, priority=1) == [
        ("leaving", OWN),
        ("other-0-1", OTHER),
        ("other-1-1", OTHER),
    ]
    assert (searches.by_sums, searches.one_by_one) == (1, 0)


def test_own_staying_candidates_come_last(searches: Searches) -> None:
    trees = trees_with_borrowers(running=1)
    trees.add_holder("own", "leaving", 4, evicted=True)
    assert trees.victims("own", 10, priority=1) == [
        ("leaving", OWN),
        ("other-0-1", OTHER),
        ("other-1-1", OTHER),
        ("own-0", OWN),
    ]
    assert (searches.by_sums, searches.one_by_one) == (1, 0)


def test_leaving_candidates_of_others_come_first_and_end_their_borrowing(searches: Searches) -> None:
    trees = trees_with_borrowers()
    trees.remove_holder("other-1-0")
    trees.add_holder("other-1", "leaving", 2, evicted=True)
    assert trees.victims("own", 8, priority=1) == [
        ("leaving", OTHER),
        ("other-0-1", OTHER),
        ("own-2", OWN),
        ("own-1", OWN),
    ]
    assert (searches.by_sums, searches.one_by_one) == (1, 0)


def test_local_quota_of_other_cluster_queue_prevents_removal_by_sums(searches: Searches) -> None:
    trees = trees_with_borrowers()
    trees.queue("other-0", of=ResourceQuota(2, None, 1))
    trees.victims("own", 8, priority=1)
    assert (searches.by_sums, searches.one_by_one) == (0, 1)


def test_policy_for_newer_workloads_prevents_removal_by_sums(searches: Searches) -> None:
    trees = trees_with_borrowers()
    trees.queue("own", of=10, preemption=policy("LowerPriority", "LowerOrNewerEqualPriority"))
    trees.victims("own", 8, priority=1)
    assert (searches.by_sums, searches.one_by_one) == (0, 1)


def test_candidates_below_another_cohort_prevent_removal_by_sums(searches: Searches) -> None:
    trees = trees_with_borrowers()
    trees.cohort("below", "all")
    trees.queue("other-1", "below", of=2)
    trees.victims("own", 8, priority=1)
    assert (searches.by_sums, searches.one_by_one) == (0, 1)


def test_several_levels_prevent_removal_by_sums(searches: Searches) -> None:
    trees = trees_with_borrowers()
    trees.cohort("all", "root")
    trees.victims("own", 8, priority=1)
    assert (searches.by_sums, searches.one_by_one) == (0, 1)


def test_candidates_may_hold_only_some_of_the_requested_resources(searches: Searches) -> None:
    trees = QuotaTrees()
    trees.queue("own", of={"cpu": 4, "gpu": 4, "memory": 9}, preemption=RECLAIMS)
    trees.queue("other", of={"cpu": 0, "gpu": 0, "memory": 0})
    trees.add_holder("other", "cpu-alone", {"cpu": 2}, since=1)
    trees.add_holder("other", "gpu-and-memory", {"gpu": 2, "memory": 1}, since=2)
    trees.add_holder("own", "own", {"cpu": 2, "gpu": 2}, since=1)
    before = trees.cells()
    assert trees.victims("own", {"cpu": 4, "gpu": 4}, priority=1) == [
        ("gpu-and-memory", OTHER),
        ("cpu-alone", OTHER),
        ("own", OWN),
    ]
    assert trees.cells() == before
    assert (searches.by_sums, searches.one_by_one) == (1, 0)


def test_all_candidates_together_may_not_be_enough(searches: Searches) -> None:
    """While the preemptor borrows, it must not preempt others, whose usage the estimate includes."""
    trees = QuotaTrees()
    trees.queue("own", of=7, preemption=RECLAIMS)
    trees.queue("other")
    trees.cohort("all", of=1)
    for number in range(3):
        trees.add_holder("other", f"other-{number}", 1, since=number)
    for number in range(2):
        trees.add_holder("own", f"own-{number}", 3, since=number)
    assert trees.victims("own", 8, priority=1) == []
    assert (searches.by_sums, searches.one_by_one) == (1, 0)


def test_own_and_other_candidates_are_tried_in_one_batch(searches: Searches) -> None:
    trees = QuotaTrees()
    trees.queue("own", of=3, preemption=policy("LowerPriority", "LowerPriority", "LowerPriority"))
    for name in ("other", "third"):
        trees.queue(name)
    trees.add_holder("own", "own-leaving", 1, evicted=True, since=3)
    trees.add_holder("other", "other-leaving", 2, priority=1, evicted=True, since=2)
    trees.add_holder("third", "large", 2, priority=1, since=3)
    trees.add_holder("third", "small", 1, since=2)
    trees.add_holder("own", "own", 3, priority=2)
    victims = trees.victim_names("own", 2, priority=3)
    assert victims == ["other-leaving", "own-leaving", "own", "large"]
    assert searches.by_sums == 1


# --- the same victims ---------------------------------------------------------------------------------------


@contextmanager
def one_by_one() -> Generator[None]:
    """Have searches remove candidates of other ClusterQueues one by one."""
    with mock.patch.object(_ClassicalSearch, "_find_in_bulk", return_value=None):
        yield


def draw_case(chance: Random) -> Case:
    """Draw ClusterQueues of one cohort, of which some borrow, and a preemptor that needs own candidates."""
    resources = chance.choice([["cpu"], ["cpu"], ["cpu", "gpu"]])
    names = [f"q{number}" for number in range(chance.randrange(2, 7))]
    lending = chance.choice([[None], [None], [None, 0, 1]])

    def quotas(most: int) -> dict[str, ResourceQuota]:
        return {
            each: ResourceQuota(chance.randrange(most), None, chance.choice(lending)) for each in resources
        }

    preemption = policy(
        chance.choice(["LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority", "Any"]),
        chance.choice(["Any", "Any", "LowerPriority", "LowerOrNewerEqualPriority"]),
        chance.choice(["Never", "Never", "LowerPriority"]),
    )
    queues = [
        {
            "name": name,
            "cohort": "root",
            "of": quotas(12 if name in ("q0", "q1") else 3),
            "preemption": preemption,
        }
        for name in names
    ]
    holders = [
        {
            "queue": chance.choice([*names, "q0", "q1"]),
            "name": f"w{number}",
            "of": draw_amounts(chance, resources),
            "priority": chance.randrange(3),
            "since": chance.randrange(4),
            "evicted": chance.random() < chance.choice([0, 0.3]),
        }
        for number in range(chance.randrange(5, 25))
    ]
    wanted = {each: chance.randrange(2, 13) for each in resources}
    cohorts = [{"name": "root", "of": quotas(4)}]
    return Case(
        CoreSettings(), cohorts, queues, holders, {"queue": "q0", "of": wanted, "priority": 3, "queued": 9}
    )


@pytest.mark.drawn
@pytest.mark.parametrize("cases", [300, pytest.param(1500, marks=pytest.mark.release)])
def test_victims_are_those_of_removals_one_by_one_and_of_model(searches: Searches, cases: int) -> None:
    chance = Random(1)  # noqa: S311 the same cases in every run
    found = 0
    for _ in range(cases):
        case = draw_case(chance)
        trees = case.trees()
        victims, expected = find_targets(trees, case)
        assert victims == expected
        with one_by_one():
            assert find_targets(trees, case)[0] == victims
        found += bool(victims)
    assert found > cases / 5
    assert searches.by_sums > cases / 10


@pytest.mark.drawn
def test_victims_are_the_same_when_preemptors_share_the_candidates_of_a_cycle(searches: Searches) -> None:
    chance = Random(2)  # noqa: S311 the same cases in every run
    for _ in range(300):
        case = draw_case(chance)
        trees = case.trees()
        usage = stated(case.preemptor["of"])
        before = trees.cells()
        for of_queue in ("q0", "q1", "q0"):
            indexes = TreeIndexes(trees.world, SupposedUsage(), ())
            results: list[object] = []
            for shared in (indexes, indexes, None):
                preemptor = trees.preemptor(of_queue, 3, 9)
                results.append(find_victims(trees.world, preemptor, usage, usage.keys(), (), shared))
            assert results[0] == results[1] == results[2]
            assert trees.cells() == before
    assert searches.by_sums > 100
