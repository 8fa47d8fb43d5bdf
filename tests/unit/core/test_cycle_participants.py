"""Which standing heads a cycle evaluates beside the heads that asked for it."""

from collections.abc import Iterable
from typing import Any

import pytest

from admitq.core.model import PodSet, QueueingStrategy
from admitq.core.requests import asking
from admitq.core.settings import FairSharing, Settings
from admitq.core.waiting.heads import Pause
from tests.unit.core.evaluated import Evaluated
from tests.unit.core.play import RECLAIM, Play, group, preempted, queue

STRICT = QueueingStrategy.STRICT_FIFO
SPOT = group(("spot", 4))


def _preemptor_waits(settings: Settings | None = None, **owner: Any) -> Play:
    """A cohort in which ``owner`` waits for ``borrower`` to leave, beside other ClusterQueues."""
    play = Play(settings or Settings())
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
def test_standing_head_is_evaluated_only_with_heads_that_concern_it(
    newcomer: str, cluster_queue: str, cpu: int, evaluated: Iterable[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = _preemptor_waits()
    fields: dict[str, Any] = {"admission_checks": (("check", "Rejected"),)} if newcomer == "held-back" else {}
    seen = Evaluated(monkeypatch)
    play.submit(newcomer, cluster_queue, cpu, **fields)
    play.cycles(limit=1)
    assert seen.take() == sorted({newcomer, *evaluated})


def test_standing_head_is_evaluated_with_a_head_that_reserves_capacity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = _preemptor_waits()
    play.submit("filler", "b", 1)
    play.run("filler")
    assert play.is_quiet
    seen = Evaluated(monkeypatch)
    play.submit("within-nominal", "other", 1)
    play.cycles(limit=1)
    assert seen.take() == ["owner", "within-nominal"]


def test_strict_standing_head_is_evaluated_in_every_cycle_of_its_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = _preemptor_waits(queueing_strategy=STRICT)
    seen = Evaluated(monkeypatch)
    play.submit("newcomer", "spot", 2)
    play.cycles(limit=1)
    assert seen.take() == ["newcomer", "owner"]


@pytest.mark.parametrize(("cpu", "evaluated"), [(2, ["newcomer", "owner"]), (40, ["newcomer"])])
def test_with_fair_sharing_standing_head_is_evaluated_with_any_head_that_gets_something(
    cpu: int, evaluated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = _preemptor_waits(Settings(fair_sharing=FairSharing()))
    seen = Evaluated(monkeypatch)
    play.submit("newcomer", "spot", cpu)
    play.cycles(limit=1)
    assert seen.take() == evaluated


def test_with_fair_sharing_strict_standing_head_is_evaluated_in_every_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = _preemptor_waits(Settings(fair_sharing=FairSharing()), queueing_strategy=STRICT)
    seen = Evaluated(monkeypatch)
    play.submit("newcomer", "spot", 40)
    play.cycles(limit=1)
    assert seen.take() == ["newcomer", "owner"]


def test_standing_head_is_evaluated_when_one_that_takes_part_concerns_it(
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
    seen = Evaluated(monkeypatch)
    play.put(queue("f", 1, "other"))
    play.submit("elsewhere", "f")
    play.run("elsewhere")
    assert seen.take() == ["elsewhere"]
    play.submit("newcomer", "e", pod_sets=(PodSet("main", 1, asking({"cpu": 1})),))
    play.cycles(limit=1)
    assert seen.take() == ["a-waits", "b-waits", "newcomer"]


def test_standing_head_is_not_evaluated_with_a_preemptor_of_other_flavors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = _preemptor_waits()
    play.put(queue("late", cohort="org", preemption=RECLAIM, resource_groups=SPOT))
    play.submit("spot-borrower", "both", 8)
    play.run("spot-borrower")
    seen = Evaluated(monkeypatch)
    play.submit("spot-owner", "late", 4)
    assert preempted(play.cycles(limit=1)) == ["spot-borrower"]
    assert seen.take() == ["spot-owner"]


def test_paused_heads_take_no_part_in_cycles_of_their_tree() -> None:
    play = _preemptor_waits(queueing_strategy=STRICT)
    play.state.pause(Pause(frozenset({"a", "spot"})))
    play.submit("in-other-flavor", "spot", 2)
    play.submit("newcomer", "other", 40)
    assert play.is_quiet is False
    play.cycles()
    assert play.is_quiet
    play.state.pause(Pause())
    assert play.decide() == ["in-other-flavor"]


def test_trees_name_the_cluster_queues_of_each_cohort_tree() -> None:
    play = _preemptor_waits()
    play.put(queue("alone", 1))
    assert sorted(play.state.trees()) == [("a", "b", "both", "eager", "other", "spot"), ("alone",)]


def test_overtaken_standing_head_of_another_tree_concerns_no_head(monkeypatch: pytest.MonkeyPatch) -> None:
    play = _preemptor_waits(queueing_strategy=STRICT)
    play.put(queue("x", 4, "other-tree", preemption=RECLAIM), queue("y", 0, "other-tree"))
    play.submit("y-borrows", "y", 4)
    play.run("y-borrows")
    play.submit("x-waits", "x", 4)
    play.decide()
    seen = Evaluated(monkeypatch)
    play.submit("earlier", "a", 40, priority=9)
    play.submit("refused", "y", 40)
    play.cycles(limit=1)
    assert seen.take() == ["earlier", "refused"]
