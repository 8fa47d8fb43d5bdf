"""With a batch period, waiting ends in one batch for each cohort tree, and no lane is lost."""

import random
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.model import (
    SECOND,
    Cohort,
    FlavorQuotas,
    PodSet,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Taint,
)
from admitq.core.requests import template_requesting
from admitq.core.settings import AdmissionFairSharing, CoreSettings
from admitq.core.state import AdmissionState
from tests.unit.core.small_cluster import LOWER, RECLAIM, SmallCluster, key, preempted, queue, reserved

PERIOD = 10 * SECOND
WITH_PERIOD = CoreSettings(requeue_batch_period=PERIOD)
TAINT = Taint("spot", "", "NoSchedule")


def _cluster_with_waiting(settings: CoreSettings = WITH_PERIOD, **fields: Any) -> SmallCluster:
    """Return a full cohort of two queues and a full queue ``alone``, with a waiting workload in each."""
    cluster = SmallCluster(settings)
    cluster.put(queue("p", 2, "all", **fields), queue("q", 2, "all", **fields), queue("alone", 1, **fields))
    for name in "abcd":
        cluster.submit(name, "p")
    cluster.submit("e", "alone")
    cluster.run("a", "b", "c", "d", "e")
    cluster.submit("in-p", "p")
    cluster.submit("in-q", "q")
    cluster.submit("beside", "alone")
    cluster.run()
    return cluster


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_lanes_are_evaluated_together_when_the_batch_of_their_tree_is_due(
    strategy: QueueingStrategy,
) -> None:
    cluster = _cluster_with_waiting(queueing_strategy=strategy)
    began_at = cluster.now
    cluster.finish("a")
    cluster.run()
    cluster.now += PERIOD - 1
    cluster.finish("b")
    cluster.run()
    assert cluster.state.next_wakeup(cluster.now) == began_at + PERIOD, (
        "a later event does not delay the batch"
    )
    cluster.now += 1
    cluster.run("in-p", "in-q")
    assert cluster.is_quiet


def test_each_tree_has_a_batch_of_its_own() -> None:
    cluster = _cluster_with_waiting()
    cluster.finish("a")
    cluster.now += SECOND
    cluster.finish("e")
    cluster.now += PERIOD - SECOND
    cluster.run("in-q")
    cluster.now += SECOND
    cluster.run("beside")


def test_new_workload_is_evaluated_at_once_within_a_period() -> None:
    cluster = _cluster_with_waiting()
    cluster.finish("a", "b")
    cluster.submit("new", "q", priority=1)
    cluster.run("new")


def test_lanes_are_evaluated_at_once_without_a_period() -> None:
    cluster = _cluster_with_waiting(CoreSettings())
    cluster.finish("a")
    assert cluster.state.next_wakeup(cluster.now) == cluster.now
    cluster.run("in-q")


def test_restart_keeps_the_batch() -> None:
    cluster = _cluster_with_waiting()
    cluster.finish("a")
    cluster.run()
    cluster.now += SECOND
    cluster.restart()
    assert cluster.state.next_wakeup(cluster.now) == cluster.now - SECOND + PERIOD
    cluster.now += PERIOD
    cluster.run("in-q")


@pytest.mark.parametrize("cohort", [None, "others"])
def test_cluster_queue_that_moved_to_another_tree_is_evaluated_with_quota_of_that_tree(
    cohort: str | None,
) -> None:
    cluster = _cluster_with_waiting()
    cluster.put(queue("q", 2, cohort))
    cluster.now += PERIOD
    cluster.run("in-q")


def test_batch_of_a_deleted_cluster_queue_is_dropped() -> None:
    cluster = _cluster_with_waiting()
    cluster.finish("e")
    cluster.send(happened.ClusterQueueDeleted("alone"))
    cluster.now += PERIOD
    cluster.run()
    assert cluster.is_quiet


