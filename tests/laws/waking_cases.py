"""Cases of a parked workload and the change that lets it fit."""

from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.model import (
    SECOND,
    Admission,
    AdmissionCheck,
    AdmissionCheckRule,
    BorrowWithinCohort,
    CheckState,
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    FlavorFungibility,
    FlavorFungibilityPolicy,
    FlavorQuotas,
    LabelSelector,
    LimitedType,
    LimitRange,
    LimitRangeItem,
    NodeSelectorTerm,
    ObjectKey,
    PodSet,
    PodSetAssignment,
    PodTemplate,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceProblem,
    ResourceQuota,
    SelectorOperator,
    SelectorRequirement,
    StopPolicy,
    Taint,
    Toleration,
    Workload,
)
from admitq.core.settings import CoreSettings, FairSharing
from tests.laws.drawing import exact, requesting
from tests.laws.waking_objects import F1, NOW, TEAM, TO_A, WAITING, Case, waiting

LATER: Final = NOW + 10 * SECOND
OTHER: Final = ObjectKey("team", "other")
THIRD: Final = ObjectKey("team", "third")


def quota(nominal: int, borrowing: int | None = None, lending: int | None = None) -> ResourceQuota:
    return ResourceQuota(nominal, borrowing, lending)


def cpu(*of: tuple[str, ResourceQuota]) -> tuple[ResourceGroup, ...]:
    """Return one resource group of CPU with these flavors."""
    return (ResourceGroup(("cpu",), tuple(FlavorQuotas(name, (("cpu", each),)) for name, each in of)),)


def queue(name: str = "a", nominal: int = 2, **changes: Any) -> ClusterQueue:
    groups = cpu(("f1", quota(nominal)))
    return replace(ClusterQueue(name, resource_groups=groups, namespace_selector=LabelSelector()), **changes)


def holding(amount: int = 2, in_queue: str = "a", **changes: Any) -> Workload:
    """Return a workload that holds CPU in flavor f1."""
    assigned = PodSetAssignment("main", (("cpu", "f1"),), (("cpu", amount),), 1)
    plain = Workload(
        OTHER,
        "other",
        f"to-{in_queue}",
        NOW,
        (PodSet("main", 1, requesting(cpu=amount)),),
        admission=Admission(in_queue, (assigned,)),
        reserved_at=NOW,
        admitted=True,
        pods_ready=True,
    )
    return replace(plain, **changes)


FAIR = CoreSettings(fair_sharing=FairSharing())

SHARED = queue("b", 4, cohort="pool")
LOW = ClusterQueuePreemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
RECLAIM = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY)
RECLAIM_ANY = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.ANY)

IN_POOL = queue(cohort="pool", nominal=0)
BORROWER = (queue("b", 0, cohort="pool"), holding(2, "b"))
"""A ClusterQueue and a workload that borrows all quota of the pool."""

LABELLED = ResourceFlavor("f1", node_labels=(("zone", "one"),))
TAINTED = ResourceFlavor("f1", node_taints=(Taint("spot", "", "NoSchedule"),))
IN_ZONE_TWO = (PodSet("main", 1, requesting(cpu=2), node_selector=(("zone", "two"),)),)
AFFINE = (
    PodSet(
        "main",
        1,
        requesting(cpu=2),
        required_node_affinity=(
            NodeSelectorTerm((SelectorRequirement("zone", SelectorOperator.IN, ("two",)),)),
        ),
    ),
)
CHECKED = queue(admission_checks=(AdmissionCheckRule("check"),))
CHECK = AdmissionCheck("check", "controller", active=True)
IN_CIRCLE = (
    holding(replaces=THIRD),
    waiting(replaces=OTHER),
    Workload(THIRD, "third", "to-a", NOW, (), admission_gates=("gate",), replaces=WAITING),
)
LIMIT_RANGE = ObjectKey("team", "limits")


def range_of(**fields: Any) -> LimitRange:
    return LimitRange((LimitRangeItem(LimitedType.CONTAINER, **fields),))


