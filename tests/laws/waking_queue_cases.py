"""Cases of a parked workload that fits after a change of a queue, quota, flavor, check or limit."""

from dataclasses import replace
from fractions import Fraction

from admitq.core import events as happened
from admitq.core.model import (
    BorrowWithinCohort,
    Cohort,
    FlavorFungibility,
    FlavorFungibilityPolicy,
    LabelSelector,
    LimitedType,
    LimitRange,
    LimitRangeItem,
    PodSet,
    PodTemplate,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    SelectorOperator,
    SelectorRequirement,
    StopPolicy,
    Toleration,
)
from tests.laws.drawing import exact, requesting
from tests.laws.waking_objects import (
    BORROWER,
    CHECK,
    CHECKED,
    F1,
    FAIR,
    IN_POOL,
    IN_ZONE_TWO,
    LABELLED,
    LIMIT_RANGE,
    LOW,
    OF_CLASS,
    OTHER,
    RECLAIM,
    RECLAIM_ANY,
    SHARED,
    TAINTED,
    TEAM,
    TO_A,
    Case,
    cpu,
    holding,
    queue,
    quota,
    range_of,
    set_range,
    waiting,
)

QUEUE_CASES: tuple[Case, ...] = (
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
)
