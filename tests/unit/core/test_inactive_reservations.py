"""Whether an inactive workload that still shows a reservation is charged to its ClusterQueue."""

from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.model import SECOND, Admission, Instant, PodSetAssignment
from admitq.core.settings import CoreSettings
from tests.unit.core.small_cluster import SmallCluster, key, queue

EARLY, RESERVED, EVICTED, LATE = (at * SECOND for at in (100, 200, 300, 400))
INACTIVE: dict[str, Any] = {"active": False, "evicted": True, "evicted_at": EVICTED}


def has_reservations(cluster: SmallCluster) -> bool:
    return cluster.state.queries.cluster_queue_has_reservations("a")


def show_reservation(cluster: SmallCluster, name: str = "old", cpu: int = 2, **fields: Any) -> None:
    """Submit a workload that already has a reservation in ClusterQueue ``a``."""
    assigned = PodSetAssignment("main", (("cpu", "default"),), (("cpu", cpu),), 1)
    shown: dict[str, Any] = {
        "admission": Admission("a", (assigned,)),
        "admitted": True,
        "reserved_at": RESERVED,
        **fields,
    }
    cluster.submit(name, "a", cpu, **shown)


def create(cluster: SmallCluster, created_at: Instant) -> None:
    cluster.put(queue("a", 2, created_at=created_at))


def new_workload_waits(cluster: SmallCluster) -> bool:
    """Submit a workload, and return whether it waits for quota."""
    cluster.submit("new", "a", 2)
    return not cluster.decide()


@pytest.mark.parametrize("created_at", [EVICTED + SECOND, LATE])
@pytest.mark.parametrize("queue_first", [False, True])
def test_a1_inactive_workload_is_not_charged_to_cluster_queue_created_after_its_eviction(
    created_at: Instant, queue_first: bool
) -> None:
    cluster = SmallCluster()
    if queue_first:
        create(cluster, created_at)
    show_reservation(cluster, **INACTIVE)
    if not queue_first:
        create(cluster, created_at)
    assert not has_reservations(cluster), "the reservation would block the deletion of the ClusterQueue"
    assert not new_workload_waits(cluster)


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
    cluster = SmallCluster()
    if queue_first:
        create(cluster, LATE)
    show_reservation(cluster, **shown)
    if not queue_first:
        create(cluster, LATE)
    assert has_reservations(cluster)
    assert new_workload_waits(cluster)


def test_a1_workload_that_is_deactivated_is_charged_until_its_job_has_stopped() -> None:
    cluster = SmallCluster()
    create(cluster, EARLY)
    show_reservation(cluster)
    cluster.change("old", active=False)
    cluster.change("old", **INACTIVE)
    assert new_workload_waits(cluster)
    cluster.restart()
    assert has_reservations(cluster)
    cluster.change("old", admission=None, admitted=False, reserved_at=0)
    assert not has_reservations(cluster)
    assert cluster.decide() == ["new"]


def test_a1_charge_of_an_inactive_workload_ends_when_its_cluster_queue_is_created_again() -> None:
    cluster = SmallCluster()
    create(cluster, EARLY)
    show_reservation(cluster, **INACTIVE)
    assert new_workload_waits(cluster)
    cluster.send(happened.ClusterQueueDeleted("a"))
    create(cluster, LATE)
    assert not has_reservations(cluster)
    assert cluster.decide() == ["new"]
    cluster.delete("old")


def test_a1_inactive_workload_that_is_activated_again_is_charged() -> None:
    cluster = SmallCluster()
    create(cluster, LATE)
    show_reservation(cluster, **INACTIVE)
    assert not has_reservations(cluster)
    cluster.change("old", active=True)
    assert new_workload_waits(cluster)


def test_a1_admission_does_not_wait_for_pods_of_a_workload_that_is_not_charged() -> None:
    cluster = SmallCluster(settings=CoreSettings(block_admission=True))
    show_reservation(cluster, **INACTIVE)
    create(cluster, LATE)
    assert not new_workload_waits(cluster)


def test_a1_replacement_of_uncharged_workload_is_charged_in_full() -> None:
    cluster = SmallCluster()
    show_reservation(cluster, **INACTIVE)
    show_reservation(cluster, "larger", 2, replaces=key("old"), reserved_at=LATE)
    create(cluster, LATE)
    assert new_workload_waits(cluster)
