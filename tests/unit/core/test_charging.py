"""When LocalQueues are charged for workloads, and the order of their workloads that follows."""

from fractions import Fraction

import pytest

from admitq.core import events as happened
from admitq.core.instructions import RefreshLocalQueue
from admitq.core.model import SECOND, ConsumedResources, LocalQueue, PodSet, Workload
from admitq.core.requests import template_requesting
from admitq.core.settings import AdmissionFairSharing, CoreSettings, Gates
from admitq.core.state import AdmissionState
from admitq.core.statuses import LocalQueueStatus
from admitq.core.waiting.queue_positions import Window
from tests.unit.core.small_cluster import SmallCluster, key, queue, reserved

MINUTE = 60 * SECOND
SHARING = AdmissionFairSharing(half_life=5 * MINUTE, sampling_interval=5 * MINUTE)
"""After one interval, past usage is half of the current use."""


def cluster_with_shared_queue(gates: Gates = Gates(), *, by_usage: bool = True) -> SmallCluster:  # noqa: B008 frozen
    """Return a cluster with a ClusterQueue of 4 CPUs that LocalQueues ``a`` and ``b`` share."""
    cluster = SmallCluster(CoreSettings(admission_fair_sharing=SHARING, gates=gates))
    cluster.put(queue("q", 4, usage_based_admission=by_usage))
    for name in ("a", "b"):
        cluster.send(happened.LocalQueueChanged(LocalQueue(key(name), "q")))
    return cluster


def status(cluster: SmallCluster, name: str) -> LocalQueueStatus:
    queried = cluster.state.queries.local_queue_status(key(name))
    assert queried is not None
    return queried


def usage(cluster: SmallCluster, name: str) -> Fraction | None:
    """Return the past usage by which the LocalQueue is ordered, in the units of this test."""
    amount = status(cluster, name).weighted_past_usage
    return None if amount is None else amount * 1000


def test_local_queues_alternate_because_reservation_is_charged_at_once() -> None:
    cluster = cluster_with_shared_queue()
    for name, local_queue in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        cluster.submit(name, local_queue, 1)
    assert reserved(cluster.cycles()) == ["a1", "b1", "a2", "b2"]
    assert (usage(cluster, "a"), usage(cluster, "b")) == (1, 1)


def test_local_queue_is_not_charged_without_usage_based_admission() -> None:
    cluster = cluster_with_shared_queue(by_usage=False)
    for name, local_queue in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        cluster.submit(name, local_queue, 1)
    assert cluster.decide() == ["a1", "a2", "b1"]
    cluster.cycles()
    assert (usage(cluster, "a"), usage(cluster, "b")) == (0, 0)
    assert cluster.is_quiet


def test_d20_past_usage_is_reported_with_zero_entries_without_usage_based_admission() -> None:
    cluster = cluster_with_shared_queue(by_usage=False)
    assert status(cluster, "a").consumed == ConsumedResources((("cpu", 0),), cluster.now)
    cluster.submit("a1", "a", 4)
    cluster.decide()
    admitted_at = cluster.now
    cluster.now += 5 * MINUTE
    assert RefreshLocalQueue(key("a")) in cluster.cycles()
    assert admitted_at < cluster.now
    assert status(cluster, "a").consumed == ConsumedResources((("cpu", 2),), cluster.now)
    assert status(cluster, "b").consumed == ConsumedResources((("cpu", 0),), cluster.now)


def test_d20_past_usage_is_reported_without_cluster_queue() -> None:
    cluster = cluster_with_shared_queue()
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("dangling"), "nowhere")))
    assert status(cluster, "dangling").consumed == ConsumedResources((), cluster.now)
    cluster.put(queue("nowhere", 2))
    assert status(cluster, "dangling").consumed == ConsumedResources((("cpu", 0),), cluster.now)


def test_d20_past_usage_is_not_reported_without_configuration() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 4, usage_based_admission=True))
    assert status(cluster, "q").consumed is None


def test_local_queue_is_not_charged_when_gate_is_off() -> None:
    cluster = cluster_with_shared_queue(Gates(admission_fair_sharing=False))
    for name, local_queue in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        cluster.submit(name, local_queue, 1)
    assert cluster.decide() == ["a1", "a2", "b1"]
    cluster.delete("a1")
    cluster.send(happened.LocalQueueDeleted(key("b")))
    assert cluster.is_quiet


