"""A shadow reports every decision of the manager in charge that differs from its own, and no equal one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from admitq.core import events
from admitq.core.instructions import Preempt, PreemptionReason, ReserveQuota
from admitq.core.model import (
    SECOND,
    Admission,
    ClusterQueue,
    LocalQueue,
    ObjectKey,
    PodSet,
    PodSetAssignment,
    QueueingStrategy,
    ResourceFlavor,
    StopPolicy,
    Workload,
)
from admitq.core.requests import template_requesting
from admitq.shadow.findings import DisagreementKind
from admitq.shadow.log_fields import make_log_fields
from tests.unit.core.small_cluster import LOWER, RECLAIM, group, key, queue
from tests.unit.shadow.cluster import LEEWAY, PATIENCE, Cluster, Decision
from tests.unit.shadow.histories import History

# --- equal decisions are not reported -------------------------------------------------------------------


@pytest.mark.drawn
@pytest.mark.parametrize(("seeds", "calm"), [(range(50), False), ((26, *range(100, 130)), True)])
def test_equal_decisions_of_manager_are_not_reported(seeds: Sequence[int], calm: bool) -> None:
    agreed = 0
    for seed in seeds:
        history = History(seed, calm=calm)
        history.play(60)
        history.cluster.shadow.state.validate()
        assert history.cluster.disagreements == [], f"seed {seed}"
        agreed += len(history.cluster.agreements)
    assert agreed > 5 * len(seeds), "too few decisions were compared"


# --- different decisions are reported -------------------------------------------------------------------


@pytest.mark.drawn
@pytest.mark.parametrize("kind", [DisagreementKind.ASSIGNED, DisagreementKind.WAITING])
def test_one_different_decision_in_history_is_reported(kind: DisagreementKind) -> None:
    """The manager in charge decides differently for exactly one workload of a history."""
    changed_decisions = 0
    for seed in range(80, 130):
        history = History(seed, calm=True)
        history.play(15)
        changed: list[ObjectKey] = []

        def change_first_reservation(
            decision: Decision, changed: list[ObjectKey] = changed
        ) -> Decision | None:
            if not isinstance(decision, ReserveQuota) or (changed and changed[0] != decision.key):
                return decision
            if not changed:
                changed.append(decision.key)
            elif kind is DisagreementKind.ASSIGNED:
                return decision
            return (
                decision._replace(admission=with_unknown_flavors(decision.admission))
                if kind is DisagreementKind.ASSIGNED
                else None
            )

        history.cluster.change_decision = change_first_reservation
        history.submit()
        history.cluster.wait(3 * PATIENCE)
        first = [(finding.workload, finding.kind) for finding in history.cluster.disagreements[:1]]
        assert first == [(key, kind) for key in changed], f"seed {seed}"
        changed_decisions += len(changed)
    assert changed_decisions > 10, "too few decisions were changed"


def with_unknown_flavors(admission: Admission) -> Admission:
    """Return an admission of the same pods, with flavors that do not exist."""
    parts = tuple(
        replace(part, flavors=tuple((resource, "unknown") for resource, _ in part.flavors))
        for part in admission.pod_set_assignments
    )
    return replace(admission, pod_set_assignments=parts)


def create_cluster(*queues: ClusterQueue) -> Cluster:
    """Return a cluster with ClusterQueues and equally named LocalQueues, which a shadow follows."""
    cluster = Cluster()
    cluster.send(events.NamespaceChanged("n", ()))
    for name in ("default", "spot"):
        cluster.send(events.ResourceFlavorChanged(ResourceFlavor(name)))
    for spec in queues:
        cluster.send(events.ClusterQueueChanged(spec))
        cluster.send(events.LocalQueueChanged(LocalQueue(key(spec.name), spec.name)))
    cluster.follow()
    return cluster


def submit(
    cluster: Cluster, name: str, cpu: int = 1, *, local_queue: str = "q", priority: int = 0, pods: int = 1
) -> None:
    """Submit a workload, later than the leeway after all changes before."""
    cluster.now += LEEWAY + SECOND
    pod_sets = (PodSet("main", pods, template_requesting({"cpu": cpu}), min_count=1 if pods > 1 else None),)
    cluster.send(
        events.WorkloadChanged(
            Workload(key(name), f"uid-{name}", local_queue, cluster.now, pod_sets, priority=priority)
        )
    )


def admitted(
    name: str, cpu: int = 1, *, local_queue: str = "q", flavor: str = "default", pods: int = 1
) -> ReserveQuota:
    part = PodSetAssignment("main", (("cpu", flavor),), (("cpu", cpu * pods),), pods)
    return ReserveQuota(key(name), f"uid-{name}", Admission(local_queue, (part,)), admit=True)


def preempted(name: str, preemptor: str) -> Preempt:
    reason = PreemptionReason.IN_CLUSTER_QUEUE
    return Preempt(key(name), f"uid-{name}", reason, key(preemptor), f"uid-{preemptor}", (), ())


def drop_decisions_for(*names: str) -> Callable[[Decision], Decision | None]:
    """Drop the decisions of the manager in charge for these workloads."""
    keys = {key(name) for name in names}
    return lambda decision: None if decision.key in keys else decision


def reported(cluster: Cluster) -> list[tuple[str, str]]:
    return [(finding.workload.name, str(finding.kind)) for finding in cluster.disagreements]


@dataclass(frozen=True)
class Case:
    """A different decision of the manager in charge, and its report.

    ``prepare`` creates the situation, and ``do`` writes the decision. The report has the kind and the
    workload of the disagreement, the decision of the shadow, and its explanation.
    """

    queues: tuple[ClusterQueue, ...]
    prepare: Callable[[Cluster], None]
    do: Callable[[Cluster], None]
    kind: DisagreementKind
    workload: str
    shadow_decision: str
    explanation: str


def _submit_two_waiting(cluster: Cluster) -> None:
    submit(cluster, "runs", 2)
    cluster.settle()
    cluster.change_decision = drop_decisions_for("first", "second")
    submit(cluster, "first", 2, priority=1)
    submit(cluster, "second", 2)
    cluster.settle()
    cluster.put(key("runs"), finished=True)


def _submit_blocked_head(cluster: Cluster) -> None:
    submit(cluster, "runs", 2)
    submit(cluster, "first", 3)
    submit(cluster, "second", 1)
    cluster.settle()


def _submit_preemptor_of_two(cluster: Cluster) -> None:
    submit(cluster, "older", 1)
    submit(cluster, "lower", 1, priority=-1)
    cluster.settle()
    cluster.change_decision = drop_decisions_for("older", "lower")
    submit(cluster, "preemptor", 1, priority=2)


def _submit_running(cluster: Cluster) -> None:
    submit(cluster, "runs", 1)
    cluster.settle()


def _submit_waiting(name: str, cpu: int = 1, pods: int = 1) -> Callable[[Cluster], None]:
    def prepare(cluster: Cluster) -> None:
        cluster.change_decision = drop_decisions_for(name)
        submit(cluster, name, cpu, pods=pods)

    return prepare


FLAVORS = replace(queue("q"), resource_groups=group(("default", 2), ("spot", 2)))
STRICT = queue("q", 3, queueing_strategy=QueueingStrategy.STRICT_FIFO)

CASES = {
    "more than the quota": Case(
        (queue("q", 2),),
        _submit_waiting("big", 3),
        lambda cluster: cluster.reserve(admitted("big", 3)),
        DisagreementKind.RESERVED,
        "big",
        "would let it wait",
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, "
        "previously considered podsets requests (0) + current podset request (3m) > maximum capacity (2m)",
    ),
    "workload before the first in queue order": Case(
        (queue("q", 2),),
        _submit_two_waiting,
        lambda cluster: cluster.reserve(admitted("second", 2)),
        DisagreementKind.RESERVED,
        "second",
        "would let it wait",
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, "
        "2m more needed; n/first would come first",
    ),
    "workload behind blocked head of StrictFIFO queue": Case(
        (STRICT,),
        _submit_blocked_head,
        lambda cluster: cluster.reserve(admitted("second")),
        DisagreementKind.RESERVED,
        "second",
        "would let it wait",
        "it is not its turn; n/first blocks the queue",
    ),
    "workload in stopped queue": Case(
        (replace(queue("q", 2), stop_policy=StopPolicy.HOLD),),
        _submit_waiting("w"),
        lambda cluster: cluster.reserve(admitted("w")),
        DisagreementKind.RESERVED,
        "w",
        "would let it wait",
        "ClusterQueue q is inactive",
    ),
    "other flavor": Case(
        (FLAVORS,),
        _submit_waiting("w"),
        lambda cluster: cluster.reserve(admitted("w", flavor="spot")),
        DisagreementKind.ASSIGNED,
        "w",
        "would reserve quota (main: 1 pod, cpu of default)",
        "it fits",
    ),
    "fewer pods": Case(
        (queue("q", 3),),
        _submit_waiting("w", pods=3),
        lambda cluster: cluster.reserve(admitted("w", pods=2)),
        DisagreementKind.ASSIGNED,
        "w",
        "would reserve quota (main: 3 pods, cpu of default)",
        "it fits",
    ),
    "no decision": Case(
        (queue("q", 2),),
        _submit_waiting("w"),
        lambda _: None,
        DisagreementKind.WAITING,
        "w",
        "would reserve quota (main: 1 pod, cpu of default)",
        "it fits",
    ),
    "other target": Case(
        (queue("q", 2, preemption=LOWER),),
        _submit_preemptor_of_two,
        lambda cluster: cluster.preempt(key("older"), "uid-preemptor"),
        DisagreementKind.PREEMPTED,
        "older",
        "would not preempt it; of n/preemptor, for which it was preempted: would preempt n/lower for it",
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, "
        "1m more needed. Pending the preemption of 1 workload(s)",
    ),
    "target without preemptor": Case(
        (queue("q", 2, preemption=LOWER),),
        _submit_running,
        lambda cluster: cluster.preempt(key("runs")),
        DisagreementKind.PREEMPTED,
        "runs",
        "would not preempt it",
        "It holds quota and may run.",
    ),
    "no target": Case(
        (queue("q", 2, preemption=LOWER),),
        _submit_preemptor_of_two,
        lambda _: None,
        DisagreementKind.SPARED,
        "preemptor",
        "would preempt n/lower for it",
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, "
        "1m more needed. Pending the preemption of 1 workload(s)",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_different_decision_is_reported_once_and_explained(case: Case) -> None:
    cluster = create_cluster(*case.queues)
    case.prepare(cluster)
    cluster.deliver_to_shadow()
    cluster.now += LEEWAY + SECOND
    cluster.look()
    case.do(cluster)
    cluster.wait(3 * PATIENCE)
    assert reported(cluster) == [(case.workload, str(case.kind))]
    fields = make_log_fields(cluster.disagreements[0])
    assert fields["workload"] == f"n/{case.workload}"
    assert fields["cluster_queue"] == "q"
    assert fields["admitq"] == case.shadow_decision
    assert fields["explanation"] == case.explanation


# --- decisions that follow from a reported difference -----------------------------------------------------


def test_decisions_that_follow_from_reported_difference_are_not_reported() -> None:
    cluster = create_cluster(queue("q", 2))
    _submit_two_waiting(cluster)
    cluster.deliver_to_shadow()
    cluster.now += LEEWAY + SECOND
    cluster.look()
    cluster.reserve(admitted("second", 2))
    cluster.wait(PATIENCE)
    cluster.change_decision = lambda decided: decided
    # The first still waits, because no quota is left. Then quota is released for it.
    cluster.put(key("second"), finished=True)
    cluster.wait(3 * PATIENCE)
    assert reported(cluster) == [("second", "reserved")]
    assert cluster.workloads[key("first")].admission is not None


def test_manager_without_decisions_is_reported_for_fitting_workloads() -> None:
    cluster = create_cluster(queue("q", 2), replace(STRICT, name="s"))
    cluster.change_decision = lambda _: None
    for name in ("a", "b", "c", "d"):
        submit(cluster, name)
        submit(cluster, f"s{name}", local_queue="s")
    cluster.wait(5 * PATIENCE)
    # No workload is admitted before the blocked head of a StrictFIFO queue.
    assert sorted(reported(cluster)) == [("a", "waiting"), ("b", "waiting"), ("sa", "waiting")]
    # A workload that is reserved instead of a waiting one is compared as if that one did not wait.
    cluster.reserve(admitted("c"))
    cluster.reserve(admitted("d"))
    cluster.wait(2 * PATIENCE)
    assert len(cluster.disagreements) == 3


def test_changed_workload_is_reported_again() -> None:
    cluster = create_cluster(queue("q", 2))
    cluster.change_decision = lambda _: None
    submit(cluster, "w")
    cluster.wait(2 * PATIENCE)
    cluster.put(key("w"), priority=1)
    cluster.wait(2 * PATIENCE)
    assert reported(cluster) == [("w", "waiting")] * 2


# --- races are not reported -----------------------------------------------------------------------------


def test_workload_within_leeway_may_be_unknown_to_manager() -> None:
    cluster = create_cluster(queue("q", 2))
    cluster.change_decision = lambda _: None
    submit(cluster, "lower", 2)
    cluster.now += SECOND // 10
    cluster.send(
        events.WorkloadChanged(
            Workload(
                key("higher"),
                "uid-higher",
                "q",
                cluster.now,
                (PodSet("main", 1, template_requesting({"cpu": 2})),),
                5,
            )
        )
    )
    cluster.deliver_to_shadow()
    cluster.reserve(admitted("lower", 2))
    cluster.wait(2 * PATIENCE)
    assert reported(cluster) == []


def test_change_observed_late_explains_earlier_decision() -> None:
    cluster = create_cluster(queue("q", 1))
    cluster.change_decision = lambda _: None
    submit(cluster, "w", 2)
    cluster.settle()
    cluster.now += LEEWAY + SECOND
    cluster.deliver_to_shadow()
    cluster.send(events.ClusterQueueChanged(queue("q", 2)))
    edit = cluster.for_shadow.waiting["ClusterQueue"].popleft()
    cluster.reserve(admitted("w", 2))
    cluster.deliver_to_shadow()
    cluster.now += LEEWAY // 2
    cluster.for_shadow.put(edit)
    cluster.wait(2 * PATIENCE)
    assert reported(cluster) == []


@pytest.mark.parametrize("priority", [0, 1])
def test_late_change_explains_decision_whose_quota_was_passed_on(priority: int) -> None:
    cluster = create_cluster(queue("q", 1))
    cluster.change_decision = lambda _: None
    submit(cluster, "w", 2)
    cluster.settle()
    cluster.now += LEEWAY + SECOND
    cluster.reserve(admitted("w", 2))
    cluster.deliver_to_shadow()
    cluster.now += SECOND // 10
    # The watch of ClusterQueues is late. The next workload gets the quota before the shadow concludes.
    cluster.send(events.ClusterQueueChanged(queue("q", 2)))
    cluster.put(key("w"), finished=True)
    pod_sets = (PodSet("main", 1, template_requesting({"cpu": 2})),)
    next_workload = Workload(key("next"), "uid-next", "q", cluster.now, pod_sets, priority=priority)
    cluster.send(events.WorkloadChanged(next_workload))
    cluster.reserve(admitted("next", 2))
    cluster.deliver_to_shadow()
    cluster.now += 2 * LEEWAY
    cluster.look()
    cluster.wait(2 * PATIENCE)
    assert reported(cluster) == []


def test_decisions_of_one_cycle_agree_in_any_order_of_writes() -> None:
    cluster = create_cluster(
        queue("a", 1, "all", preemption=RECLAIM), queue("b", 1, "all", preemption=RECLAIM)
    )
    submit(cluster, "borrows", 2, local_queue="a")
    cluster.settle()
    cluster.now += PATIENCE
    submit(cluster, "home", 1, local_queue="b")
    cluster.deliver_to_manager()
    cluster.deliver_to_shadow()
    cluster.decide()
    cluster.writes.reverse()
    cluster.settle()
    cluster.stop(key("borrows"))
    cluster.wait(3 * PATIENCE)
    assert reported(cluster) == []
    assert len(cluster.agreements) == 3


def test_next_conclusion_is_due_after_patience_only_if_decision_is_expected() -> None:
    cluster = create_cluster(queue("q", 2))
    assert cluster.shadow.next_evaluation(cluster.now) is None
    cluster.change_decision = lambda _: None
    submit(cluster, "w")
    cluster.deliver_to_shadow()
    assert cluster.shadow.next_evaluation(cluster.now) == cluster.now + PATIENCE


def test_each_different_decision_is_reported() -> None:
    cluster = create_cluster(queue("q", 2))
    cluster.change_decision = lambda _: None
    names = [f"big-{number}" for number in range(8)]
    for name in names:
        submit(cluster, name, 3)
    cluster.deliver_to_shadow()
    cluster.now += LEEWAY + SECOND
    for name in names:
        cluster.reserve(admitted(name, 3))
    cluster.wait(2 * PATIENCE)
    assert reported(cluster) == [(name, "reserved") for name in names]