def _decide(cluster: SmallCluster) -> None:
    cluster.decide()
    cluster.leave(*preempted(cluster.instructions))


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(40))
def test_no_workload_that_fits_is_left_waiting_after_the_last_batch(seed: int) -> None:
    """After the last batch, evaluating all workloads once more admits none."""
    chance = random.Random(seed)  # noqa: S311 a draw of a test
    cluster = SmallCluster(CoreSettings(requeue_batch_period=chance.choice([1, SECOND, PERIOD])))
    names = ("p", "q", "r")

    def put(name: str) -> None:
        cluster.put(
            queue(
                name,
                chance.randint(0, 4),
                chance.choice(["all", "all", None]),
                queueing_strategy=chance.choice(list(QueueingStrategy)),
                preemption=chance.choice([LOWER, RECLAIM]),
            )
        )

    for name in names:
        put(name)
    for number in range(60):
        holding = [each for each, of in cluster.workloads.items() if of.admission and not of.finished]
        match chance.randrange(6):
            case 0 | 1:
                cluster.submit(f"w{number}", chance.choice(names), chance.randint(1, 3), chance.randint(0, 2))
            case 2 | 3 if holding:
                cluster.finish(chance.choice(holding))
            case 4:
                put(chance.choice(names))
            case _:
                cluster.now += chance.choice([1, SECOND, PERIOD])
        _decide(cluster)
    while (due := cluster.state.next_wakeup(cluster.now)) is not None:
        cluster.now = due
        _decide(cluster)
    cluster.state.retry_everything()
    while not cluster.is_quiet or cluster.state.next_wakeup(cluster.now) is not None:
        cluster.now = cluster.state.next_wakeup(cluster.now) or cluster.now
        assert reserved(cluster.cycles()) == []


def test_state_without_cycles_wakes_up_only_for_timers() -> None:
    sharing = AdmissionFairSharing(sampling_interval=SECOND)
    state = AdmissionState(CoreSettings(admission_fair_sharing=sharing), cycles=False)
    cluster = SmallCluster(CoreSettings(admission_fair_sharing=sharing))
    cluster.state = state
    cluster.send(happened.NamespaceChanged("n", ()))
    cluster.put_flavors("default")
    cluster.put(queue("q", 2, usage_based_admission=True))
    cluster.submit("waits", "q")
    cluster.submit("later", "q", requeue_at=cluster.now + 5)
    assert reserved(cluster.cycles()) == []
    due = state.next_wakeup(cluster.now)
    assert due is not None
    assert due > cluster.now, "the state does not wake up for a head"
    wakeups = set[int]()
    for _ in range(4):
        cluster.now = state.next_wakeup(cluster.now) or cluster.now
        wakeups.add(cluster.now)
        assert reserved(cluster.cycles()) == []
    assert len(wakeups) == 4, "each wake-up has a later time"
    assert state.queries.workload_phase(key("waits")) is not None


def _cluster_without_cohort() -> SmallCluster:
    """Return a full ClusterQueue without cohort, with a waiting workload."""
    cluster = SmallCluster(WITH_PERIOD)
    cluster.put(queue("alone", 1))
    cluster.submit("running", "alone")
    cluster.run("running")
    cluster.submit("waits", "alone", 1)
    cluster.run()
    return cluster


def test_c16_period_holds_for_released_quota_without_cohort() -> None:
    cluster = _cluster_without_cohort()
    cluster.finish("running")
    cluster.run()
    assert cluster.state.next_wakeup(cluster.now) == cluster.now + PERIOD
    cluster.now += PERIOD
    cluster.run("waits")


@pytest.mark.parametrize("cohort", [None, "all"])
@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_c16_period_holds_for_an_edited_cluster_queue(strategy: QueueingStrategy, cohort: str | None) -> None:
    cluster = SmallCluster(WITH_PERIOD)
    cluster.put(queue("edited", 1, cohort, queueing_strategy=strategy))
    cluster.submit("waits", "edited", 2)
    cluster.run()
    cluster.put(queue("edited", 2, cohort, queueing_strategy=strategy))
    cluster.run()
    assert cluster.state.next_wakeup(cluster.now) == cluster.now + PERIOD
    cluster.now += PERIOD
    cluster.run("waits")
    assert cluster.is_quiet


def test_c16_period_holds_for_a_flavor_that_changed_without_cohort() -> None:
    cluster = SmallCluster(WITH_PERIOD)
    cluster.send(happened.ResourceFlavorChanged(ResourceFlavor("default", node_taints=(TAINT,))))
    cluster.put(queue("alone", 1))
    cluster.submit("waits", "alone")
    cluster.run()
    cluster.put_flavors("default")
    cluster.run()
    assert cluster.state.next_wakeup(cluster.now) == cluster.now + PERIOD
    cluster.now += PERIOD
    cluster.run("waits")


