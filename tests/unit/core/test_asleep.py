"""What is given back wakes nobody whom it does not let in; they are told what they lack now all the same."""

from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.events import CyclesRequested
from admitq.core.instructions import ReportPending, ReserveQuota
from admitq.core.model import LabelSelector, PodSet, QueueingStrategy, SelectorOperator, SelectorRequirement
from admitq.core.refusals import InsufficientQuota, NamespaceMismatch, NobodyToPreempt, NoFlavorFits
from admitq.core.requests import asking
from admitq.core.state import AdmissionState
from tests.unit.core.play import RECLAIM, Play, group, key, queue


def _missing(play: Play, name: str) -> int:
    """How much the workload lacks, by what it is parked for."""
    refusal = play.state.queries.parked_refusal(key(name))
    told = refusal.refused if isinstance(refusal, NobodyToPreempt) else refusal
    assert isinstance(told, NoFlavorFits)
    (short,) = told.parts[0].refusals
    assert isinstance(short, InsufficientQuota)
    return short.missing


def _full(*, statuses: bool = True, **fields: Any) -> Play:
    """A queue of 4 CPU that four workloads fill."""
    play = Play(statuses=statuses)
    play.put(queue("q", 4, **fields))
    for name in "abcd":
        play.submit(name, "q")
    play.run("a", "b", "c", "d")
    return play


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_who_is_not_let_in_is_told_what_is_missing_now(strategy: QueueingStrategy) -> None:
    play = _full(queueing_strategy=strategy)
    play.submit("large", "q", 3)
    play.run()
    assert _missing(play, "large") == 3
    cycle = play.state.to_dict()["cycle"]
    play.finish("a")
    assert play.state.next_wakeup(play.now) == play.now
    instructions = play.cycles()
    assert [each.key for each in instructions if isinstance(each, ReportPending)] == [key("large")]
    assert _missing(play, "large") == 2
    assert play.state.to_dict()["cycle"] == cycle, "nobody had to be tried"
    assert play.state.next_wakeup(play.now) is None
    play.finish("b", "c")
    play.run("large")


def test_without_statuses_nothing_is_told_but_decisions_until_it_is_asked_for() -> None:
    play = _full(statuses=False)
    play.submit("large", "q", 3)
    assert play.cycles() == []
    play.finish("a")
    assert play.told == []
    assert play.is_quiet, "no cycle is needed only to tell what is missing"
    assert _missing(play, "large") == 3
    assert play.state.tell_again() == []
    play.state.validate()
    assert _missing(play, "large") == 2
    play.finish("b", "c")
    assert [type(each) for each in play.cycles()] == [ReserveQuota]


def test_what_is_missing_is_told_when_it_is_asked_for() -> None:
    play = _full()
    play.submit("large", "q", 3)
    play.cycles()
    play.finish("a")
    (told,) = play.state.tell_again()
    assert isinstance(told, ReportPending)
    assert _missing(play, "large") == 2
    assert play.is_quiet


def test_an_equal_that_comes_later_is_as_little_tried_as_before() -> None:
    play = _full()
    play.submit("large", "q", 3)
    play.run()
    play.finish("a")
    play.cycles()
    play.submit("equal", "q", 3)
    play.cycles()
    assert play.state.queries.is_bypassed(key("equal"))


def test_who_may_preempt_is_woken_by_everything() -> None:
    play = _full(preemption=RECLAIM)
    play.submit("large", "q", 3)
    play.run()
    cycle = play.state.to_dict()["cycle"]
    play.finish("a")
    play.run()
    assert play.state.to_dict()["cycle"] == cycle + 1


def test_who_would_be_content_with_less_is_woken_by_everything() -> None:
    play = _full()
    play.submit("large", "q", pod_sets=(PodSet("main", 3, asking({"cpu": 1}), min_count=2),))
    play.run()
    play.finish("a")
    play.run()
    play.finish("b")
    play.run("large")


def test_whoever_is_not_selected_any_more_is_tried_at_the_next_release() -> None:
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
    assert play.state.queries.parked_refusal(key("large")) == NamespaceMismatch()


def test_groups_of_flavors_and_podsets_are_let_in_by_what_they_lack() -> None:
    play = Play()
    play.put_flavors("small", "big")
    play.put(queue("q", resource_groups=group(("small", 1), ("big", 4))))
    play.submit("a", "q", 4)
    play.submit("b", "q", 1)
    play.run("a", "b")
    pods = tuple(PodSet(name, 1, asking({"cpu": 2})) for name in ("one", "two"))
    play.submit("two-sets", "q", pod_sets=pods)
    play.submit("single", "q", 3)
    play.run()
    cycle = play.state.to_dict()["cycle"]
    play.finish("b")
    play.cycles()
    assert play.state.to_dict()["cycle"] > cycle, "of several podsets it cannot be told what they lack"
    play.finish("a")
    play.run("two-sets")


def test_a_restart_leaves_asleep_whom_it_finds_asleep() -> None:
    play = _full()
    play.submit("large", "q", 3)
    play.submit("two-sets", "q", pod_sets=tuple(PodSet(name, 1, asking({"cpu": 1})) for name in ("x", "y")))
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


def test_a_restart_before_they_are_told_tells_them_all_the_same() -> None:
    play = _full()
    play.submit("large", "q", 3)
    play.run()
    play.finish("a")
    play.restart()
    assert play.state.next_wakeup(play.now) == play.now
    instructions = play.cycles()
    assert [each.key for each in instructions if isinstance(each, ReportPending)] == [key("large")]
    assert _missing(play, "large") == 2


def test_who_moves_to_another_tree_is_woken_by_everything_there() -> None:
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
