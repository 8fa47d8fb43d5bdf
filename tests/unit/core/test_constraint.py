"""A constraint other than quota: its refusal, and its cause that ends waiting."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from admitq.core.cycle import process
from admitq.core.cycle.entry import CycleEntry
from admitq.core.cycle.turns import Cycle
from admitq.core.flavors import assign
from admitq.core.model import (
    ClusterQueuePreemption,
    FlavorFungibility,
    FlavorFungibilityPolicy,
    QueueingStrategy,
)
from admitq.core.refusals import FlavorNotFound, NoFlavorFits
from admitq.core.settings import Settings
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

ASKS = 1
"""The priority of workloads that the constraint concerns."""


def cause(flavor: str) -> Cause:
    return Cause("devices", (flavor,))


@dataclass
class Devices:
    """Flavors of which no device is left."""

    gone: set[str] = field(default_factory=lambda: {"default"})

    def refuse(self, _cycle: Cycle, entry: CycleEntry) -> NoFlavorFits | None:
        if entry.priority != ASKS or entry.assignment is None:
            return None
        flavors = {pair.flavor for pair, _ in entry.assignment.usage} & self.gone
        entry.causes.update(map(cause, flavors))
        return NO_FIT if flavors else None


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    """A constraint on the assigned flavors."""
    constraint = Devices()
    for name in ("STEPS", "STEPS_IF_FITTING"):
        monkeypatch.setattr(process, name, (constraint.refuse, *getattr(process, name)))
    return constraint


def _world(play: Play) -> World:
    return play.state._world  # pyright: ignore[reportPrivateUsage]


def _state(play: Play, name: str) -> Any:
    """The wait state of a workload that is held back, or else of its lane."""
    pending = _world(play).workloads[key(name)].pending
    assert pending is not None
    return pending.state if pending.lane is None else pending.lane.state


def _change(play: Play, devices: Devices, flavor: str) -> None:
    devices.gone.discard(flavor)
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
    play.submit("a", "q", priority=ASKS)
    play.run()
    state = _state(play, "a")
    assert (type(state), state.causes, state.needs) == (kind, (cause("default"),), None)
    if is_restarted:
        play.restart()
    _change(play, devices, "spot")
    assert play.is_quiet
    _change(play, devices, "default")
    assert _state(play, "a") == READY
    play.run("a")
    _change(play, devices, "default")
    assert play.is_quiet


def test_lanes_that_the_constraint_did_not_refuse_go_on_waiting(devices: Devices) -> None:
    play = Play()
    play.put(queue("q", 2), queue("other", 2))
    play.submit("large", "q", cpu=3)
    play.submit("large-too", "other", cpu=3)
    play.submit("a", "q", priority=ASKS)
    play.submit("b", "q", cpu=2, priority=ASKS)
    play.run()
    waiting = {name: _state(play, name) for name in ("large", "large-too")}
    _change(play, devices, "default")
    assert _state(play, "a") == _state(play, "b") == READY
    assert waiting == {name: _state(play, name) for name in waiting}


def test_return_of_quota_ends_the_waiting_too(devices: Devices) -> None:
    play = Play()
    play.put(queue("q", 2))
    play.submit("holder", "q")
    play.run("holder")
    play.submit("a", "q", priority=ASKS)
    play.run()
    devices.gone.clear()
    play.finish("holder")
    play.run("a")


def test_causes_of_all_attempts_of_a_scan_end_the_waiting(devices: Devices) -> None:
    play = Play()
    play.put_flavors("spot")
    play.put(
        queue(
            "q",
            resource_groups=group(("default", 2), ("spot", 2)),
            flavor_fungibility=FlavorFungibility(when_can_preempt=FlavorFungibilityPolicy.MAY_STOP_SEARCH),
        )
    )
    devices.gone.add("spot")
    play.submit("a", "q", priority=ASKS)
    play.run()
    assert _state(play, "a").causes == (cause("default"), cause("spot"))
    _change(play, devices, "default")
    play.run("a")


def test_cause_is_collected_with_the_others_of_its_batch(devices: Devices) -> None:
    play = Play(Settings(requeue_batch_period=10))
    play.put(queue("q", 2), queue("other", 2))
    for name, of in (("a", "q"), ("b", "other")):
        play.submit(name, of, priority=ASKS)
    play.run()
    play.delete("b")
    play.cycles()
    _change(play, devices, "default")
    assert play.is_quiet
    assert play.state.next_wakeup(play.now) == play.now + 10
    play.now += 10
    play.run("a")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_workload_that_its_flavors_hold_back_is_evaluated_again_after_the_cause(
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
    _change(play, devices, "spot")
    assert play.is_quiet
    _change(play, devices, "default")
    play.run("a")


def test_search_goes_on_with_other_flavors_where_a_constraint_refuses_some() -> None:
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
        without = options.without_flavors({name: refusals[name] for name in refused})
        assert (without is options) == (not refused)
        found = assign(demands, without)
        assert [pair.flavor for pair, _ in found.usage] == flavors
    assert found.shortfall.parts[0].refusals == tuple(refusals.values())
