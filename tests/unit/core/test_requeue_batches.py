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
from tests.unit.core.play import LOWER, RECLAIM, Play, key, preempted, queue, reserved

PERIOD = 10 * SECOND
WITH_PERIOD = CoreSettings(requeue_batch_period=PERIOD)
TAINT = Taint("spot", "", "NoSchedule")


def _play_with_waiting(settings: CoreSettings = WITH_PERIOD, **fields: Any) -> Play:
    """Return a full cohort of two queues and a full queue ``alone``, with a waiting workload in each."""
    play = Play(settings)
    play.put(queue("p", 2, "all", **fields), queue("q", 2, "all", **fields), queue("alone", 1, **fields))
    for name in "abcd":
        play.submit(name, "p")
    play.submit("e", "alone")
    play.run("a", "b", "c", "d", "e")
    play.submit("in-p", "p")
    play.submit("in-q", "q")
    play.submit("beside", "alone")
    play.run()
    return play


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_lanes_are_evaluated_together_when_the_batch_of_their_tree_is_due(
    strategy: QueueingStrategy,
) -> None:
    play = _play_with_waiting(queueing_strategy=strategy)
    began_at = play.now
    play.finish("a")
    play.run()
    play.now += PERIOD - 1
    play.finish("b")
    play.run()
    assert play.state.next_wakeup(play.now) == began_at + PERIOD, "a later event does not delay the batch"
    play.now += 1
    play.run("in-p", "in-q")
    assert play.is_quiet


def test_each_tree_has_a_batch_of_its_own() -> None:
    play = _play_with_waiting()
    play.finish("a")
    play.now += SECOND
    play.finish("e")
    play.now += PERIOD - SECOND
    play.run("in-q")
    play.now += SECOND
    play.run("beside")


def test_new_workload_is_evaluated_at_once_within_a_period() -> None:
    play = _play_with_waiting()
    play.finish("a", "b")
    play.submit("new", "q", priority=1)
    play.run("new")


def test_lanes_are_evaluated_at_once_without_a_period() -> None:
    play = _play_with_waiting(CoreSettings())
    play.finish("a")
    assert play.state.next_wakeup(play.now) == play.now
    play.run("in-q")


def test_restart_keeps_the_batch() -> None:
    play = _play_with_waiting()
    play.finish("a")
    play.run()
    play.now += SECOND
    play.restart()
    assert play.state.next_wakeup(play.now) == play.now - SECOND + PERIOD
    play.now += PERIOD
    play.run("in-q")


@pytest.mark.parametrize("cohort", [None, "others"])
def test_cluster_queue_that_leaves_its_tree_is_evaluated_with_the_quota_that_it_has_there(
    cohort: str | None,
) -> None:
    play = _play_with_waiting()
    play.put(queue("q", 2, cohort))
    play.now += PERIOD
    play.run("in-q")


def test_batch_of_a_deleted_cluster_queue_is_dropped() -> None:
    play = _play_with_waiting()
    play.finish("e")
    play.send(happened.ClusterQueueDeleted("alone"))
    play.now += PERIOD
    play.run()
    assert play.is_quiet


