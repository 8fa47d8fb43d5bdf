"""Contract of the state's methods, beyond what scenarios show."""

from dataclasses import replace
from fractions import Fraction

import pytest

from admitq.core import events as happened
from admitq.core.amounts import FlavorResource
from admitq.core.instructions import (
    Instruction,
    RefreshClusterQueue,
    RefreshCohort,
    RefreshLocalQueue,
    ReserveQuota,
)
from admitq.core.lifecycle import Phase
from admitq.core.model import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    LabelSelector,
    LimitedType,
    LimitRange,
    LimitRangeItem,
    LocalQueue,
    ObjectKey,
    PodSet,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    StopPolicy,
    Workload,
)
from admitq.core.refusals import NamespaceMismatch
from admitq.core.requests import template_requesting
from admitq.core.settings import AdmissionFairSharing, CoreSettings, FairSharing
from admitq.core.state import AdmissionState
from admitq.core.statuses import FlavorTotals, ResourceTotal
from tests.unit.core.small_cluster import LOWER, SmallCluster, group, key, queue, reserved

CPU = FlavorResource("default", "cpu")
FIRST, SECOND, THIRD = (ObjectKey("n", name) for name in ("first", "second", "third"))


def workload(key: ObjectKey, cpu: int = 2, uid: str | None = None) -> Workload:
    pods = (PodSet("main", 1, template_requesting({"cpu": cpu})),)
    return Workload(key, uid or f"uid-{key.name}", "main", 0, pods)


@pytest.fixture
def state() -> AdmissionState:
    """Return a ClusterQueue of 3 CPUs in a cohort, with one admitted and two waiting workloads."""
    group = ResourceGroup(("cpu",), (FlavorQuotas("default", (("cpu", ResourceQuota(3)),)),))
    state = AdmissionState()
    for event in (
        happened.NamespaceChanged("n", ()),
        happened.ResourceFlavorChanged(ResourceFlavor("default")),
        happened.ClusterQueueChanged(
            ClusterQueue("q", "", "org", (group,), namespace_selector=LabelSelector())
        ),
        happened.LocalQueueChanged(LocalQueue(ObjectKey("n", "main"), "q")),
        *(happened.WorkloadChanged(workload(each)) for each in (FIRST, SECOND, THIRD)),
        happened.CyclesRequested(),
    ):
        state.handle(event, now=1)
    state.validate()
    return state


def test_fork_is_independent(state: AdmissionState) -> None:
    before = state.to_dict()
    fork = state.fork()
    fork.handle(happened.WorkloadDeleted(FIRST, "uid-first"), now=2)
    decided = fork.handle(happened.CyclesRequested(), now=2)
    assert any(isinstance(each, ReserveQuota) for each in decided)
    assert state.to_dict() == before


def test_event_with_uid_of_another_object_is_ignored(state: AdmissionState) -> None:
    before = state.to_dict()
    assert state.handle(happened.WorkloadDeleted(FIRST, "uid-of-another"), now=2) == []
    assert state.handle(happened.ReservationFailed(FIRST, "uid-of-another"), now=2) == []
    assert state.handle(happened.ReservationFailed(ObjectKey("n", "unknown"), "x"), now=2) == []
    assert state.to_dict() == before


@pytest.mark.parametrize(
    "event",
    [
        happened.ClusterQueueDeleted("unknown"),
        happened.CohortDeleted("unknown"),
        happened.CohortDeleted("org"),
        happened.LocalQueueDeleted(ObjectKey("n", "unknown")),
        happened.ResourceFlavorDeleted("unknown"),
        happened.AdmissionCheckDeleted("unknown"),
        happened.TopologyDeleted("unknown"),
        happened.NamespaceDeleted("unknown"),
        happened.LimitRangeDeleted(ObjectKey("n", "unknown")),
        happened.RuntimeClassDeleted("unknown"),
        happened.PreemptionFailed(ObjectKey("n", "unknown"), "x"),
        happened.WorkloadDeleted(ObjectKey("n", "unknown"), "x"),
    ],
)
def test_deletion_of_an_unknown_object_changes_nothing(state: AdmissionState, event: happened.Event) -> None:
    before = state.to_dict()
    assert state.handle(event, now=2) == []
    assert state.to_dict() == before


