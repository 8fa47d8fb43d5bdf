"""Which changes admit a waiting workload: what is named, at which cost, and that it really admits."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import chain, repeat
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.amounts import FlavorResource
from admitq.core.asking import cheapest_changes, trials
from admitq.core.asking.branch import copying_branch
from admitq.core.asking.changes import (
    ActivateChecks,
    AddQuota,
    AllowFlavor,
    Change,
    CreateFlavors,
    FinishWorkloads,
    LiftHolds,
    RaisePriority,
    ReducedPodSet,
    ReducePods,
    ResumeClusterQueue,
    ResumeLocalQueue,
)
from admitq.core.asking.cheapest_changes import (
    CheapestChanges,
    Cost,
    Effort,
    SufficientChanges,
    find_cheapest_changes,
)
from admitq.core.asking.trials import Trial, try_changes
from admitq.core.lifecycle import Phase
from admitq.core.model import (
    SECOND,
    AdmissionCheck,
    AdmissionCheckRule,
    FlavorQuotas,
    LocalQueue,
    NodeSelectorTerm,
    PodSet,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    SelectorOperator,
    SelectorRequirement,
    StopPolicy,
    Taint,
    Toleration,
)
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings
from tests.unit.core.small_cluster import LOWER, RECLAIM, STRICT, SmallCluster, group, key, queue

CPU = FlavorResource("default", "cpu")
SPOT = ResourceFlavor("spot", node_taints=(Taint("spot", "yes", "NoSchedule"),))


def ask(cluster: SmallCluster, name: str = "w", **options: Any) -> CheapestChanges:
    state = cluster.state
    before = state.to_dict()
    found = find_cheapest_changes(state, key(name), cluster.now, copying_branch(state), **options)
    state.validate()
    assert state.to_dict() == before
    for alternative in found.alternatives:
        branch = state.fork()
        trial = try_changes(branch, key(name), alternative.changes, cluster.now)
        branch.instructions()
        branch.validate()
        assert trial == Trial(gets_quota=True, preempted=alternative.preempted)
    return found


def named(cluster: SmallCluster, name: str = "w", **options: Any) -> list[tuple[Change, ...]]:
    return [each.changes for each in ask(cluster, name, **options).alternatives]


def pods(count: int, cpu: int = 1, **fields: Any) -> tuple[PodSet, ...]:
    return (PodSet("main", count, template_requesting({"cpu": cpu}), **fields),)


def full_queue(**fields: Any) -> SmallCluster:
    """Return a cluster with a ClusterQueue of 4 CPUs (in thousandths), of which a workload holds 3."""
    cluster = SmallCluster()
    cluster.put(queue("q", 4, **fields))
    cluster.submit("runs", "q", cpu=3)
    cluster.run("runs")
    return cluster


# --- nothing to change ----------------------------------------------------------------------------------


def test_workload_that_does_not_exist_has_no_changes() -> None:
    assert ask(SmallCluster()) == CheapestChanges(needs_none=False)


def test_workload_with_quota_needs_no_change() -> None:
    assert ask(full_queue(), "runs") == CheapestChanges(needs_none=True)


def test_finished_workload_has_no_changes() -> None:
    cluster = full_queue()
    cluster.finish("runs")
    assert ask(cluster, "runs") == CheapestChanges(needs_none=False)


def test_workload_whose_turn_comes_needs_no_change() -> None:
    cluster = full_queue()
    cluster.submit("w", "q")
    assert ask(cluster) == CheapestChanges(needs_none=True)


def test_workload_whose_targets_are_leaving_needs_no_change() -> None:
    cluster = full_queue(preemption=LOWER)
    cluster.submit("w", "q", cpu=4, priority=1)
    cluster.cycles()
    assert ask(cluster) == CheapestChanges(needs_none=True)


@pytest.mark.parametrize("local_queue", ["missing", "dangling"])
def test_workload_without_queue_has_no_changes(local_queue: str) -> None:
    cluster = SmallCluster()
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("dangling"), "nowhere")))
    cluster.submit("w", local_queue)
    assert ask(cluster) == CheapestChanges(needs_none=False)


# --- obstacles ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({"active": False}, LiftHolds(key("w"), activates=True)),
        ({"on_hold": True}, LiftHolds(key("w"), releases=True)),
        ({"admission_gates": ("g",)}, LiftHolds(key("w"), admission_gates=("g",))),
    ],
)
def test_held_workload_is_released(fields: dict[str, Any], change: Change) -> None:
    cluster = full_queue()
    cluster.submit("w", "q", **fields)
    cost = Cost(Effort.WORKLOAD, Fraction(1))
    assert ask(cluster) == CheapestChanges(
        needs_none=False, alternatives=(SufficientChanges((change,), cost),)
    )


def test_stopped_queues_are_resumed_together() -> None:
    cluster = full_queue()
    cluster.put(queue("q", 4, stop_policy=StopPolicy.HOLD))
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("q"), "q", stop_policy=StopPolicy.HOLD)))
    cluster.submit("w", "q")
    assert named(cluster) == [(ResumeLocalQueue(key("q")), ResumeClusterQueue("q"))]


def test_missing_flavors_and_checks_are_created() -> None:
    cluster = SmallCluster()
    cluster.send(happened.AdmissionCheckChanged(AdmissionCheck("off", "c", active=False)))
    rules = tuple(AdmissionCheckRule(name) for name in ("off", "none"))
    cluster.put(queue("q", resource_groups=group(("new", 1)), admission_checks=rules))
    cluster.submit("w", "q")
    assert named(cluster) == [(CreateFlavors(("new",)), ActivateChecks(("none",)), ActivateChecks(("off",)))]


def test_terminating_queue_has_no_changes() -> None:
    cluster = full_queue(terminating=False)
    cluster.put(queue("q", 4, terminating=True))
    cluster.submit("w", "q")
    assert named(cluster) == []


def test_obstacle_and_missing_quota_are_one_alternative() -> None:
    cluster = full_queue()
    cluster.submit("w", "q", cpu=2, on_hold=True)
    release = LiftHolds(key("w"), releases=True)
    assert named(cluster) == [
        (release, FinishWorkloads((key("runs"),))),
        (release, AddQuota("q", ((CPU, 1),))),
    ]


# --- the workload itself --------------------------------------------------------------------------------


def test_fewer_pods_are_the_most_that_fit() -> None:
    cluster = full_queue()
    cluster.submit("w", "q", pod_sets=pods(4, min_count=3), reclaimable_pods=(("main", 1),))
    cluster.cycles()
    (first, *_) = ask(cluster).alternatives
    assert first.changes == (ReducePods(key("w"), (ReducedPodSet("main", 4, 2),)),)
    assert first.cost == Cost(Effort.FEWER_PODS, Fraction(1, 2))


def test_only_podsets_that_lose_pods_are_reduced() -> None:
    cluster = full_queue()
    cluster.submit("w", "q", pod_sets=(PodSet("one", 1, template_requesting({"cpu": 0})), *pods(2)))
    cluster.cycles()
    assert named(cluster)[0] == (ReducePods(key("w"), (ReducedPodSet("main", 2, 1),)),)


def test_single_pod_cannot_be_reduced_and_too_large_pods_neither() -> None:
    cluster = full_queue()
    for name, pod_sets in (("one", pods(1, 2)), ("w", pods(2, 2))):
        cluster.submit(name, "q", pod_sets=pod_sets)
    cluster.cycles()
    for name in ("one", "w"):
        assert not any(isinstance(change, ReducePods) for (change,) in named(cluster, name))


@pytest.mark.parametrize("flavors", [[("default", 1), ("spot", 4)], [("spot", 4)]])
def test_flavor_with_room_is_tolerated(flavors: list[tuple[str, int]]) -> None:
    cluster = SmallCluster()
    cluster.send(happened.ResourceFlavorChanged(SPOT))
    cluster.put(queue("q", resource_groups=group(*flavors)))
    cluster.submit("w", "q", cpu=2)
    cluster.cycles()
    toleration = Toleration("spot", "Equal", "yes", "NoSchedule")
    change = AllowFlavor(key("w"), "spot", ("main",), (toleration,), drops_node_selection=False)
    assert named(cluster)[0] == (change,)


def test_node_selection_that_excludes_flavor_with_room_is_dropped() -> None:
    cluster = SmallCluster()
    cluster.send(happened.ResourceFlavorChanged(ResourceFlavor("spot", (("pool", "spot"),))))
    cluster.put(queue("q", resource_groups=group(("default", 1), ("spot", 4))))
    term = NodeSelectorTerm((SelectorRequirement("pool", SelectorOperator.IN, ("other",)),))
    cluster.submit("w", "q", pod_sets=(*pods(1, 2, required_node_affinity=(term,)), PodSet("side", 1)))
    cluster.cycles()
    change = AllowFlavor(key("w"), "spot", ("main",), (), drops_node_selection=True)
    assert named(cluster)[0] == (change,)


@pytest.mark.parametrize("known", [False, True])
def test_refused_flavor_without_room_or_object_is_not_named(*, known: bool) -> None:
    cluster = SmallCluster()
    if known:
        cluster.send(happened.ResourceFlavorChanged(SPOT))
    cluster.put(queue("q", resource_groups=group(("default", 1), ("spot", 1 if known else 9))))
    cluster.submit("w", "q", cpu=2)
    cluster.cycles()
    assert not any(isinstance(change, AllowFlavor) for changes in named(cluster) for change in changes)


def test_closed_preemption_gate_is_opened() -> None:
    cluster = full_queue(preemption=LOWER)
    cluster.submit("w", "q", cpu=4, priority=1, has_closed_preemption_gate=True)
    cluster.cycles()
    (first, *_) = ask(cluster).alternatives
    assert first.changes == (LiftHolds(key("w"), opens_preemption_gate=True),)
    assert first.preempted == (key("runs"),)


# --- workloads that hold quota --------------------------------------------------------------------------


@pytest.mark.parametrize(("cpu", "finished"), [(3, ["c"]), (4, ["a", "c"]), (7, ["a", "b", "c"])])
def test_fewest_workloads_finish(cpu: int, finished: list[str]) -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 8))
    for name, held, priority in (("a", 1, 0), ("b", 3, 1), ("c", 3, 0), ("d", 1, 0)):
        cluster.submit(name, "q", cpu=held, priority=priority)
    cluster.run("a", "b", "c", "d")
    cluster.submit("w", "q", cpu=cpu)
    cluster.cycles()
    assert named(cluster)[0] == (FinishWorkloads(tuple(map(key, finished))),)


def test_workload_that_is_not_needed_does_not_finish() -> None:
    cluster = SmallCluster()
    resources = (FlavorQuotas("default", (("cpu", ResourceQuota(5)), ("gpu", ResourceQuota(5)))),)
    cluster.put(queue("q", resource_groups=(ResourceGroup(("cpu", "gpu"), resources),)))
    for name, cpu, gpu in (("a", 2, 2), ("b", 3, 0), ("c", 0, 3)):
        cluster.submit(
            name, "q", pod_sets=(PodSet("main", 1, template_requesting({"cpu": cpu, "gpu": gpu})),)
        )
    cluster.run("a", "b", "c")
    cluster.submit("w", "q", pod_sets=(PodSet("main", 1, template_requesting({"cpu": 3, "gpu": 3})),))
    cluster.cycles()
    assert named(cluster)[0] == (FinishWorkloads((key("b"), key("c"))),)


def test_too_many_workloads_do_not_finish() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 10))
    names = [f"r{number}" for number in range(10)]
    for name in names:
        cluster.submit(name, "q")
    cluster.run(*names)
    cluster.submit("w", "q", cpu=9)
    cluster.cycles()
    assert named(cluster) == [(AddQuota("q", ((CPU, 9),)),)]


def test_workloads_with_unready_pods_finish_while_admission_is_halted() -> None:
    cluster = SmallCluster(CoreSettings(block_admission=True))
    cluster.put(queue("q", 4))
    cluster.submit("runs", "q")
    cluster.run("runs")
    cluster.submit("w", "q")
    cluster.cycles()
    assert named(cluster) == [(FinishWorkloads((key("runs"),)),)]


def test_many_workloads_with_unready_pods_do_not_finish() -> None:
    cluster = SmallCluster(CoreSettings(block_admission=True))
    cluster.put(queue("q", 24))
    names = [f"r{number}" for number in range(9)]
    for name in names:
        cluster.submit(name, "q")
        cluster.run(name)
        cluster.change(name, pods_ready=True)
    for name in names:
        cluster.change(name, pods_ready=False)
    cluster.submit("w", "q")
    cluster.cycles()
    assert named(cluster) == []


# --- quota ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "cpu", "more"), [("w", 2, 1), ("v", 9, 8)])
def test_least_quota_is_added(name: str, cpu: int, more: int) -> None:
    cluster = full_queue()
    cluster.submit(name, "q", cpu=cpu)
    cluster.cycles()
    assert (AddQuota("q", ((CPU, more),)),) in named(cluster, name)
    trial = try_changes(cluster.state.fork(), key(name), [AddQuota("q", ((CPU, more - 1),))], cluster.now)
    assert not trial.gets_quota


def test_quota_is_added_for_all_resources_of_one_flavor() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", resource_groups=(ResourceGroup(("cpu", "gpu"), (FlavorQuotas("default", ()),)),)))
    cluster.submit("w", "q", pod_sets=(PodSet("main", 1, template_requesting({"cpu": 2, "gpu": 1})),))
    cluster.cycles()
    (only,) = ask(cluster).alternatives
    assert only.changes == (AddQuota("q", ((CPU, 2), (FlavorResource("default", "gpu"), 1))),)
    assert only.cost == Cost(Effort.QUOTA, Fraction(2))


def test_each_flavor_of_several_podsets_is_an_alternative() -> None:
    cluster = SmallCluster()
    cluster.put_flavors("other")
    cluster.put(queue("q", resource_groups=group(("default", 1), ("other", 2))))
    pod_sets = tuple(PodSet(name, 1, template_requesting({"cpu": 2})) for name in ("first", "second"))
    cluster.submit("w", "q", pod_sets=pod_sets)
    cluster.cycles()
    other = FlavorResource("other", "cpu")
    assert named(cluster) == [(AddQuota("q", ((other, 2),)),), (AddQuota("q", ((CPU, 3),)),)]


def test_uncovered_resource_has_no_changes() -> None:
    cluster = full_queue()
    cluster.submit("w", "q", pod_sets=(PodSet("main", 1, template_requesting({"gpu": 1})),))
    cluster.cycles()
    assert named(cluster) == []


def test_quota_also_serves_workloads_before_it() -> None:
    cluster = full_queue()
    for number in range(4):
        cluster.submit(f"before{number}", "q", cpu=2)
    cluster.submit("w", "q", cpu=2)
    cluster.submit("after", "q", cpu=2)
    cluster.cycles()
    assert named(cluster) == [(AddQuota("q", ((CPU, 9),)),)]
    branch = cluster.state.fork()
    assert not try_changes(branch, key("w"), [AddQuota("q", ((CPU, 8),))], cluster.now).gets_quota


def test_quota_for_workloads_before_it_is_not_named_if_it_does_not_suffice() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2, queueing_strategy=STRICT))
    cluster.submit("head", "q", pod_sets=(PodSet("main", 1, template_requesting({"gpu": 1})),))
    cluster.submit("w", "q", cpu=3)
    cluster.cycles()
    assert named(cluster) == []


def test_quota_of_replaced_workload_is_not_added_again() -> None:
    cluster = full_queue()
    cluster.submit("w", "q", cpu=6, replaces=key("runs"))
    cluster.cycles()
    assert named(cluster) == [(AddQuota("q", ((CPU, 2),)),)]


# --- priority -------------------------------------------------------------------------------------------


def preempting_queue() -> SmallCluster:
    cluster = SmallCluster()
    cluster.put(queue("q", 4, preemption=LOWER))
    for priority in (10, 20, 30, 40):
        cluster.submit(f"p{priority}", "q", priority=priority)
    cluster.run("p10", "p20", "p30", "p40")
    cluster.submit("w", "q", cpu=2, priority=5)
    cluster.cycles()
    return cluster


@pytest.mark.parametrize(
    ("priorities", "lowest"), [(None, 21), ((1, 15, 25, 35, 99), 25), ((15,), None), ((), None)]
)
def test_lowest_sufficient_priority_is_named(priorities: Sequence[int] | None, lowest: int | None) -> None:
    found = ask(preempting_queue(), priorities=priorities).alternatives
    raised = [each for each in found if isinstance(each.changes[-1], RaisePriority)]
    if lowest is None:
        assert raised == []
        return
    assert raised == [
        SufficientChanges(
            (RaisePriority(key("w"), lowest),), Cost(Effort.PRIORITY, Fraction(2)), (key("p10"), key("p20"))
        )
    ]


def test_higher_priority_overtakes_blocking_head() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2, queueing_strategy=STRICT))
    cluster.submit("head", "q", cpu=3)
    cluster.submit("w", "q", pod_sets=pods(2))
    cluster.cycles()
    assert named(cluster)[0] == (RaisePriority(key("w"), 1),)


def test_assumed_reservation_of_target_is_written_before_it_leaves() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1, preemption=LOWER))
    cluster.submit("low", "q")
    cluster.cycles()
    cluster.submit("w", "q")
    cluster.cycles()
    (raised,) = (each for each in ask(cluster).alternatives if each.cost.effort is Effort.PRIORITY)
    assert raised.preempted == (key("low"),)


# --- bounds ---------------------------------------------------------------------------------------------


def test_number_of_alternatives_is_bounded() -> None:
    cluster = preempting_queue()
    everything = named(cluster, most=9)
    assert len(everything) == 3
    assert named(cluster, most=2) == everything[:2]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (1, []),
        (2, []),
        (3, [FinishWorkloads]),
        (4, [FinishWorkloads]),
        (6, [FinishWorkloads]),
        (7, [FinishWorkloads, RaisePriority]),
        (99, [FinishWorkloads, RaisePriority, AddQuota]),
    ],
)
def test_number_of_trials_is_bounded(
    monkeypatch: pytest.MonkeyPatch, most: int, expected: list[type[Change]]
) -> None:
    monkeypatch.setattr(cheapest_changes, "MOST_TRIALS", most)
    assert [type(change) for (change,) in named(preempting_queue())] == expected


def test_search_ends_with_what_it_found_when_there_is_no_time() -> None:
    cluster = preempting_queue()
    times = chain([True] * 5, repeat(False))
    found = find_cheapest_changes(
        cluster.state,
        key("w"),
        cluster.now,
        copying_branch(cluster.state),
        has_time=lambda: next(times),
    )
    assert [type(each.changes[0]) for each in found.alternatives] == [FinishWorkloads]


def test_search_without_time_finds_nothing() -> None:
    assert ask(preempting_queue(), has_time=lambda: False) == CheapestChanges(needs_none=False)


def test_more_quota_is_named_if_the_least_is_lost_to_another_queue() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 2, "c"), queue("b", 2, "c"))
    cluster.submit("runs", "a", cpu=4)
    cluster.run("runs")
    cluster.submit("within", "b", cpu=2)
    uncovered = template_requesting({"cpu": 6, "gpu": 1})
    cluster.submit("never", "a", pod_sets=(PodSet("main", 1, uncovered),))
    cluster.submit("w", "a", cpu=2)
    cluster.cycles()
    assert (AddQuota("a", ((CPU, 8),)),) in named(cluster)


def test_trial_ends_after_bounded_cycles_and_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = preempting_queue()
    raised = [RaisePriority(key("w"), 21)]
    monkeypatch.setattr(trials, "_MOST_ROUNDS", 1)
    assert not try_changes(cluster.state.fork(), key("w"), raised, cluster.now).gets_quota
    monkeypatch.setattr(trials, "_MOST_CYCLES", 0)
    assert not try_changes(cluster.state.fork(), key("w"), [], cluster.now).gets_quota


def test_other_tree_takes_no_part_in_trials() -> None:
    cluster = full_queue()
    cluster.put(queue("apart", 1))
    cluster.submit("w", "q", cpu=2)
    cluster.cycles()
    cluster.submit("other", "apart")
    branch = cluster.state.fork()
    assert try_changes(branch, key("w"), [AddQuota("q", ((CPU, 1),))], cluster.now).gets_quota
    assert branch.queries.last_refusal(key("other")) is None
    assert branch.queries.workload_phase(key("other")) is Phase.PENDING


def test_change_that_serves_another_queue_first_is_not_named() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 1, "c"), queue("b", 1, "c"))
    cluster.submit("runs", "a", cpu=2)
    cluster.run("runs")
    cluster.submit("first", "b", cpu=2)
    cluster.submit("w", "a", cpu=2)
    cluster.cycles()
    finish = FinishWorkloads((key("runs"),))
    alone, competing = (
        try_changes(cluster.state.fork(), key("w"), [finish], cluster.now, alone=alone)
        for alone in (True, False)
    )
    assert alone.gets_quota
    assert not competing.gets_quota
    assert (finish,) not in named(cluster)


def test_trial_waits_for_end_of_batch_period() -> None:
    cluster = SmallCluster(CoreSettings(requeue_batch_period=5 * SECOND))
    cluster.put(queue("q", 4))
    cluster.submit("runs", "q", cpu=3)
    cluster.run("runs")
    cluster.submit("w", "q", cpu=2)
    cluster.cycles()
    finish = FinishWorkloads((key("runs"),))
    assert try_changes(cluster.state.fork(), key("w"), [finish], cluster.now).gets_quota


def test_target_whose_workload_was_queued_elsewhere_since_is_no_error() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 4))
    cluster.submit("w", "nowhere")
    assert try_changes(cluster.state.fork(), key("w"), [], cluster.now) == Trial(gets_quota=False)


def test_reclaiming_with_more_quota_preempts() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 1, "c", preemption=RECLAIM), queue("b", 1, "c"))
    cluster.submit("borrows", "b", cpu=2)
    cluster.run("borrows")
    cluster.submit("w", "a", cpu=2)
    cluster.cycles()
    assert named(cluster) == [(FinishWorkloads((key("borrows"),)),), (AddQuota("a", ((CPU, 2),)),)]