def test_charge_of_admitted_workload_is_settled_by_next_cycles() -> None:
    cluster = cluster_with_shared_queue()
    cluster.submit("a1", "a", 4)
    cluster.decide()
    assert not cluster.is_quiet
    assert status(cluster, "a").consumed == ConsumedResources((("cpu", 0),), cluster.now)
    assert RefreshLocalQueue(key("a")) in cluster.cycles()
    assert status(cluster, "a").consumed == ConsumedResources((("cpu", 2),), cluster.now)
    assert cluster.is_quiet


def test_charge_is_settled_at_its_own_time_by_later_event() -> None:
    cluster = cluster_with_shared_queue()
    cluster.submit("a1", "a", 4)
    cluster.decide()
    admitted_at = cluster.now
    cluster.now += MINUTE
    cluster.submit("b1", "b", 1)
    assert status(cluster, "a").consumed == ConsumedResources((("cpu", 2),), admitted_at)


@pytest.mark.parametrize("leave", ["finish", "delete", "leave_queue"])
def test_workload_that_leaves_right_after_admission_is_charged(leave: str) -> None:
    cluster = cluster_with_shared_queue()
    cluster.submit("a1", "a", 4)
    cluster.decide()
    if leave == "finish":
        cluster.finish("a1")
    elif leave == "delete":
        cluster.delete("a1")
    else:
        cluster.change("a1", queue_name="b")
    cluster.restart()
    cluster.cycles()
    assert usage(cluster, "a") == 2


def test_local_queue_is_refreshed_when_charge_is_rolled_back_without_cluster_queue() -> None:
    cluster = cluster_with_shared_queue()
    cluster.submit("a1", "a", 4)
    cluster.decide()
    cluster.send(happened.ClusterQueueDeleted("q"))
    cluster.delete("a1")
    assert usage(cluster, "a") == 2
    assert RefreshLocalQueue(key("a")) in cluster.cycles()
    assert usage(cluster, "a") == 0


@pytest.mark.parametrize(
    "change",
    [{"finished": True}, {"active": False}, {"queue_name": "b"}],
)
def test_charge_is_rolled_back_when_reservation_ends(change: dict[str, object]) -> None:
    cluster = cluster_with_shared_queue()
    cluster.submit("a1", "a", 4)
    cluster.cycles()
    assert usage(cluster, "a") == 2
    if "active" in change:
        cluster.send(happened.ReservationFailed(key("a1"), "uid-a1"))
        assert usage(cluster, "a") == 0
    cluster.change("a1", **change)
    assert usage(cluster, "a") == 0


def test_lane_is_sorted_again_when_its_local_queue_is_recreated() -> None:
    cluster = cluster_with_shared_queue()
    cluster.submit("a1", "a", 4)
    cluster.submit("a2", "a", 4)
    cluster.decide()
    cluster.send(happened.LocalQueueDeleted(key("a")))
    cluster.submit("b1", "b", 1)
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("a"), "q", fair_weight=Fraction(0))))
    cluster.finish("a1")
    assert cluster.decide() == ["b1"]


def test_evicted_workload_keeps_its_charge_and_is_not_charged_again() -> None:
    cluster = cluster_with_shared_queue()
    cluster.submit("a1", "a", 4)
    cluster.decide()
    cluster.leave("a1")
    assert cluster.decide() == ["a1"]
    cluster.cycles()
    assert usage(cluster, "a") == 2


def test_local_queue_is_sampled_once_per_interval() -> None:
    cluster = cluster_with_shared_queue()
    cluster.submit("a1", "a", 4)
    cluster.decide()
    cluster.cycles()
    due = cluster.state.next_wakeup(cluster.now)
    assert due == cluster.now + 5 * MINUTE
    cluster.restart()
    assert cluster.state.next_wakeup(cluster.now) == due
    cluster.now += 5 * MINUTE
    assert not cluster.is_quiet
    assert RefreshLocalQueue(key("a")) in cluster.cycles()
    assert usage(cluster, "a") == 1 + 2
    assert cluster.state.next_wakeup(cluster.now) == cluster.now + 5 * MINUTE
    cluster.finish("a1")
    cluster.now += 5 * MINUTE
    cluster.cycles()
    assert usage(cluster, "a") == Fraction(3, 2)
    cluster.send(happened.LocalQueueDeleted(key("a")))
    cluster.cycles()