@pytest.mark.parametrize("key", [FIRST, SECOND], ids=["admitted", "pending"])
def test_finished_workload_leaves_nothing_behind_when_it_is_deleted(
    state: AdmissionState, key: ObjectKey
) -> None:
    state.handle(happened.WorkloadChanged(replace(workload(key), finished=True)), now=2)
    for name in (FIRST, SECOND, THIRD):
        state.handle(happened.WorkloadDeleted(name, f"uid-{name.name}"), now=2)
    state.validate()
    state.handle(happened.CyclesRequested(), now=2)
    assert (state.queries.workload_phase(key), state.queries.count_scheduling_keys("q")) == (None, (0, 0))
    assert not state.queries.cluster_queue_has_reservations("q")
    world = state._world  # pyright: ignore[reportPrivateUsage]
    assert (world.indexes.workloads_by_local_queue, world.indexes.local_queues_by_namespace) == ({}, {})


def test_status_lists_flavor_once_that_queue_has_in_several_groups() -> None:
    cluster = SmallCluster()
    memory = FlavorQuotas("default", (("memory", ResourceQuota(7)),))
    groups = (*group(("default", 4)), ResourceGroup(("memory",), (memory,)))
    cluster.put(queue("q", resource_groups=groups))
    cluster.submit("one", "q", 2)
    cluster.run("one")
    queries = cluster.state.queries
    for status in (queries.cluster_queue_status("q"), queries.local_queue_status(key("q"))):
        assert status is not None
        expected = (FlavorTotals("default", (ResourceTotal("cpu", 2, 0), ResourceTotal("memory", 0, 0))),)
        assert (status.flavors_reservation, status.flavors_usage) == (expected, expected)


def test_cycles_stop_at_requested_limit() -> None:
    state = AdmissionState()
    group = ResourceGroup(("cpu",), (FlavorQuotas("default", (("cpu", ResourceQuota(9)),)),))
    for event in (
        happened.NamespaceChanged("n", ()),
        happened.ResourceFlavorChanged(ResourceFlavor("default")),
        happened.ClusterQueueChanged(
            ClusterQueue("q", "", None, (group,), namespace_selector=LabelSelector())
        ),
        happened.LocalQueueChanged(LocalQueue(ObjectKey("n", "main"), "q")),
        *(happened.WorkloadChanged(workload(each)) for each in (FIRST, SECOND, THIRD)),
    ):
        state.handle(event, now=1)
    for limit, expected in ((0, []), (2, [FIRST, SECOND]), (None, [THIRD])):
        assert state.next_wakeup(5) == 5
        decided = state.handle(happened.CyclesRequested(limit), now=5)
        assert [each.key for each in decided if isinstance(each, ReserveQuota)] == expected
    assert state.next_wakeup(5) is None


def test_queries_of_unknown_objects_return_none(state: AdmissionState) -> None:
    unknown = ObjectKey("n", "unknown")
    assert state.queries.cluster_queue_status("unknown") is None
    assert state.queries.is_cluster_queue_active("unknown") is None
    assert state.queries.local_queue_status(unknown) is None
    assert not state.queries.has_local_queue(unknown)
    assert state.queries.cohort_status("unknown") is None
    assert state.queries.workload_phase(unknown) is None
    assert state.queries.last_refusal(unknown) is None
    assert state.queries.find_inadmissibility(unknown) is None
    assert not state.queries.is_bypassed(unknown)
    assert not state.queries.cluster_queue_has_reservations("unknown")


def test_usage_of_workload_counts_from_decision_until_it_finishes(
    state: AdmissionState,
) -> None:
    assert state.queries.usage_of_workload(FIRST) == ((CPU, 2),)
    assert state.queries.usage_of_workload(SECOND) == ()
    assert state.queries.usage_of_workload(ObjectKey("n", "unknown")) == ()
    state.handle(happened.WorkloadChanged(replace(workload(FIRST), finished=True)), now=2)
    assert state.queries.usage_of_workload(FIRST) == ()


