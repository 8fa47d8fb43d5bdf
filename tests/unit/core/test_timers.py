"""Workloads that must not be evaluated before an instant."""

from admitq.core.waiting.pending import PendingEntry, new_pending
from admitq.core.waiting.timers import Timers
from admitq.core.waiting.wait_states import BACKOFF_ENDED, BACKOFF_SET, QUEUED, Backoff
from tests.unit.core.pending_workloads import workload


def _hold_back(timers: Timers, name: str, until: int) -> PendingEntry:
    pending = new_pending(workload(name))
    _set_backoff(timers, pending, until)
    return pending


def _set_backoff(timers: Timers, pending: PendingEntry, until: int) -> None:
    pending.change_state(BACKOFF_SET, Backoff(until))
    timers.add("q", pending)


def _end_due_backoffs(timers: Timers, now: int) -> list[str]:
    """End the backoffs that are due, and return the names of their workloads."""
    names: list[str] = []
    while (due := timers.pop_due(now)) is not None:
        cluster_queue, pending = due
        assert cluster_queue == "q"
        pending.change_state(BACKOFF_ENDED, QUEUED)
        names.append(pending.workload.key.name)
    return names


def test_timers_without_workloads_are_never_due() -> None:
    timers = Timers()
    assert (timers.next_at(), timers.pop_due(10**18)) == (None, None)


def test_backoffs_end_in_order_of_their_instants() -> None:
    timers = Timers()
    for name, until in (("late", 9), ("b", 5), ("a", 5), ("early", 3)):
        _hold_back(timers, name, until)
    assert timers.next_at() == 3
    assert _end_due_backoffs(timers, 2) == []
    assert _end_due_backoffs(timers, 3) == ["early"]
    assert _end_due_backoffs(timers, 8) == ["a", "b"]
    assert timers.next_at() == 9
    assert _end_due_backoffs(timers, 10) == ["late"]
    assert timers.next_at() is None


def test_backoff_that_was_set_again_ends_once_at_its_latest_instant() -> None:
    timers = Timers()
    pending = _hold_back(timers, "a", 3)
    for until in (7, 5):
        _set_backoff(timers, pending, until)
    assert _end_due_backoffs(timers, 4) == []
    assert timers.next_at() == 5
    assert _end_due_backoffs(timers, 9) == ["a"]
    assert timers.next_at() is None


def test_backoff_that_was_set_twice_to_one_instant_ends_once() -> None:
    timers = Timers()
    pending = _hold_back(timers, "a", 3)
    _set_backoff(timers, pending, 3)
    assert _end_due_backoffs(timers, 3) == ["a"]


def test_backoff_of_workload_that_is_no_longer_held_back_is_not_due() -> None:
    timers = Timers()
    pending = _hold_back(timers, "a", 3)
    pending.change_state(BACKOFF_ENDED, QUEUED)
    assert (timers.next_at(), timers.pop_due(9)) == (None, None)
