"""Classical preemption: policies, candidates and their order, fill back, ties."""

from fractions import Fraction
from typing import Any

import pytest

from admitq.core.model import ClusterQueuePreemption, ObjectKey, PreemptionPolicy, ResourceQuota, StopPolicy
from admitq.core.preemption import TreeIndexes, find_victims
from admitq.core.preemption.candidates import TargetSearch
from admitq.core.preemption.capacity import Reachability, RequestedCapacity, estimate_reachability
from admitq.core.supposed_usage import SupposedUsage
from tests.unit.core.quota_trees import LOWER_IN_QUEUE, OWN, RECLAIM_ANY, RECLAIMED, QuotaTrees, pair, policy

# --- policies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("Never", []),
        ("LowerPriority", ["lowest of all", "lower, older", "lower, newer"]),
        ("LowerOrNewerEqualPriority", ["lowest of all", "lower, older", "lower, newer", "equal, newer"]),
        (
            "Any",
            [
                "lowest of all",
                "lower, older",
                "lower, newer",
                "equal, older",
                "equal, newer",
                "equal, as old",
                "higher, newer",
                "highest of all",
            ],
        ),
    ],
)
def test_policy_allows_candidates_by_priority_and_queue_time(name: str, allowed: list[str]) -> None:
    trees = QuotaTrees()
    trees.queue("q", None, 10)
    for number, (what, priority, queued) in enumerate(
        [
            ("lowest of all", -(1 << 31), 9),
            ("lower, older", 4, 1),
            ("lower, newer", 4, 9),
            ("equal, older", 5, 1),
            ("equal, newer", 5, 9),
            ("equal, as old", 5, 5),
            ("higher, newer", 6, 9),
            ("highest of all", (1 << 31) - 1, 9),
        ]
    ):
        trees.add_holder("q", what, 1, priority=priority, queued=queued, since=-number)
    cpu = pair("cpu")
    search = TargetSearch(trees.world, trees.preemptor("q", priority=5, queued=5), {cpu: 1}, (cpu,), ())
    candidates = search.candidates(trees.world.cluster_queues["q"], PreemptionPolicy(name))
    assert [each.entry.workload.key.name for each in candidates] == allowed


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("Never", []),
        ("LowerPriority", ["lower"]),
        ("LowerOrNewerEqualPriority", ["lower", "newer"]),
        ("Any", ["higher", "lower", "newer", "older"]),
    ],
)
@pytest.mark.parametrize("where", ["within", "reclaim"])
def test_policies_of_queue_and_cohort_select_candidates(where: str, name: str, targets: list[str]) -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 4, policy(name) if where == "within" else policy(reclaim=name))
    trees.queue("other", "all", 0)
    queue = "own" if where == "within" else "other"
    trees.add_holder(queue, "older", 1, priority=5, queued=1)
    trees.add_holder(queue, "newer", 1, priority=5, queued=9)
    trees.add_holder(queue, "lower", 1, priority=4, queued=1)
    trees.add_holder(queue, "higher", 1, priority=6, queued=9)
    assert sorted(trees.victim_names("own", len(targets) or 1, priority=5, queued=5)) == targets


