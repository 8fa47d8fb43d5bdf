"""Returned quota that does not suffice for a lane refreshes the refusal of the lane, without a cycle."""

from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.events import CyclesRequested
from admitq.core.instructions import Instruction, ReportPending, ReserveQuota
from admitq.core.model import LabelSelector, PodSet, QueueingStrategy, SelectorOperator, SelectorRequirement
from admitq.core.refusals import InsufficientQuota, NamespaceMismatch, NoFlavorFits, NoPreemptionTargets
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings
from admitq.core.state import AdmissionState
from tests.unit.core.small_cluster import RECLAIM, SmallCluster, group, key, queue


def _missing(cluster: SmallCluster, name: str) -> int:
    """Return the amount that the workload lacks, as the refusal of its lane says."""
    refusal = cluster.state.queries.last_refusal(key(name))
    shortfall = refusal.refused if isinstance(refusal, NoPreemptionTargets) else refusal
    assert isinstance(shortfall, NoFlavorFits)
    (short,) = shortfall.parts[0].refusals
    assert isinstance(short, InsufficientQuota)
    return short.missing


def _cluster_with_full_queue(*, statuses: bool = True, **fields: Any) -> SmallCluster:
    """Return a cluster with a ClusterQueue of 4 CPUs that four workloads fill."""
    cluster = SmallCluster(statuses=statuses)
    cluster.put(queue("q", 4, **fields))
    for name in "abcd":
        cluster.submit(name, "q")
    cluster.run("a", "b", "c", "d")
    return cluster


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_refusal_is_refreshed_when_returned_quota_does_not_suffice(strategy: QueueingStrategy) -> None:
    cluster = _cluster_with_full_queue(queueing_strategy=strategy)
    cluster.submit("large", "q", 3)
    cluster.run()
    assert _missing(cluster, "large") == 3
    cycle = cluster.state.to_dict()["cycle"]
    cluster.finish("a")
    assert cluster.state.next_wakeup(cluster.now) == cluster.now
    instructions = cluster.cycles()
    assert [each.key for each in instructions if isinstance(each, ReportPending)] == [key("large")]
    assert _missing(cluster, "large") == 2
    assert cluster.state.to_dict()["cycle"] == cycle, "no cycle was needed"
    assert cluster.state.next_wakeup(cluster.now) is None
    cluster.finish("b", "c")
    cluster.run("large")


def test_refusal_is_refreshed_only_on_request_when_no_statuses_are_written() -> None:
    cluster = _cluster_with_full_queue(statuses=False)
    cluster.submit("large", "q", 3)
    assert cluster.cycles() == []
    cluster.finish("a")
    assert cluster.instructions == []
    assert cluster.is_quiet, "no cycle is needed only for a refresh"
    assert _missing(cluster, "large") == 3
    assert cluster.state.refresh_refusals() == []
    cluster.state.validate()
    assert _missing(cluster, "large") == 2
    cluster.finish("b", "c")
    assert [type(each) for each in cluster.cycles()] == [ReserveQuota]


def test_refusals_are_refreshed_on_request() -> None:
    cluster = _cluster_with_full_queue()
    cluster.submit("large", "q", 3)
    cluster.cycles()
    cluster.finish("a")
    (report,) = cluster.state.refresh_refusals()
    assert isinstance(report, ReportPending)
    assert _missing(cluster, "large") == 2
    assert cluster.is_quiet


def test_workload_that_enters_a_refreshed_lane_is_bypassed() -> None:
    cluster = _cluster_with_full_queue()
    cluster.submit("large", "q", 3)
    cluster.run()
    cluster.finish("a")
    cluster.cycles()
    cluster.submit("equal", "q", 3)
    cluster.cycles()
    assert cluster.state.queries.is_bypassed(key("equal"))


def test_lane_that_may_preempt_is_evaluated_at_any_return_of_quota() -> None:
    cluster = _cluster_with_full_queue(preemption=RECLAIM)
    cluster.submit("large", "q", 3)
    cluster.run()
    cycle = cluster.state.to_dict()["cycle"]
    cluster.finish("a")
    cluster.run()
    assert cluster.state.to_dict()["cycle"] == cycle + 1


def test_lane_that_may_shrink_is_evaluated_at_any_return_of_quota() -> None:
    cluster = _cluster_with_full_queue()
    cluster.submit("large", "q", pod_sets=(PodSet("main", 3, template_requesting({"cpu": 1}), min_count=2),))
    cluster.run()
    cluster.finish("a")
    cluster.run()
    cluster.finish("b")
    cluster.run("large")