def test_c16_new_workload_of_an_edited_cluster_queue_does_not_wait() -> None:
    cluster = SmallCluster(WITH_PERIOD)
    cluster.put(queue("alone", 1))
    cluster.submit("waits", "alone", 3)
    cluster.run()
    cluster.put(queue("alone", 2))
    cluster.submit("new", "alone", 2)
    cluster.run("new")


def test_c13_blocking_head_of_queue_deleted_within_the_period_is_dropped() -> None:
    cluster = _cluster_with_waiting(queueing_strategy=QueueingStrategy.STRICT_FIFO)
    cluster.finish("a")
    cluster.send(happened.ClusterQueueDeleted("q"))
    cluster.submit("new", "p", priority=9)
    cluster.decide()
    cluster.now += PERIOD
    cluster.decide()
    assert cluster.is_quiet


def test_c13_head_follows_its_cohort_to_another_tree_within_the_period() -> None:
    cluster = SmallCluster(WITH_PERIOD)
    strict = queue("strict", 4, "inner", queueing_strategy=QueueingStrategy.STRICT_FIFO)
    cluster.put(strict, queue("borrower", 0, "outer"))
    cluster.submit("running", "strict", 2)
    cluster.run("running")
    cluster.submit("head", "strict", 3)
    cluster.run()
    cluster.send(happened.CohortChanged(Cohort("inner", "outer")))
    cluster.submit("borrows", "borrower", 1)
    cluster.run()
    assert cluster.state.queries.blocking_head("strict") == key("head")


def _lane_without_quota() -> SmallCluster:
    """Return a ClusterQueue with a lane that needs a resource which an edit removed."""
    cluster = SmallCluster(WITH_PERIOD)
    cluster.put(queue("q", resource_groups=_covers("cpu", "gpu")))
    cluster.submit("waits", "q", pod_sets=(PodSet("main", 1, template_requesting({"gpu": 2})),))
    cluster.run()
    cluster.put(queue("q", resource_groups=_covers("cpu")))
    return cluster


def _covers(*resources: str) -> tuple[ResourceGroup, ...]:
    quotas = tuple((resource, ResourceQuota(1)) for resource in resources)
    return (ResourceGroup(resources, (FlavorQuotas("default", quotas),)),)


def test_lane_that_needs_quota_that_an_edit_removed_is_restored() -> None:
    cluster = _lane_without_quota()
    before = cluster.state.to_dict()
    cluster.restart()
    assert cluster.state.to_dict() == before


def test_lane_that_needs_quota_that_an_edit_removed_is_evaluated_when_the_batch_is_due() -> None:
    cluster = _lane_without_quota()
    cluster.now += PERIOD
    cluster.cycles()
    assert "ResourceNotCovered" in repr(cluster.refusal("waits"))


def test_lane_with_met_need_is_not_refreshed_before_the_batch_is_due() -> None:
    cluster = _cluster_with_waiting()
    before = cluster.refusal("in-q")
    cluster.finish("a", "b")
    cluster.run()
    assert cluster.refusal("in-q") == before
    assert cluster.state.refresh_refusals() == []


def test_lane_that_may_preempt_a_changed_candidate_is_evaluated_when_the_batch_is_due() -> None:
    cluster = SmallCluster(WITH_PERIOD)
    cluster.put(queue("q", 1, preemption=LOWER))
    cluster.submit("running", "q", priority=5)
    cluster.run("running")
    cluster.submit("waits", "q", priority=3)
    cluster.run()
    cluster.change("running", priority=1)
    assert cluster.cycles() == []
    assert cluster.state.next_wakeup(cluster.now) == cluster.now + PERIOD
    cluster.now += PERIOD
    assert preempted(cluster.cycles()) == ["running"]


def test_capacity_that_a_deleted_blocking_head_reserved_is_used_when_the_batch_is_due() -> None:
    cluster = SmallCluster(WITH_PERIOD)
    strict = queue("strict", 4, "org", queueing_strategy=QueueingStrategy.STRICT_FIFO)
    cluster.put(strict, queue("borrower", 0, "org"))
    cluster.submit("running", "strict", 2)
    cluster.run("running")
    cluster.submit("head", "strict", 3)
    cluster.run()
    cluster.submit("small", "borrower", 1)
    cluster.run()
    cluster.delete("head")
    cluster.run()
    assert cluster.state.next_wakeup(cluster.now) == cluster.now + PERIOD
    cluster.now += PERIOD
    cluster.run("small")