def test_scheduling_keys_are_counted_while_pending_workloads_have_them(state: AdmissionState) -> None:
    assert state.queries.count_scheduling_keys("q") == (0, 1)
    state.handle(happened.WorkloadChanged(workload(THIRD, cpu=1)), now=2)
    assert state.queries.count_scheduling_keys("q") == (1, 1)
    state.handle(happened.WorkloadDeleted(SECOND, "uid-second"), now=2)
    assert state.queries.count_scheduling_keys("q") == (1, 0)
    assert state.queries.count_scheduling_keys("unknown") == (0, 0)


def test_d19_scheduling_keys_of_inactive_cluster_queue_are_inadmissible() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2))
    for name, cpu in (("parked", 3), ("equal", 3), ("fits", 1)):
        cluster.submit(name, "q", cpu=cpu)
    cluster.decide()
    cluster.submit("ready", "q", cpu=2)
    assert cluster.state.queries.count_scheduling_keys("q") == (1, 1)
    assert cluster.state.queries.pending_requests("q") == {"cpu": 8}
    cluster.send(happened.ClusterQueueChanged(queue("q", 2, stop_policy=StopPolicy.HOLD)))
    assert cluster.state.queries.count_scheduling_keys("q") == (0, 2)
    assert cluster.state.queries.pending_requests("q") == {"cpu": 8}
    assert cluster.state.queries.pending_requests("unknown") == {}


def test_d19_scheduling_key_of_namespace_not_selected_is_inadmissible() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2, namespace_selector=None))
    cluster.submit("not-selected", "q", cpu=1)
    cluster.decide()
    assert cluster.state.queries.count_scheduling_keys("q") == (0, 1)


@pytest.mark.parametrize("reduced", ["count", "reclaimable"])
def test_c14_pending_workload_is_admitted_when_reserved_one_needs_fewer_pods(reduced: str) -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 8))
    pods = PodSet("main", 8, template_requesting({"cpu": 1}))
    cluster.submit("wide", "q", pod_sets=(pods,))
    cluster.run("wide")
    cluster.submit("waits", "q", cpu=2)
    cluster.run()
    if reduced == "count":
        cluster.change("wide", pod_sets=(replace(pods, count=6),))
    else:
        cluster.change("wide", reclaimable_pods=(("main", 2),))
    cluster.run("waits")


@pytest.mark.parametrize("last", ["leaves", "is deleted"])
def test_d19_implicit_cohort_without_members_is_refreshed(last: str) -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2, cohort="org"))
    assert cluster.state.queries.cohort_status("org") is not None
    if last == "leaves":
        instructions = cluster.send(happened.ClusterQueueChanged(queue("q", 2)))
    else:
        instructions = cluster.send(happened.ClusterQueueDeleted("q"))
    assert cluster.state.queries.cohort_status("org") is None
    assert RefreshCohort("org") in instructions


def test_d19_implicit_cohort_of_broken_circle_is_refreshed_when_it_is_dropped() -> None:
    cluster = SmallCluster()
    for name, parent in (("a", "b"), ("b", "a")):
        cluster.send(happened.CohortChanged(Cohort(name, parent, ())))
    cluster.send(happened.CohortDeleted("a"))
    instructions = cluster.send(happened.CohortDeleted("b"))
    assert (cluster.state.queries.cohort_status("a"), cluster.state.queries.cohort_status("b")) == (
        None,
        None,
    )
    assert {RefreshCohort("a"), RefreshCohort("b")} <= {*instructions}


def test_d20_shares_are_exact_and_the_status_rounds_up() -> None:
    cluster = SmallCluster(CoreSettings(fair_sharing=FairSharing()))
    cluster.put(queue("q", 0, cohort="org"), queue("pool", 3, cohort="org"))
    cluster.submit("w", "q", cpu=2)
    cluster.decide()
    status = cluster.state.queries.cluster_queue_status("q")
    assert status is not None
    assert status.share is not None
    assert (status.share.amount, status.share.weighted_share) == (Fraction(2000, 3), 667)


