"""A state that replaces another one contains its observations and the reservations being written."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from admitq.core import dump
from admitq.core import events as happened
from admitq.core.instructions import ReserveQuota
from admitq.core.state import AdmissionState
from tests.unit.core.small_cluster import SmallCluster, key, queue


def cluster_with_reservation() -> tuple[SmallCluster, ReserveQuota]:
    """Return a cluster with two workloads of which only one fits, and the reservation of that one."""
    cluster = SmallCluster()
    cluster.put(queue("q", 4))
    cluster.submit("first", "q", cpu=3)
    cluster.submit("second", "q", cpu=3)
    [reservation] = [each for each in cluster.cycles() if isinstance(each, ReserveQuota)]
    return cluster, reservation


def observe_again(cluster: SmallCluster) -> AdmissionState:
    """Return a new state that observed the same objects."""
    new_state = cluster.state.empty()
    for event in dump.observations(cluster.state.to_dump()):
        new_state.observe(event, now=cluster.now)
    return new_state


def charged(state: AdmissionState, name: str) -> int:
    return sum(amount for _, amount in state.queries.usage_of_workload(key(name)))


def test_reservation_that_is_being_written_is_counted_in_new_state() -> None:
    cluster, reservation = cluster_with_reservation()
    queries, new_state = cluster.state.queries, observe_again(cluster)
    cycles = queries.cycles_run
    new_state.assume(reservation, now=cluster.now)
    cluster.state.replace_with(new_state)
    assert (charged(cluster.state, "first"), cluster.state.queries.cycles_run) == (3, cycles)
    assert queries.usage_of_workload(key("first")) == cluster.state.queries.usage_of_workload(key("first"))
    assert cluster.state.deciding is None
    assert cluster.decide() == []
    cluster.send(happened.ReservationDiscarded(reservation.key, reservation.uid))
    assert cluster.decide() == ["first"]


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(lambda cluster: cluster.delete("first"), id="deleted"),
        pytest.param(
            lambda cluster: cluster.put_workload(replace(cluster.workloads["first"], uid="other")),
            id="recreated",
        ),
        pytest.param(lambda cluster: cluster.finish("first"), id="finished"),
    ],
)
def test_reservation_without_workload_is_not_counted(meanwhile: Callable[[SmallCluster], None]) -> None:
    cluster, reservation = cluster_with_reservation()
    meanwhile(cluster)
    new_state = observe_again(cluster)
    new_state.assume(reservation, now=cluster.now)
    assert charged(new_state, "first") == 0
    new_state.instructions()
    new_state.validate()


def test_reservation_that_was_observed_is_counted_once() -> None:
    cluster, reservation = cluster_with_reservation()
    cluster.change("first", admission=reservation.admission, admitted=True)
    new_state = observe_again(cluster)
    new_state.assume(reservation, now=cluster.now)
    assert charged(new_state, "first") == 3
    new_state.instructions()
    new_state.validate()
