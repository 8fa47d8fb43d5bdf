"""A cycle in steps decides like a cycle at once, and the state cannot be used between the steps."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.events import CyclesRequested
from admitq.core.model import QueueingStrategy, ResourceFlavor
from admitq.core.settings import CoreSettings, FairSharing
from admitq.core.state import AdmissionState, CycleInProgressError
from tests.unit.core.small_cluster import RECLAIM, SmallCluster, group, key, queue, reserved

ONE = CyclesRequested(limit=1)
FLAVOR = happened.ResourceFlavorChanged(ResourceFlavor("f"))


def cluster_with_contention(settings: CoreSettings | None = None) -> SmallCluster:
    """Return two cohort trees in which heads reserve, preempt, lose, wait for preemption and are parked."""
    cluster = SmallCluster(settings or CoreSettings())
    cluster.put_flavors("default", "other")
    groups = group(("default", 4), ("other", 1))
    strict = QueueingStrategy.STRICT_FIFO
    for cohort in ("a", "b"):
        cluster.put(
            queue(f"{cohort}1", cohort=cohort, resource_groups=groups, preemption=RECLAIM),
            queue(f"{cohort}2", cohort=cohort, resource_groups=groups),
            queue(f"{cohort}3", 2, cohort=cohort, queueing_strategy=strict, preemption=RECLAIM),
        )
    return cluster


def cluster_in_cycle() -> SmallCluster:
    """Return a cluster after the first step of a cycle."""
    cluster = cluster_with_contention()
    cluster.submit("w", "a1")
    cluster.state.instructions()
    next(cluster.state.cycle_steps(ONE, now=cluster.now))
    return cluster


@pytest.mark.drawn
@pytest.mark.parametrize(
    "settings", [CoreSettings(), CoreSettings(fair_sharing=FairSharing())], ids=["", "fair"]
)
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.release) for seed in range(2, 6))]
)
def test_cycle_in_steps_equals_cycle_at_once(seed: int, settings: CoreSettings) -> None:
    random_source = random.Random(seed)  # noqa: S311 - draws a test
    cluster = cluster_with_contention(settings)
    steps = 0
    for number in range(60):
        running = [name for name, each in cluster.workloads.items() if each.admission and not each.finished]
        if running and random_source.random() < 0.3:
            random_source.choice([cluster.finish, cluster.leave, cluster.evict])(
                random_source.choice(running)
            )
        name = f"{random_source.choice('ab')}{random_source.randint(1, 3)}"
        cluster.submit(
            f"w{number}", name, cpu=random_source.randint(1, 7), priority=random_source.randint(0, 2)
        )
        if random_source.random() < 0.5:
            continue
        at_once, in_steps = cluster.state.fork(), cluster.state.fork()
        steps += sum(1 for _ in in_steps.cycle_steps(ONE, now=cluster.now))
        assert in_steps.instructions() == at_once.handle(ONE, now=cluster.now)
        assert in_steps.to_dict() == at_once.to_dict()
        assert in_steps.next_wakeup(cluster.now) == at_once.next_wakeup(cluster.now)
        cluster.decide(limit=1)
    assert steps > 100


def test_cycle_yields_after_each_workload_of_each_phase() -> None:
    cluster = cluster_with_contention()
    for cohort in ("a1", "a2", "b1"):
        cluster.submit(cohort, cohort, cpu=1)
    cluster.submit("b2", "b2", cpu=100)
    steps = [cluster.state.deciding for _ in cluster.state.cycle_steps(ONE, now=cluster.now)]
    heads = [key(name) for name in ("a1", "a2", "b1", "b2")]
    heads_taken, nominated, processed, parked = steps[:1], steps[1:5], steps[5:9], steps[-1]
    assert (heads_taken, nominated, sorted(filter(None, processed))) == ([None], heads, heads)
    assert parked == key("b2")
    assert cluster.state.deciding is None


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(
            lambda state: state.observe(happened.ResourceFlavorChanged(ResourceFlavor("f")), now=0),
            id="observe",
        ),
        pytest.param(lambda state: next(state.cycle_steps(ONE, now=0)), id="second cycle"),
        pytest.param(lambda state: state.instructions(), id="instructions"),
        pytest.param(lambda state: state.next_wakeup(0), id="next_wakeup"),
        pytest.param(lambda state: state.retry_everything(), id="retry_everything"),
        pytest.param(lambda state: state.refresh_refusals(), id="refresh_refusals"),
        pytest.param(lambda state: state.to_dict(), id="dump"),
        pytest.param(lambda state: state.fork(), id="fork"),
        pytest.param(lambda state: state.validate(), id="validate"),
    ],
)
def test_use_of_state_between_steps_raises(use: Callable[[AdmissionState], Any]) -> None:
    cluster = cluster_in_cycle()
    assert cluster.state.is_in_cycle
    with pytest.raises(CycleInProgressError, match="a cycle has not ended"):
        use(cluster.state)


def test_state_can_be_used_after_the_last_step() -> None:
    cluster = cluster_with_contention()
    cluster.submit("w", "a1")
    for _ in cluster.state.cycle_steps(ONE, now=cluster.now):
        assert cluster.state.queries.workload_phase(key("w")) is not None
    assert not cluster.state.is_in_cycle
    assert reserved(cluster.state.instructions()) == ["w"]
    cluster.state.validate()


def test_state_with_unfinished_cycle_is_replaced() -> None:
    cluster = cluster_in_cycle()
    fresh = cluster.state.empty()
    fresh.observe(FLAVOR, now=cluster.now)
    cluster.state.replace_with(fresh)
    assert not cluster.state.is_in_cycle
    assert cluster.state.next_wakeup(cluster.now) is None
