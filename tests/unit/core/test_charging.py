"""When LocalQueues are charged for workloads, and the order of their workloads that follows."""

from fractions import Fraction

import pytest

from admitq.core import events as happened
from admitq.core.instructions import RefreshLocalQueue
from admitq.core.model import SECOND, ConsumedResources, LocalQueue
from admitq.core.settings import AdmissionFairSharing, CoreSettings, Gates
from admitq.core.statuses import LocalQueueStatus
from tests.unit.core.play import Play, key, queue, reserved

MINUTE = 60 * SECOND
SHARING = AdmissionFairSharing(half_life=5 * MINUTE, sampling_interval=5 * MINUTE)
"""After one interval, past use is half of the current use."""


def play_with_shared_queue(gates: Gates = Gates(), *, by_usage: bool = True) -> Play:  # noqa: B008 frozen
    """Return a cluster with a ClusterQueue of 4 CPUs that LocalQueues ``a`` and ``b`` share."""
    play = Play(CoreSettings(admission_fair_sharing=SHARING, gates=gates))
    play.put(queue("q", 4, usage_based_admission=by_usage))
    for name in ("a", "b"):
        play.send(happened.LocalQueueChanged(LocalQueue(key(name), "q")))
    return play


def status(play: Play, name: str) -> LocalQueueStatus:
    queried = play.state.queries.local_queue_status(key(name))
    assert queried is not None
    return queried


def usage(play: Play, name: str) -> Fraction | None:
    """Return the past use by which the LocalQueue is ordered, in the units of this test."""
    amount = status(play, name).fair_usage
    return None if amount is None else amount * 1000


def test_local_queues_alternate_because_reservation_is_charged_at_once() -> None:
    play = play_with_shared_queue()
    for name, local_queue in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        play.submit(name, local_queue, 1)
    assert reserved(play.cycles()) == ["a1", "b1", "a2", "b2"]
    assert (usage(play, "a"), usage(play, "b")) == (1, 1)


def test_local_queue_is_not_charged_without_usage_based_admission() -> None:
    play = play_with_shared_queue(by_usage=False)
    for name, local_queue in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        play.submit(name, local_queue, 1)
    assert play.decide() == ["a1", "a2", "b1"]
    play.cycles()
    assert (usage(play, "a"), usage(play, "b")) == (0, 0)
    assert play.is_quiet


def test_d20_past_use_is_reported_with_zero_entries_without_usage_based_admission() -> None:
    play = play_with_shared_queue(by_usage=False)
    assert status(play, "a").consumed == ConsumedResources((("cpu", 0),), play.now)
    play.submit("a1", "a", 4)
    play.decide()
    admitted_at = play.now
    play.now += 5 * MINUTE
    assert RefreshLocalQueue(key("a")) in play.cycles()
    assert admitted_at < play.now
    assert status(play, "a").consumed == ConsumedResources((("cpu", 2),), play.now)
    assert status(play, "b").consumed == ConsumedResources((("cpu", 0),), play.now)


def test_d20_past_use_is_reported_without_cluster_queue() -> None:
    play = play_with_shared_queue()
    play.send(happened.LocalQueueChanged(LocalQueue(key("astray"), "nowhere")))
    assert status(play, "astray").consumed == ConsumedResources((), play.now)
    play.put(queue("nowhere", 2))
    assert status(play, "astray").consumed == ConsumedResources((("cpu", 0),), play.now)


def test_d20_past_use_is_not_reported_without_configuration() -> None:
    play = Play()
    play.put(queue("q", 4, usage_based_admission=True))
    assert status(play, "q").consumed is None


def test_local_queue_is_not_charged_when_gate_is_off() -> None:
    play = play_with_shared_queue(Gates(admission_fair_sharing=False))
    for name, local_queue in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        play.submit(name, local_queue, 1)
    assert play.decide() == ["a1", "a2", "b1"]
    play.delete("a1")
    play.send(happened.LocalQueueDeleted(key("b")))
    assert play.is_quiet


def test_charge_of_admitted_workload_is_settled_by_next_cycles() -> None:
    play = play_with_shared_queue()
    play.submit("a1", "a", 4)
    play.decide()
    assert not play.is_quiet
    assert status(play, "a").consumed == ConsumedResources((("cpu", 0),), play.now)
    assert RefreshLocalQueue(key("a")) in play.cycles()
    assert status(play, "a").consumed == ConsumedResources((("cpu", 2),), play.now)
    assert play.is_quiet


def test_charge_is_settled_at_its_own_time_by_later_event() -> None:
    play = play_with_shared_queue()
    play.submit("a1", "a", 4)
    play.decide()
    admitted_at = play.now
    play.now += MINUTE
    play.submit("b1", "b", 1)
    assert status(play, "a").consumed == ConsumedResources((("cpu", 2),), admitted_at)