# --- order ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"priority": 9, "evicted": True}, {"priority": 0}),
        ({"queue": "other", "priority": 3}, {"priority": 2}),
        ({"queue": "other", "evicted": True, "priority": 3}, {"evicted": True}),
        ({"evicted": True}, {"queue": "other"}),
        ({"priority": 1}, {"priority": 2, "since": 9}),
        ({"since": 9}, {"since": 1}),
        ({"name": "a"}, {"name": "b"}),
        ({"name": "c", "local_queue": "used-more", "priority": 3}, {"name": "a", "local_queue": "used-less"}),
        (
            {"name": "a", "local_queue": "used-more", "priority": 2},
            {"local_queue": "used-more", "priority": 3},
        ),
        ({"evicted": True, "local_queue": "used-less"}, {"local_queue": "used-more"}),
    ],
    ids=[
        "evicted first",
        "other queue before own queue",
        "other queue before own queue among evicted",
        "evicted of own queue before other queue",
        "lower priority",
        "more recently reserved",
        "uid",
        "LocalQueue with more past usage",
        "priority within a LocalQueue",
        "evicted before past usage",
    ],
)
def test_candidates_are_ordered_by_eviction_queue_priority_time_and_uid(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    trees = QuotaTrees()
    preemption = policy("LowerPriority", "Any", "LowerPriority")
    trees.queue("own", "all", 1, preemption, usage_based_admission=True)
    trees.queue("other", "all", 0)
    trees.cohort("all", None, 1)
    usage = {"used-more": Fraction(len("used-more"))}
    trees.world.charging.local_queue_usage = lambda key: usage.get(key.name, 0)
    names = [each.get("name", name) for each, name in ((first, "x"), (second, "y"))]
    for each, name in reversed(list(zip((first, second), names, strict=True))):
        trees.add_holder(
            each.get("queue", "own"), name, **{k: v for k, v in each.items() if k not in _QUEUE_AND_NAME}
        )
    assert trees.victim_names("own", 1, priority=10) == [names[0]]


_QUEUE_AND_NAME = ("queue", "name")


def test_past_usage_does_not_order_candidates_without_usage_based_admission() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, 2, LOWER_IN_QUEUE)
    trees.world.charging.local_queue_usage = lambda key: len(key.name)
    trees.add_holder("own", "low", 1, priority=1, local_queue="a")
    trees.add_holder("own", "high", 1, priority=2, local_queue="used-more")
    assert trees.victim_names("own", 1, priority=9) == ["low"]


def test_preempted_workload_counts_as_evicted() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, 2, LOWER_IN_QUEUE)
    trees.add_holder("own", "a", 1)
    trees.add_holder("own", "b", 1)
    entry = trees.world.workloads[ObjectKey("default", "b")]
    entry.preempting = object()  # pyright: ignore[reportAttributeAccessIssue]
    trees.world.quota_holders.put(entry)
    assert trees.victim_names("own", 1, priority=1) == ["b"]


# --- candidates -------------------------------------------------------------------------------------


def test_candidate_must_use_contested_resource() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, {"cpu": 2, "gpu": 2}, LOWER_IN_QUEUE)
    trees.add_holder("own", "cpu", {"cpu": 2})
    trees.add_holder("own", "gpu", {"gpu": 2})
    assert trees.victim_names("own", {"cpu": 1, "gpu": 0}, 1, contested=["cpu"]) == ["cpu"]
    assert trees.victim_names("own", {"gpu": 1}, 1) == ["gpu"]


def test_candidate_must_use_contested_flavor() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, {"cpu": 1, "spot/cpu": 1}, LOWER_IN_QUEUE)
    trees.add_holder("own", "spot", {"spot/cpu": 1})
    trees.add_holder("own", "default", {"cpu": 1}, priority=1)
    assert trees.victim_names("own", {"cpu": 1}, 2) == ["default"]


def test_excluded_workload_is_no_candidate() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, 2, LOWER_IN_QUEUE)
    trees.add_holder("own", "a")
    trees.add_holder("own", "b")
    assert trees.victim_names("own", 1, 1, excluded=["a"]) == ["b"]
    assert trees.victim_names("own", 1, 1, excluded=["a", "b"]) == []


def test_nothing_is_preempted_when_request_fits() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, 2, LOWER_IN_QUEUE)
    trees.add_holder("own", "a")
    assert trees.victim_names("own", 1, 1) == []


def test_search_finds_nothing_when_part_of_request_cannot_fit() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, {"cpu": 2, "gpu": 2}, LOWER_IN_QUEUE)
    trees.add_holder("own", "a", {"cpu": 2})
    trees.add_holder("own", "b", {"gpu": 1}, priority=9)
    assert trees.victim_names("own", {"cpu": 1, "gpu": 1}, 5, contested=["cpu"]) == ["a"]
    assert trees.victim_names("own", {"cpu": 1, "gpu": 2}, 5, contested=["cpu"]) == []


