"""A constraint other than quota: its refusal, and its cause that ends waiting."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from admitq.core.cycle import process
from admitq.core.cycle.entry import CycleEntry
from admitq.core.cycle.running_cycle import Cycle
from admitq.core.flavors import assign
from admitq.core.model import (
    ClusterQueuePreemption,
    FlavorFungibility,
    FlavorFungibilityPolicy,
    QueueingStrategy,
)
from admitq.core.refusals import FlavorNotFound, NoFlavorFits
from admitq.core.settings import CoreSettings
from admitq.core.waiting.transitions import Cause
from admitq.core.waiting.wait_states import (
    READY,
    FirstOfStrictQueue,
    QueueUnusable,
    WaitingForQuota,
)
from admitq.core.world import World
from tests.unit.core.pending_workloads import NO_FIT
from tests.unit.core.small_cluster import LOWER, SmallCluster, group, key, queue

CONSTRAINED = 1
"""The priority of workloads to which the constraint applies."""


def cause(flavor: str) -> Cause:
    return Cause("devices", (flavor,))


@dataclass
class Devices:
    """A constraint that refuses flavors without free devices."""

    exhausted: set[str] = field(default_factory=lambda: {"default"})

    def refuse(self, _cycle: Cycle, entry: CycleEntry) -> NoFlavorFits | None:
        if entry.priority != CONSTRAINED or entry.assignment is None:
            return None
        flavors = {pair.flavor for pair, _ in entry.assignment.usage} & self.exhausted
        entry.causes.update(map(cause, flavors))
        return NO_FIT if flavors else None


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    """Return the constraint, which cycles apply to the assigned flavors."""
    constraint = Devices()
    for name in ("STEPS", "STEPS_IF_FITTING"):
        monkeypatch.setattr(process, name, (constraint.refuse, *getattr(process, name)))
    return constraint


def _world(cluster: SmallCluster) -> World:
    return cluster.state._world  # pyright: ignore[reportPrivateUsage]


def _state(cluster: SmallCluster, name: str) -> Any:
    """Return the wait state of a workload that is held back, or else of its lane."""
    pending = _world(cluster).workloads[key(name)].pending
    assert pending is not None
    return pending.state if pending.lane is None else pending.lane.state


def _change_cause(cluster: SmallCluster, devices: Devices, flavor: str) -> None:
    devices.exhausted.discard(flavor)
    _world(cluster).waiting.constraint_changed(cause(flavor))
    _world(cluster).waiting.batches.date(cluster.now)
    cluster.state.instructions()
    cluster.state.validate()


@pytest.mark.parametrize("preempts", [False, True])
@pytest.mark.parametrize(
    ("strategy", "kind"),
    [
        (QueueingStrategy.BEST_EFFORT_FIFO, WaitingForQuota),
        (QueueingStrategy.STRICT_FIFO, FirstOfStrictQueue),
    ],
)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_refused_lane_waits_for_the_cause_of_its_constraint(
    devices: Devices, strategy: QueueingStrategy, kind: type, *, is_restarted: bool, preempts: bool
) -> None:
    cluster = SmallCluster()
    preemption = LOWER if preempts else ClusterQueuePreemption()
    cluster.put(queue("q", 4, queueing_strategy=strategy, preemption=preemption))
    cluster.submit("a", "q", priority=CONSTRAINED)
    cluster.run()
    state = _state(cluster, "a")
    assert (type(state), state.causes, state.needs) == (kind, (cause("default"),), None)
    if is_restarted:
        cluster.restart()
    _change_cause(cluster, devices, "spot")
    assert cluster.is_quiet
    _change_cause(cluster, devices, "default")
    assert _state(cluster, "a") == READY
    cluster.run("a")
    _change_cause(cluster, devices, "default")
    assert cluster.is_quiet


def test_lanes_that_constraint_did_not_refuse_continue_to_wait(devices: Devices) -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2), queue("other", 2))
    cluster.submit("large", "q", cpu=3)
    cluster.submit("large-too", "other", cpu=3)
    cluster.submit("a", "q", priority=CONSTRAINED)
    cluster.submit("b", "q", cpu=2, priority=CONSTRAINED)
    cluster.run()
    waiting = {name: _state(cluster, name) for name in ("large", "large-too")}
    _change_cause(cluster, devices, "default")
    assert _state(cluster, "a") == _state(cluster, "b") == READY
    assert waiting == {name: _state(cluster, name) for name in waiting}


def test_lane_with_cause_is_evaluated_again_when_quota_returns(devices: Devices) -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2))
    cluster.submit("holder", "q")
    cluster.run("holder")
    cluster.submit("a", "q", priority=CONSTRAINED)
    cluster.run()
    devices.exhausted.clear()
    cluster.finish("holder")
    cluster.run("a")


def test_lane_waits_for_causes_of_all_attempts_of_its_scan(devices: Devices) -> None:
    cluster = SmallCluster()
    cluster.put_flavors("spot")
    cluster.put(
        queue(
            "q",
            resource_groups=group(("default", 2), ("spot", 2)),
            flavor_fungibility=FlavorFungibility(when_can_preempt=FlavorFungibilityPolicy.MAY_STOP_SEARCH),
        )
    )
    devices.exhausted.add("spot")
    cluster.submit("a", "q", priority=CONSTRAINED)
    cluster.run()
    assert _state(cluster, "a").causes == (cause("default"), cause("spot"))
    _change_cause(cluster, devices, "default")
    cluster.run("a")


def test_lane_is_requeued_with_its_batch_after_its_cause(devices: Devices) -> None:
    cluster = SmallCluster(CoreSettings(requeue_batch_period=10))
    cluster.put(queue("q", 2), queue("other", 2))
    for name, cluster_queue in (("a", "q"), ("b", "other")):
        cluster.submit(name, cluster_queue, priority=CONSTRAINED)
    cluster.run()
    cluster.delete("b")
    cluster.cycles()
    _change_cause(cluster, devices, "default")
    assert cluster.is_quiet
    assert cluster.state.next_wakeup(cluster.now) == cluster.now + 10
    cluster.now += 10
    cluster.run("a")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_workload_held_back_by_unusable_queue_is_evaluated_again_after_its_cause(
    devices: Devices, *, is_restarted: bool
) -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2))
    cluster.submit("a", "q")
    ((entry, pending),) = _world(cluster).waiting.take_heads()
    _world(cluster).waiting.hold_back(entry, pending, QueueUnusable((cause("default"),)))
    if is_restarted:
        cluster.restart()
    assert cluster.is_quiet
    _change_cause(cluster, devices, "spot")
    assert cluster.is_quiet
    _change_cause(cluster, devices, "default")
    cluster.run("a")


def test_scan_skips_flavors_that_constraint_refuses() -> None:
    cluster = SmallCluster()
    cluster.put_flavors("spot")
    cluster.put(queue("q", resource_groups=group(("default", 2), ("spot", 2))))
    cluster.submit("a", "q")
    pending = _world(cluster).workloads[key("a")].pending
    assert pending is not None
    assert pending.lane is not None
    demands, options = pending.lane.key.demands, _world(cluster).cluster_queues["q"].flavor_options
    refusals = {name: FlavorNotFound(name) for name in ("default", "spot")}
    for refused, flavors in (((), ["default"]), (("default",), ["spot"]), (("default", "spot"), [])):
        remaining = options.without_flavors({name: refusals[name] for name in refused})
        assert (remaining is options) == (not refused)
        assignment = assign(demands, remaining)
        assert [pair.flavor for pair, _ in assignment.usage] == flavors
    assert assignment.shortfall.parts[0].refusals == tuple(refusals.values())
