"""A workload that replaces another, its original, takes over the quota of the original."""

from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.amounts import FlavorResource
from admitq.core.instructions import ReserveQuota
from admitq.core.model import SECOND, ClusterQueuePreemption, PodSet, PreemptionPolicy
from admitq.core.refusals import NoFlavorFits, OriginalHasOtherFlavor, QuotaTakenInCycle
from admitq.core.replacing import Replacements, usage_beyond
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, FairSharing
from tests.unit.core.play import LOWER, RECLAIM, Play, group, key, preempted, queue, reported

NEWER = ClusterQueuePreemption(within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)
CPU = FlavorResource("default", "cpu")


def pods(count: int, cpu: int = 1) -> tuple[PodSet, ...]:
    return (PodSet("main", count, template_requesting({"cpu": cpu})),)


def charged(play: Play, name: str) -> int:
    return sum(amount for _, amount in play.state.queries.usage_of_workload(key(name)))


def charged_cpu(play: Play) -> int:
    """Return the CPUs that are charged to all workloads."""
    return sum(charged(play, name) for name in play.workloads)


def play_with_original(cpu: int = 5, count: int = 2, **fields: Any) -> Play:
    """Return a ClusterQueue in which the original ``first`` runs with this number of pods."""
    play = Play()
    play.put(queue("q", cpu, **fields))
    play.submit("first", "q", pod_sets=pods(count))
    play.run("first")
    return play


def test_replacement_requests_only_what_exceeds_its_original() -> None:
    play = play_with_original(cpu=5, count=3)
    play.submit("second", "q", pod_sets=pods(5), replaces=key("first"))
    [reserve] = [each for each in play.cycles() if isinstance(each, ReserveQuota)]
    assert reserve.replaces == key("first")
    assert reserve.admission.pod_set_assignments[0].count == 5
    assert (charged(play, "first"), charged(play, "second")) == (3, 2)


def test_quota_moves_to_replacement_when_original_finishes() -> None:
    play = play_with_original(cpu=5, count=3)
    play.submit("second", "q", pod_sets=pods(5), replaces=key("first"))
    play.run("second")
    play.submit("other", "q", pod_sets=pods(1))
    assert play.decide() == []
    play.finish("first")
    assert (charged(play, "first"), charged(play, "second")) == (0, 5)
    assert play.decide() == []


def test_replacement_waits_for_missing_quota_only() -> None:
    play = play_with_original(cpu=5, count=3)
    play.submit("second", "q", pod_sets=pods(6), replaces=key("first"))
    assert play.decide() == []
    refusal = reported(play.instructions)["second"]
    assert isinstance(refusal, NoFlavorFits)
    play.send(happened.ClusterQueueChanged(queue("q", 6)))
    play.run("second")
    assert (charged(play, "first"), charged(play, "second")) == (3, 3)


def test_restart_between_two_writes_counts_no_quota_twice() -> None:
    play = play_with_original(cpu=5, count=3)
    play.submit("second", "q", pod_sets=pods(5), replaces=key("first"))
    play.cycles()
    play.restart()
    assert (charged(play, "first"), charged(play, "second")) == (3, 2)
    play.state.handle(happened.ReservationFailed(key("second"), "uid-second"), now=play.now)
    assert (charged(play, "first"), charged(play, "second")) == (3, 0)
    play.now += SECOND
    play.run("second")
    play.restart()
    assert (charged(play, "first"), charged(play, "second")) == (3, 2)


def test_waiting_replacement_still_waits_after_restart() -> None:
    play = play_with_original(cpu=5, count=3)
    play.submit("second", "q", pod_sets=pods(6), replaces=key("first"))
    play.decide()
    play.restart()
    assert play.is_quiet
    play.submit("other", "q", pod_sets=pods(2))
    play.run("other")


def test_replacement_is_refused_flavors_that_its_original_does_not_use() -> None:
    play = Play()
    play.put_flavors("spot", "spare")
    play.put(queue("q", resource_groups=group(("spot", 1), ("default", 4), ("spare", 9))))
    play.submit("first", "q", pod_sets=pods(3))
    play.run("first")
    play.submit("second", "q", pod_sets=pods(6), replaces=key("first"))
    assert play.decide() == []
    refusal = reported(play.instructions)["second"]
    assert isinstance(refusal, NoFlavorFits)
    refusals = refusal.parts[0].refusals
    assert OriginalHasOtherFlavor("spot", "default") in refusals
    assert OriginalHasOtherFlavor("spare", "default") in refusals
    play.delete("second")
    play.submit("fits", "q", pod_sets=pods(4), replaces=key("first"))
    play.run("fits")


def test_replacement_requests_full_quota_in_any_flavor_when_original_is_evicted() -> None:
    play = Play()
    play.put_flavors("spare")
    play.put(queue("q", resource_groups=group(("default", 4), ("spare", 9))))
    play.submit("first", "q", pod_sets=pods(3))
    play.run("first")
    play.submit("second", "q", pod_sets=pods(6), replaces=key("first"))
    assert play.decide() == []
    play.evict("first")
    play.run("second")
    assert (charged(play, "first"), charged(play, "second")) == (3, 6)