def set_range(limit_range: LimitRange) -> Event:
    return happened.LimitRangeChanged(LIMIT_RANGE, limit_range)


OF_CLASS = PodTemplate(requesting(cpu=2).containers, runtime_class="sandboxed")

CASES: tuple[Case, ...] = (
    # ClusterQueue: the workload's own
    Case("ClusterQueue", (waiting(),), queue(), note="created"),
    Case("ClusterQueue.cohort", (queue(nominal=0), SHARED, waiting()), IN_POOL),
    Case("ClusterQueue.resource_groups", (queue(nominal=1), waiting()), queue()),
    Case(
        "ClusterQueue.resource_groups",
        (queue(nominal=1), ResourceFlavor("f2"), waiting()),
        queue(resource_groups=cpu(("f1", quota(1)), ("f2", quota(2)))),
        note="another flavor",
    ),
    Case(
        "ClusterQueue.resource_groups",
        (queue(resource_groups=()), waiting()),
        queue(),
        note="another resource",
    ),
    Case(
        "ClusterQueue.queueing_strategy",
        (
            queue(queueing_strategy=QueueingStrategy.STRICT_FIFO),
            waiting(key=OTHER, uid="other", priority=9, pod_sets=(PodSet("main", 1, requesting(cpu=3)),)),
            waiting(),
        ),
        queue(),
    ),
    Case("ClusterQueue.namespace_selector", (queue(namespace_selector=None), waiting()), queue()),
    Case("ClusterQueue.stop_policy", (queue(stop_policy=StopPolicy.HOLD), waiting()), queue()),
    Case("ClusterQueue.admission_checks", (CHECKED, waiting()), queue()),
    Case(
        "ClusterQueue.flavor_fungibility",
        (
            queue(
                resource_groups=cpu(("f1", quota(2)), ("f2", quota(2))),
                flavor_fungibility=FlavorFungibility(
                    when_can_preempt=FlavorFungibilityPolicy.MAY_STOP_SEARCH
                ),
                preemption=LOW,
            ),
            ResourceFlavor("f2"),
            holding(),
            waiting(priority=1, has_closed_preemption_gate=True),
        ),
        queue(resource_groups=cpu(("f1", quota(2)), ("f2", quota(2))), preemption=LOW),
    ),
    Case(
        "ClusterQueue.preemption",
        (queue(), holding(), waiting(priority=1)),
        queue(preemption=LOW),
        preempts=True,
        note="within",
    ),
    Case(
        "ClusterQueue.preemption",
        (queue(cohort="pool"), *BORROWER, waiting(priority=1)),
        queue(cohort="pool", preemption=RECLAIM),
        preempts=True,
        note="reclaim",
    ),
    Case(
        "ClusterQueue.preemption",
        (
            queue("c", 2, cohort="pool"),
            queue(nominal=0, cohort="pool", preemption=RECLAIM),
            *BORROWER,
            waiting(priority=1),
        ),
        queue(
            nominal=0,
            cohort="pool",
            preemption=replace(
                RECLAIM, borrow_within_cohort=BorrowWithinCohort(PreemptionPolicy.LOWER_PRIORITY)
            ),
        ),
        preempts=True,
        note="while borrowing",
    ),
    Case(
        "ClusterQueue.fair_weight",
        (
            queue("c", 2, cohort="pool"),
            queue(nominal=0, cohort="pool", preemption=RECLAIM_ANY, fair_weight=Fraction(1, 2)),
            *BORROWER,
            waiting(pod_sets=(PodSet("main", 1, requesting(cpu=1)),)),
        ),
        queue(nominal=0, cohort="pool", preemption=RECLAIM_ANY, fair_weight=Fraction(2)),
        preempts=True,
        settings=FAIR,
    ),
    Case("ClusterQueue.terminating", (queue(terminating=True), waiting()), queue()),
    Case("ClusterQueue.quarantined", (queue(quarantined=True), waiting()), queue()),
    # ClusterQueue: others of the cohort
    Case(
        "ResourceQuota.nominal",
        (IN_POOL, queue("b", 1, cohort="pool"), waiting()),
        queue("b", 2, cohort="pool"),
    ),
    Case(
        "ResourceQuota.borrowing_limit",
        (queue(resource_groups=cpu(("f1", quota(0, borrowing=1))), cohort="pool"), SHARED, waiting()),
        queue(resource_groups=cpu(("f1", quota(0, borrowing=2))), cohort="pool"),
    ),
    Case(
        "ResourceQuota.lending_limit",
        (IN_POOL, queue("b", cohort="pool", resource_groups=cpu(("f1", quota(4, lending=1)))), waiting()),
        queue("b", cohort="pool", resource_groups=cpu(("f1", quota(4, lending=2)))),
    ),
    Case(
        "ClusterQueue",
        (IN_POOL, queue("c", 2, cohort="pool"), *BORROWER, waiting()),
        happened.ClusterQueueDeleted("b"),
        note="another is deleted with what it borrowed",
    ),
    Case("ClusterQueue", (IN_POOL, waiting()), SHARED, note="another is created"),
    # Cohort
    Case(
        "Cohort.resource_groups",
        (IN_POOL, waiting()),
        Cohort("pool", resource_groups=cpu(("f1", quota(2)))),
    ),
    Case(
        "Cohort.parent",
        (IN_POOL, Cohort("all", resource_groups=cpu(("f1", quota(2)))), waiting()),
        Cohort("pool", "all"),
    ),
    Case(
        "Cohort.parent",
        (IN_POOL, SHARED, Cohort("pool", "ring"), Cohort("ring", "pool"), waiting()),
        Cohort("ring"),
        note="a circle is broken",
    ),
    Case(
        "Cohort",
        (
            IN_POOL,
            Cohort("all", resource_groups=cpu(("f1", quota(2)))),
            SHARED,
            Cohort("pool", "pool"),
            waiting(),
        ),
        happened.CohortDeleted("pool"),
        note="deleted",
    ),
    Case(
        "Cohort.resource_groups",
        (
            queue(nominal=0, cohort="left"),
            Cohort("left", "all", cpu(("f1", quota(0, borrowing=1)))),
            Cohort("all", resource_groups=cpu(("f1", quota(4)))),
            waiting(),
        ),
        Cohort("left", "all"),
        note="its borrowing limit is lifted",
    ),
    Case(
        "Cohort.fair_weight",
        (
            Cohort("all", resource_groups=cpu(("f1", quota(2)))),
            Cohort("left", "all", fair_weight=Fraction(1, 2)),
            Cohort("right", "all"),
            queue(nominal=0, cohort="left", preemption=RECLAIM_ANY),
            queue("b", 0, cohort="right"),
            holding(2, "b"),
            waiting(pod_sets=(PodSet("main", 1, requesting(cpu=1)),)),
        ),
        Cohort("left", "all", fair_weight=Fraction(2)),
        preempts=True,
        settings=FAIR,
    ),
    # LocalQueue
    Case("LocalQueue", (queue(), happened.LocalQueueDeleted(TO_A.key), waiting()), TO_A, note="created"),
    Case(
        "LocalQueue.cluster_queue",
        (queue(nominal=1), queue("b"), waiting()),
        replace(TO_A, cluster_queue="b"),
    ),
    Case("LocalQueue.stop_policy", (queue(), replace(TO_A, stop_policy=StopPolicy.HOLD), waiting()), TO_A),
    Case("LocalQueue.terminating", (queue(), replace(TO_A, terminating=True), waiting()), TO_A),
    # ResourceFlavor
    Case("ResourceFlavor", (queue(), happened.ResourceFlavorDeleted("f1"), waiting()), F1, note="created"),
    Case(
        "ResourceFlavor.node_labels",
        (queue(), LABELLED, waiting(pod_sets=IN_ZONE_TWO)),
        replace(LABELLED, node_labels=(("zone", "two"),)),
    ),
    Case("ResourceFlavor.node_taints", (queue(), TAINTED, waiting()), F1),
    Case(
        "ResourceFlavor.tolerations",
        (queue(), TAINTED, waiting()),
        replace(TAINTED, tolerations=(Toleration("spot", "Exists"),)),
    ),
    Case("ResourceFlavor.topology_name", (queue(), replace(F1, topology_name="racks"), waiting()), F1),
    # AdmissionCheck, Topology, Namespace
    Case("AdmissionCheck", (CHECKED, waiting()), CHECK, note="created"),
    Case("AdmissionCheck.active", (CHECKED, replace(CHECK, active=False), waiting()), CHECK),
    Case(
        "Topology",
        (queue(), replace(F1, topology_name="racks"), waiting()),
        happened.TopologyChanged("racks"),
    ),
    Case("Namespace", (queue(), happened.NamespaceDeleted("team"), waiting()), TEAM, note="created"),
    Case(
        "Namespace.labels",
        (
            queue(
                namespace_selector=LabelSelector(
                    (SelectorRequirement("team", SelectorOperator.IN, ("red",)),)
                )
            ),
            waiting(),
        ),
        happened.NamespaceChanged("team", (("team", "red"),)),
    ),
    # LimitRange and RuntimeClass
    Case(
        "LimitRange",
        (queue(), set_range(range_of(maximum=exact(cpu=1))), waiting()),
        happened.LimitRangeDeleted(LIMIT_RANGE),
        note="deleted",
    ),
    Case(
        "LimitRangeItem.maximum",
        (queue(), set_range(range_of(maximum=exact(cpu=1))), waiting()),
        set_range(range_of(maximum=exact(cpu=2))),
    ),
    Case(
        "LimitRangeItem.minimum",
        (queue(), set_range(range_of(minimum=exact(cpu=3))), waiting()),
        set_range(range_of(minimum=exact(cpu=2))),
    ),
    Case(
        "LimitRangeItem.default_requests",
        (
            queue(),
            set_range(range_of(default_requests=exact(cpu=3))),
            waiting(pod_sets=(PodSet("main", 1, requesting()),)),
        ),
        set_range(range_of(default_requests=exact(cpu=2))),
    ),
    Case(
        "LimitRangeItem.default_limits",
        (queue(), set_range(range_of(default_limits=exact(cpu=1))), waiting()),
        set_range(range_of(default_limits=exact(cpu=2))),
    ),
    Case(
        "LimitRangeItem.type",
        (
            queue(),
            set_range(LimitRange((LimitRangeItem(LimitedType.POD, exact(cpu=1)),))),
            waiting(pod_sets=(PodSet("main", 1, PodTemplate(2 * requesting(cpu=1).containers)),)),
        ),
        set_range(range_of(maximum=exact(cpu=1))),
    ),
    Case(
        "RuntimeClass",
        (
            queue(),
            happened.RuntimeClassChanged("sandboxed", exact(cpu=1)),
            waiting(pod_sets=(PodSet("main", 1, OF_CLASS),)),
        ),
        happened.RuntimeClassDeleted("sandboxed"),
        note="deleted",
    ),
    Case(
        "RuntimeClass.overhead",
        (
            queue(nominal=3),
            happened.RuntimeClassChanged("sandboxed", exact(cpu=2)),
            waiting(pod_sets=(PodSet("main", 1, OF_CLASS),)),
        ),
        happened.RuntimeClassChanged("sandboxed", exact(cpu=1)),
    ),
    # The workload itself
    Case("Workload.uid", (queue(), waiting(active=False)), waiting(uid="another")),
    Case("Workload.queue_name", (queue(), waiting(queue_name="to-b")), waiting()),
    Case(
        "Workload.queued_at",
        (
            queue(
                preemption=ClusterQueuePreemption(
                    within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
                )
            ),
            holding(),
            waiting(),
        ),
        waiting(queued_at=NOW - 1),
        preempts=True,
    ),
    Case(
        "Workload.pod_sets",
        (queue(nominal=1), waiting()),
        waiting(pod_sets=(PodSet("main", 1, requesting(cpu=1)),)),
    ),
    Case("PodSet.count", (queue(), waiting(pod_sets=(PodSet("main", 2, requesting(cpu=2)),))), waiting()),
    Case("PodSet.template", (queue(), waiting(pod_sets=(PodSet("main", 1, requesting(cpu=3)),))), waiting()),
    Case(
        "PodSet.min_count",
        (queue(), waiting(pod_sets=(PodSet("main", 2, requesting(cpu=2)),))),
        waiting(pod_sets=(PodSet("main", 2, requesting(cpu=2), min_count=1),)),
    ),
    Case(
        "PodSet.group",
        (
            queue(resource_groups=cpu(("f1", quota(2)), ("f2", quota(2)))),
            ResourceFlavor("f2"),
            waiting(
                pod_sets=(
                    PodSet("main", 1, requesting(cpu=2), group="together"),
                    PodSet("workers", 1, requesting(cpu=2), group="together"),
                )
            ),
        ),
        waiting(pod_sets=(PodSet("main", 1, requesting(cpu=2)), PodSet("workers", 1, requesting(cpu=2)))),
    ),
    Case(
        "PodSet.node_selector",
        (queue(), LABELLED, waiting(pod_sets=IN_ZONE_TWO)),
        waiting(),
    ),
    Case("PodSet.required_node_affinity", (queue(), LABELLED, waiting(pod_sets=AFFINE)), waiting()),
    Case(
        "PodSet.tolerations",
        (queue(), TAINTED, waiting()),
        waiting(
            pod_sets=(PodSet("main", 1, requesting(cpu=2), tolerations=(Toleration("spot", "Exists"),)),)
        ),
    ),
    Case(
        "Workload.priority",
        (queue(preemption=LOW), holding(), waiting()),
        waiting(priority=1),
        preempts=True,
    ),
    Case("Workload.active", (queue(), waiting(active=False)), waiting()),
    Case("Workload.finished", (queue(), holding(), waiting()), holding(finished=True), note="of another"),
    Case("Workload.deleting", (queue(), waiting(deleting=True)), waiting()),
    Case("Workload.requeue_at", (queue(), waiting(requeue_at=LATER)), waiting()),
    Case("Workload.requeue_blocked", (queue(), waiting(requeue_blocked=True)), waiting()),
    Case("Workload.on_hold", (queue(), waiting(on_hold=True)), waiting()),
    Case(
        "Workload.waiting_for_replacement_pods",
        (queue(), waiting(waiting_for_replacement_pods=True)),
        waiting(),
    ),
    Case("Workload.admission_gates", (queue(), waiting(admission_gates=("gate",))), waiting()),
    Case(
        "Workload.reclaimable_pods",
        (queue(), waiting(pod_sets=(PodSet("main", 2, requesting(cpu=2)),))),
        waiting(pod_sets=(PodSet("main", 2, requesting(cpu=2)),), reclaimable_pods=(("main", 1),)),
    ),
    Case(
        "Workload.admission_checks",
        (queue(), waiting(admission_checks=(("check", CheckState.RETRY),))),
        waiting(),
    ),
    Case(
        "Workload.has_closed_preemption_gate",
        (queue(preemption=LOW), holding(), waiting(priority=1, has_closed_preemption_gate=True)),
        waiting(priority=1),
        preempts=True,
    ),
    Case("Workload.replaces", (queue(nominal=3), holding(), waiting()), waiting(replaces=OTHER)),
    Case(
        "Workload.replaces",
        (queue(nominal=5), holding(), holding(3, key=THIRD, uid="third"), waiting()),
        holding(3, key=THIRD, uid="third", replaces=OTHER),
        note="of another, which holds quota beside it",
    ),
    *(
        Case(
            "Workload.replaces",
            (queue(nominal=3), *IN_CIRCLE),
            edit,
            note=f"of the third of a circle, {note}",
        )
        for edit, note in (
            (replace(IN_CIRCLE[-1], replaces=None), "which replaces no other any more"),
            (replace(IN_CIRCLE[-1], finished=True), "which is finished"),
            (happened.WorkloadDeleted(THIRD, "third"), "which is deleted"),
        )
    ),
    Case(
        "Workload.resource_problems",
        (queue(), waiting(resource_problems=(ResourceProblem("f", "d"),))),
        waiting(),
    ),
    # Other workloads
    Case(
        "Workload.admission",
        (queue(), holding(), waiting()),
        holding(admission=None, admitted=False, requeue_blocked=True),
        note="of another, which stopped",
    ),
    Case(
        "Workload",
        (queue(), holding(), waiting()),
        happened.WorkloadDeleted(OTHER, "other"),
        note="another is deleted",
    ),
    Case(
        "Workload",
        (IN_POOL, queue("c", 2, cohort="pool"), *BORROWER, waiting()),
        happened.WorkloadDeleted(OTHER, "other"),
        note="another of the cohort is deleted",
    ),
    Case(
        "Workload.reclaimable_pods",
        (
            queue(nominal=2),
            holding(pod_sets=(PodSet("main", 1, requesting(cpu=2)),)),
            waiting(),
        ),
        holding(reclaimable_pods=(("main", 1),)),
        note="of another",
    ),
    Case(
        "Workload.priority",
        (queue(preemption=LOW), holding(priority=1), waiting(priority=1)),
        holding(priority=0),
        preempts=True,
        note="of another",
    ),
    Case(
        "Workload.queued_at",
        (
            queue(
                preemption=ClusterQueuePreemption(
                    within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
                )
            ),
            holding(),
            waiting(),
        ),
        holding(queued_at=NOW + 1),
        preempts=True,
        note="of another",
    ),
    Case(
        "ClusterQueue.created_at",
        (queue(created_at=NOW), holding(active=False, evicted=True, evicted_at=NOW), waiting()),
        queue(created_at=NOW + 1),
        note="created again after another that is inactive was evicted",
    ),
    Case(
        "Workload.active",
        (
            queue(queueing_strategy=QueueingStrategy.STRICT_FIFO),
            waiting(key=OTHER, uid="other", priority=9, pod_sets=(PodSet("main", 1, requesting(cpu=3)),)),
            waiting(),
        ),
        waiting(
            key=OTHER, uid="other", priority=9, pod_sets=(PodSet("main", 1, requesting(cpu=3)),), active=False
        ),
        note="of the one in front of it in a StrictFIFO queue",
    ),
    Case(
        "Workload.pods_ready",
        (queue(nominal=4), holding(pods_ready=False), waiting()),
        holding(),
        settings=CoreSettings(block_admission=True),
        note="of another",
    ),
    Case(
        "Workload.admitted",
        (queue(nominal=4), holding(pods_ready=False), waiting()),
        holding(pods_ready=False, admitted=False),
        settings=CoreSettings(block_admission=True),
        note="of another",
    ),
    # Answers and time
    Case(
        "ReservationFailed",
        (
            queue(),
            waiting(key=OTHER, uid="other", priority=9),
            waiting(),
            happened.CyclesRequested(),
            waiting(key=OTHER, uid="other", priority=-9),
        ),
        happened.ReservationFailed(OTHER, "other"),
    ),
    Case(
        "PreemptionFailed",
        (queue(preemption=LOW), holding(), waiting(priority=1), happened.CyclesRequested()),
        happened.PreemptionFailed(OTHER, "other"),
        preempts=True,
    ),
    Case("now", (queue(), waiting(requeue_at=LATER)), None, now=LATER),
    Case(
        "now",
        (queue(), waiting(), happened.CyclesRequested(), happened.ReservationFailed(WAITING, "waiting")),
        None,
        now=LATER,
        note="after a reservation that could not be written",
    ),
)
