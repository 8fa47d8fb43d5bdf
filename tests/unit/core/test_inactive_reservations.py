"""Whether an inactive workload that still shows a reservation is charged to its ClusterQueue."""

from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.model import SECOND, Admission, Instant, PodSetAssignment
from admitq.core.settings import CoreSettings
from tests.unit.core.play import Play, key, queue

EARLY, RESERVED, EVICTED, LATE = (at * SECOND for at in (100, 200, 300, 400))
INACTIVE: dict[str, Any] = {"active": False, "evicted": True, "evicted_at": EVICTED}


def has_reservations(play: Play) -> bool:
    return play.state.queries.cluster_queue_has_reservations("a")


def show_reservation(play: Play, name: str = "old", cpu: int = 2, **fields: Any) -> None:
    """Submit a workload that already has a reservation in ClusterQueue ``a``."""
    assigned = PodSetAssignment("main", (("cpu", "default"),), (("cpu", cpu),), 1)
    shown: dict[str, Any] = {
        "admission": Admission("a", (assigned,)),
        "admitted": True,
        "reserved_at": RESERVED,
        **fields,
    }
    play.submit(name, "a", cpu, **shown)


def create(play: Play, created_at: Instant) -> None:
    play.put(queue("a", 2, created_at=created_at))


def new_workload_waits(play: Play) -> bool:
    """Submit a workload, and return whether it waits for quota."""
    play.submit("new", "a", 2)
    return not play.decide()


@pytest.mark.parametrize("created_at", [EVICTED + SECOND, LATE])
@pytest.mark.parametrize("queue_first", [False, True])
def test_a1_inactive_workload_is_not_charged_to_cluster_queue_created_after_its_eviction(
    created_at: Instant, queue_first: bool
) -> None:
    play = Play()
    if queue_first:
        create(play, created_at)
    show_reservation(play, **INACTIVE)
    if not queue_first:
        create(play, created_at)
    assert not has_reservations(play), "the reservation would block the deletion of the ClusterQueue"
    assert not new_workload_waits(play)


@pytest.mark.parametrize(
    "shown",
    [
        {**INACTIVE, "active": True},
        {"active": False},
        {"active": False, "evicted": True},
        {**INACTIVE, "reserved_at": LATE + SECOND},
        {**INACTIVE, "evicted_at": LATE + SECOND},
        {**INACTIVE, "evicted_at": LATE},
        {**INACTIVE, "reserved_at": LATE},
    ],
    ids=[
        "active",
        "not-evicted-yet",
        "evicted-at-an-unknown-time",
        "reserved-since",
        "evicted-since",
        "evicted-in-the-same-second",
        "reserved-in-the-same-second",
    ],
)
@pytest.mark.parametrize("queue_first", [False, True])
def test_a1_workload_that_may_run_is_charged_to_cluster_queue_created_after_its_reservation(
    shown: Any, queue_first: bool
) -> None:
    play = Play()
    if queue_first:
        create(play, LATE)
    show_reservation(play, **shown)
    if not queue_first:
        create(play, LATE)
    assert has_reservations(play)
    assert new_workload_waits(play)


def test_a1_workload_that_is_deactivated_is_charged_until_its_job_has_stopped() -> None:
    play = Play()
    create(play, EARLY)
    show_reservation(play)
    play.change("old", active=False)
    play.change("old", **INACTIVE)
    assert new_workload_waits(play)
    play.restart()
    assert has_reservations(play)
    play.change("old", admission=None, admitted=False, reserved_at=0)
    assert not has_reservations(play)
    assert play.decide() == ["new"]


def test_a1_charge_of_an_inactive_workload_ends_when_its_cluster_queue_is_created_again() -> None:
    play = Play()
    create(play, EARLY)
    show_reservation(play, **INACTIVE)
    assert new_workload_waits(play)
    play.send(happened.ClusterQueueDeleted("a"))
    create(play, LATE)
    assert not has_reservations(play)
    assert play.decide() == ["new"]
    play.delete("old")


def test_a1_inactive_workload_that_is_activated_again_is_charged() -> None:
    play = Play()
    create(play, LATE)
    show_reservation(play, **INACTIVE)
    assert not has_reservations(play)
    play.change("old", active=True)
    assert new_workload_waits(play)


def test_a1_admission_does_not_wait_for_pods_of_a_workload_that_is_not_charged() -> None:
    play = Play(settings=CoreSettings(block_admission=True))
    show_reservation(play, **INACTIVE)
    create(play, LATE)
    assert not new_workload_waits(play)


def test_a1_replacement_of_uncharged_workload_is_charged_in_full() -> None:
    play = Play()
    show_reservation(play, **INACTIVE)
    show_reservation(play, "larger", 2, replaces=key("old"), reserved_at=LATE)
    create(play, LATE)
    assert new_workload_waits(play)