@pytest.mark.parametrize("end_original", ["delete", "finish", "leave"])
def test_replacement_requests_full_quota_when_original_holds_none(end_original: str) -> None:
    play = play_with_original(cpu=6, count=3)
    play.submit("second", "q", pod_sets=pods(6), replaces=key("first"), priority=1)
    play.submit("third", "q", pod_sets=pods(9), replaces=key("third"))
    play.submit("fourth", "q", pod_sets=pods(9), replaces=key("unknown"))
    getattr(play, end_original)("first")
    play.run("second")
    assert charged(play, "second") == 6


def test_original_is_not_preempted_for_its_replacement() -> None:
    play = play_with_original(cpu=5, count=3, preemption=LOWER)
    play.submit("low", "q", pod_sets=pods(2), priority=1)
    play.run("low")
    play.submit("second", "q", pod_sets=pods(5), priority=5, replaces=key("first"))
    play.decide()
    assert preempted(play.instructions) == ["low"]
    play.leave("low")
    play.run("second")


def test_nothing_is_preempted_when_only_the_original_is_a_candidate() -> None:
    play = play_with_original(cpu=5, count=3, preemption=LOWER)
    play.submit("second", "q", pod_sets=pods(6), priority=5, replaces=key("first"))
    assert play.decide() == []
    assert preempted(play.instructions) == []


def test_reclaimed_original_leaves_before_its_replacement_is_admitted() -> None:
    play = Play()
    play.put(queue("a", 4, "c", preemption=RECLAIM), queue("b", 4, "c"))
    play.submit("first", "b", pod_sets=pods(6))
    play.run("first")
    play.submit("owner", "a", pod_sets=pods(4))
    play.submit("second", "b", pod_sets=pods(7), replaces=key("first"))
    play.decide()
    assert preempted(play.instructions) == ["first"]
    assert "second" not in play.workloads or play.workloads["second"].admission is None
    play.leave("first")
    assert "owner" in play.decide()


def test_quota_of_original_is_subtracted_for_only_one_replacement() -> None:
    play = play_with_original(cpu=9, count=3)
    play.submit("second", "q", pod_sets=pods(5), replaces=key("first"))
    play.run("second")
    play.submit("third", "q", pod_sets=pods(4), replaces=key("first"))
    play.run("third")
    assert [charged(play, each) for each in ("first", "second", "third")] == [3, 2, 4]
    play.delete("second")
    assert [charged(play, each) for each in ("first", "third")] == [3, 1]


def test_quota_of_original_is_subtracted_once_for_two_replacements_in_one_cycle() -> None:
    play = Play()
    play.put(queue("q", 20))
    play.submit("first", "q", pod_sets=pods(3))
    play.run("first")
    play.submit("second", "q", pod_sets=pods(5), replaces=key("first"))
    play.submit("third", "q", pod_sets=pods(6), replaces=key("first"))
    play.run("second", "third")
    assert [charged(play, each) for each in ("first", "second", "third")] == [3, 2, 6]


def test_workloads_that_replace_each_other_are_both_charged_in_full() -> None:
    play = play_with_original(cpu=9, count=3)
    play.submit("second", "q", pod_sets=pods(3), replaces=key("first"))
    play.run("second")
    play.change("first", replaces=key("second"))
    assert charged_cpu(play) == 6
    play.change("first", replaces=None)
    assert charged_cpu(play) == 3
    play.change("second", replaces=key("unknown"))
    assert charged_cpu(play) == 6


def test_quota_of_original_in_another_queue_is_not_subtracted() -> None:
    play = play_with_original(cpu=3, count=3)
    play.put(queue("r", 5))
    play.submit("second", "r", pod_sets=pods(5), replaces=key("first"))
    play.run("second")
    assert (charged(play, "first"), charged(play, "second")) == (3, 5)


def test_usage_beyond_original_is_not_negative_for_any_resource() -> None:
    usage = ((CPU, 5), (FlavorResource("default", "gpu"), 1))
    assert usage_beyond(usage, ((CPU, 7),)) == ((FlavorResource("default", "gpu"), 1),)


def test_fair_sharing_orders_replacement_by_what_it_adds() -> None:
    play = Play(CoreSettings(fair_sharing=FairSharing()))
    play.put(queue("a", 4, "c"), queue("b", 4, "c"))
    play.submit("first", "a", pod_sets=pods(4))
    play.run("first")
    play.submit("other", "b", pod_sets=pods(7), queued_at=1)
    play.submit("second", "a", pod_sets=pods(6), replaces=key("first"))
    assert play.decide() == ["second"]
    assert isinstance(play.refusal("other"), NoFlavorFits | QuotaTakenInCycle)


def test_workload_without_replacements_has_empty_list() -> None:
    assert Replacements[Any]().of_original(key("first")) == ()