def _decide(play: Play) -> None:
    play.decide()
    play.leave(*preempted(play.instructions))


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(40))
def test_no_workload_that_fits_is_left_waiting_after_the_last_batch(seed: int) -> None:
    """After the last batch, evaluating all workloads once more admits none."""
    chance = random.Random(seed)  # noqa: S311 a draw of a test
    play = Play(CoreSettings(requeue_batch_period=chance.choice([1, SECOND, PERIOD])))
    names = ("p", "q", "r")

    def put(name: str) -> None:
        play.put(
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
        holding = [each for each, of in play.workloads.items() if of.admission and not of.finished]
        match chance.randrange(6):
            case 0 | 1:
                play.submit(f"w{number}", chance.choice(names), chance.randint(1, 3), chance.randint(0, 2))
            case 2 | 3 if holding:
                play.finish(chance.choice(holding))
            case 4:
                put(chance.choice(names))
            case _:
                play.now += chance.choice([1, SECOND, PERIOD])
        _decide(play)
    while (due := play.state.next_wakeup(play.now)) is not None:
        play.now = due
        _decide(play)
    play.state.retry_everything()
    while not play.is_quiet or play.state.next_wakeup(play.now) is not None:
        play.now = play.state.next_wakeup(play.now) or play.now
        assert reserved(play.cycles()) == []


def test_state_without_cycles_wakes_up_only_for_timers() -> None:
    sharing = AdmissionFairSharing(sampling_interval=SECOND)
    state = AdmissionState(CoreSettings(admission_fair_sharing=sharing), cycles=False)
    play = Play(CoreSettings(admission_fair_sharing=sharing))
    play.state = state
    play.send(happened.NamespaceChanged("n", ()))
    play.put_flavors("default")
    play.put(queue("q", 2, usage_based_admission=True))
    play.submit("waits", "q")
    play.submit("later", "q", requeue_at=play.now + 5)
    assert reserved(play.cycles()) == []
    due = state.next_wakeup(play.now)
    assert due is not None
    assert due > play.now, "the state does not wake up for a head"
    wakeups = set[int]()
    for _ in range(4):
        play.now = state.next_wakeup(play.now) or play.now
        wakeups.add(play.now)
        assert reserved(play.cycles()) == []
    assert len(wakeups) == 4, "each wake-up has a later time"
    assert state.queries.workload_phase(key("waits")) is not None


def _play_without_cohort() -> Play:
    """Return a full ClusterQueue without cohort, with a waiting workload."""
    play = Play(WITH_PERIOD)
    play.put(queue("alone", 1))
    play.submit("running", "alone")
    play.run("running")
    play.submit("waits", "alone", 1)
    play.run()
    return play


def test_c16_period_holds_for_released_quota_without_cohort() -> None:
    play = _play_without_cohort()
    play.finish("running")
    play.run()
    assert play.state.next_wakeup(play.now) == play.now + PERIOD
    play.now += PERIOD
    play.run("waits")


@pytest.mark.parametrize("cohort", [None, "all"])
@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_c16_period_holds_for_an_edited_cluster_queue(strategy: QueueingStrategy, cohort: str | None) -> None:
    play = Play(WITH_PERIOD)
    play.put(queue("edited", 1, cohort, queueing_strategy=strategy))
    play.submit("waits", "edited", 2)
    play.run()
    play.put(queue("edited", 2, cohort, queueing_strategy=strategy))
    play.run()
    assert play.state.next_wakeup(play.now) == play.now + PERIOD
    play.now += PERIOD
    play.run("waits")
    assert play.is_quiet


def test_c16_period_holds_for_a_flavor_that_changed_without_cohort() -> None:
    play = Play(WITH_PERIOD)
    play.send(happened.ResourceFlavorChanged(ResourceFlavor("default", node_taints=(TAINT,))))
    play.put(queue("alone", 1))
    play.submit("waits", "alone")
    play.run()
    play.put_flavors("default")
    play.run()
    assert play.state.next_wakeup(play.now) == play.now + PERIOD
    play.now += PERIOD
    play.run("waits")


def test_c16_new_workload_of_an_edited_cluster_queue_does_not_wait() -> None:
    play = Play(WITH_PERIOD)
    play.put(queue("alone", 1))
    play.submit("waits", "alone", 3)
    play.run()
    play.put(queue("alone", 2))
    play.submit("new", "alone", 2)
    play.run("new")


def test_c13_blocking_head_of_a_queue_that_is_deleted_within_the_period_is_forgotten() -> None:
    play = _play_with_waiting(queueing_strategy=QueueingStrategy.STRICT_FIFO)
    play.finish("a")
    play.send(happened.ClusterQueueDeleted("q"))
    play.submit("new", "p", priority=9)
    play.decide()
    play.now += PERIOD
    play.decide()
    assert play.is_quiet


def test_c13_head_follows_its_cohort_to_another_tree_within_the_period() -> None:
    play = Play(WITH_PERIOD)
    strict = queue("strict", 4, "inner", queueing_strategy=QueueingStrategy.STRICT_FIFO)
    play.put(strict, queue("borrower", 0, "outer"))
    play.submit("running", "strict", 2)
    play.run("running")
    play.submit("head", "strict", 3)
    play.run()
    play.send(happened.CohortChanged(Cohort("inner", "outer")))
    play.submit("borrows", "borrower", 1)
    play.run()
    assert play.state.queries.blocking_head("strict") == key("head")


def _lane_without_quota() -> Play:
    """Return a ClusterQueue with a lane that needs a resource which an edit removed."""
    play = Play(WITH_PERIOD)
    play.put(queue("q", resource_groups=_covers("cpu", "gpu")))
    play.submit("waits", "q", pod_sets=(PodSet("main", 1, template_requesting({"gpu": 2})),))
    play.run()
    play.put(queue("q", resource_groups=_covers("cpu")))
    return play


def _covers(*resources: str) -> tuple[ResourceGroup, ...]:
    quotas = tuple((resource, ResourceQuota(1)) for resource in resources)
    return (ResourceGroup(resources, (FlavorQuotas("default", quotas),)),)


def test_lane_that_needs_quota_which_an_edit_took_away_is_restored() -> None:
    play = _lane_without_quota()
    before = play.state.to_dict()
    play.restart()
    assert play.state.to_dict() == before


def test_lane_that_needs_quota_which_an_edit_took_away_is_evaluated_when_the_batch_is_due() -> None:
    play = _lane_without_quota()
    play.now += PERIOD
    play.cycles()
    assert "ResourceNotCovered" in repr(play.refusal("waits"))


def test_lane_with_met_need_is_not_refreshed_before_the_batch_is_due() -> None:
    play = _play_with_waiting()
    before = play.refusal("in-q")
    play.finish("a", "b")
    play.run()
    assert play.refusal("in-q") == before
    assert play.state.refresh_refusals() == []


def test_lane_that_may_preempt_a_changed_candidate_is_evaluated_when_the_batch_is_due() -> None:
    play = Play(WITH_PERIOD)
    play.put(queue("q", 1, preemption=LOWER))
    play.submit("running", "q", priority=5)
    play.run("running")
    play.submit("waits", "q", priority=3)
    play.run()
    play.change("running", priority=1)
    assert play.cycles() == []
    assert play.state.next_wakeup(play.now) == play.now + PERIOD
    play.now += PERIOD
    assert preempted(play.cycles()) == ["running"]


def test_capacity_that_a_deleted_blocking_head_reserved_is_used_when_the_batch_is_due() -> None:
    play = Play(WITH_PERIOD)
    strict = queue("strict", 4, "org", queueing_strategy=QueueingStrategy.STRICT_FIFO)
    play.put(strict, queue("borrower", 0, "org"))
    play.submit("running", "strict", 2)
    play.run("running")
    play.submit("head", "strict", 3)
    play.run()
    play.submit("small", "borrower", 1)
    play.run()
    play.delete("head")
    play.run()
    assert play.state.next_wakeup(play.now) == play.now + PERIOD
    play.now += PERIOD
    play.run("small")
