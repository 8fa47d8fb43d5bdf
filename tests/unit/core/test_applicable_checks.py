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
from tests.unit.core.play import LOWER, Play, group, key, preempted, queue, reported

STRICT = QueueingStrategy.STRICT_FIFO
FLAVORS = ("spot", "reserved")


def rules(count: int, *flavors: str) -> tuple[AdmissionCheckRule, ...]:
    return tuple(AdmissionCheckRule(f"c{number}", flavors) for number in range(count))


def queue_with_checks(*admission_checks: AdmissionCheckRule, **fields: Any) -> ClusterQueue:
    """Return a ClusterQueue with these checks, one CPU of flavor ``spot`` and four of ``reserved``."""
    fields.setdefault("resource_groups", group(("spot", 1), ("reserved", 4)))
    return queue("q", admission_checks=admission_checks, **fields)


def play_with(*queues: ClusterQueue) -> Play:
    play = Play()
    play.put_flavors(*FLAVORS)
    for rule in rules(12):
        play.send(happened.AdmissionCheckChanged(AdmissionCheck(rule.name, "example.com/c", active=True)))
    play.put(*queues)
    return play


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
    play = play_with(queue_with_checks(*rules(9), queueing_strategy=strategy))
    play.submit("one", "q")
    instructions = play.cycles()
    assert reported(instructions) == {"one": TooManyChecks("q", 9, MOST_CHECKS)}
    assert play.is_quiet, "a cycle would evaluate the workload again"
    play.send(happened.ClusterQueueChanged(queue_with_checks(*rules(8), queueing_strategy=strategy)))
    assert play.decide() == ["one"]


def test_too_many_checks_are_reported_for_workload_that_is_not_evaluated() -> None:
    play = play_with(queue_with_checks(*rules(9)))
    play.submit("one", "q", requeue_blocked=True)
    assert play.state.queries.find_inadmissibility(key("one")) == TooManyChecks("q", 9, MOST_CHECKS)


def test_workload_takes_the_next_flavor_when_the_first_has_too_many_checks() -> None:
    play = play_with(queue_with_checks(*rules(9, "spot")))
    play.submit("one", "q")
    assert play.decide() == ["one"]
    [assigned] = play.workloads["one"].admission.pod_set_assignments  # type: ignore[union-attr]
    assert assigned.flavors == (("cpu", "reserved"),)


CHECKS_OF_RESERVED = rules(9, "reserved")


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_workload_refused_for_checks_of_its_flavor_does_not_block_others(strategy: QueueingStrategy) -> None:
    play = play_with(queue_with_checks(*CHECKS_OF_RESERVED, queueing_strategy=strategy))
    play.submit("large", "q", 2)
    play.submit("small", "q", 1)
    assert play.decide() == ["small"]
    assert reported(play.instructions) == {"large": TooManyChecks("q", 9, MOST_CHECKS, ("reserved",))}
    assert play.is_quiet, "a cycle would evaluate the workload again"
    play.send(
        happened.ClusterQueueChanged(queue_with_checks(*CHECKS_OF_RESERVED[:8], queueing_strategy=strategy))
    )
    assert play.decide() == ["large"]


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_workload_refused_for_checks_of_one_flavor_gets_another_when_quota_returns(
    strategy: QueueingStrategy,
) -> None:
    play = play_with(queue_with_checks(*CHECKS_OF_RESERVED, queueing_strategy=strategy))
    play.submit("one", "q")
    play.run("one")
    play.submit("two", "q")
    assert play.decide() == []
    assert reported(play.instructions) == {"two": TooManyChecks("q", 9, MOST_CHECKS, ("reserved",))}
    play.finish("one")
    assert play.decide() == ["two"]


def test_workload_refused_for_checks_preempts_nothing() -> None:
    play = play_with(queue_with_checks(resource_groups=group(("reserved", 4)), preemption=LOWER))
    play.submit("low", "q", 4)
    play.run("low")
    play.send(
        happened.ClusterQueueChanged(
            queue_with_checks(*CHECKS_OF_RESERVED, AdmissionCheckRule("c9", ("spot",)), preemption=LOWER)
        )
    )
    play.submit("high", "q", 4, priority=1)
    assert preempted(play.cycles()) == []
    assert reported(play.instructions) == {"high": TooManyChecks("q", 9, MOST_CHECKS, ("reserved",))}


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
    play = play_with(a, b)
    play.submit("one", "a")
    play.submit("other", "a")
    play.run("one", "other")
    play.submit("two", "b", 4)
    assert reported(play.cycles()) == {"two": refused}
    play.finish("one")
    assert reported(play.cycles()) == {}
    assert play.refusal("two") == refused
