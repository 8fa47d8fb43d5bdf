"""Workloads to which more admission checks apply than their status can list."""

from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.applicable_checks import MOST_CHECKS, applicable_checks
from admitq.core.model import (
    AdmissionCheck,
    AdmissionCheckRule,
    ClusterQueue,
    QueueingStrategy,
)
from admitq.core.refusals import TooManyChecks
from tests.unit.core.small_cluster import LOWER, SmallCluster, group, key, preempted, queue, reported

STRICT = QueueingStrategy.STRICT_FIFO
FLAVORS = ("spot", "reserved")


def rules(count: int, *flavors: str) -> tuple[AdmissionCheckRule, ...]:
    return tuple(AdmissionCheckRule(f"c{number}", flavors) for number in range(count))


def queue_with_checks(*admission_checks: AdmissionCheckRule, **fields: Any) -> ClusterQueue:
    """Return a ClusterQueue with these checks, one CPU of flavor ``spot`` and four of ``reserved``."""
    fields.setdefault("resource_groups", group(("spot", 1), ("reserved", 4)))
    return queue("q", admission_checks=admission_checks, **fields)


def cluster_with(*queues: ClusterQueue) -> SmallCluster:
    cluster = SmallCluster()
    cluster.put_flavors(*FLAVORS)
    for rule in rules(12):
        cluster.send(happened.AdmissionCheckChanged(AdmissionCheck(rule.name, "example.com/c", active=True)))
    cluster.put(*queues)
    return cluster


def test_checks_of_all_flavors_apply_before_flavors_are_assigned() -> None:
    all_rules = (
        AdmissionCheckRule("all"),
        AdmissionCheckRule("each", FLAVORS),
        AdmissionCheckRule("s", ("spot",)),
    )
    assert applicable_checks(all_rules, FLAVORS) == {"all", "each"}
    assert applicable_checks(all_rules, FLAVORS, ("spot",)) == {"all", "each", "s"}
    assert applicable_checks(all_rules, FLAVORS, ()) == {"all"}


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_workload_is_refused_while_too_many_checks_apply_to_every_flavor(strategy: QueueingStrategy) -> None:
    cluster = cluster_with(queue_with_checks(*rules(9), queueing_strategy=strategy))
    cluster.submit("one", "q")
    instructions = cluster.cycles()
    assert reported(instructions) == {"one": TooManyChecks("q", 9, MOST_CHECKS)}
    assert cluster.is_quiet, "a cycle would evaluate the workload again"
    cluster.send(happened.ClusterQueueChanged(queue_with_checks(*rules(8), queueing_strategy=strategy)))
    assert cluster.decide() == ["one"]


def test_too_many_checks_are_reported_for_workload_that_is_not_evaluated() -> None:
    cluster = cluster_with(queue_with_checks(*rules(9)))
    cluster.submit("one", "q", requeue_blocked=True)
    assert cluster.state.queries.find_inadmissibility(key("one")) == TooManyChecks("q", 9, MOST_CHECKS)


def test_workload_takes_the_next_flavor_when_the_first_has_too_many_checks() -> None:
    cluster = cluster_with(queue_with_checks(*rules(9, "spot")))
    cluster.submit("one", "q")
    assert cluster.decide() == ["one"]
    [assigned] = cluster.workloads["one"].admission.pod_set_assignments  # type: ignore[union-attr]
    assert assigned.flavors == (("cpu", "reserved"),)


CHECKS_OF_RESERVED = rules(9, "reserved")


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_workload_refused_for_checks_of_its_flavor_does_not_block_others(strategy: QueueingStrategy) -> None:
    cluster = cluster_with(queue_with_checks(*CHECKS_OF_RESERVED, queueing_strategy=strategy))
    cluster.submit("large", "q", 2)
    cluster.submit("small", "q", 1)
    assert cluster.decide() == ["small"]
    assert reported(cluster.instructions) == {"large": TooManyChecks("q", 9, MOST_CHECKS, ("reserved",))}
    assert cluster.is_quiet, "a cycle would evaluate the workload again"
    cluster.send(
        happened.ClusterQueueChanged(queue_with_checks(*CHECKS_OF_RESERVED[:8], queueing_strategy=strategy))
    )
    assert cluster.decide() == ["large"]


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_workload_refused_for_checks_of_one_flavor_gets_another_when_quota_returns(
    strategy: QueueingStrategy,
) -> None:
    cluster = cluster_with(queue_with_checks(*CHECKS_OF_RESERVED, queueing_strategy=strategy))
    cluster.submit("one", "q")
    cluster.run("one")
    cluster.submit("two", "q")
    assert cluster.decide() == []
    assert reported(cluster.instructions) == {"two": TooManyChecks("q", 9, MOST_CHECKS, ("reserved",))}
    cluster.finish("one")
    assert cluster.decide() == ["two"]


def test_workload_refused_for_checks_preempts_nothing() -> None:
    cluster = cluster_with(queue_with_checks(resource_groups=group(("reserved", 4)), preemption=LOWER))
    cluster.submit("low", "q", 4)
    cluster.run("low")
    cluster.send(
        happened.ClusterQueueChanged(
            queue_with_checks(*CHECKS_OF_RESERVED, AdmissionCheckRule("c9", ("spot",)), preemption=LOWER)
        )
    )
    cluster.submit("high", "q", 4, priority=1)
    assert preempted(cluster.cycles()) == []
    assert reported(cluster.instructions) == {"high": TooManyChecks("q", 9, MOST_CHECKS, ("reserved",))}


@pytest.mark.parametrize(
    ("checks", "refused"),
    [
        (rules(9), TooManyChecks("b", 9, MOST_CHECKS)),
        (rules(9, "reserved"), TooManyChecks("b", 9, MOST_CHECKS, ("reserved",))),
    ],
    ids=["every flavor", "its flavor"],
)
def test_refusal_for_checks_stays_when_quota_is_released_that_admits_no_workload(
    checks: tuple[AdmissionCheckRule, ...], refused: TooManyChecks
) -> None:
    a = queue("a", 0, "team", resource_groups=group(("reserved", 0)))
    b = queue("b", 0, "team", resource_groups=group(("reserved", 4), ("spot", 0)), admission_checks=checks)
    cluster = cluster_with(a, b)
    cluster.submit("one", "a")
    cluster.submit("other", "a")
    cluster.run("one", "other")
    cluster.submit("two", "b", 4)
    assert reported(cluster.cycles()) == {"two": refused}
    cluster.finish("one")
    assert reported(cluster.cycles()) == {}
    assert cluster.refusal("two") == refused