def test_d20_local_queue_without_cluster_queue_counts_nothing() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2))
    for name in ("runs", "waits"):
        cluster.submit(name, "q", cpu=2)
    cluster.decide()
    status = cluster.state.queries.local_queue_status(key("q"))
    assert status is not None
    assert (status.pending, status.reserving, status.admitted) == (1, 1, 1)
    cluster.send(happened.ClusterQueueDeleted("q"))
    status = cluster.state.queries.local_queue_status(key("q"))
    assert status is not None
    assert (status.pending, status.reserving, status.admitted) == (0, 0, 0)
    assert (status.flavors_reservation, status.flavors_usage) == (None, None)
    cluster.put(queue("q", 2))
    status = cluster.state.queries.local_queue_status(key("q"))
    assert status is not None
    assert (status.pending, status.reserving, status.admitted) == (1, 1, 1)


def test_d19_sampling_of_past_usage_counts_no_cycle() -> None:
    sharing = AdmissionFairSharing(half_life=60 * 10**9, sampling_interval=60 * 10**9)
    cluster = SmallCluster(CoreSettings(admission_fair_sharing=sharing))
    cluster.put(queue("q", 2))
    before = cluster.state.queries.cycles_run
    cluster.now += 60 * 10**9
    cluster.cycles()
    assert cluster.state.queries.cycles_run == before
    cluster.submit("w", "q")
    cluster.cycles()
    assert cluster.state.queries.cycles_run == before + 1


def test_admissibility_is_known_before_the_first_attempt(state: AdmissionState) -> None:
    assert state.queries.find_inadmissibility(THIRD) is None
    state.handle(happened.NamespaceDeleted("n"), now=2)
    assert state.queries.find_inadmissibility(THIRD) == NamespaceMismatch()
    assert state.queries.last_refusal(FIRST) is None
    for change, expected in (
        ({"admission_gates": ("gate",)}, NamespaceMismatch()),
        ({"active": False}, None),
        ({"queue_name": "unknown"}, None),
    ):
        state.handle(happened.WorkloadChanged(replace(workload(THIRD), **change)), now=2)
        assert state.queries.find_inadmissibility(THIRD) == expected
    assert state.queries.find_inadmissibility(FIRST) is None, "it holds quota"


def test_workload_that_moves_to_another_local_queue_is_bypassed_there(state: AdmissionState) -> None:
    state.handle(happened.LocalQueueChanged(LocalQueue(ObjectKey("n", "other"), "q")), now=2)
    assert [state.queries.is_bypassed(key) for key in (SECOND, THIRD)] == [False, True]
    state.handle(happened.WorkloadChanged(replace(workload(SECOND), queue_name="other")), now=2)
    assert [state.queries.is_bypassed(key) for key in (SECOND, THIRD)] == [True, True]


def test_retry_of_everything_admits_nothing_after_last_cycle(state: AdmissionState) -> None:
    state.retry_everything()
    assert state.next_wakeup(2) == 2
    assert state.handle(happened.CyclesRequested(), now=2) == []
    assert state.next_wakeup(2) is None


def test_retry_of_everything_evaluates_workloads_of_namespaces_not_selected(state: AdmissionState) -> None:
    state.handle(happened.NamespaceDeleted("n"), now=2)
    state.handle(happened.WorkloadChanged(replace(workload(THIRD), priority=1)), now=2)
    state.handle(happened.CyclesRequested(), now=2)
    assert state.queries.last_refusal(THIRD) == NamespaceMismatch()
    assert state.next_wakeup(2) is None
    state.retry_everything()
    assert state.next_wakeup(2) == 2
    assert _reserved(state.handle(happened.CyclesRequested(), now=2)) == []
    assert state.queries.last_refusal(THIRD) == NamespaceMismatch()
    assert state.next_wakeup(2) is None


