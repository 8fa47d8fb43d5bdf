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
from tests.unit.core.small_cluster import LOWER, RECLAIM, SmallCluster, group, key, preempted, queue, reported

NEWER = ClusterQueuePreemption(within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)
CPU = FlavorResource("default", "cpu")


def pods(count: int, cpu: int = 1) -> tuple[PodSet, ...]:
    return (PodSet("main", count, template_requesting({"cpu": cpu})),)


def charged(cluster: SmallCluster, name: str) -> int:
    return sum(amount for _, amount in cluster.state.queries.usage_of_workload(key(name)))


def charged_cpu(cluster: SmallCluster) -> int:
    """Return the CPUs that are charged to all workloads."""
    return sum(charged(cluster, name) for name in cluster.workloads)


def cluster_with_original(cpu: int = 5, count: int = 2, **fields: Any) -> SmallCluster:
    """Return a ClusterQueue in which the original ``first`` runs with this number of pods."""
    cluster = SmallCluster()
    cluster.put(queue("q", cpu, **fields))
    cluster.submit("first", "q", pod_sets=pods(count))
    cluster.run("first")
    return cluster


def test_replacement_requests_only_what_exceeds_its_original() -> None:
    cluster = cluster_with_original(cpu=5, count=3)
    cluster.submit("second", "q", pod_sets=pods(5), replaces=key("first"))
    [reserve] = [each for each in cluster.cycles() if isinstance(each, ReserveQuota)]
    assert reserve.replaces == key("first")
    assert reserve.admission.pod_set_assignments[0].count == 5
    assert (charged(cluster, "first"), charged(cluster, "second")) == (3, 2)


def test_quota_moves_to_replacement_when_original_finishes() -> None:
    cluster = cluster_with_original(cpu=5, count=3)
    cluster.submit("second", "q", pod_sets=pods(5), replaces=key("first"))
    cluster.run("second")
    cluster.submit("other", "q", pod_sets=pods(1))
    assert cluster.decide() == []
    cluster.finish("first")
    assert (charged(cluster, "first"), charged(cluster, "second")) == (0, 5)
    assert cluster.decide() == []


def test_replacement_waits_for_missing_quota_only() -> None:
    cluster = cluster_with_original(cpu=5, count=3)
    cluster.submit("second", "q", pod_sets=pods(6), replaces=key("first"))
    assert cluster.decide() == []
    refusal = reported(cluster.instructions)["second"]
    assert isinstance(refusal, NoFlavorFits)
    cluster.send(happened.ClusterQueueChanged(queue("q", 6)))
    cluster.run("second")
    assert (charged(cluster, "first"), charged(cluster, "second")) == (3, 3)


def test_restart_between_two_writes_counts_no_quota_twice() -> None:
    cluster = cluster_with_original(cpu=5, count=3)
    cluster.submit("second", "q", pod_sets=pods(5), replaces=key("first"))
    cluster.cycles()
    cluster.restart()
    assert (charged(cluster, "first"), charged(cluster, "second")) == (3, 2)
    cluster.state.handle(happened.ReservationFailed(key("second"), "uid-second"), now=cluster.now)
    assert (charged(cluster, "first"), charged(cluster, "second")) == (3, 0)
    cluster.now += SECOND
    cluster.run("second")
    cluster.restart()
    assert (charged(cluster, "first"), charged(cluster, "second")) == (3, 2)


def test_waiting_replacement_still_waits_after_restart() -> None:
    cluster = cluster_with_original(cpu=5, count=3)
    cluster.submit("second", "q", pod_sets=pods(6), replaces=key("first"))
    cluster.decide()
    cluster.restart()
    assert cluster.is_quiet
    cluster.submit("other", "q", pod_sets=pods(2))
    cluster.run("other")


def test_replacement_is_refused_flavors_that_its_original_does_not_use() -> None:
    cluster = SmallCluster()
    cluster.put_flavors("spot", "spare")
    cluster.put(queue("q", resource_groups=group(("spot", 1), ("default", 4), ("spare", 9))))
    cluster.submit("first", "q", pod_sets=pods(3))
    cluster.run("first")
    cluster.submit("second", "q", pod_sets=pods(6), replaces=key("first"))
    assert cluster.decide() == []
    refusal = reported(cluster.instructions)["second"]
    assert isinstance(refusal, NoFlavorFits)
    refusals = refusal.parts[0].refusals
    assert OriginalHasOtherFlavor("spot", "default") in refusals
    assert OriginalHasOtherFlavor("spare", "default") in refusals
    cluster.delete("second")
    cluster.submit("fits", "q", pod_sets=pods(4), replaces=key("first"))
    cluster.run("fits")


def test_replacement_requests_full_quota_in_any_flavor_when_original_is_evicted() -> None:
    cluster = SmallCluster()
    cluster.put_flavors("spare")
    cluster.put(queue("q", resource_groups=group(("default", 4), ("spare", 9))))
    cluster.submit("first", "q", pod_sets=pods(3))
    cluster.run("first")
    cluster.submit("second", "q", pod_sets=pods(6), replaces=key("first"))
    assert cluster.decide() == []
    cluster.evict("first")
    cluster.run("second")
    assert (charged(cluster, "first"), charged(cluster, "second")) == (3, 6)