@pytest.mark.parametrize("leave", ["finish", "delete", "leave_queue"])
def test_workload_that_leaves_right_after_admission_is_charged(leave: str) -> None:
    play = play_with_shared_queue()
    play.submit("a1", "a", 4)
    play.decide()
    if leave == "finish":
        play.finish("a1")
    elif leave == "delete":
        play.delete("a1")
    else:
        play.change("a1", queue_name="b")
    play.restart()
    play.cycles()
    assert usage(play, "a") == 2


def test_local_queue_is_refreshed_when_charge_is_rolled_back_without_cluster_queue() -> None:
    play = play_with_shared_queue()
    play.submit("a1", "a", 4)
    play.decide()
    play.send(happened.ClusterQueueDeleted("q"))
    play.delete("a1")
    assert usage(play, "a") == 2
    assert RefreshLocalQueue(key("a")) in play.cycles()
    assert usage(play, "a") == 0


@pytest.mark.parametrize(
    "change",
    [{"finished": True}, {"active": False}, {"queue_name": "b"}],
)
def test_charge_is_rolled_back_when_reservation_ends(change: dict[str, object]) -> None:
    play = play_with_shared_queue()
    play.submit("a1", "a", 4)
    play.cycles()
    assert usage(play, "a") == 2
    if "active" in change:
        play.send(happened.ReservationFailed(key("a1"), "uid-a1"))
        assert usage(play, "a") == 0
    play.change("a1", **change)
    assert usage(play, "a") == 0


def test_lane_is_sorted_again_when_its_local_queue_is_recreated() -> None:
    play = play_with_shared_queue()
    play.submit("a1", "a", 4)
    play.submit("a2", "a", 4)
    play.decide()
    play.send(happened.LocalQueueDeleted(key("a")))
    play.submit("b1", "b", 1)
    play.send(happened.LocalQueueChanged(LocalQueue(key("a"), "q", fair_weight=Fraction(0))))
    play.finish("a1")
    assert play.decide() == ["b1"]


def test_evicted_workload_keeps_its_charge_and_is_not_charged_again() -> None:
    play = play_with_shared_queue()
    play.submit("a1", "a", 4)
    play.decide()
    play.leave("a1")
    assert play.decide() == ["a1"]
    play.cycles()
    assert usage(play, "a") == 2


def test_local_queue_is_sampled_once_per_interval() -> None:
    play = play_with_shared_queue()
    play.submit("a1", "a", 4)
    play.decide()
    play.cycles()
    due = play.state.next_wakeup(play.now)
    assert due == play.now + 5 * MINUTE
    play.restart()
    assert play.state.next_wakeup(play.now) == due
    play.now += 5 * MINUTE
    assert not play.is_quiet
    assert RefreshLocalQueue(key("a")) in play.cycles()
    assert usage(play, "a") == 1 + 2
    assert play.state.next_wakeup(play.now) == play.now + 5 * MINUTE
    play.finish("a1")
    play.now += 5 * MINUTE
    play.cycles()
    assert usage(play, "a") == Fraction(3, 2)
    play.send(happened.LocalQueueDeleted(key("a")))
    play.cycles()


def test_changed_weight_changes_order_of_local_queues() -> None:
    play = play_with_shared_queue()
    play.submit("a1", "a", 1)
    play.decide()
    play.cycles()
    play.submit("a2", "a", 1)
    play.submit("b1", "b", 1)
    play.send(happened.LocalQueueChanged(LocalQueue(key("b"), "q", fair_weight=Fraction(0))))
    assert usage(play, "b") is None
    assert play.decide() == ["a2", "b1"]


def test_local_queue_starts_with_past_use_of_its_status() -> None:
    play = play_with_shared_queue()
    seeded = ConsumedResources((("cpu", 7),), play.now)
    play.send(happened.LocalQueueChanged(LocalQueue(key("c"), "q", consumed=seeded)))
    assert status(play, "c").consumed == seeded


def test_queue_is_sorted_again_when_usage_based_admission_is_enabled() -> None:
    play = play_with_shared_queue(by_usage=False)
    play.submit("full", "b", 4)
    play.decide()
    for name, local_queue in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        play.submit(name, local_queue, 1)
    play.decide()
    play.send(happened.ClusterQueueChanged(queue("q", 4, usage_based_admission=True)))
    play.finish("full")
    assert play.decide() == ["a1", "b1", "a2", "b2"]


def test_dump_contains_usage_accounts() -> None:
    play = play_with_shared_queue()
    for name, local_queue in (("a1", "a"), ("b1", "b")):
        play.submit(name, local_queue, 2)
    play.decide()
    play.finish("a1")
    before = play.state.to_dict()
    play.restart()
    assert play.state.to_dict() == before