def test_unchanged_status_is_not_refreshed(state: AdmissionState) -> None:
    """A stopped LocalQueue has the same status whether its ClusterQueue is active or not."""
    main, stopped = ObjectKey("n", "main"), ObjectKey("n", "stopped")
    event = happened.LocalQueueChanged(LocalQueue(stopped, "q", stop_policy=StopPolicy.HOLD))
    assert state.handle(event, now=2) == [RefreshLocalQueue(stopped)]
    assert state.handle(happened.ResourceFlavorDeleted("default"), now=2) == [
        RefreshClusterQueue("q"),
        RefreshLocalQueue(main),
    ]


def test_refreshes_that_are_not_requested_stay_for_a_later_call(state: AdmissionState) -> None:
    main = ObjectKey("n", "main")
    state.observe(happened.ResourceFlavorDeleted("default"), now=2)
    assert state.instructions(refreshes=False) == []
    assert state.instructions() == [RefreshClusterQueue("q"), RefreshLocalQueue(main)]
    assert state.instructions() == []


def test_cohort_that_is_observed_again_ends_no_waiting(state: AdmissionState) -> None:
    group = ResourceGroup(("cpu",), (FlavorQuotas("default", (("cpu", ResourceQuota(0)),)),))
    event = happened.CohortChanged(Cohort("org", None, (group,)))
    state.handle(event, now=2)
    state.handle(happened.CyclesRequested(), now=2)
    assert state.handle(event, now=2) == []
    assert state.next_wakeup(2) is None


# --- repeated observations, and overhead ----------------------------------------------------------------


def test_object_that_is_observed_again_changes_nothing(state: AdmissionState) -> None:
    bounds = LimitRange((LimitRangeItem(LimitedType.CONTAINER, default_requests=(("cpu", Fraction(1)),)),))
    for event in (
        happened.NamespaceChanged("n", (("team", "blue"),)),
        happened.ResourceFlavorChanged(ResourceFlavor("default", (("kind", "old"),))),
        happened.AdmissionCheckChanged(AdmissionCheck("budget", "controller", active=True)),
        happened.TopologyChanged("rooms"),
        happened.LocalQueueChanged(LocalQueue(ObjectKey("n", "other"), "q")),
        happened.LimitRangeChanged(ObjectKey("n", "bounds"), bounds),
        happened.LimitRangeChanged(ObjectKey("n", "more"), bounds),
        happened.LimitRangeDeleted(ObjectKey("n", "more")),
        happened.RuntimeClassChanged("kata", (("cpu", Fraction(1)),)),
    ):
        state.handle(event, now=2)
        before = state.to_dict()
        assert state.handle(event, now=2) == []
        assert state.to_dict() == before
        state.validate()
    assert AdmissionState.from_dict(before).to_dict() == before


def test_overhead_counts_for_workloads_that_name_its_runtime_class() -> None:
    state = AdmissionState()
    group = ResourceGroup(("cpu",), (FlavorQuotas("default", (("cpu", ResourceQuota(4)),)),))
    template = replace(template_requesting({"cpu": 1}), runtime_class="kata")
    named = (PodSet("leader", 1, template), PodSet("workers", 1, template))
    gated = replace(workload(SECOND), pod_sets=named, admission_gates=("gate",))
    overhead = happened.RuntimeClassChanged("kata", (("cpu", Fraction(9)),))
    for event in (
        happened.NamespaceChanged("n", ()),
        happened.ResourceFlavorChanged(ResourceFlavor("default")),
        happened.ClusterQueueChanged(
            ClusterQueue("q", "", None, (group,), namespace_selector=LabelSelector())
        ),
        happened.LocalQueueChanged(LocalQueue(ObjectKey("n", "main"), "q")),
        happened.WorkloadChanged(replace(workload(FIRST), pod_sets=named)),
        happened.WorkloadChanged(gated),
        overhead,
    ):
        state.handle(event, now=1)
        state.validate()
    assert _reserved(state.handle(happened.CyclesRequested(), now=1)) == []
    state.handle(happened.RuntimeClassDeleted("kata"), now=1)
    assert _reserved(state.handle(happened.CyclesRequested(), now=1)) == [FIRST]
    state.handle(happened.WorkloadDeleted(FIRST, "uid-first"), now=1)
    state.validate()


