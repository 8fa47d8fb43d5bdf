"""Which blocking heads a cycle evaluates in addition to the heads that requested it."""

from collections.abc import Iterable
from typing import Any

import pytest

from admitq.core.events import ClusterQueueDeleted
from admitq.core.model import CheckState, PodSet, QueueingStrategy
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, FairSharing
from admitq.core.waiting.heads import Pause
from tests.unit.core.evaluated import Evaluated
from tests.unit.core.small_cluster import LOWER, RECLAIM, SmallCluster, group, preempted, queue

STRICT = QueueingStrategy.STRICT_FIFO
SPOT = group(("spot", 4))


def _cluster_with_waiting_preemptor(settings: CoreSettings | None = None, **owner: Any) -> SmallCluster:
    """Return a cohort in which ``owner`` waits for ``borrower`` to leave, with further ClusterQueues."""
    cluster = SmallCluster(settings or CoreSettings())
    cluster.put_flavors("spot")
    owner.setdefault("resource_groups", group(("default", 4)))
    cluster.put(
        queue("a", cohort="org", preemption=RECLAIM, **owner),
        queue("b", 0, "org"),
        queue("eager", 0, "org", preemption=RECLAIM),
        queue("other", 1, "org"),
        queue("spot", cohort="org", resource_groups=SPOT),
        queue("both", cohort="org", resource_groups=group(("default", 0), ("spot", 0))),
    )
    cluster.submit("borrower", "b", 4)
    cluster.run("borrower")
    cluster.submit("owner", "a", 4)
    assert cluster.decide() == []
    assert cluster.is_quiet
    return cluster


