"""A cycle that runs in steps decides as one that runs at once, and nothing else uses the state meanwhile."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.events import CyclesRequested
from admitq.core.model import QueueingStrategy, ResourceFlavor
from admitq.core.settings import FairSharing, Settings
from admitq.core.state import AdmissionState, CycleInProgressError
from tests.unit.core.play import RECLAIM, Play, group, key, queue, reserved

ONE = CyclesRequested(limit=1)
FLAVOR = happened.ResourceFlavorChanged(ResourceFlavor("f"))


def contended(settings: Settings | None = None) -> Play:
    """Heads that reserve, preempt, lose, wait for preemption and are parked, in two cohort trees."""
    play = Play(settings or Settings())
    play.put_flavors("default", "other")
    groups = group(("default", 4), ("other", 1))
    strict = QueueingStrategy.STRICT_FIFO
    for cohort in ("a", "b"):
        play.put(
            queue(f"{cohort}1", cohort=cohort, resource_groups=groups, preemption=RECLAIM),
            queue(f"{cohort}2", cohort=cohort, resource_groups=groups),
            queue(f"{cohort}3", 2, cohort=cohort, queueing_strategy=strict, preemption=RECLAIM),
        )
    return play


def in_cycle() -> Play:
    """A state after the first step of a cycle."""
    play = contended()
    play.submit("w", "a1")
    play.state.instructions()
    next(play.state.cycle_steps(ONE, now=play.now))
    return play


@pytest.mark.drawn
@pytest.mark.parametrize("settings", [Settings(), Settings(fair_sharing=FairSharing())], ids=["", "fair"])
@pytest.mark.parametrize("seed", range(6))
def test_cycle_in_steps_equals_cycle_at_once(seed: int, settings: Settings) -> None:
    drawn = random.Random(seed)  # noqa: S311 - draws a test
    play = contended(settings)
    steps = 0
    for number in range(60):
        running = [name for name, each in play.workloads.items() if each.admission and not each.finished]
        if running and drawn.random() < 0.3:
            drawn.choice([play.finish, play.leave, play.evict])(drawn.choice(running))
        name = f"{drawn.choice('ab')}{drawn.randint(1, 3)}"
        play.submit(f"w{number}", name, cpu=drawn.randint(1, 7), priority=drawn.randint(0, 2))
        if drawn.random() < 0.5:
            continue
        at_once, in_steps = play.state.fork(), play.state.fork()
        steps += sum(1 for _ in in_steps.cycle_steps(ONE, now=play.now))
        assert in_steps.instructions() == at_once.handle(ONE, now=play.now)
        assert in_steps.to_dict() == at_once.to_dict()
        assert in_steps.next_wakeup(play.now) == at_once.next_wakeup(play.now)
        play.decide(limit=1)
    assert steps > 100


def test_step_is_made_after_each_workload_in_each_phase() -> None:
    play = contended()
    for cohort in ("a1", "a2", "b1"):
        play.submit(cohort, cohort, cpu=1)
    play.submit("b2", "b2", cpu=100)
    seen = [play.state.deciding for _ in play.state.cycle_steps(ONE, now=play.now)]
    four = [key(name) for name in ("a1", "a2", "b1", "b2")]
    taken, nominated, processed, parked = seen[:1], seen[1:5], seen[5:9], seen[-1]
    assert (taken, nominated, sorted(filter(None, processed))) == ([None], four, four)
    assert parked == key("b2")
    assert play.state.deciding is None


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
def test_state_that_is_used_between_steps_raises(use: Callable[[AdmissionState], Any]) -> None:
    play = in_cycle()
    assert play.state.is_in_cycle
    with pytest.raises(CycleInProgressError, match="a cycle has not ended"):
        use(play.state)


def test_state_can_be_used_after_the_last_step() -> None:
    play = contended()
    play.submit("w", "a1")
    for _ in play.state.cycle_steps(ONE, now=play.now):
        assert play.state.queries.workload_phase(key("w")) is not None
    assert not play.state.is_in_cycle
    assert reserved(play.state.instructions()) == ["w"]
    play.state.validate()


def test_state_with_unfinished_cycle_is_replaced() -> None:
    play = in_cycle()
    fresh = play.state.empty()
    fresh.observe(FLAVOR, now=play.now)
    play.state.become(fresh)
    assert not play.state.is_in_cycle
    assert play.state.next_wakeup(play.now) is None
