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
from tests.unit.core.play import LOWER, RECLAIM, Play, group, preempted, queue

STRICT = QueueingStrategy.STRICT_FIFO
SPOT = group(("spot", 4))


def _play_with_waiting_preemptor(settings: CoreSettings | None = None, **owner: Any) -> Play:
    """Return a cohort in which ``owner`` waits for ``borrower`` to leave, with further ClusterQueues."""
    play = Play(settings or CoreSettings())
    play.put_flavors("spot")
    owner.setdefault("resource_groups", group(("default", 4)))
    play.put(
        queue("a", cohort="org", preemption=RECLAIM, **owner),
        queue("b", 0, "org"),
        queue("eager", 0, "org", preemption=RECLAIM),
        queue("other", 1, "org"),
        queue("spot", cohort="org", resource_groups=SPOT),
        queue("both", cohort="org", resource_groups=group(("default", 0), ("spot", 0))),
    )
    play.submit("borrower", "b", 4)
    play.run("borrower")
    play.submit("owner", "a", 4)
    assert play.decide() == []
    assert play.is_quiet
    return play


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
    play = _play_with_waiting_preemptor()
    fields: dict[str, Any] = (
        {"admission_checks": (("check", CheckState.REJECTED),)} if newcomer == "held-back" else {}
    )
    evaluations = Evaluated(monkeypatch)
    play.submit(newcomer, cluster_queue, cpu, **fields)
    play.cycles(limit=1)
    assert evaluations.take() == sorted({newcomer, *evaluated})


def test_blocking_head_is_evaluated_with_a_head_that_reserves_capacity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = _play_with_waiting_preemptor()
    play.submit("filler", "b", 1)
    play.run("filler")
    assert play.is_quiet
    evaluations = Evaluated(monkeypatch)
    play.submit("within-nominal", "other", 1)
    play.cycles(limit=1)
    assert evaluations.take() == ["owner", "within-nominal"]


def test_strict_blocking_head_is_evaluated_in_every_cycle_of_its_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = _play_with_waiting_preemptor(queueing_strategy=STRICT)
    evaluations = Evaluated(monkeypatch)
    play.submit("newcomer", "spot", 2)
    play.cycles(limit=1)
    assert evaluations.take() == ["newcomer", "owner"]