@pytest.mark.parametrize(
    ("newcomer", "cluster_queue", "cpu", "evaluated"),
    [
        ("refused", "other", 40, []),
        ("held-back", "other", 1, []),
        ("without-targets", "eager", 2, []),
        ("in-other-flavor", "spot", 2, []),
        ("in-same-flavor", "other", 1, ["owner"]),
    ],
)
def test_blocking_head_is_evaluated_only_with_heads_that_concern_it(
    newcomer: str, cluster_queue: str, cpu: int, evaluated: Iterable[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = _cluster_with_waiting_preemptor()
    fields: dict[str, Any] = (
        {"admission_checks": (("check", CheckState.REJECTED),)} if newcomer == "held-back" else {}
    )
    evaluations = Evaluated(monkeypatch)
    cluster.submit(newcomer, cluster_queue, cpu, **fields)
    cluster.cycles(limit=1)
    assert evaluations.take() == sorted({newcomer, *evaluated})


def test_blocking_head_is_evaluated_with_a_head_that_reserves_capacity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = _cluster_with_waiting_preemptor()
    cluster.submit("filler", "b", 1)
    cluster.run("filler")
    assert cluster.is_quiet
    evaluations = Evaluated(monkeypatch)
    cluster.submit("within-nominal", "other", 1)
    cluster.cycles(limit=1)
    assert evaluations.take() == ["owner", "within-nominal"]


def test_strict_blocking_head_is_evaluated_in_every_cycle_of_its_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = _cluster_with_waiting_preemptor(queueing_strategy=STRICT)
    evaluations = Evaluated(monkeypatch)
    cluster.submit("newcomer", "spot", 2)
    cluster.cycles(limit=1)
    assert evaluations.take() == ["newcomer", "owner"]


@pytest.mark.parametrize(("cpu", "evaluated"), [(2, ["newcomer", "owner"]), (40, ["newcomer"])])
def test_with_fair_sharing_blocking_head_is_evaluated_with_any_head_that_fits(
    cpu: int, evaluated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = _cluster_with_waiting_preemptor(CoreSettings(fair_sharing=FairSharing()))
    evaluations = Evaluated(monkeypatch)
    cluster.submit("newcomer", "spot", cpu)
    cluster.cycles(limit=1)
    assert evaluations.take() == evaluated


def test_with_fair_sharing_strict_blocking_head_is_evaluated_in_every_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = _cluster_with_waiting_preemptor(
        CoreSettings(fair_sharing=FairSharing()), queueing_strategy=STRICT
    )
    evaluations = Evaluated(monkeypatch)
    cluster.submit("newcomer", "spot", 40)
    cluster.cycles(limit=1)
    assert evaluations.take() == ["newcomer", "owner"]


def test_blocking_head_is_evaluated_when_another_blocking_head_of_cycle_concerns_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = SmallCluster()
    cluster.put_flavors("spot")
    cluster.put(
        queue("a", cohort="org", preemption=RECLAIM, resource_groups=SPOT),
        queue("b", cohort="org", preemption=RECLAIM, resource_groups=group(("spot", 0), ("default", 4))),
        queue("c", cohort="org", resource_groups=group(("spot", 0))),
        queue("d", cohort="org", resource_groups=group(("default", 0))),
        queue("e", 1, "org"),
    )
    cluster.submit("c-borrows", "c", 4)
    cluster.submit("d-borrows", "d", 5)
    cluster.run("c-borrows", "d-borrows")
    cluster.submit("a-waits", "a", 4)
    cluster.submit("b-waits", "b", 4)
    cluster.decide()
    assert cluster.is_quiet
    evaluations = Evaluated(monkeypatch)
    cluster.put(queue("f", 1, "other"))
    cluster.submit("elsewhere", "f")
    cluster.run("elsewhere")
    assert evaluations.take() == ["elsewhere"]
    cluster.submit("newcomer", "e", pod_sets=(PodSet("main", 1, template_requesting({"cpu": 1})),))
    cluster.cycles(limit=1)
    assert evaluations.take() == ["a-waits", "b-waits", "newcomer"]


def test_blocking_head_is_not_evaluated_with_a_preemptor_of_other_flavors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = _cluster_with_waiting_preemptor()
    cluster.put(queue("late", cohort="org", preemption=RECLAIM, resource_groups=SPOT))
    cluster.submit("spot-borrower", "both", 8)
    cluster.run("spot-borrower")
    evaluations = Evaluated(monkeypatch)
    cluster.submit("spot-owner", "late", 4)
    assert preempted(cluster.cycles(limit=1)) == ["spot-borrower"]
    assert evaluations.take() == ["spot-owner"]


@pytest.mark.parametrize(("borrows", "evaluated"), [(1, ["high", "owner"]), (0, [])])
def test_blocking_head_is_evaluated_again_after_preemption_in_borrowing_cluster_queue(
    borrows: int, evaluated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = _cluster_with_waiting_preemptor()
    cluster.put(queue("urgent", 2, "org", preemption=LOWER))
    cluster.submit("low", "urgent", 2 + borrows)
    cluster.run("low")
    cluster.submit("high", "urgent", 2, priority=9)
    assert preempted(cluster.cycles(limit=1)) == ["low"]
    evaluations = Evaluated(monkeypatch)
    cluster.cycles(limit=1)
    assert evaluations.take() == evaluated
    assert cluster.is_quiet


@pytest.mark.parametrize(("fair_sharing", "evaluated"), [(None, []), (FairSharing(), ["high"])])
def test_preemptor_is_evaluated_again_after_its_own_preemption_only_with_fair_sharing(
    fair_sharing: FairSharing | None, evaluated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SmallCluster(CoreSettings(fair_sharing=fair_sharing))
    cluster.put(queue("urgent", 4, "org", preemption=LOWER), queue("lends", 1, "org"))
    cluster.submit("low", "urgent", 5)
    cluster.run("low")
    cluster.submit("high", "urgent", 4, priority=9)
    assert preempted(cluster.cycles(limit=1)) == ["low"]
    evaluations = Evaluated(monkeypatch)
    cluster.cycles()
    assert evaluations.take() == evaluated
    assert cluster.is_quiet


def test_blocking_head_is_evaluated_again_after_preemption_by_blocking_head_of_other_flavors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = _cluster_with_waiting_preemptor()
    cluster.put(
        queue("late", cohort="org", preemption=RECLAIM, resource_groups=SPOT),
        queue("urgent", cohort="org", preemption=RECLAIM, resource_groups=SPOT),
    )
    one = template_requesting({"cpu": 1})
    cluster.submit("spot-filler", "spot", 4)
    cluster.submit("spot-borrower", "both", 4)
    cluster.run("spot-filler", "spot-borrower")
    cluster.submit(
        "of-both", "both", priority=1, pod_sets=(PodSet("main", 1, one), PodSet("workers", 1, one))
    )
    cluster.run("of-both")
    cluster.submit("late-owner", "late", 4)
    assert preempted(cluster.cycles()) == ["spot-borrower"]
    evaluations = Evaluated(monkeypatch)
    cluster.submit("urgent-owner", "urgent", 4, priority=9)
    assert preempted(cluster.cycles(limit=1)) == ["of-both"]
    assert evaluations.take() == ["late-owner", "urgent-owner"]
    cluster.cycles(limit=1)
    assert evaluations.take() == ["late-owner", "owner", "urgent-owner"]
    assert cluster.is_quiet


def test_blocking_head_is_evaluated_again_after_an_eviction_in_its_flavor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = _cluster_with_waiting_preemptor()
    cluster.submit("in-other-flavor", "spot", 2)
    cluster.submit("in-same-flavor", "other", 1)
    cluster.run("in-other-flavor", "in-same-flavor")
    evaluations = Evaluated(monkeypatch)
    cluster.evict("in-other-flavor")
    assert cluster.is_quiet
    cluster.evict("in-same-flavor")
    cluster.cycles()
    assert evaluations.take() == ["owner"]


def test_blocking_head_that_preempts_nothing_is_not_evaluated_again_after_an_eviction() -> None:
    cluster = SmallCluster()
    cluster.put(queue("strict", 1, "org", queueing_strategy=STRICT), queue("other", 1, "org"))
    cluster.submit("running", "other", 2)
    cluster.run("running")
    cluster.submit("waits", "strict", 1)
    cluster.run()
    cluster.evict("running")
    assert cluster.is_quiet


def test_eviction_in_a_deleted_cluster_queue_concerns_no_head() -> None:
    cluster = _cluster_with_waiting_preemptor()
    cluster.submit("running", "other", 1)
    cluster.run("running")
    cluster.send(ClusterQueueDeleted("other"))
    cluster.cycles()
    cluster.evict("running")
    assert cluster.is_quiet


def test_paused_heads_take_no_part_in_cycles_of_their_tree() -> None:
    cluster = _cluster_with_waiting_preemptor(queueing_strategy=STRICT)
    cluster.state.pause(Pause(frozenset({"a", "spot"})))
    cluster.submit("in-other-flavor", "spot", 2)
    cluster.submit("newcomer", "other", 40)
    assert cluster.is_quiet is False
    cluster.cycles()
    assert cluster.is_quiet
    cluster.state.pause(Pause())
    assert cluster.decide() == ["in-other-flavor"]


def test_overtaken_blocking_head_of_another_tree_concerns_no_head(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _cluster_with_waiting_preemptor(queueing_strategy=STRICT)
    cluster.put(queue("x", 4, "other-tree", preemption=RECLAIM), queue("y", 0, "other-tree"))
    cluster.submit("y-borrows", "y", 4)
    cluster.run("y-borrows")
    cluster.submit("x-waits", "x", 4)
    cluster.decide()
    evaluations = Evaluated(monkeypatch)
    cluster.submit("earlier", "a", 40, priority=9)
    cluster.submit("refused", "y", 40)
    cluster.cycles(limit=1)
    assert evaluations.take() == ["earlier", "refused"]