def test_request_of_0_fits_when_usage_exceeds_quota() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, {"cpu": 2, "gpu": 1}, LOWER_IN_QUEUE)
    trees.add_holder("own", "a", {"cpu": 2})
    trees.add_holder("own", "b", {"gpu": 3}, priority=9)
    assert trees.victim_names("own", {"cpu": 1, "gpu": 0}, 5, contested=["cpu"]) == ["a"]


def test_stopped_queue_has_no_candidates() -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 2, RECLAIM_ANY)
    trees.queue("other", "all", 0, stop_policy=StopPolicy.HOLD)
    trees.add_holder("other", "a", 2)
    assert trees.victim_names("own", 1) == []


def test_workloads_of_other_trees_are_no_candidates() -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 1, policy("Any", "Any"))
    trees.queue("other", "others", 0)
    trees.cohort("others", None, 1)
    trees.add_holder("other", "a", 1)
    trees.add_holder("own", "b", 1)
    assert trees.victim_names("own", 1, 1) == ["b"]


# --- fill back --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("need", "targets"),
    [(3, ["b"]), (4, ["a", "b"])],
)
def test_fill_back_spares_targets_that_are_not_needed(need: int, targets: list[str]) -> None:
    """Worked example: a of 1 and b of 3, in this order."""
    trees = QuotaTrees()
    trees.queue("own", None, 4, LOWER_IN_QUEUE)
    trees.add_holder("own", "a", 1, priority=0)
    trees.add_holder("own", "b", 3, priority=1)
    assert trees.victim_names("own", need, 5) == targets


def test_spared_target_is_replaced_by_the_last() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, 10, LOWER_IN_QUEUE)
    for name, amount, priority in (("a", 1, 0), ("b", 3, 1), ("c", 2, 2), ("d", 4, 3)):
        trees.add_holder("own", name, amount, priority)
    # Only a can be spared: d takes its place.
    assert trees.victim_names("own", 9, 5) == ["d", "b", "c"]


def test_evicted_candidate_is_spared_when_another_target_suffices() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, 4, LOWER_IN_QUEUE)
    trees.add_holder("own", "leaves", 1, evicted=True)
    trees.add_holder("own", "stays", 3)
    assert trees.victim_names("own", 3, 5) == ["stays"]
    assert trees.victim_names("own", 1, 5) == ["leaves"]


# --- ties, and searches that need own candidates ----------------------------------------------------


def test_ties_do_not_depend_on_order_of_events() -> None:
    results: set[tuple[str, ...]] = set()
    names = ["a", "b", "c", "d"]
    for turn in range(4):
        trees = QuotaTrees()
        order = names[turn:] + names[:turn]
        for name in order:
            trees.queue(f"q{name}", "all", 0)
        trees.queue("own", "all", 4, RECLAIM_ANY)
        for name in order:
            trees.add_holder(f"q{name}", name, 1)
        results.add(tuple(trees.victim_names("own", 2)))
    assert results == {("a", "b")}


def test_default_policy_preempts_nothing() -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 4, ClusterQueuePreemption())
    trees.queue("other", "all", 0)
    trees.add_holder("other", "lent", 2)
    trees.add_holder("own", "mine", 2)
    assert trees.victims("own", 1, priority=9) == []


def test_neighbor_loses_only_lower_priority_when_own_candidates_are_needed() -> None:
    trees = QuotaTrees()
    trees.cohort("root", None, 1)
    trees.queue("own", "root", 3, policy("LowerPriority", "LowerPriority"))
    trees.queue("other", "root")
    trees.add_holder("own", "own low", 2)
    trees.add_holder("other", "low", 1)
    trees.add_holder("other", "high", 1, priority=9)
    assert trees.victims("own", 3, priority=5) == [("low", RECLAIMED), ("own low", OWN)]