def test_lane_of_namespace_no_longer_selected_is_evaluated_after_refresh() -> None:
    blue = SelectorRequirement("team", SelectorOperator.IN, ("blue",))
    cluster = SmallCluster()
    cluster.send(happened.NamespaceChanged("n", (("team", "blue"),)))
    cluster.put(queue("q", 4, namespace_selector=LabelSelector((blue,))))
    for name in "abcd":
        cluster.submit(name, "q")
    cluster.run("a", "b", "c", "d")
    cluster.submit("large", "q", 3)
    cluster.run()
    cluster.send(happened.NamespaceChanged("n", ()))
    cluster.run()
    cluster.finish("a")
    cluster.run()
    assert cluster.state.next_wakeup(cluster.now) == cluster.now, "the refresh made the lane ready"
    cluster.run()
    assert cluster.state.queries.last_refusal(key("large")) == NamespaceMismatch()
    assert cluster.is_quiet


def test_lane_with_several_podsets_is_evaluated_at_any_return_of_quota() -> None:
    cluster = SmallCluster()
    cluster.put_flavors("small", "big")
    cluster.put(queue("q", resource_groups=group(("small", 1), ("big", 4))))
    cluster.submit("a", "q", 4)
    cluster.submit("b", "q", 1)
    cluster.run("a", "b")
    pods = tuple(PodSet(name, 1, template_requesting({"cpu": 2})) for name in ("one", "two"))
    cluster.submit("two-sets", "q", pod_sets=pods)
    cluster.submit("single", "q", 3)
    cluster.run()
    cycle = cluster.state.to_dict()["cycle"]
    cluster.finish("b")
    cluster.cycles()
    assert cluster.state.to_dict()["cycle"] > cycle, "several podsets have no certain needs"
    cluster.finish("a")
    cluster.run("two-sets")


def test_restart_leaves_parked_lanes_parked() -> None:
    cluster = _cluster_with_full_queue()
    cluster.submit("large", "q", 3)
    cluster.submit(
        "two-sets",
        "q",
        pod_sets=tuple(PodSet(name, 1, template_requesting({"cpu": 1})) for name in ("x", "y")),
    )
    cluster.run()
    for _ in range(2):
        dumped = cluster.state.to_dict()
        twin = AdmissionState.from_dict(dumped)
        twin.validate()
        assert twin.to_dict() == dumped
        cluster.finish("a")
        twin.handle(happened.WorkloadChanged(cluster.workloads["a"]), now=cluster.now)
        assert twin.handle(CyclesRequested(), now=cluster.now) == cluster.cycles()
        assert twin.to_dict() == cluster.state.to_dict()


def test_restart_before_the_refresh_keeps_the_refresh() -> None:
    cluster = _cluster_with_full_queue()
    cluster.submit("large", "q", 3)
    cluster.run()
    cluster.finish("a")
    cluster.restart()
    assert cluster.state.next_wakeup(cluster.now) == cluster.now
    instructions = cluster.cycles()
    assert [each.key for each in instructions if isinstance(each, ReportPending)] == [key("large")]
    assert _missing(cluster, "large") == 2


def test_lane_that_moves_to_another_tree_is_evaluated_there() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2, "left"), queue("other", 2, "right"))
    cluster.submit("a", "q", 2)
    cluster.submit("b", "other", 2)
    cluster.run("a", "b")
    cluster.submit("large", "q", 3)
    cluster.run()
    cluster.send(happened.ClusterQueueChanged(queue("q", 2, "right")))
    cluster.run()
    cluster.finish("b")
    cluster.run()
    cluster.finish("a")
    cluster.run("large")


def _cluster_with_lanes(count: int) -> SmallCluster:
    """Return a full queue with lanes that need different amounts, all more than workload ``a`` holds."""
    cluster = SmallCluster()
    cluster.put(queue("q", 200))
    cluster.submit("a", "q", 1)
    cluster.submit("b", "q", 1)
    cluster.submit("c", "q", 198)
    cluster.run("a", "b", "c")
    for number in range(count):
        cluster.submit(f"w{number:02}", "q", 100 + number)
    cluster.run()
    return cluster


def _count_reports(instructions: list[Instruction]) -> int:
    return sum(isinstance(each, ReportPending) for each in instructions)


