"""What stories do not show: the contract of the state's methods, and that its own checks see damage."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from admitq.core import events as happened
from admitq.core.activity import ActiveReason, InactiveCause
from admitq.core.amounts import FlavorResource
from admitq.core.instructions import (
    Instruction,
    Preempt,
    PreemptionReason,
    Recomputation,
    RefreshClusterQueue,
    RefreshCohort,
    RefreshLocalQueue,
    ReserveQuota,
    TargetsRecomputed,
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
from admitq.core.overlay import Overlay
from admitq.core.quota import Cell
from admitq.core.refusals import NamespaceMismatch
from admitq.core.requests import asking
from admitq.core.settings import AdmissionFairSharing, FairSharing, Settings
from admitq.core.state import AdmissionState
from admitq.core.statuses import FlavorTotals, ResourceTotal
from admitq.core.world import World
from tests.unit.core.play import Play, group, key, queue, reserved

CPU = FlavorResource("default", "cpu")
FIRST, SECOND, THIRD = (ObjectKey("n", name) for name in ("first", "second", "third"))


def workload(key: ObjectKey, cpu: int = 2, uid: str | None = None) -> Workload:
    pods = (PodSet("main", 1, asking({"cpu": cpu})),)
    return Workload(key, uid or f"uid-{key.name}", "main", 0, pods)


@pytest.fixture
def state() -> AdmissionState:
    """A queue of three in a cohort, one admitted and two waiting."""
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


def test_a_fork_is_independent(state: AdmissionState) -> None:
    before = state.to_dict()
    fork = state.fork()
    fork.handle(happened.WorkloadDeleted(FIRST, "uid-first"), now=2)
    decided = fork.handle(happened.CyclesRequested(), now=2)
    assert any(isinstance(each, ReserveQuota) for each in decided)
    assert state.to_dict() == before


def test_stale_news_of_another_object_of_the_name_is_ignored(state: AdmissionState) -> None:
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
def test_what_was_never_seen_may_be_deleted(state: AdmissionState, event: happened.Event) -> None:
    before = state.to_dict()
    assert state.handle(event, now=2) == []
    assert state.to_dict() == before


@pytest.mark.parametrize("key", [FIRST, SECOND], ids=["after it ran", "untried"])
def test_what_has_ended_leaves_no_trace_when_it_is_gone(state: AdmissionState, key: ObjectKey) -> None:
    state.handle(happened.WorkloadChanged(replace(workload(key), finished=True)), now=2)
    for name in (FIRST, SECOND, THIRD):
        state.handle(happened.WorkloadDeleted(name, f"uid-{name.name}"), now=2)
    state.validate()
    state.handle(happened.CyclesRequested(), now=2)
    assert (state.workload_phase(key), state.pending_shapes("q")) == (None, (0, 0))
    assert not state.cluster_queue_has_reservations("q")
    world = state._world  # pyright: ignore[reportPrivateUsage]
    assert (world.workloads_of, world.local_queues_in) == ({}, {})


def test_status_names_a_flavor_once_that_a_stored_queue_has_in_several_groups() -> None:
    play = Play()
    memory = FlavorQuotas("default", (("memory", ResourceQuota(7)),))
    groups = (*group(("default", 4)), ResourceGroup(("memory",), (memory,)))
    play.put(queue("q", resource_groups=groups))
    play.submit("one", "q", 2)
    play.run("one")
    for status in (play.state.cluster_queue_status("q"), play.state.local_queue_status(key("q"))):
        assert status is not None
        expected = (FlavorTotals("default", (ResourceTotal("cpu", 2, 0), ResourceTotal("memory", 0, 0))),)
        assert (status.flavors_reservation, status.flavors_usage) == (expected, expected)


def test_a_limit_ends_cycles_early() -> None:
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


def test_what_is_not_known_is_answered_with_none(state: AdmissionState) -> None:
    unknown = ObjectKey("n", "unknown")
    assert state.cluster_queue_status("unknown") is None
    assert state.local_queue_status(unknown) is None
    assert state.cohort_status("unknown") is None
    assert state.workload_phase(unknown) is None
    assert state.parked_refusal(unknown) is None
    assert state.admissibility(unknown) is None
    assert not state.is_bypassed(unknown)
    assert not state.cluster_queue_has_reservations("unknown")


def test_what_is_decided_is_used_before_it_is_seen_and_until_its_end(state: AdmissionState) -> None:
    assert state.usage_of_workload(FIRST) == ((CPU, 2),)
    assert state.usage_of_workload(SECOND) == ()
    assert state.usage_of_workload(ObjectKey("n", "unknown")) == ()
    state.handle(happened.WorkloadChanged(replace(workload(FIRST), finished=True)), now=2)
    assert state.usage_of_workload(FIRST) == ()


def test_shapes_are_counted_while_somebody_has_them(state: AdmissionState) -> None:
    assert state.pending_shapes("q") == (0, 1)
    state.handle(happened.WorkloadChanged(workload(THIRD, cpu=1)), now=2)
    assert state.pending_shapes("q") == (1, 1)
    state.handle(happened.WorkloadDeleted(SECOND, "uid-second"), now=2)
    assert state.pending_shapes("q") == (1, 0)
    assert state.pending_shapes("unknown") == (0, 0)


def test_d19_shapes_and_requests_of_an_inactive_cluster_queue_are_inadmissible() -> None:
    play = Play()
    play.put(queue("q", 2))
    for name, cpu in (("parked", 3), ("equal", 3), ("fits", 1)):
        play.submit(name, "q", cpu=cpu)
    play.decide()
    play.submit("ready", "q", cpu=2)
    assert play.state.pending_shapes("q") == (1, 1)
    assert play.state.pending_requests("q") == {"cpu": 8}
    play.send(happened.ClusterQueueChanged(queue("q", 2, stop_policy=StopPolicy.HOLD)))
    assert play.state.pending_shapes("q") == (0, 2)
    assert play.state.pending_requests("q") == {"cpu": 8}
    assert play.state.pending_requests("unknown") == {}


def test_d19_workload_of_another_namespace_counts_as_inadmissible_shape() -> None:
    play = Play()
    play.put(queue("q", 2, namespace_selector=None))
    play.submit("alien", "q", cpu=1)
    play.decide()
    assert play.state.pending_shapes("q") == (0, 1)


@pytest.mark.parametrize("gate", ["count", "reclaimable"])
def test_c14_lower_count_of_a_reserved_workload_wakes_what_waits(gate: str) -> None:
    play = Play()
    play.put(queue("q", 8))
    pods = PodSet("main", 8, asking({"cpu": 1}))
    play.submit("wide", "q", pod_sets=(pods,))
    play.run("wide")
    play.submit("waits", "q", cpu=2)
    play.run()
    if gate == "count":
        play.change("wide", pod_sets=(replace(pods, count=6),))
    else:
        play.change("wide", reclaimable_pods=(("main", 2),))
    play.run("waits")


@pytest.mark.parametrize("last", ["leaves", "is deleted"])
def test_d19_implicit_cohort_without_members_is_refreshed(last: str) -> None:
    play = Play()
    play.put(queue("q", 2, cohort="org"))
    assert play.state.cohort_status("org") is not None
    if last == "leaves":
        instructions = play.send(happened.ClusterQueueChanged(queue("q", 2)))
    else:
        instructions = play.send(happened.ClusterQueueDeleted("q"))
    assert play.state.cohort_status("org") is None
    assert RefreshCohort("org") in instructions


def test_d19_implicit_cohort_of_a_broken_circle_is_refreshed_when_it_vanishes() -> None:
    play = Play()
    for name, parent in (("a", "b"), ("b", "a")):
        play.send(happened.CohortChanged(Cohort(name, parent, ())))
    play.send(happened.CohortDeleted("a"))
    instructions = play.send(happened.CohortDeleted("b"))
    assert (play.state.cohort_status("a"), play.state.cohort_status("b")) == (None, None)
    assert {RefreshCohort("a"), RefreshCohort("b")} <= {*instructions}


def test_d20_shares_are_exact_and_the_status_rounds_up() -> None:
    play = Play(Settings(fair_sharing=FairSharing()))
    play.put(queue("q", 0, cohort="org"), queue("pool", 3, cohort="org"))
    play.submit("w", "q", cpu=2)
    play.decide()
    status = play.state.cluster_queue_status("q")
    assert status is not None
    assert status.share is not None
    assert (status.share.amount, status.share.weighted_share) == (Fraction(2000, 3), 667)


def test_d20_local_queue_without_cluster_queue_counts_nothing() -> None:
    play = Play()
    play.put(queue("q", 2))
    for name in ("runs", "waits"):
        play.submit(name, "q", cpu=2)
    play.decide()
    status = play.state.local_queue_status(key("q"))
    assert status is not None
    assert (status.pending, status.reserving, status.admitted) == (1, 1, 1)
    play.send(happened.ClusterQueueDeleted("q"))
    status = play.state.local_queue_status(key("q"))
    assert status is not None
    assert (status.pending, status.reserving, status.admitted) == (0, 0, 0)
    assert (status.flavors_reservation, status.flavors_usage) == (None, None)
    play.put(queue("q", 2))
    status = play.state.local_queue_status(key("q"))
    assert status is not None
    assert (status.pending, status.reserving, status.admitted) == (1, 1, 1)


def test_d19_time_that_passes_is_no_cycle() -> None:
    sharing = AdmissionFairSharing(half_life=60 * 10**9, sampling_interval=60 * 10**9)
    play = Play(Settings(admission_fair_sharing=sharing))
    play.put(queue("q", 2))
    before = play.state.cycles_run
    play.now += 60 * 10**9
    play.cycles()
    assert play.state.cycles_run == before
    play.submit("w", "q")
    play.cycles()
    assert play.state.cycles_run == before + 1


def test_admissibility_tells_of_those_who_were_never_tried(state: AdmissionState) -> None:
    assert state.admissibility(THIRD) is None
    state.handle(happened.NamespaceDeleted("n"), now=2)
    assert state.admissibility(THIRD) == NamespaceMismatch()
    assert state.parked_refusal(FIRST) is None
    for change, expected in (
        ({"admission_gates": ("gate",)}, NamespaceMismatch()),
        ({"active": False}, None),
        ({"queue_name": "unknown"}, None),
    ):
        state.handle(happened.WorkloadChanged(replace(workload(THIRD), **change)), now=2)
        assert state.admissibility(THIRD) == expected
    assert state.admissibility(FIRST) is None, "it holds quota"


def test_moving_to_another_local_queue_is_waiting_anew(state: AdmissionState) -> None:
    state.handle(happened.LocalQueueChanged(LocalQueue(ObjectKey("n", "other"), "q")), now=2)
    assert [state.is_bypassed(key) for key in (SECOND, THIRD)] == [False, True]
    state.handle(happened.WorkloadChanged(replace(workload(SECOND), queue_name="other")), now=2)
    assert [state.is_bypassed(key) for key in (SECOND, THIRD)] == [True, True]


def test_trying_everything_again_finds_nothing(state: AdmissionState) -> None:
    state.retry_everything()
    assert state.next_wakeup(2) == 2
    assert state.handle(happened.CyclesRequested(), now=2) == []
    assert state.next_wakeup(2) is None


def test_trying_everything_again_tries_those_of_no_selected_namespace_too(state: AdmissionState) -> None:
    state.handle(happened.NamespaceDeleted("n"), now=2)
    state.handle(happened.WorkloadChanged(replace(workload(THIRD), priority=1)), now=2)
    state.handle(happened.CyclesRequested(), now=2)
    assert state.parked_refusal(THIRD) == NamespaceMismatch()
    assert state.next_wakeup(2) is None
    state.retry_everything()
    assert state.next_wakeup(2) == 2
    assert _reserved(state.handle(happened.CyclesRequested(), now=2)) == []
    assert state.parked_refusal(THIRD) == NamespaceMismatch()
    assert state.next_wakeup(2) is None


def test_an_unchanged_status_is_not_refreshed(state: AdmissionState) -> None:
    """A LocalQueue that is stopped shows that, whether its ClusterQueue is active or not."""
    main, stopped = ObjectKey("n", "main"), ObjectKey("n", "stopped")
    event = happened.LocalQueueChanged(LocalQueue(stopped, "q", stop_policy=StopPolicy.HOLD))
    assert state.handle(event, now=2) == [RefreshLocalQueue(stopped)]
    assert state.handle(happened.ResourceFlavorDeleted("default"), now=2) == [
        RefreshClusterQueue("q"),
        RefreshLocalQueue(main),
    ]


def _leak_usage(world: World) -> None:
    world.forest.add_usage(world.cluster_queues["q"].node, ((CPU, 1),))


def _forget_reservation(world: World) -> None:
    entry = world.workloads[FIRST]
    assert entry.held is not None
    world.ledger.count(entry.held, -1)


def _drop_from_queue(world: World) -> None:
    world.cluster_queues["q"].queue.remove(THIRD)


def _stay_in_flight(world: World) -> None:
    world.cluster_queues["q"].queue.members[THIRD].in_flight = True


def _sleep_unnoticed(world: World) -> None:
    world.forest.wake(world.cluster_queues["q"].node)


def _miscount_pending(world: World) -> None:
    world.local_queues[ObjectKey("n", "main")].pending += 1


def _misplace(world: World) -> None:
    world.workloads[FIRST].queued_in = "q"


def _lose_index(world: World) -> None:
    world.workloads_of.clear()


def _lose_head(world: World) -> None:
    world.cluster_queues["q"].queue.wake()
    world.candidates.clear()


def _miscount_parked(world: World) -> None:
    world.cluster_queues["q"].queue.parked_in_lanes += 1


def _bend_quota(world: World) -> None:
    world.forest.cohorts["org"].cells[CPU].subtree += 1


def _stretch(world: World) -> None:
    world.forest.cohorts["org"].height.value = 5


def _undeclare(world: World) -> None:
    world.cluster_queues["q"].node.cells[CPU].declared = False


def _keep_after_the_end(world: World) -> None:
    entry = world.workloads[THIRD]
    entry.held = world.workloads[FIRST].held
    entry.workload = replace(entry.workload, finished=True)
    entry.queued_in = entry.pending = None


def _hang_in_the_air(world: World) -> None:
    world.cluster_queues["q"].node.parent = None


def _sleep_through(world: World) -> None:
    node = world.cluster_queues["q"].node
    node.root.sleepers.need([(node.cells[CPU], 1)])


def _keep_what_nobody_speaks_of(world: World) -> None:
    node = world.cluster_queues["q"].node
    node.cells[FlavorResource("default", "gpu")] = Cell(node.height)


def _lose_holder(world: World) -> None:
    world.holders.remove(FIRST)


def _misorder_holders(world: World) -> None:
    told = Preempt(FIRST, "", PreemptionReason.IN_CLUSTER_QUEUE, THIRD, "", (), ())
    world.workloads[FIRST].preempting = told


def _tell_one_who_holds_nothing(world: World) -> None:
    told = Preempt(THIRD, "", PreemptionReason.IN_CLUSTER_QUEUE, FIRST, "", (), ())
    world.workloads[THIRD].preempting = told


def _stand_unlisted(world: World) -> None:
    world.cluster_queues["q"].node.root.sleepers.standing["q"] = None


def _stand_in_a_stopped_queue(world: World) -> None:
    entry = world.cluster_queues["q"]
    entry.queue.wake()
    pending = entry.queue.pop()
    assert pending is not None
    world.stand(entry, pending)
    entry.causes = (InactiveCause(ActiveReason.STOPPED),)


def _wait_for_nobody(world: World) -> None:
    world.is_halted = True


def _wait_for_unknown(world: World) -> None:
    world.unready.add(THIRD)


def _keep_between_cycles(world: World) -> None:
    node = world.cluster_queues["q"].node
    Overlay(world, node.root).reserve_capacity(node, ((CPU, 1),))


def _leave_untold(world: World) -> None:
    world.recomputations.append(TargetsRecomputed("q", Recomputation.SKIPPED))


def _leave_undone(world: World) -> None:
    world.touched_cluster_queues.add("q")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_leak_usage, "usage at the node of q"),
        (_forget_reservation, "ClusterQueues with reservations"),
        (_drop_from_queue, "members of q"),
        (_stay_in_flight, "n/third is in flight although no cycle runs"),
        (_sleep_unnoticed, "q has parked workloads that nothing would wake"),
        (_miscount_pending, "pending in n/main: is 3, should be 2"),
        (_misplace, "queue of n/first: is 'q', should be None"),
        (_lose_index, "workloads by queue"),
        (_lose_head, "q has a head that no cycle would take"),
        (_miscount_parked, "2 parked in lanes, counted 3"),
        (_bend_quota, "subtree quota of org default/cpu: is 4, should be 3"),
        (_stretch, "height of org: is 5, should be 1"),
        (_undeclare, "declared quotas of q"),
        (_keep_after_the_end, "n/third is finished and holds quota"),
        (_hang_in_the_air, "ClusterQueue q has no place under its cohort"),
        (_sleep_through, "1 is available to who waits for it below org"),
        (_keep_what_nobody_speaks_of, "q default/gpu is kept although nothing speaks of it"),
        (_lose_holder, "holders of quota: is 0, should be 1"),
        (_misorder_holders, "leavers of q"),
        (_tell_one_who_holds_nothing, "n/third is told to leave and holds nothing"),
        (_stand_unlisted, "queues whose first stands"),
        (_stand_in_a_stopped_queue, "the first of q stands although the queue is not active"),
        (_wait_for_nobody, "admission is halted for nobody"),
        (_wait_for_unknown, "workloads that admission waits for"),
        (_keep_between_cycles, "usage at the node of q"),
        (_leave_untold, "instructions were decided and not handed out"),
        (_leave_undone, "instructions were decided and not handed out"),
    ],
)
def test_damage_is_seen(state: AdmissionState, damage: Callable[[World], None], complaint: str) -> None:
    damage(state._world)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(AssertionError, match=complaint):
        state.validate()


def test_a_cohort_seen_again_wakes_nobody(state: AdmissionState) -> None:
    group = ResourceGroup(("cpu",), (FlavorQuotas("default", (("cpu", ResourceQuota(0)),)),))
    event = happened.CohortChanged(Cohort("org", None, (group,)))
    state.handle(event, now=2)
    state.handle(happened.CyclesRequested(), now=2)
    assert state.handle(event, now=2) == []
    assert state.next_wakeup(2) is None


# --- what decides over requests -------------------------------------------------------------------------


def test_what_is_seen_again_changes_nothing(state: AdmissionState) -> None:
    bounds = LimitRange((LimitRangeItem(LimitedType.CONTAINER, default_requests=(("cpu", Fraction(1)),)),))
    for event in (
        happened.NamespaceChanged("n", (("team", "blue"),)),
        happened.ResourceFlavorChanged(ResourceFlavor("default", (("kind", "old"),))),
        happened.AdmissionCheckChanged(AdmissionCheck("budget", "controller", active=True)),
        happened.TopologyChanged("rooms"),
        happened.LocalQueueChanged(LocalQueue(ObjectKey("n", "lone"), "q")),
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


def test_an_overhead_concerns_those_who_name_its_class() -> None:
    state = AdmissionState()
    group = ResourceGroup(("cpu",), (FlavorQuotas("default", (("cpu", ResourceQuota(4)),)),))
    template = replace(asking({"cpu": 1}), runtime_class="kata")
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
def test_whom_one_may_preempt_may_change(state: AdmissionState, change: dict[str, int]) -> None:
    (decided,) = _held(state)
    state.handle(happened.WorkloadChanged(decided), now=2)
    state.handle(happened.CyclesRequested(), now=2)
    assert state.next_wakeup(2) is None
    state.handle(happened.WorkloadChanged(replace(decided, **change)), now=2)
    assert state.next_wakeup(2) == 2
    state.handle(happened.ClusterQueueDeleted("q"), now=2)
    state.handle(happened.WorkloadChanged(decided), now=2)
    state.validate()


def _held(state: AdmissionState) -> list[Workload]:
    """The workloads that hold quota, as they will be seen."""
    return [
        replace(entry.workload, admission=entry.admission, admitted=True)
        for entry in state._world.workloads.values()  # pyright: ignore[reportPrivateUsage]
        if entry.admission is not None
    ]


def test_those_who_wait_are_told_one_by_one_parked_or_not() -> None:
    play = Play()
    play.put(queue("q", 4), queue("closed", 4, stop_policy=StopPolicy.HOLD))
    play.send(happened.LocalQueueChanged(LocalQueue(ObjectKey("n", "astray"), "nowhere")))
    for name, local_queue in (("runs", "q"), ("parked", "q"), ("stopped", "closed"), ("lost", "astray")):
        play.submit(name, local_queue, cpu=3)
    play.decide()
    play.submit("new", "q", cpu=1)
    told = {
        one.workload.name: (one.local_queue.name, one.cluster_queue, one.is_parked)
        for one in play.state.waiting()
    }
    assert told == {
        "parked": ("q", "q", True),
        "stopped": ("closed", "closed", True),
        "lost": ("astray", "", True),
        "new": ("q", "q", False),
    }


def test_it_is_told_where_a_workload_waits_and_who_holds_it_up() -> None:
    play = Play()
    play.put(queue("q", 4, queueing_strategy=QueueingStrategy.STRICT_FIFO))
    play.send(happened.LocalQueueChanged(LocalQueue(ObjectKey("n", "astray"), "nowhere")))
    for name, local_queue in (("first", "q"), ("second", "q"), ("lost", "astray"), ("homeless", "none")):
        play.submit(name, local_queue, cpu=5)
    assert play.state.held_up_by("q") is None
    play.decide()
    state = play.state
    assert [state.held_up_by(name) for name in ("q", "nowhere")] == [key("first"), None]
    strategies = [state.queueing_strategy(name) for name in ("q", "nowhere")]
    assert strategies == [QueueingStrategy.STRICT_FIFO, None]
    of = [state.cluster_queue_of(key(name)) for name in ("second", "lost", "homeless", "unknown")]
    assert of == ["q", "nowhere", None, None]


def test_a_state_that_is_started_anew_knows_what_was_observed_alone() -> None:
    play = Play()
    play.put(queue("q", 4))
    for name in ("runs", "waits"):
        play.submit(name, "q", cpu=3)
    play.decide()
    play.submit("decided", "q", cpu=1)
    assert reserved(play.cycles()) == ["decided"]
    anew = play.state.started_anew()
    anew.validate()
    assert play.refusal("waits") is not None
    assert anew.parked_refusal(key("waits")) is None
    assert anew.workload_phase(key("runs")) is Phase.ADMITTED
    assert anew.workload_phase(key("decided")) is Phase.PENDING
    decided = anew.handle(happened.CyclesRequested(), now=play.now)
    assert reserved(decided) == ["decided"]
    assert play.state.workload_phase(key("decided")) is Phase.ADMITTED