@pytest.mark.parametrize("end_original", ["delete", "finish", "leave"])
def test_replacement_requests_full_quota_when_original_holds_none(end_original: str) -> None:
    cluster = cluster_with_original(cpu=6, count=3)
    cluster.submit("second", "q", pod_sets=pods(6), replaces=key("first"), priority=1)
    cluster.submit("third", "q", pod_sets=pods(9), replaces=key("third"))
    cluster.submit("fourth", "q", pod_sets=pods(9), replaces=key("unknown"))
    getattr(cluster, end_original)("first")
    cluster.run("second")
    assert charged(cluster, "second") == 6


def test_original_is_not_preempted_for_its_replacement() -> None:
    cluster = cluster_with_original(cpu=5, count=3, preemption=LOWER)
    cluster.submit("low", "q", pod_sets=pods(2), priority=1)
    cluster.run("low")
    cluster.submit("second", "q", pod_sets=pods(5), priority=5, replaces=key("first"))
    cluster.decide()
    assert preempted(cluster.instructions) == ["low"]
    cluster.leave("low")
    cluster.run("second")


def test_nothing_is_preempted_when_only_the_original_is_a_candidate() -> None:
    cluster = cluster_with_original(cpu=5, count=3, preemption=LOWER)
    cluster.submit("second", "q", pod_sets=pods(6), priority=5, replaces=key("first"))
    assert cluster.decide() == []
    assert preempted(cluster.instructions) == []


def test_reclaimed_original_leaves_before_its_replacement_is_admitted() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 4, "c", preemption=RECLAIM), queue("b", 4, "c"))
    cluster.submit("first", "b", pod_sets=pods(6))
    cluster.run("first")
    cluster.submit("owner", "a", pod_sets=pods(4))
    cluster.submit("second", "b", pod_sets=pods(7), replaces=key("first"))
    cluster.decide()
    assert preempted(cluster.instructions) == ["first"]
    assert "second" not in cluster.workloads or cluster.workloads["second"].admission is None
    cluster.leave("first")
    assert "owner" in cluster.decide()


def test_quota_of_original_is_subtracted_for_only_one_replacement() -> None:
    cluster = cluster_with_original(cpu=9, count=3)
    cluster.submit("second", "q", pod_sets=pods(5), replaces=key("first"))
    cluster.run("second")
    cluster.submit("third", "q", pod_sets=pods(4), replaces=key("first"))
    cluster.run("third")
    assert [charged(cluster, each) for each in ("first", "second", "third")] == [3, 2, 4]
    cluster.delete("second")
    assert [charged(cluster, each) for each in ("first", "third")] == [3, 1]


def test_quota_of_original_is_subtracted_once_for_two_replacements_in_one_cycle() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 20))
    cluster.submit("first", "q", pod_sets=pods(3))
    cluster.run("first")
    cluster.submit("second", "q", pod_sets=pods(5), replaces=key("first"))
    cluster.submit("third", "q", pod_sets=pods(6), replaces=key("first"))
    cluster.run("second", "third")
    assert [charged(cluster, each) for each in ("first", "second", "third")] == [3, 2, 6]


def test_workloads_that_replace_each_other_are_both_charged_in_full() -> None:
    cluster = cluster_with_original(cpu=9, count=3)
    cluster.submit("second", "q", pod_sets=pods(3), replaces=key("first"))
    cluster.run("second")
    cluster.change("first", replaces=key("second"))
    assert charged_cpu(cluster) == 6
    cluster.change("first", replaces=None)
    assert charged_cpu(cluster) == 3
    cluster.change("second", replaces=key("unknown"))
    assert charged_cpu(cluster) == 6


def test_quota_of_original_in_another_queue_is_not_subtracted() -> None:
    cluster = cluster_with_original(cpu=3, count=3)
    cluster.put(queue("r", 5))
    cluster.submit("second", "r", pod_sets=pods(5), replaces=key("first"))
    cluster.run("second")
    assert (charged(cluster, "first"), charged(cluster, "second")) == (3, 5)


def test_usage_beyond_original_is_not_negative_for_any_resource() -> None:
    usage = ((CPU, 5), (FlavorResource("default", "gpu"), 1))
    assert usage_beyond(usage, ((CPU, 7),)) == ((FlavorResource("default", "gpu"), 1),)


def test_fair_sharing_orders_replacement_by_what_it_adds() -> None:
    cluster = SmallCluster(CoreSettings(fair_sharing=FairSharing()))
    cluster.put(queue("a", 4, "c"), queue("b", 4, "c"))
    cluster.submit("first", "a", pod_sets=pods(4))
    cluster.run("first")
    cluster.submit("other", "b", pod_sets=pods(7), queued_at=1)
    cluster.submit("second", "a", pod_sets=pods(6), replaces=key("first"))
    assert cluster.decide() == ["second"]
    assert isinstance(cluster.refusal("other"), NoFlavorFits | QuotaTakenInCycle)


def test_workload_without_replacements_has_empty_list() -> None:
    assert Replacements[Any]().of_original(key("first")) == ()