def _reserved(instructions: list[Instruction]) -> list[ObjectKey]:
    return [each.key for each in instructions if isinstance(each, ReserveQuota)]


# --- holders --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"priority": -1}, {"queued_at": 9}])
def test_changed_candidate_for_preemption_ends_the_waiting_of_lanes_that_may_preempt(
    change: dict[str, int],
) -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 3, "org", preemption=LOWER))
    cluster.submit("first", "q", 2)
    cluster.run("first")
    cluster.submit("second", "q", 2)
    cluster.run()
    assert cluster.is_quiet
    before = cluster.workloads["first"]
    cluster.change("first", **change)
    assert not cluster.is_quiet
    cluster.send(happened.ClusterQueueDeleted("q"))
    cluster.put_workload(before)


def test_changed_candidate_for_preemption_ends_no_waiting_of_lanes_that_never_preempt() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 3, "org"))
    cluster.submit("first", "q", 2)
    cluster.run("first")
    cluster.submit("second", "q", 2)
    cluster.run()
    cluster.change("first", priority=-1)
    assert cluster.is_quiet


def test_pending_workloads_are_listed_with_queue_and_whether_they_are_parked() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 4), queue("closed", 4, stop_policy=StopPolicy.HOLD))
    cluster.send(happened.LocalQueueChanged(LocalQueue(ObjectKey("n", "dangling"), "nowhere")))
    for name, local_queue in (("runs", "q"), ("parked", "q"), ("stopped", "closed"), ("lost", "dangling")):
        cluster.submit(name, local_queue, cpu=3)
    cluster.decide()
    cluster.submit("new", "q", cpu=1)
    listed = {
        pending.workload.name: (pending.local_queue.name, pending.cluster_queue, pending.is_inadmissible)
        for pending in cluster.state.queries.pending_workloads()
    }
    assert listed == {
        "parked": ("q", "q", True),
        "stopped": ("closed", "closed", True),
        "lost": ("dangling", "", True),
        "new": ("q", "q", False),
    }
    assert cluster.state.queries.inadmissible_by_local_queue() == {
        key("q"): 1,
        key("closed"): 1,
        key("dangling"): 1,
    }


def test_queries_return_queue_of_workload_and_head_that_blocks_it() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 4, queueing_strategy=QueueingStrategy.STRICT_FIFO))
    cluster.send(happened.LocalQueueChanged(LocalQueue(ObjectKey("n", "dangling"), "nowhere")))
    for name, local_queue in (
        ("first", "q"),
        ("second", "q"),
        ("lost", "dangling"),
        ("without-queue", "none"),
    ):
        cluster.submit(name, local_queue, cpu=5)
    assert cluster.state.queries.blocking_head("q") is None
    cluster.decide()
    state = cluster.state
    assert [state.queries.blocking_head(name) for name in ("q", "nowhere")] == [key("first"), None]
    strategies = [state.queries.queueing_strategy(name) for name in ("q", "nowhere")]
    assert strategies == [QueueingStrategy.STRICT_FIFO, None]
    cluster_queues = [
        state.queries.cluster_queue_of(key(name)) for name in ("second", "lost", "without-queue", "unknown")
    ]
    assert cluster_queues == ["q", "nowhere", None, None]


def test_restarted_state_contains_only_observations() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 4))
    for name in ("runs", "waits"):
        cluster.submit(name, "q", cpu=3)
    cluster.decide()
    cluster.submit("decided", "q", cpu=1)
    assert reserved(cluster.cycles()) == ["decided"]
    restarted = cluster.state.restarted()
    restarted.validate()
    assert cluster.refusal("waits") is not None
    assert restarted.queries.last_refusal(key("waits")) is None
    assert restarted.queries.workload_phase(key("runs")) is Phase.ADMITTED
    assert restarted.queries.workload_phase(key("decided")) is Phase.PENDING
    decided = restarted.handle(happened.CyclesRequested(), now=cluster.now)
    assert reserved(decided) == ["decided"]
    assert cluster.state.queries.workload_phase(key("decided")) is Phase.ADMITTED
