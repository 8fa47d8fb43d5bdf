"""Cases of a parked workload that fits after a change of a workload, an answer or the time."""

from dataclasses import replace

from admitq.core import events as happened
from admitq.core.model import (
    CheckState,
    ClusterQueuePreemption,
    PodSet,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    ResourceProblem,
    Toleration,
)
from admitq.core.settings import CoreSettings
from tests.laws.drawing import requesting
from tests.laws.waking_objects import (
    AFFINE,
    BORROWER,
    IN_CIRCLE,
    IN_POOL,
    IN_ZONE_TWO,
    LABELLED,
    LATER,
    LOW,
    NOW,
    OTHER,
    TAINTED,
    THIRD,
    WAITING,
    Case,
    cpu,
    holding,
    queue,
    quota,
    waiting,
)

WORKLOAD_CASES: tuple[Case, ...] = (
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