def test_refusals_are_refreshed_in_portions_of_8_per_call() -> None:
    cluster = _cluster_with_lanes(20)
    cluster.finish("a")
    for expected in (8, 8, 4):
        assert cluster.state.next_wakeup(cluster.now) == cluster.now
        assert _count_reports(cluster.cycles()) == expected
    assert cluster.is_quiet
    assert {_missing(cluster, f"w{number:02}") - number for number in range(20)} == {99}


def test_refusals_that_become_outdated_again_are_refreshed_again_after_the_others() -> None:
    cluster = _cluster_with_lanes(12)
    cluster.finish("a")
    assert _count_reports(cluster.cycles()) == 8
    cluster.finish("b")
    while not cluster.is_quiet:
        assert _count_reports(cluster.cycles()) <= 8
    assert {_missing(cluster, f"w{number:02}") - number for number in range(12)} == {98}


def test_refusals_are_refreshed_all_at_once_on_request() -> None:
    cluster = _cluster_with_lanes(20)
    cluster.finish("a")
    assert _count_reports(cluster.cycles()) == 8
    assert _count_reports(cluster.state.refresh_refusals()) == 12
    assert cluster.is_quiet
    assert cluster.state.refresh_refusals() == []


def test_refusals_left_to_refresh_are_refreshed_after_a_restart() -> None:
    cluster = _cluster_with_lanes(12)
    cluster.finish("a")
    assert _count_reports(cluster.cycles()) == 8
    cluster.restart()
    assert cluster.state.next_wakeup(cluster.now) == cluster.now
    cluster.cycles()
    cluster.cycles()
    assert cluster.is_quiet
    assert {_missing(cluster, f"w{number:02}") - number for number in range(12)} == {99}


@pytest.mark.parametrize("restarts", [False, True])
def test_edited_tree_has_no_outdated_refusals(restarts: bool) -> None:
    cluster = _cluster_with_full_queue()
    cluster.submit("large", "q", 3)
    cluster.run()
    cluster.finish("a")
    if restarts:
        cluster.restart()
    waiting = cluster.state._world.waiting  # pyright: ignore[reportPrivateUsage]
    assert waiting.has_outdated_refusals
    cluster.send(happened.ClusterQueueChanged(queue("q", 5)))
    assert not waiting.has_outdated_refusals, "all lanes are evaluated"


def test_lanes_deleted_or_changed_before_their_refresh_are_not_refreshed() -> None:
    cluster = _cluster_with_lanes(12)
    cluster.finish("a")
    assert _count_reports(cluster.cycles()) == 8
    for number in range(2):
        cluster.delete(f"w{number:02}")
    cluster.change("w03", priority=-1)
    cluster.cycles()
    assert cluster.is_quiet
    assert {_missing(cluster, f"w{number:02}") - number for number in range(2, 12)} == {99}


def test_lanes_of_a_deleted_cluster_queue_are_not_refreshed() -> None:
    cluster = _cluster_with_lanes(12)
    cluster.finish("a")
    assert _count_reports(cluster.cycles()) == 8
    cluster.send(happened.ClusterQueueDeleted("q"))
    assert cluster.cycles() == []
    assert cluster.is_quiet


def test_lane_with_met_need_is_not_refreshed_while_cycles_are_limited() -> None:
    cluster = _cluster_with_full_queue()
    cluster.submit("two", "q", 2)
    cluster.submit("one", "q", 1, priority=-1)
    cluster.run()
    before = cluster.refusal("one")
    cluster.finish("a", "b", "c")
    assert cluster.decide(limit=1) == ["two"]
    assert cluster.refusal("one") == before
    cluster.run("one")


def test_refusals_are_not_refreshed_while_admission_is_halted() -> None:
    cluster = SmallCluster(CoreSettings(block_admission=True))
    cluster.put(queue("q", 4), queue("other", 1))
    cluster.submit("large", "q", 3)
    cluster.run("large")
    cluster.change("large", pods_ready=True)
    cluster.submit("huge", "q", 4)
    cluster.submit("one", "q", 1)
    cluster.run("one")
    cluster.submit("two", "other", 1)
    cluster.run()
    cluster.finish("large")
    assert cluster.is_quiet
    assert cluster.state.refresh_refusals() == []
    assert _missing(cluster, "huge") == 3
    cluster.change("one", pods_ready=True)
    assert cluster.decide() == ["two"]
    cluster.cycles()
    assert _missing(cluster, "huge") == 1