def test_neighbor_of_higher_priority_loses_nothing_when_own_candidates_are_needed() -> None:
    trees = QuotaTrees()
    both = ClusterQueuePreemption(
        reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY,
        within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY,
    )
    trees.queue("own", of=5, preemption=both)
    trees.queue("low", of=0)
    trees.queue("high", of=0)
    trees.add_holder("own", "own-low", 3)
    trees.add_holder("low", "low", 1)
    trees.add_holder("high", "high", 1, priority=9)
    assert sorted(trees.victim_names("own", 4, priority=5)) == ["low", "own-low"]


@pytest.mark.parametrize("case", ["staying", "leaving", "cohort between"])
def test_neighbor_loses_only_what_it_borrows_when_own_candidates_are_needed(case: str) -> None:
    trees = QuotaTrees()
    cohort = "deep" if case == "cohort between" else "all"
    trees.cohort("all")
    trees.cohort("deep", "all")
    trees.queue("own", "all", 4, policy("LowerPriority", "Any", "LowerPriority"))
    trees.queue("neighbor", cohort, 1)
    trees.add_holder("own", "own 1")
    trees.add_holder("own", "own 2")
    trees.add_holder("own", "own of higher priority", priority=9)
    trees.add_holder("neighbor", "borrows", evicted=case == "leaving")
    trees.add_holder("neighbor", "within quota", priority=1)
    assert trees.victim_names("own", 3, priority=5) == ["borrows", "own 1", "own 2"]


def test_local_queue_that_used_more_loses_first_when_own_candidates_are_needed() -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 4, policy("LowerPriority", "Any", "LowerPriority"))
    trees.queue("neighbor", "all", usage_based_admission=True)
    trees.world.charging.local_queue_usage = lambda key: len(key.name)
    trees.add_holder("neighbor", "of used-less", local_queue="a", priority=0)
    trees.add_holder("neighbor", "of used-more", local_queue="used-more", priority=1)
    trees.add_holder("own", "own", 2)
    # One of the neighbor's workloads can stay.
    assert trees.victim_names("own", 3, priority=5) == ["of used-more", "own"]


@pytest.mark.parametrize(
    ("queue", "priority", "queued", "wanted", "expected"),
    [
        ("own", 5, 9, 1, ["lower"]),
        ("own", 5, 9, 2, []),
        ("own", 5, 7, 2, []),
        ("own", 5, 6, 2, ["lower", "newer"]),
        ("own", 5, 1, 2, ["lower", "equal 00"]),
        ("own", 9, 9, 2, ["lower", "equal 00"]),
        ("any", 0, 9, 1, ["lower"]),
    ],
    ids=[
        "lower priority",
        "none is newer",
        "none is newer, same time",
        "one is newer",
        "all are newer",
        "higher than all priorities",
        "reclaims any",
    ],
)
def test_second_search_in_same_index_finds_candidates_by_its_own_preemptor(
    queue: str, priority: int, queued: int, wanted: int, expected: list[str]
) -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, 8)
    trees.queue("own", "all", 5, policy(reclaim="LowerOrNewerEqualPriority"))
    trees.queue("any", "all", 5, RECLAIM_ANY)
    trees.queue("other", "all")
    trees.add_holder("other", "lower", priority=4)
    trees.add_holder("other", "newer", priority=5, queued=7, since=1)
    for number in range(16):
        trees.queue(f"queue {number:02}", "all")
        trees.add_holder(f"queue {number:02}", f"equal {number:02}", priority=5, queued=5, since=1)
    tree = TreeIndexes(trees.world, SupposedUsage(), ())
    cpu = pair("cpu")

    def search(queue: str, priority: int, queued: int, wanted: int) -> list[str]:
        preemptor = trees.preemptor(queue, priority, queued)
        targets = find_victims(trees.world, preemptor, {cpu: wanted}, (cpu,), (), tree)
        return [victim.entry.workload.key.name for victim in targets]

    assert search("own", 5, 6, 3) == []
    assert search(queue, priority, queued, wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (5, Reachability.POSSIBLE),
        (6, Reachability.ONLY_WITH_OWN_CANDIDATES),
        (7, Reachability.IMPOSSIBLE),
    ],
)
def test_reachability_counts_usage_of_all_but_borrowing_cluster_queues(
    wanted: int, expected: Reachability
) -> None:
    trees = QuotaTrees()
    trees.cohort("all")
    trees.cohort("deep", "all", ResourceQuota(1, lending_limit=2))
    trees.queue("own", "all", 6, policy("LowerPriority", "Any", "LowerPriority"))
    trees.queue("within quota", "all", 1)
    trees.queue("within quota of cohort", "deep", 2)
    trees.queue("borrows", "all")
    trees.queue("borrows in cohort", "deep")
    trees.add_holder("within quota", "a")
    # The cohort has 3 and lends 2 of them, so that one of these is taken from the root.
    trees.add_holder("within quota of cohort", "b", 2)
    trees.add_holder("borrows", "c", 3)
    trees.add_holder("borrows in cohort", "d", 2)
    trees.add_holder("own", "lower")
    trees.add_holder("own", "higher", priority=9)
    cpu, node = pair("cpu"), trees.node("own")
    search = TargetSearch(trees.world, trees.preemptor("own", priority=5), {cpu: wanted}, (cpu,), ())
    index = TreeIndexes(trees.world, SupposedUsage(), ()).by_order(frozenset({cpu}))
    index.prepare(node)
    room = RequestedCapacity(node, search.usage)
    assert estimate_reachability(search, index, room, room.is_available) is expected


