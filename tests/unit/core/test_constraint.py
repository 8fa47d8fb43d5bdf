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
from tests.unit.core.pending_stage import NO_FIT
from tests.unit.core.play import LOWER, Play, group, key, queue

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


def _world(play: Play) -> World:
    return play.state._world  # pyright: ignore[reportPrivateUsage]


def _state(play: Play, name: str) -> Any:
    """Return the wait state of a workload that is held back, or else of its lane."""
    pending = _world(play).workloads[key(name)].pending
    assert pending is not None
    return pending.state if pending.lane is None else pending.lane.state


def _change_cause(play: Play, devices: Devices, flavor: str) -> None:
    devices.exhausted.discard(flavor)
    _world(play).waiting.constraint_changed(cause(flavor))
    _world(play).waiting.batches.date(play.now)
    play.state.instructions()
    play.state.validate()


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
    play = Play()
    preemption = LOWER if preempts else ClusterQueuePreemption()
    play.put(queue("q", 4, queueing_strategy=strategy, preemption=preemption))
    play.submit("a", "q", priority=CONSTRAINED)
    play.run()
    state = _state(play, "a")
    assert (type(state), state.causes, state.needs) == (kind, (cause("default"),), None)
    if is_restarted:
        play.restart()
    _change_cause(play, devices, "spot")
    assert play.is_quiet
    _change_cause(play, devices, "default")
    assert _state(play, "a") == READY
    play.run("a")
    _change_cause(play, devices, "default")
    assert play.is_quiet


def test_lanes_that_constraint_did_not_refuse_continue_to_wait(devices: Devices) -> None:
    play = Play()
    play.put(queue("q", 2), queue("other", 2))
    play.submit("large", "q", cpu=3)
    play.submit("large-too", "other", cpu=3)
    play.submit("a", "q", priority=CONSTRAINED)
    play.submit("b", "q", cpu=2, priority=CONSTRAINED)
    play.run()
    waiting = {name: _state(play, name) for name in ("large", "large-too")}
    _change_cause(play, devices, "default")
    assert _state(play, "a") == _state(play, "b") == READY
    assert waiting == {name: _state(play, name) for name in waiting}


def test_lane_with_cause_is_evaluated_again_when_quota_returns(devices: Devices) -> None:
    play = Play()
    play.put(queue("q", 2))
    play.submit("holder", "q")
    play.run("holder")
    play.submit("a", "q", priority=CONSTRAINED)
    play.run()
    devices.exhausted.clear()
    play.finish("holder")
    play.run("a")


def test_lane_waits_for_causes_of_all_attempts_of_its_scan(devices: Devices) -> None:
    play = Play()
    play.put_flavors("spot")
    play.put(
        queue(
            "q",
            resource_groups=group(("default", 2), ("spot", 2)),
            flavor_fungibility=FlavorFungibility(when_can_preempt=FlavorFungibilityPolicy.MAY_STOP_SEARCH),
        )
    )
    devices.exhausted.add("spot")
    play.submit("a", "q", priority=CONSTRAINED)
    play.run()
    assert _state(play, "a").causes == (cause("default"), cause("spot"))
    _change_cause(play, devices, "default")
    play.run("a")


def test_lane_is_requeued_with_its_batch_after_its_cause(devices: Devices) -> None:
    play = Play(CoreSettings(requeue_batch_period=10))
    play.put(queue("q", 2), queue("other", 2))
    for name, cluster_queue in (("a", "q"), ("b", "other")):
        play.submit(name, cluster_queue, priority=CONSTRAINED)
    play.run()
    play.delete("b")
    play.cycles()
    _change_cause(play, devices, "default")
    assert play.is_quiet
    assert play.state.next_wakeup(play.now) == play.now + 10
    play.now += 10
    play.run("a")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_workload_held_back_by_unusable_queue_is_evaluated_again_after_its_cause(
    devices: Devices, *, is_restarted: bool
) -> None:
    play = Play()
    play.put(queue("q", 2))
    play.submit("a", "q")
    ((entry, pending),) = _world(play).waiting.take_heads()
    _world(play).waiting.hold_back(entry, pending, QueueUnusable((cause("default"),)))
    if is_restarted:
        play.restart()
    assert play.is_quiet
    _change_cause(play, devices, "spot")
    assert play.is_quiet
    _change_cause(play, devices, "default")
    play.run("a")


def test_scan_skips_flavors_that_constraint_refuses() -> None:
    play = Play()
    play.put_flavors("spot")
    play.put(queue("q", resource_groups=group(("default", 2), ("spot", 2))))
    play.submit("a", "q")
    pending = _world(play).workloads[key("a")].pending
    assert pending is not None
    assert pending.lane is not None
    demands, options = pending.lane.key.demands, _world(play).cluster_queues["q"].flavor_options
    refusals = {name: FlavorNotFound(name) for name in ("default", "spot")}
    for refused, flavors in (((), ["default"]), (("default",), ["spot"]), (("default", "spot"), [])):
        remaining = options.without_flavors({name: refusals[name] for name in refused})
        assert (remaining is options) == (not refused)
        assignment = assign(demands, remaining)
        assert [pair.flavor for pair, _ in assignment.usage] == flavors
    assert assignment.shortfall.parts[0].refusals == tuple(refusals.values())