def test_changed_weight_changes_order_of_local_queues() -> None:
    cluster = cluster_with_shared_queue()
    cluster.submit("a1", "a", 1)
    cluster.decide()
    cluster.cycles()
    cluster.submit("a2", "a", 1)
    cluster.submit("b1", "b", 1)
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("b"), "q", fair_weight=Fraction(0))))
    assert usage(cluster, "b") is None
    assert cluster.decide() == ["a2", "b1"]


def test_local_queue_starts_with_past_usage_of_its_status() -> None:
    cluster = cluster_with_shared_queue()
    seeded = ConsumedResources((("cpu", 7),), cluster.now)
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("c"), "q", consumed=seeded)))
    assert status(cluster, "c").consumed == seeded


def test_queue_is_sorted_again_when_usage_based_admission_is_enabled() -> None:
    cluster = cluster_with_shared_queue(by_usage=False)
    cluster.submit("full", "b", 4)
    cluster.decide()
    for name, local_queue in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        cluster.submit(name, local_queue, 1)
    cluster.decide()
    cluster.send(happened.ClusterQueueChanged(queue("q", 4, usage_based_admission=True)))
    cluster.finish("full")
    assert cluster.decide() == ["a1", "b1", "a2", "b2"]


def test_dump_contains_usage_accounts() -> None:
    cluster = cluster_with_shared_queue()
    for name, local_queue in (("a1", "a"), ("b1", "b")):
        cluster.submit(name, local_queue, 2)
    cluster.decide()
    cluster.finish("a1")
    before = cluster.state.to_dict()
    cluster.restart()
    assert cluster.state.to_dict() == before


# --- a state that only observes -------------------------------------------------------------------------


class Observer:
    """A state that neither decides nor writes statuses. LocalQueues ``a`` and ``b`` have workloads."""

    def __init__(self) -> None:
        self.now = 100 * MINUTE
        settings = CoreSettings(admission_fair_sharing=SHARING)
        self.state = AdmissionState(settings, statuses=False, cycles=False)
        self.send(happened.ClusterQueueChanged(queue("q", 4, usage_based_admission=True)))
        for name in ("a", "b"):
            self.put(name, 0)
            self.send(happened.WorkloadChanged(workload_in(name)))

    def send(self, event: happened.Event) -> None:
        self.state.observe(event, now=self.now)

    def put(self, name: str, consumed: int) -> None:
        """Observe a LocalQueue with consumed CPUs in its status."""
        stated = ConsumedResources((("cpu", consumed * 1000),), self.now)
        self.send(happened.LocalQueueChanged(LocalQueue(key(name), "q", consumed=stated)))

    @property
    def order(self) -> list[str]:
        listed = self.state.queries.list_cluster_queue("q", Window(10))
        return [each.local_queue.name for each in listed or ()]


def workload_in(local_queue: str) -> Workload:
    pods = (PodSet("main", 1, template_requesting({"cpu": 1})),)
    return Workload(key(f"of-{local_queue}"), local_queue, local_queue, queued_at=1, pod_sets=pods)


def test_observer_takes_past_usage_from_each_changed_status() -> None:
    observer = Observer()
    observer.put("a", 5)
    assert observer.order == ["b", "a"]
    observer.now += MINUTE
    observer.put("b", 9)
    assert observer.order == ["a", "b"]


def test_observer_keeps_its_account_if_the_status_is_the_same() -> None:
    observer = Observer()
    observer.put("a", 5)
    stated = observer.state.queries.local_queue_status(key("a"))
    observer.now += 10 * MINUTE
    observer.send(happened.CyclesRequested())
    decayed = observer.state.queries.local_queue_status(key("a"))
    assert decayed != stated
    before = ConsumedResources((("cpu", 5000),), 100 * MINUTE)
    spec = LocalQueue(key("a"), "q", fair_weight=Fraction(2), consumed=before)
    observer.send(happened.LocalQueueChanged(spec))
    after = observer.state.queries.local_queue_status(key("a"))
    assert decayed is not None
    assert after is not None
    assert after.consumed == decayed.consumed


def test_manager_keeps_its_account_when_the_status_changes() -> None:
    cluster = cluster_with_shared_queue()
    stated = ConsumedResources((("cpu", 5000),), cluster.now)
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("a"), "q", consumed=stated)))
    assert usage(cluster, "a") == 0