def trees_that_need_own_candidates() -> QuotaTrees:
    """Return a tree of 12 CPUs in which a request of 6 needs the candidates of all four ClusterQueues."""
    trees = QuotaTrees()
    trees.cohort("all")
    trees.queue("own", "all", 6, policy("LowerPriority", "Any"))
    trees.add_holder("own", "own lower", 3, priority=1)
    for number in range(3):
        trees.queue(f"queue {number}", "all", 2)
        trees.add_holder(f"queue {number}", f"within {number}", 2, priority=9, since=-1)
        trees.add_holder(f"queue {number}", f"borrows {number}", 1, priority=number)
    return trees


def find_names(trees: QuotaTrees, excluded: set[ObjectKey], tree: TreeIndexes, wanted: int = 6) -> list[str]:
    cpu = pair("cpu")
    preemptor = trees.preemptor("own", priority=5)
    targets = find_victims(trees.world, preemptor, {cpu: wanted}, (cpu,), excluded, tree)
    return [victim.entry.workload.key.name for victim in targets]


def test_search_in_same_index_does_not_read_candidates_of_other_queues_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trees, excluded = trees_that_need_own_candidates(), set[ObjectKey]()
    tree = TreeIndexes(trees.world, SupposedUsage(), excluded)
    read: list[str] = []
    in_stage = TargetSearch.in_stage

    def record_and_return(self: TargetSearch, stage: Any, queue: Any, *arguments: Any) -> Any:
        read.append(queue.spec.name)
        return in_stage(self, stage, queue, *arguments)

    monkeypatch.setattr(TargetSearch, "in_stage", record_and_return)
    victims = find_names(trees, excluded, tree)
    assert sorted(victims) == ["borrows 0", "borrows 1", "borrows 2", "own lower"]
    assert {"queue 1", "queue 2"} <= set(read)
    read.clear()
    assert find_names(trees, excluded, tree) == victims
    # Whether there is any candidate is read from the first queue.
    assert not {"queue 1", "queue 2"} & set(read)


def test_search_after_change_in_queue_does_not_find_its_former_candidates() -> None:
    trees, excluded = trees_that_need_own_candidates(), set[ObjectKey]()
    tree = TreeIndexes(trees.world, SupposedUsage(), excluded)
    assert "borrows 0" in find_names(trees, excluded, tree)
    holder = next(entry for _, entry in trees.world.quota_holders.staying("queue 0"))
    excluded.add(holder.workload.key)
    tree.update(trees.node("queue 0"))
    fresh = TreeIndexes(trees.world, SupposedUsage(), excluded)
    for wanted in (4, 5, 6):
        assert find_names(trees, excluded, tree, wanted) == find_names(trees, excluded, fresh, wanted)
        assert "borrows 0" not in find_names(trees, excluded, tree, wanted)
