"""When LocalQueues are charged, and how they take turns by it."""

from fractions import Fraction

import pytest

from admitq.core import events as happened
from admitq.core.instructions import RefreshLocalQueue
from admitq.core.model import SECOND, ConsumedResources, LocalQueue
from admitq.core.settings import AdmissionFairSharing, Gates, Settings
from admitq.core.statuses import LocalQueueStatus
from tests.unit.core.play import Play, key, queue, reserved

MINUTE = 60 * SECOND
SHARING = AdmissionFairSharing(half_life=5 * MINUTE, sampling_interval=5 * MINUTE)
"""Half of what is used counts after one interval."""


def shared(gates: Gates = Gates(), *, by_usage: bool = True) -> Play:  # noqa: B008 frozen
    """A queue of 4 that LocalQueues ``a`` and ``b`` share."""
    play = Play(Settings(admission_fair_sharing=SHARING, gates=gates))
    play.put(queue("q", 4, usage_based_admission=by_usage))
    for name in ("a", "b"):
        play.send(happened.LocalQueueChanged(LocalQueue(key(name), "q")))
    return play


def status(play: Play, name: str) -> LocalQueueStatus:
    found = play.state.queries.local_queue_status(key(name))
    assert found is not None
    return found


def usage(play: Play, name: str) -> Fraction | None:
    """What the LocalQueue is ordered by, in milli-CPU as this world counts them."""
    amount = status(play, name).fair_usage
    return None if amount is None else amount * 1000


def test_a_reservation_is_charged_at_once_and_turns_follow() -> None:
    play = shared()
    for name, of in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        play.submit(name, of, 1)
    assert reserved(play.cycles()) == ["a1", "b1", "a2", "b2"]
    assert (usage(play, "a"), usage(play, "b")) == (1, 1)


def test_nothing_is_charged_without_the_mode() -> None:
    play = shared(by_usage=False)
    for name, of in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        play.submit(name, of, 1)
    assert play.decide() == ["a1", "a2", "b1"]
    play.cycles()
    assert (usage(play, "a"), usage(play, "b")) == (0, 0)
    assert play.is_quiet


def test_d20_local_queue_of_any_scope_has_its_past_use_with_zero_entries() -> None:
    play = shared(by_usage=False)
    assert status(play, "a").consumed == ConsumedResources((("cpu", 0),), play.now)
    play.submit("a1", "a", 4)
    play.decide()
    begun = play.now
    play.now += 5 * MINUTE
    assert RefreshLocalQueue(key("a")) in play.cycles()
    assert begun < play.now
    assert status(play, "a").consumed == ConsumedResources((("cpu", 2),), play.now)
    assert status(play, "b").consumed == ConsumedResources((("cpu", 0),), play.now)


def test_d20_local_queue_without_cluster_queue_has_its_past_use() -> None:
    play = shared()
    play.send(happened.LocalQueueChanged(LocalQueue(key("astray"), "nowhere")))
    assert status(play, "astray").consumed == ConsumedResources((), play.now)
    play.put(queue("nowhere", 2))
    assert status(play, "astray").consumed == ConsumedResources((("cpu", 0),), play.now)


def test_d20_without_the_configuration_no_local_queue_has_past_use() -> None:
    play = Play()
    play.put(queue("q", 4, usage_based_admission=True))
    assert status(play, "q").consumed is None


def test_without_the_gate_there_are_no_books() -> None:
    play = shared(Gates(admission_fair_sharing=False))
    for name, of in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        play.submit(name, of, 1)
    assert play.decide() == ["a1", "a2", "b1"]
    play.delete("a1")
    play.send(happened.LocalQueueDeleted(key("b")))
    assert play.is_quiet


def test_admitted_workload_is_settled_after_the_instant() -> None:
    play = shared()
    play.submit("a1", "a", 4)
    play.decide()
    assert not play.is_quiet
    assert status(play, "a").consumed == ConsumedResources((("cpu", 0),), play.now)
    assert RefreshLocalQueue(key("a")) in play.cycles()
    assert status(play, "a").consumed == ConsumedResources((("cpu", 2),), play.now)
    assert play.is_quiet


def test_what_happens_later_settles_too() -> None:
    play = shared()
    play.submit("a1", "a", 4)
    play.decide()
    seen = play.now
    play.now += MINUTE
    play.submit("b1", "b", 1)
    assert status(play, "a").consumed == ConsumedResources((("cpu", 2),), seen)


@pytest.mark.parametrize("leave", ["finish", "delete", "leave_queue"])
def test_workload_that_leaves_at_its_admission_is_charged(leave: str) -> None:
    play = shared()
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


def test_local_queue_is_refreshed_when_a_charge_is_taken_back_after_its_cluster_queue_was_deleted() -> None:
    play = shared()
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
def test_a_charge_is_taken_back_with_the_reservation(change: dict[str, object]) -> None:
    play = shared()
    play.submit("a1", "a", 4)
    play.cycles()
    assert usage(play, "a") == 2
    if "active" in change:
        play.send(happened.ReservationFailed(key("a1"), "uid-a1"))
        assert usage(play, "a") == 0
    play.change("a1", **change)
    assert usage(play, "a") == 0


def test_lane_of_a_deleted_local_queue_is_sorted_when_that_is_created_again() -> None:
    play = shared()
    play.submit("a1", "a", 4)
    play.submit("a2", "a", 4)
    play.decide()
    play.send(happened.LocalQueueDeleted(key("a")))
    play.submit("b1", "b", 1)
    play.send(happened.LocalQueueChanged(LocalQueue(key("a"), "q", fair_weight=Fraction(0))))
    play.finish("a1")
    assert play.decide() == ["b1"]


def test_eviction_keeps_the_charge_and_the_next_reservation_costs_nothing() -> None:
    play = shared()
    play.submit("a1", "a", 4)
    play.decide()
    play.leave("a1")
    assert play.decide() == ["a1"]
    play.cycles()
    assert usage(play, "a") == 2


def test_time_passes_for_each_queue_in_its_intervals() -> None:
    play = shared()
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


def test_a_change_of_weight_changes_the_turns() -> None:
    play = shared()
    play.submit("a1", "a", 1)
    play.decide()
    play.cycles()
    play.submit("a2", "a", 1)
    play.submit("b1", "b", 1)
    play.send(happened.LocalQueueChanged(LocalQueue(key("b"), "q", fair_weight=Fraction(0))))
    assert usage(play, "b") is None
    assert play.decide() == ["a2", "b1"]


def test_queue_starts_with_the_usage_in_its_status() -> None:
    play = shared()
    seeded = ConsumedResources((("cpu", 7),), play.now)
    play.send(happened.LocalQueueChanged(LocalQueue(key("c"), "q", consumed=seeded)))
    assert status(play, "c").consumed == seeded


def test_a_queue_that_comes_to_go_by_usage_sorts_anew() -> None:
    play = shared(by_usage=False)
    play.submit("full", "b", 4)
    play.decide()
    for name, of in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        play.submit(name, of, 1)
    play.decide()
    play.send(happened.ClusterQueueChanged(queue("q", 4, usage_based_admission=True)))
    play.finish("full")
    assert play.decide() == ["a1", "b1", "a2", "b2"]


def test_a_dump_holds_the_books() -> None:
    play = shared()
    for name, of in (("a1", "a"), ("b1", "b")):
        play.submit(name, of, 2)
    play.decide()
    play.finish("a1")
    before = play.state.to_dict()
    play.restart()
    assert play.state.to_dict() == before