@pytest.mark.parametrize(("cpu", "evaluated"), [(2, ["newcomer", "owner"]), (40, ["newcomer"])])
def test_with_fair_sharing_blocking_head_is_evaluated_with_any_head_that_fits(
    cpu: int, evaluated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = _play_with_waiting_preemptor(CoreSettings(fair_sharing=FairSharing()))
    evaluations = Evaluated(monkeypatch)
    play.submit("newcomer", "spot", cpu)
    play.cycles(limit=1)
    assert evaluations.take() == evaluated


def test_with_fair_sharing_strict_blocking_head_is_evaluated_in_every_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = _play_with_waiting_preemptor(CoreSettings(fair_sharing=FairSharing()), queueing_strategy=STRICT)
    evaluations = Evaluated(monkeypatch)
    play.submit("newcomer", "spot", 40)
    play.cycles(limit=1)
    assert evaluations.take() == ["newcomer", "owner"]


def test_blocking_head_is_evaluated_when_another_blocking_head_of_cycle_concerns_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play()
    play.put_flavors("spot")
    play.put(
        queue("a", cohort="org", preemption=RECLAIM, resource_groups=SPOT),
        queue("b", cohort="org", preemption=RECLAIM, resource_groups=group(("spot", 0), ("default", 4))),
        queue("c", cohort="org", resource_groups=group(("spot", 0))),
        queue("d", cohort="org", resource_groups=group(("default", 0))),
        queue("e", 1, "org"),
    )
    play.submit("c-borrows", "c", 4)
    play.submit("d-borrows", "d", 5)
    play.run("c-borrows", "d-borrows")
    play.submit("a-waits", "a", 4)
    play.submit("b-waits", "b", 4)
    play.decide()
    assert play.is_quiet
    evaluations = Evaluated(monkeypatch)
    play.put(queue("f", 1, "other"))
    play.submit("elsewhere", "f")
    play.run("elsewhere")
    assert evaluations.take() == ["elsewhere"]
    play.submit("newcomer", "e", pod_sets=(PodSet("main", 1, template_requesting({"cpu": 1})),))
    play.cycles(limit=1)
    assert evaluations.take() == ["a-waits", "b-waits", "newcomer"]


def test_blocking_head_is_not_evaluated_with_a_preemptor_of_other_flavors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = _play_with_waiting_preemptor()
    play.put(queue("late", cohort="org", preemption=RECLAIM, resource_groups=SPOT))
    play.submit("spot-borrower", "both", 8)
    play.run("spot-borrower")
    evaluations = Evaluated(monkeypatch)
    play.submit("spot-owner", "late", 4)
    assert preempted(play.cycles(limit=1)) == ["spot-borrower"]
    assert evaluations.take() == ["spot-owner"]


@pytest.mark.parametrize(("borrows", "evaluated"), [(1, ["high", "owner"]), (0, [])])
def test_blocking_head_is_evaluated_again_after_preemption_in_borrowing_cluster_queue(
    borrows: int, evaluated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = _play_with_waiting_preemptor()
    play.put(queue("urgent", 2, "org", preemption=LOWER))
    play.submit("low", "urgent", 2 + borrows)
    play.run("low")
    play.submit("high", "urgent", 2, priority=9)
    assert preempted(play.cycles(limit=1)) == ["low"]
    evaluations = Evaluated(monkeypatch)
    play.cycles(limit=1)
    assert evaluations.take() == evaluated
    assert play.is_quiet


@pytest.mark.parametrize(("fair_sharing", "evaluated"), [(None, []), (FairSharing(), ["high"])])
def test_preemptor_is_evaluated_again_after_its_own_preemption_only_with_fair_sharing(
    fair_sharing: FairSharing | None, evaluated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Play(CoreSettings(fair_sharing=fair_sharing))
    play.put(queue("urgent", 4, "org", preemption=LOWER), queue("lends", 1, "org"))
    play.submit("low", "urgent", 5)
    play.run("low")
    play.submit("high", "urgent", 4, priority=9)
    assert preempted(play.cycles(limit=1)) == ["low"]
    evaluations = Evaluated(monkeypatch)
    play.cycles()
    assert evaluations.take() == evaluated
    assert play.is_quiet


def test_blocking_head_is_evaluated_again_after_preemption_by_blocking_head_of_other_flavors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = _play_with_waiting_preemptor()
    play.put(
        queue("late", cohort="org", preemption=RECLAIM, resource_groups=SPOT),
        queue("urgent", cohort="org", preemption=RECLAIM, resource_groups=SPOT),
    )
    one = template_requesting({"cpu": 1})
    play.submit("spot-filler", "spot", 4)
    play.submit("spot-borrower", "both", 4)
    play.run("spot-filler", "spot-borrower")
    play.submit("of-both", "both", priority=1, pod_sets=(PodSet("main", 1, one), PodSet("workers", 1, one)))
    play.run("of-both")
    play.submit("late-owner", "late", 4)
    assert preempted(play.cycles()) == ["spot-borrower"]
    evaluations = Evaluated(monkeypatch)
    play.submit("urgent-owner", "urgent", 4, priority=9)
    assert preempted(play.cycles(limit=1)) == ["of-both"]
    assert evaluations.take() == ["late-owner", "urgent-owner"]
    play.cycles(limit=1)
    assert evaluations.take() == ["late-owner", "owner", "urgent-owner"]
    assert play.is_quiet


def test_blocking_head_is_evaluated_again_after_an_eviction_in_its_flavor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = _play_with_waiting_preemptor()
    play.submit("in-other-flavor", "spot", 2)
    play.submit("in-same-flavor", "other", 1)
    play.run("in-other-flavor", "in-same-flavor")
    evaluations = Evaluated(monkeypatch)
    play.evict("in-other-flavor")
    assert play.is_quiet
    play.evict("in-same-flavor")
    play.cycles()
    assert evaluations.take() == ["owner"]


def test_blocking_head_that_preempts_nothing_is_not_evaluated_again_after_an_eviction() -> None:
    play = Play()
    play.put(queue("strict", 1, "org", queueing_strategy=STRICT), queue("other", 1, "org"))
    play.submit("running", "other", 2)
    play.run("running")
    play.submit("waits", "strict", 1)
    play.run()
    play.evict("running")
    assert play.is_quiet


def test_eviction_in_a_deleted_cluster_queue_concerns_no_head() -> None:
    play = _play_with_waiting_preemptor()
    play.submit("running", "other", 1)
    play.run("running")
    play.send(ClusterQueueDeleted("other"))
    play.cycles()
    play.evict("running")
    assert play.is_quiet


def test_paused_heads_take_no_part_in_cycles_of_their_tree() -> None:
    play = _play_with_waiting_preemptor(queueing_strategy=STRICT)
    play.state.pause(Pause(frozenset({"a", "spot"})))
    play.submit("in-other-flavor", "spot", 2)
    play.submit("newcomer", "other", 40)
    assert play.is_quiet is False
    play.cycles()
    assert play.is_quiet
    play.state.pause(Pause())
    assert play.decide() == ["in-other-flavor"]


def test_overtaken_blocking_head_of_another_tree_concerns_no_head(monkeypatch: pytest.MonkeyPatch) -> None:
    play = _play_with_waiting_preemptor(queueing_strategy=STRICT)
    play.put(queue("x", 4, "other-tree", preemption=RECLAIM), queue("y", 0, "other-tree"))
    play.submit("y-borrows", "y", 4)
    play.run("y-borrows")
    play.submit("x-waits", "x", 4)
    play.decide()
    evaluations = Evaluated(monkeypatch)
    play.submit("earlier", "a", 40, priority=9)
    play.submit("refused", "y", 40)
    play.cycles(limit=1)
    assert evaluations.take() == ["earlier", "refused"]
