"""The operations of histories. Each operation draws from a seed of its own and from the present state.

So an operation is valid at any place, and a history stays valid without some of its operations. This is what
makes shrinking possible.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from admitq.core import events as happened
from admitq.core.model import SECOND, AdmissionCheck, CheckState, ResourceProblem, StopPolicy
from tests.laws.drawing import (
    CHECKS,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACES,
    QUEUES,
    RUNTIME_CLASSES,
    TOPOLOGY,
    WORKLOADS,
    Draw,
    exact,
)
from tests.laws.player import Player

Operation = Callable[[Player, Draw], None]

# --- workloads ------------------------------------------------------------------------------------------


def submit(player: Player, draw: Draw) -> None:
    """Create workloads, some in place of finished ones."""
    for key in draw.sample(WORKLOADS, draw.randint(3, 8)):
        former = player.observed.workloads.get(key)
        if former is not None and former.finished:
            player.send(happened.WorkloadDeleted(key, former.uid))
        if former is None or former.finished:
            player.send(happened.WorkloadChanged(draw.workload(key, player.uid(), player.now)))


def create_again(player: Player, draw: Draw) -> None:
    """A workload was deleted and created again with the same name before the deletion was observed."""
    player.send(happened.WorkloadChanged(draw.workload(draw.choice(WORKLOADS), player.uid(), player.now)))


def delete_workload(player: Player, draw: Draw) -> None:
    """A workload is deleted; sometimes the event names a former workload of the same name."""
    key = draw.choice(WORKLOADS)
    workload = player.observed.workloads.get(key)
    uid = "" if workload is None else workload.uid
    player.send(happened.WorkloadDeleted(key, uid if draw.chance(0.9) else "former"))


def change_workload(player: Player, draw: Draw) -> None:
    """Change one field of a workload that its user, a controller or a webhook may change."""
    known = sorted(player.observed.workloads)
    if not known:
        return
    workload = player.observed.workloads[draw.choice(known)]
    if workload.finished:
        return
    checks = draw.choice(
        (
            (),
            (("check", CheckState.READY),),
            (("check", CheckState.RETRY),),
            (("other", CheckState.REJECTED),),
        )
    )
    pending = workload.admission is None
    changes: list[dict[str, Any]] = [
        {"priority": draw.choice((0, 1, 2, 3))},
        {"priority": draw.choice((0, 1, 2, 3)), "generation": workload.generation + 1},
        {"reclaimable_pods": tuple((each.name, draw.randint(0, each.count)) for each in workload.pod_sets)},
        {"active": draw.chance(0.5)},
        {"active": True},
        {"requeue_blocked": draw.chance(0.4)},
        {"requeue_at": draw.choice((None, player.now + draw.randrange(4) * SECOND))},
        {"admission_checks": checks},
        {"admission_gates": draw.choice(((), ("gate",)))},
        {"on_hold": draw.chance(0.3)},
        {"waiting_for_replacement_pods": draw.chance(0.3)},
        {"deleting": draw.chance(0.3)},
        {"has_closed_preemption_gate": draw.chance(0.3)},
        {"pods_ready": draw.chance(0.8)},
        {"finished": True},
        {"resource_problems": draw.choice(((), (ResourceProblem("f", "d"),)))},
        {"generation": workload.generation + 1},
    ]
    if pending:
        changes += [
            {"queue_name": draw.choice(("l1", "l2", "nowhere"))},
            {"queued_at": draw.queued_at(player.now)},
        ]
    if player.observed.admission(workload.key) is None:
        changes.append({"pod_sets": draw.pod_sets(), "reclaimable_pods": ()})
    player.observe_workload(workload, **draw.choice(changes))


def replace_workload(player: Player, draw: Draw) -> None:
    """An elastic job grows: a new workload with all of its pods replaces the one that has quota.

    Mostly the original has quota. Sometimes it replaced another workload itself, or has a replacement
    already; rarely it waits or is finished.
    """
    workloads = player.observed.workloads
    for _ in range(draw.randint(1, 3)):
        holding = player.workloads_with_quota(lambda workload: not workload.evicted)
        known = holding if holding and draw.chance(0.9) else sorted(workloads)
        original = workloads[draw.choice(known)] if known else None
        free = [
            key
            for key in WORKLOADS
            if original is not None
            and key.namespace == original.key.namespace
            and (key not in workloads or (workloads[key].finished and key != original.key))
        ]
        if original is None or not free:
            continue
        key = draw.choice(free)
        if key in workloads:
            player.send(happened.WorkloadDeleted(key, workloads[key].uid))
        fresh = draw.workload(key, player.uid(), player.now)
        player.send(
            happened.WorkloadChanged(
                replace(
                    fresh,
                    queue_name=draw.mostly(original.queue_name, fresh.queue_name),
                    pod_sets=draw.mostly(draw.grown(original.pod_sets), fresh.pod_sets),
                    priority=draw.often(original.priority, fresh.priority),
                    replaces=original.key,
                )
            )
        )


def resize(player: Player, draw: Draw) -> None:
    """An elastic job shrinks while it runs, or a waiting replacement follows a change of its job."""
    known = sorted(player.observed.workloads)
    for key in draw.sample(known, min(3, len(known))):
        workload = player.observed.workloads[key]
        if workload.finished:
            continue
        if workload.admission is not None:
            player.observe_workload(workload, pod_sets=draw.shrunk(workload.pod_sets))
            if draw.chance(0.7):
                player.observe_smaller_assignment(key)
        elif workload.replaces is not None and player.observed.admission(key) is None:
            player.observe_workload(workload, pod_sets=draw.grown(workload.pod_sets))


def change_replaced_workload(player: Player, draw: Draw) -> None:
    """A replacement gets another original, or several workloads replace each other in a circle."""
    workloads = player.observed.workloads
    known = [key for key in sorted(workloads) if not workloads[key].finished]
    if not known:
        return
    if draw.chance(0.5):
        player.observe_workload(
            workloads[draw.choice(known)], replaces=draw.choice((None, draw.choice(known)))
        )
        return
    holding = player.workloads_with_quota()
    among = holding if len(holding) > 1 and draw.chance(0.7) else known
    circle = draw.sample(among, min(len(among), draw.randint(2, 4)))
    for key, original in zip(circle, (*circle[1:], circle[0]), strict=True):
        player.observe_workload(workloads[key], replaces=original)


def finish_replaced_workloads(player: Player, draw: Draw) -> None:
    """Workloads with an observed replacement finish, some now and some later."""
    for key in player.replaced_workloads():
        if draw.chance(0.6):
            player.observe_workload(player.observed.workloads[key], finished=True)


# --- answers --------------------------------------------------------------------------------------------


def answer_reservations(player: Player, draw: Draw) -> None:
    """Decided reservations are observed, or failed to be written, or are still being written."""
    for key in sorted(player.observed.assumed):
        if draw.chance(0.7):
            player.write_reservation(key)
        elif draw.chance(0.4):
            player.send(happened.ReservationFailed(key, player.observed.workloads[key].uid))


def answer_preemptions(player: Player, draw: Draw) -> None:
    """Preempted workloads are evicted, or the write failed, or it is still being written."""
    for key, uid in sorted(player.requested_preemptions.items()):
        if draw.chance(0.6):
            player.evict(key)
        elif draw.chance(0.5):
            player.requested_preemptions.pop(key, None)
            player.send(happened.PreemptionFailed(key, uid))


def stop_evicted(player: Player, draw: Draw) -> None:
    """Jobs of evicted workloads have stopped, some now and some later."""
    for key in player.workloads_with_quota(lambda workload: workload.evicted):
        if draw.chance(0.7):
            player.observe_stopped(key)


def evict(player: Player, draw: Draw) -> None:
    """Something other than preemption evicts a workload: a check, a timeout, a user."""
    holding = player.workloads_with_quota(lambda workload: not workload.evicted)
    if holding:
        workload = player.observed.workloads[draw.choice(holding)]
        changes = draw.choice(
            (
                {},
                {"active": False},
                {"requeue_blocked": True},
                {"requeue_at": player.now + draw.randrange(1, 5) * SECOND},
                {"admission_checks": (("check", CheckState.RETRY),)},
            )
        )
        player.observe_workload(workload, evicted=True, evicted_at=player.now // SECOND * SECOND, **changes)


def finish(player: Player, draw: Draw) -> None:
    """Workloads that hold quota finish."""
    for key in player.workloads_with_quota():
        if draw.chance(0.4):
            player.observe_workload(player.observed.workloads[key], finished=True)


def pods_ready(player: Player, draw: Draw) -> None:
    """Pods of admitted workloads become ready."""
    for key in player.workloads_with_quota(lambda workload: workload.admitted and not workload.pods_ready):
        if draw.chance(0.8):
            player.observe_workload(player.observed.workloads[key], pods_ready=True)


def pass_checks(player: Player, draw: Draw) -> None:
    """Outstanding checks become ready, and workloads that hold quota are admitted."""
    for key in player.workloads_with_quota(lambda workload: not workload.admitted and not workload.evicted):
        if draw.chance(0.6):
            ready = tuple((name, CheckState.READY) for name in CHECKS)
            player.observe_workload(player.observed.workloads[key], admitted=True, admission_checks=ready)


def leave_places_open(player: Player, draw: Draw) -> None:
    """The placement of pods is deferred, or a deferred placement is found."""
    for key in player.workloads_with_quota(lambda workload: not workload.evicted):
        workload = player.observed.workloads[key]
        parts = () if workload.admission is None else workload.admission.pod_set_assignments
        is_open = any(part.lacks_topology_assignment for part in parts)
        if workload.admission is not None and draw.chance(0.5 if is_open else 0.2):
            changed = tuple(
                replace(
                    part, lacks_topology_assignment=not is_open, topology=part.topology if is_open else None
                )
                for part in parts
            )
            player.observe_workload(
                workload,
                admitted=is_open,
                admission=replace(workload.admission, pod_set_assignments=changed),
                admission_checks=tuple((name, CheckState.READY) for name in CHECKS),
            )


# --- what administrators do -----------------------------------------------------------------------------


def change_quota(player: Player, draw: Draw) -> None:
    """Quota is decreased or increased."""
    queue = player.observed.cluster_queues.get(draw.choice(QUEUES))
    if queue is not None:
        groups = draw.groups()
        if draw.chance(0.6):
            groups = tuple(
                replace(
                    group,
                    flavors=tuple(
                        draw.flavor_quotas(flavor.name, group.covered_resources) for flavor in group.flavors
                    ),
                )
                for group in queue.resource_groups
            )
        player.send(happened.ClusterQueueChanged(replace(queue, resource_groups=groups)))


def change_cluster_queue(player: Player, draw: Draw) -> None:
    """Another field of a ClusterQueue changes, or it is created."""
    name = draw.choice(QUEUES)
    queue, fresh = player.observed.cluster_queues.get(name), draw.cluster_queue(name, player.now)
    if queue is not None and draw.chance(0.8):
        part = draw.choice(
            (
                "cohort",
                "queueing_strategy",
                "namespace_selector",
                "stop_policy",
                "stop_policy",
                "admission_checks",
                "flavor_fungibility",
                "preemption",
                "fair_weight",
                "usage_based_admission",
                "terminating",
                "created_at",
            )
        )
        fresh = replace(queue, **{part: getattr(fresh, part)})
    player.send(happened.ClusterQueueChanged(fresh))


def delete_cluster_queue(player: Player, draw: Draw) -> None:
    """A ClusterQueue is deleted."""
    player.send(happened.ClusterQueueDeleted(draw.choice(QUEUES)))


def change_cohort(player: Player, draw: Draw) -> None:
    """A cohort changes or is deleted."""
    name = draw.choice(COHORTS)
    if draw.chance(0.8):
        player.send(happened.CohortChanged(draw.cohort(name)))
    else:
        player.send(happened.CohortDeleted(name))


def change_local_queue(player: Player, draw: Draw) -> None:
    """A LocalQueue is changed, deleted or created; a new one may have another ClusterQueue."""
    key = draw.choice(LOCAL_QUEUES)
    queue = player.observed.local_queues.get(key)
    if queue is not None and draw.chance(0.5):
        fresh = draw.local_queue(key)
        part = draw.choice(("stop_policy", "fair_weight", "terminating"))
        player.send(happened.LocalQueueChanged(replace(queue, **{part: getattr(fresh, part)})))
    elif draw.chance(0.3):
        player.send(happened.LocalQueueDeleted(key))
    else:
        player.send(happened.LocalQueueChanged(draw.local_queue(key)))


def change_flavor(player: Player, draw: Draw) -> None:
    """A flavor is changed, deleted or created."""
    name = draw.choice(FLAVORS)
    if draw.chance(0.25):
        player.send(happened.ResourceFlavorDeleted(name))
    else:
        player.send(happened.ResourceFlavorChanged(draw.flavor(name)))


def restore_objects(player: Player, draw: Draw) -> None:
    """Create missing objects again and end stop policies, so that workloads can be admitted."""
    observed = player.observed
    for name in FLAVORS:
        if name not in observed.flavors:
            player.send(happened.ResourceFlavorChanged(draw.flavor(name)))
    for name in CHECKS:
        if name not in observed.checks or not observed.checks[name].active:
            player.send(happened.AdmissionCheckChanged(AdmissionCheck(name, "controller", active=True)))
    player.send(draw.topology())
    for name in NAMESPACES:
        if name not in observed.namespaces:
            player.send(happened.NamespaceChanged(name, (("team", "blue"),)))
    for queue in list(observed.cluster_queues.values()):
        opened = replace(queue, stop_policy=StopPolicy.NONE, terminating=False)
        player.send(happened.ClusterQueueChanged(opened))
    for key in LOCAL_QUEUES:
        queue = observed.local_queues.get(key)
        if queue is None or queue.cluster_queue not in observed.cluster_queues:
            player.send(happened.LocalQueueChanged(draw.local_queue(key)))
        else:
            player.send(
                happened.LocalQueueChanged(replace(queue, stop_policy=StopPolicy.NONE, terminating=False))
            )


def change_check(player: Player, draw: Draw) -> None:
    """An admission check is changed or deleted."""
    name = draw.choice(CHECKS)
    if draw.chance(0.2):
        player.send(happened.AdmissionCheckDeleted(name))
    else:
        player.send(happened.AdmissionCheckChanged(draw.check(name)))


def change_topology(player: Player, draw: Draw) -> None:
    """A topology is created or deleted."""
    is_deleted = draw.chance(0.3)
    player.send(happened.TopologyDeleted(TOPOLOGY) if is_deleted else draw.topology())


def change_namespace(player: Player, draw: Draw) -> None:
    """Labels of a namespace change, or it is deleted."""
    name = draw.choice(NAMESPACES)
    if draw.chance(0.15):
        player.send(happened.NamespaceDeleted(name))
    else:
        player.send(
            happened.NamespaceChanged(name, draw.choice(((("team", "blue"),), (("team", "red"),), ())))
        )


def change_limit_range(player: Player, draw: Draw) -> None:
    """A LimitRange of a namespace changes."""
    key = draw.choice(LOCAL_QUEUES)._replace(name=draw.choice(("r1", "r2")))
    if draw.chance(0.5):
        player.send(happened.LimitRangeDeleted(key))
    else:
        player.send(happened.LimitRangeChanged(key, draw.limit_range()))


def change_runtime_class(player: Player, draw: Draw) -> None:
    """The overhead of a RuntimeClass changes."""
    name = draw.choice(RUNTIME_CLASSES)
    if draw.chance(0.3):
        player.send(happened.RuntimeClassDeleted(name))
    else:
        player.send(happened.RuntimeClassChanged(name, exact(cpu=draw.randrange(3))))


# --- time, cycles, restarts -----------------------------------------------------------------------------


def wait(player: Player, draw: Draw) -> None:
    """Time passes."""
    player.now += draw.choice((SECOND // 2, SECOND, 3 * SECOND, 20 * SECOND))


def run(player: Player, draw: Draw) -> None:
    """Run cycles, often after some time."""
    player.now += draw.choice((0, 0, SECOND // 4, SECOND))
    player.run_cycles(draw.choice((None, None, None, 1, 2)), draw)


def run_busy_period(player: Player, draw: Draw) -> None:
    """Carry out requests, finish and submit some workloads, and run cycles."""
    for operation in (answer_reservations, answer_preemptions, stop_evicted, finish, submit, run):
        operation(player, draw)


def settle(player: Player, draw: Draw) -> None:
    """Carry out all requests until there are none."""
    player.settle(draw)


def restart(player: Player, draw: Draw) -> None:
    """Continue with a restored state beside the old one, or in its place."""
    player.restart()
    if draw.chance(0.5) and player.twin is not None:
        player.core, player.twin = player.twin, player.core


def observe_everything_again(player: Player, draw: Draw) -> None:
    """Repeat all observations: they are levels, so that repeating them changes nothing."""
    observed = player.observed
    for event in (
        *map(happened.ResourceFlavorChanged, observed.flavors.values()),
        *map(happened.AdmissionCheckChanged, observed.checks.values()),
        *(happened.NamespaceChanged(*each) for each in observed.namespaces.items()),
        *map(happened.CohortChanged, observed.cohorts.values()),
        *map(happened.ClusterQueueChanged, observed.cluster_queues.values()),
        *map(happened.LocalQueueChanged, observed.local_queues.values()),
        *(happened.LimitRangeChanged(*each) for each in observed.limit_ranges.items()),
        *(happened.RuntimeClassChanged(*each) for each in observed.runtime_classes.items()),
        *(happened.TopologyChanged(*each) for each in observed.topologies.items()),
        *map(happened.WorkloadChanged, observed.workloads.values()),
    ):
        player.observe_again(event)


def _by_name(*weighed: tuple[Operation, int]) -> Mapping[str, tuple[Operation, int]]:
    return {operation.__name__: (operation, weight) for operation, weight in weighed}


OPERATIONS = _by_name(
    (submit, 16),
    (create_again, 2),
    (delete_workload, 4),
    (change_workload, 10),
    (answer_reservations, 18),
    (answer_preemptions, 9),
    (stop_evicted, 9),
    (evict, 3),
    (finish, 10),
    (pods_ready, 2),
    (pass_checks, 3),
    (leave_places_open, 2),
    (change_quota, 4),
    (change_cluster_queue, 5),
    (delete_cluster_queue, 1),
    (change_cohort, 4),
    (change_local_queue, 3),
    (change_flavor, 2),
    (restore_objects, 5),
    (change_check, 2),
    (change_topology, 1),
    (change_namespace, 2),
    (change_limit_range, 2),
    (change_runtime_class, 1),
    (wait, 4),
    (run_busy_period, 22),
    (run, 24),
    (settle, 3),
    (restart, 2),
    (observe_everything_again, 1),
)
"""Operations by name, each with its relative frequency."""

OPERATIONS_ON_SLICES = {
    **OPERATIONS,
    **_by_name(
        (replace_workload, 40),
        (resize, 6),
        (change_replaced_workload, 4),
        (finish_replaced_workloads, 12),
    ),
}
"""The same for histories with elastic jobs."""


def create_objects(player: Player, draw: Draw) -> None:
    """Create the first objects of a history."""
    for name in FLAVORS:
        player.send(happened.ResourceFlavorChanged(draw.flavor(name)))
    for name in CHECKS:
        player.send(happened.AdmissionCheckChanged(draw.check(name)))
    player.send(draw.topology())
    for name in NAMESPACES:
        player.send(happened.NamespaceChanged(name, (("team", "blue"),)))
    for name in draw.some(COHORTS):
        player.send(happened.CohortChanged(draw.cohort(name)))
    for name in draw.some(QUEUES, 0.8):
        player.send(happened.ClusterQueueChanged(draw.cluster_queue(name, player.now)))
    for key in LOCAL_QUEUES:
        player.send(happened.LocalQueueChanged(draw.local_queue(key)))
