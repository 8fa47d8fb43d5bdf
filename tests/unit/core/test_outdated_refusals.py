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
from tests.unit.core.play import RECLAIM, Play, group, key, queue


def _missing(play: Play, name: str) -> int:
    """Return the amount that the workload lacks, as the refusal of its lane says."""
    refusal = play.state.queries.last_refusal(key(name))
    shortfall = refusal.refused if isinstance(refusal, NoPreemptionTargets) else refusal
    assert isinstance(shortfall, NoFlavorFits)
    (short,) = shortfall.parts[0].refusals
    assert isinstance(short, InsufficientQuota)
    return short.missing


def _play_with_full_queue(*, statuses: bool = True, **fields: Any) -> Play:
    """Return a cluster with a ClusterQueue of 4 CPUs that four workloads fill."""
    play = Play(statuses=statuses)
    play.put(queue("q", 4, **fields))
    for name in "abcd":
        play.submit(name, "q")
    play.run("a", "b", "c", "d")
    return play


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_refusal_is_refreshed_when_returned_quota_does_not_suffice(strategy: QueueingStrategy) -> None:
    play = _play_with_full_queue(queueing_strategy=strategy)
    play.submit("large", "q", 3)
    play.run()
    assert _missing(play, "large") == 3
    cycle = play.state.to_dict()["cycle"]
    play.finish("a")
    assert play.state.next_wakeup(play.now) == play.now
    instructions = play.cycles()
    assert [each.key for each in instructions if isinstance(each, ReportPending)] == [key("large")]
    assert _missing(play, "large") == 2
    assert play.state.to_dict()["cycle"] == cycle, "no cycle was needed"
    assert play.state.next_wakeup(play.now) is None
    play.finish("b", "c")
    play.run("large")


def test_refusal_is_refreshed_only_on_request_when_no_statuses_are_written() -> None:
    play = _play_with_full_queue(statuses=False)
    play.submit("large", "q", 3)
    assert play.cycles() == []
    play.finish("a")
    assert play.instructions == []
    assert play.is_quiet, "no cycle is needed only for a refresh"
    assert _missing(play, "large") == 3
    assert play.state.refresh_refusals() == []
    play.state.validate()
    assert _missing(play, "large") == 2
    play.finish("b", "c")
    assert [type(each) for each in play.cycles()] == [ReserveQuota]


def test_refusals_are_refreshed_on_request() -> None:
    play = _play_with_full_queue()
    play.submit("large", "q", 3)
    play.cycles()
    play.finish("a")
    (report,) = play.state.refresh_refusals()
    assert isinstance(report, ReportPending)
    assert _missing(play, "large") == 2
    assert play.is_quiet


def test_workload_that_enters_a_refreshed_lane_is_bypassed() -> None:
    play = _play_with_full_queue()
    play.submit("large", "q", 3)
    play.run()
    play.finish("a")
    play.cycles()
    play.submit("equal", "q", 3)
    play.cycles()
    assert play.state.queries.is_bypassed(key("equal"))


def test_lane_that_may_preempt_is_evaluated_at_any_return_of_quota() -> None:
    play = _play_with_full_queue(preemption=RECLAIM)
    play.submit("large", "q", 3)
    play.run()
    cycle = play.state.to_dict()["cycle"]
    play.finish("a")
    play.run()
    assert play.state.to_dict()["cycle"] == cycle + 1


def test_lane_that_may_shrink_is_evaluated_at_any_return_of_quota() -> None:
    play = _play_with_full_queue()
    play.submit("large", "q", pod_sets=(PodSet("main", 3, template_requesting({"cpu": 1}), min_count=2),))
    play.run()
    play.finish("a")
    play.run()
    play.finish("b")
    play.run("large")


