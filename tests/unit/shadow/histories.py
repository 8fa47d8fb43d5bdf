"""Histories of clusters, drawn from a seed: random changes of objects, and random delays of the observers."""

from collections.abc import Callable
from dataclasses import replace

from admitq.core import events
from admitq.core.model import SECOND, AdmissionCheck, CheckState, ObjectKey, StopPolicy, Workload
from tests.laws.drawing import CHECKS, COHORTS, FLAVORS, LOCAL_QUEUES, NAMESPACES, QUEUES, WORKLOADS, Draw
from tests.unit.shadow.cluster import Cluster


class History:
    """A cluster with random operations.

    In a calm history, all changes are observed and all decisions written before the next operation.
    """

    def __init__(self, seed: int, *, calm: bool = False) -> None:
        self.calm = calm
        self.draw = Draw(seed)
        self.draw.crowded = self.draw.chance(0.6)
        self.cluster = Cluster(self.draw.settings(), self.draw)
        self.uids = 0
        draw, send = self.draw, self.cluster.send
        for name in NAMESPACES:
            send(events.NamespaceChanged(name, (("team", "blue"),)))
        for name in FLAVORS:
            send(events.ResourceFlavorChanged(replace(draw.flavor(name), topology_name=None)))
        for name in CHECKS:
            send(events.AdmissionCheckChanged(AdmissionCheck(name, "controller", active=True)))
        for name in draw.some(COHORTS):
            send(events.CohortChanged(draw.cohort(name)))
        self.queues = {name: draw.cluster_queue(name) for name in QUEUES}
        for queue in self.queues.values():
            send(events.ClusterQueueChanged(queue))
        for key in LOCAL_QUEUES:
            send(events.LocalQueueChanged(draw.local_queue(key)))
        self.submit()
        self.cluster.follow()

    # --- operations -------------------------------------------------------------------------------

    def keys_of(self, is_selected: Callable[[Workload], bool]) -> list[ObjectKey]:
        return sorted(key for key, workload in self.cluster.workloads.items() if is_selected(workload))

    def submit(self) -> None:
        cluster, draw = self.cluster, self.draw
        for key in draw.sample(WORKLOADS, draw.randint(1, 5)):
            former = cluster.workloads.get(key)
            if former is not None and not former.finished:
                continue
            if former is not None:
                cluster.send(events.WorkloadDeleted(key, former.uid))
            self.uids += 1
            cluster.send(events.WorkloadChanged(draw.workload(key, f"uid-{self.uids:04}", cluster.now)))

    def finish(self) -> None:
        for key in self.keys_of(
            lambda workload: workload.admitted and not workload.evicted and not workload.finished
        ):
            if self.draw.chance(0.4):
                self.cluster.put(key, finished=True)

    def stop(self) -> None:
        for key in self.keys_of(
            lambda workload: workload.evicted and workload.admission is not None and not workload.finished
        ):
            if self.draw.chance(0.7):
                self.cluster.stop(key)

    def pass_checks(self) -> None:
        for key in self.keys_of(
            lambda workload: workload.admission is not None and not workload.admitted and not workload.evicted
        ):
            if self.draw.chance(0.6):
                ready = tuple((name, CheckState.READY) for name in CHECKS)
                self.cluster.put(key, admitted=True, admission_checks=ready)

    def pods_ready(self) -> None:
        for key in self.keys_of(lambda workload: workload.admitted and not workload.pods_ready):
            if self.draw.chance(0.8):
                self.cluster.put(key, pods_ready=True)

    def change_workload(self) -> None:
        draw, cluster = self.draw, self.cluster
        keys = self.keys_of(lambda workload: not workload.finished)
        if not keys:
            return
        workload = cluster.workloads[draw.choice(keys)]
        changes: list[dict[str, object]] = [
            {"priority": draw.choice((0, 1, 2, 3))},
            {"active": True},
            {"on_hold": draw.chance(0.3)},
            {"requeue_at": draw.choice((None, cluster.now + draw.randrange(4) * SECOND))},
            {"finished": True},
        ]
        if workload.admission is None:
            changes.append({"queue_name": draw.choice(("l1", "l2"))})
            changes.append({"pod_sets": draw.pod_sets(), "generation": workload.generation + 1})
        cluster.put(workload.key, **draw.choice(changes))

    def delete(self) -> None:
        keys = sorted(self.cluster.workloads)
        if keys:
            workload = self.cluster.workloads[self.draw.choice(keys)]
            self.cluster.send(events.WorkloadDeleted(workload.key, workload.uid))

    def change_queue(self) -> None:
        draw = self.draw
        name = draw.choice(QUEUES)
        part = draw.choice(("resource_groups", "preemption", "stop_policy", "cohort", "queueing_strategy"))
        new = draw.cluster_queue(name)
        self.queues[name] = replace(self.queues[name], **{part: getattr(new, part)})
        self.cluster.send(events.ClusterQueueChanged(self.queues[name]))

    def open_queues(self) -> None:
        for name, queue in self.queues.items():
            if queue.stop_policy is not StopPolicy.NONE or queue.terminating:
                self.queues[name] = replace(queue, stop_policy=StopPolicy.NONE, terminating=False)
                self.cluster.send(events.ClusterQueueChanged(self.queues[name]))

    def evict(self) -> None:
        for key in self.keys_of(lambda workload: workload.admission is not None and not workload.evicted):
            if self.draw.chance(0.2):
                self.cluster.put(key, evicted=True)

    def observe(self) -> None:
        """Deliver some changes, decide and write, in random order."""
        cluster, draw = self.cluster, self.draw
        for _ in range(draw.randint(1, 6)):
            step = draw.randrange(5)
            if step == 0:
                cluster.deliver_to_manager(draw.randint(1, 6))
            elif step == 1:
                cluster.deliver_to_shadow(draw.randint(1, 6))
            elif step == 2:
                cluster.decide(draw.choice((None, 1, 2)))
            elif step == 3:
                cluster.write(draw.randint(1, 4))
            else:
                cluster.look()
            cluster.now += draw.choice((0, SECOND // 100, SECOND // 20))

    def wait(self) -> None:
        """Let some time pass without changes, until both observers know all objects."""
        self.cluster.wait(self.draw.choice((SECOND // 2, 3 * SECOND, 15 * SECOND)))

    def play(self, steps: int) -> None:
        operations: list[tuple[Callable[[], None], int]] = [
            (self.submit, 20),
            (self.finish, 12),
            (self.stop, 14),
            (self.pass_checks, 8),
            (self.pods_ready, 8),
            (self.change_workload, 8),
            (self.delete, 2),
            (self.change_queue, 3),
            (self.open_queues, 3),
            (self.evict, 2),
            (self.observe, 40),
            (self.wait, 8),
        ]
        names = [operation for operation, _ in operations]
        for operation in self.draw.choices(names, [weight for _, weight in operations], k=steps):
            operation()
            if self.calm:
                self.cluster.settle()
        self.cluster.wait(15 * SECOND)