def test_lane_of_namespace_no_longer_selected_is_evaluated_after_refresh() -> None:
    blue = SelectorRequirement("team", SelectorOperator.IN, ("blue",))
    play = Play()
    play.send(happened.NamespaceChanged("n", (("team", "blue"),)))
    play.put(queue("q", 4, namespace_selector=LabelSelector((blue,))))
    for name in "abcd":
        play.submit(name, "q")
    play.run("a", "b", "c", "d")
    play.submit("large", "q", 3)
    play.run()
    play.send(happened.NamespaceChanged("n", ()))
    play.run()
    play.finish("a")
    play.run()
    assert play.state.next_wakeup(play.now) == play.now, "the refresh made the lane ready"
    play.run()
    assert play.state.queries.last_refusal(key("large")) == NamespaceMismatch()
    assert play.is_quiet


def test_lane_with_several_podsets_is_evaluated_at_any_return_of_quota() -> None:
    play = Play()
    play.put_flavors("small", "big")
    play.put(queue("q", resource_groups=group(("small", 1), ("big", 4))))
    play.submit("a", "q", 4)
    play.submit("b", "q", 1)
    play.run("a", "b")
    pods = tuple(PodSet(name, 1, template_requesting({"cpu": 2})) for name in ("one", "two"))
    play.submit("two-sets", "q", pod_sets=pods)
    play.submit("single", "q", 3)
    play.run()
    cycle = play.state.to_dict()["cycle"]
    play.finish("b")
    play.cycles()
    assert play.state.to_dict()["cycle"] > cycle, "several podsets have no certain needs"
    play.finish("a")
    play.run("two-sets")


def test_restart_leaves_parked_lanes_parked() -> None:
    play = _play_with_full_queue()
    play.submit("large", "q", 3)
    play.submit(
        "two-sets",
        "q",
        pod_sets=tuple(PodSet(name, 1, template_requesting({"cpu": 1})) for name in ("x", "y")),
    )
    play.run()
    for _ in range(2):
        dumped = play.state.to_dict()
        twin = AdmissionState.from_dict(dumped)
        twin.validate()
        assert twin.to_dict() == dumped
        play.finish("a")
        twin.handle(happened.WorkloadChanged(play.workloads["a"]), now=play.now)
        assert twin.handle(CyclesRequested(), now=play.now) == play.cycles()
        assert twin.to_dict() == play.state.to_dict()


def test_restart_before_the_refresh_keeps_the_refresh() -> None:
    play = _play_with_full_queue()
    play.submit("large", "q", 3)
    play.run()
    play.finish("a")
    play.restart()
    assert play.state.next_wakeup(play.now) == play.now
    instructions = play.cycles()
    assert [each.key for each in instructions if isinstance(each, ReportPending)] == [key("large")]
    assert _missing(play, "large") == 2


def test_lane_that_moves_to_another_tree_is_evaluated_there() -> None:
    play = Play()
    play.put(queue("q", 2, "left"), queue("other", 2, "right"))
    play.submit("a", "q", 2)
    play.submit("b", "other", 2)
    play.run("a", "b")
    play.submit("large", "q", 3)
    play.run()
    play.send(happened.ClusterQueueChanged(queue("q", 2, "right")))
    play.run()
    play.finish("b")
    play.run()
    play.finish("a")
    play.run("large")


def _play_with_lanes(count: int) -> Play:
    """Return a full queue with lanes that need different amounts, all more than workload ``a`` holds."""
    play = Play()
    play.put(queue("q", 200))
    play.submit("a", "q", 1)
    play.submit("b", "q", 1)
    play.submit("c", "q", 198)
    play.run("a", "b", "c")
    for number in range(count):
        play.submit(f"w{number:02}", "q", 100 + number)
    play.run()
    return play


def _count_reports(instructions: list[Instruction]) -> int:
    return sum(isinstance(each, ReportPending) for each in instructions)


def test_refusals_are_refreshed_in_portions_of_8_per_call() -> None:
    play = _play_with_lanes(20)
    play.finish("a")
    for expected in (8, 8, 4):
        assert play.state.next_wakeup(play.now) == play.now
        assert _count_reports(play.cycles()) == expected
    assert play.is_quiet
    assert {_missing(play, f"w{number:02}") - number for number in range(20)} == {99}


def test_refusals_that_become_outdated_again_are_refreshed_again_after_the_others() -> None:
    play = _play_with_lanes(12)
    play.finish("a")
    assert _count_reports(play.cycles()) == 8
    play.finish("b")
    while not play.is_quiet:
        assert _count_reports(play.cycles()) <= 8
    assert {_missing(play, f"w{number:02}") - number for number in range(12)} == {98}


def test_refusals_are_refreshed_all_at_once_on_request() -> None:
    play = _play_with_lanes(20)
    play.finish("a")
    assert _count_reports(play.cycles()) == 8
    assert _count_reports(play.state.refresh_refusals()) == 12
    assert play.is_quiet
    assert play.state.refresh_refusals() == []


def test_refusals_left_to_refresh_are_refreshed_after_a_restart() -> None:
    play = _play_with_lanes(12)
    play.finish("a")
    assert _count_reports(play.cycles()) == 8
    play.restart()
    assert play.state.next_wakeup(play.now) == play.now
    play.cycles()
    play.cycles()
    assert play.is_quiet
    assert {_missing(play, f"w{number:02}") - number for number in range(12)} == {99}


@pytest.mark.parametrize("restarts", [False, True])
def test_edited_tree_has_no_outdated_refusals(restarts: bool) -> None:
    play = _play_with_full_queue()
    play.submit("large", "q", 3)
    play.run()
    play.finish("a")
    if restarts:
        play.restart()
    waiting = play.state._world.waiting  # pyright: ignore[reportPrivateUsage]
    assert waiting.has_outdated_refusals
    play.send(happened.ClusterQueueChanged(queue("q", 5)))
    assert not waiting.has_outdated_refusals, "all lanes are evaluated"


def test_lanes_deleted_or_changed_before_their_refresh_are_not_refreshed() -> None:
    play = _play_with_lanes(12)
    play.finish("a")
    assert _count_reports(play.cycles()) == 8
    for number in range(2):
        play.delete(f"w{number:02}")
    play.change("w03", priority=-1)
    play.cycles()
    assert play.is_quiet
    assert {_missing(play, f"w{number:02}") - number for number in range(2, 12)} == {99}


def test_lanes_of_a_deleted_cluster_queue_are_not_refreshed() -> None:
    play = _play_with_lanes(12)
    play.finish("a")
    assert _count_reports(play.cycles()) == 8
    play.send(happened.ClusterQueueDeleted("q"))
    assert play.cycles() == []
    assert play.is_quiet


def test_lane_with_met_need_is_not_refreshed_while_cycles_are_limited() -> None:
    play = _play_with_full_queue()
    play.submit("two", "q", 2)
    play.submit("one", "q", 1, priority=-1)
    play.run()
    before = play.refusal("one")
    play.finish("a", "b", "c")
    assert play.decide(limit=1) == ["two"]
    assert play.refusal("one") == before
    play.run("one")


def test_refusals_are_not_refreshed_while_admission_is_halted() -> None:
    play = Play(CoreSettings(block_admission=True))
    play.put(queue("q", 4), queue("other", 1))
    play.submit("large", "q", 3)
    play.run("large")
    play.change("large", pods_ready=True)
    play.submit("huge", "q", 4)
    play.submit("one", "q", 1)
    play.run("one")
    play.submit("two", "other", 1)
    play.run()
    play.finish("large")
    assert play.is_quiet
    assert play.state.refresh_refusals() == []
    assert _missing(play, "huge") == 3
    play.change("one", pods_ready=True)
    assert play.decide() == ["two"]
    play.cycles()
    assert _missing(play, "huge") == 1
