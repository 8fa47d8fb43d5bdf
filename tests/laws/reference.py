"""A second, slow, obvious reckoning of quota and fitness: everything from scratch, for every question.

It reads the same values as the core and shares none of its code but these. Written from the rules:

- subtree S: nominal of a ClusterQueue; of a cohort its own nominal plus what each child lends, S - L.
- local L: max(0, S - lendingLimit) where a lending limit is set, else 0.
- usage U: of a ClusterQueue what its workloads hold; of a cohort Σ max(0, U - L) of its children.
- available: at the root S - U; else max(0, L - U) + P, where P is what is available at the parent, held
  down by the borrowing limit B to (S - L) - max(0, U - L) + B.
- potential: at the root S; else min(L + potential of the parent, S + B).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from admitq.core import events as happened
from admitq.core.amounts import FlavorResource
from admitq.core.events import Event
from admitq.core.model import (
    Admission,
    ClusterQueue,
    Cohort,
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

NO_QUOTA = ResourceQuota(0)


def demanded(pod_set: PodSet, count: int) -> dict[str, int]:
    """What so many pods of containers that state nothing but requests ask for, CPU in milli-CPU."""
    needs: dict[str, int] = {}
    for container in pod_set.template.containers:
        for resource, amount in container.requests:
            scaled = amount * count * (1000 if resource == "cpu" else 1)
            needs[resource] = needs.get(resource, 0) + int(scaled)
    return needs


@dataclass
class Reference:
    """What exists, and what was decided (``assumed``) and not been answered yet."""

    cluster_queues: dict[str, ClusterQueue] = field(default_factory=dict)
    cohorts: dict[str, Cohort] = field(default_factory=dict)
    local_queues: dict[ObjectKey, LocalQueue] = field(default_factory=dict)
    flavors: dict[str, ResourceFlavor] = field(default_factory=dict)
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    workloads: dict[ObjectKey, Workload] = field(default_factory=dict)
    assumed: dict[ObjectKey, Admission] = field(default_factory=dict)

    def observe(self, event: Event) -> None:
        """Take in an event other than a request for cycles."""
        match event:
            case happened.ClusterQueueChanged(queue):
                self.cluster_queues[queue.name] = queue
            case happened.ClusterQueueDeleted(name):
                self.cluster_queues.pop(name, None)
            case happened.CohortChanged(cohort):
                self.cohorts[cohort.name] = cohort
            case happened.CohortDeleted(name):
                self.cohorts.pop(name, None)
            case happened.LocalQueueChanged(queue):
                self.local_queues[queue.key] = queue
            case happened.LocalQueueDeleted(key):
                self.local_queues.pop(key, None)
            case happened.ResourceFlavorChanged(flavor):
                self.flavors[flavor.name] = flavor
            case happened.ResourceFlavorDeleted(name):
                self.flavors.pop(name, None)
            case happened.NamespaceChanged(name, labels):
                self.namespaces[name] = dict(labels)
            case happened.WorkloadChanged(workload):
                former = self.workloads.get(workload.key)
                replaced = former is not None and former.uid != workload.uid
                if replaced or workload.admission is not None or workload.finished:
                    self.assumed.pop(workload.key, None)
                self.workloads[workload.key] = workload
            case happened.WorkloadDeleted(key, _):
                self.workloads.pop(key, None)
                self.assumed.pop(key, None)
            case happened.ReservationFailed(key, _):
                self.assumed.pop(key, None)
            case _:
                raise AssertionError(event)

    # --- the tree ---------------------------------------------------------------------------------

    def cohort_names(self) -> set[str]:
        named = {queue.cohort for queue in self.cluster_queues.values()}
        named |= {cohort.parent for cohort in self.cohorts.values()}
        return {name for name in named if name is not None} | set(self.cohorts)

    def parent(self, node: str) -> str | None:
        """Nodes are ``q:name`` and ``c:name``."""
        kind, name = node.split(":")
        spec = self.cluster_queues.get(name) if kind == "q" else self.cohorts.get(name)
        above = None if spec is None else (spec.cohort if isinstance(spec, ClusterQueue) else spec.parent)
        return None if above is None else f"c:{above}"

    def path(self, node: str) -> list[str] | None:
        """The node and its ancestors; None if that never ends."""
        path = [node]
        while (above := self.parent(path[-1])) is not None:
            if above in path:
                return None
            path.append(above)
        return path

    def children(self, node: str) -> Iterator[str]:
        everything = [f"q:{name}" for name in self.cluster_queues] + [f"c:{n}" for n in self.cohort_names()]
        return (each for each in everything if self.parent(each) == node)

    def quota(self, node: str, pair: FlavorResource) -> ResourceQuota:
        kind, name = node.split(":")
        spec = self.cluster_queues.get(name) if kind == "q" else self.cohorts.get(name)
        groups: tuple[ResourceGroup, ...] = () if spec is None else spec.resource_groups
        for group in groups:
            for flavor in group.flavors:
                if flavor.name == pair.flavor:
                    return dict(flavor.resources).get(pair.resource, NO_QUOTA)
        return NO_QUOTA

    # --- amounts ----------------------------------------------------------------------------------

    def admission(self, key: ObjectKey) -> Admission | None:
        workload = self.workloads[key]
        if workload.finished:
            return None
        return workload.admission if workload.admission is not None else self.assumed.get(key)

    def held(self, key: ObjectKey, pair: FlavorResource) -> int:
        admission, workload = self.admission(key), self.workloads[key]
        counts = {pod_set.name: pod_set.count for pod_set in workload.pod_sets}
        reclaimable = dict(workload.reclaimable_pods)
        total = 0
        for part in admission.pod_set_assignments if admission is not None else ():
            if dict(part.flavors).get(pair.resource) == pair.flavor:
                amount = dict(part.resource_usage).get(pair.resource, 0)
                left = max(0, counts[part.name] - reclaimable.get(part.name, 0))
                total += amount * left // part.count if left < part.count else amount
        return total

    def usage(self, node: str, pair: FlavorResource) -> int:
        kind, name = node.split(":")
        if kind == "q":
            return sum(
                self.held(key, pair)
                for key in self.workloads
                if (admission := self.admission(key)) is not None and admission.cluster_queue == name
            )
        return sum(max(0, self.usage(child, pair) - self.local(child, pair)) for child in self.children(node))

    def subtree(self, node: str, pair: FlavorResource) -> int:
        own = self.quota(node, pair).nominal
        return own + sum(self.subtree(child, pair) - self.local(child, pair) for child in self.children(node))

    def local(self, node: str, pair: FlavorResource) -> int:
        limit = self.quota(node, pair).lending_limit
        return 0 if limit is None else max(0, self.subtree(node, pair) - limit)

    def available(self, node: str, pair: FlavorResource) -> int:
        subtree, local, usage = self.subtree(node, pair), self.local(node, pair), self.usage(node, pair)
        above = self.parent(node)
        if above is None:
            return subtree - usage
        from_parent = self.available(above, pair)
        limit = self.quota(node, pair).borrowing_limit
        if limit is not None:
            from_parent = min(from_parent, (subtree - local) - max(0, usage - local) + limit)
        return max(0, local - usage) + from_parent

    def potential(self, node: str, pair: FlavorResource) -> int:
        above = self.parent(node)
        if above is None:
            return self.subtree(node, pair)
        most = self.local(node, pair) + self.potential(above, pair)
        limit = self.quota(node, pair).borrowing_limit
        return most if limit is None else min(most, self.subtree(node, pair) + limit)

    # --- queues -----------------------------------------------------------------------------------

    def is_active(self, name: str) -> bool:
        queue = self.cluster_queues[name]
        flavors = {flavor.name for group in queue.resource_groups for flavor in group.flavors}
        return not queue.terminating and queue.stop_policy is StopPolicy.NONE and flavors <= set(self.flavors)

    def waits_in(self, key: ObjectKey) -> str | None:
        """The ClusterQueue a workload waits in."""
        workload = self.workloads[key]
        local_queue = self.local_queues.get(ObjectKey(key.namespace, workload.queue_name))
        if (
            self.admission(key) is not None
            or workload.finished
            or not workload.active
            or workload.deleting
            or workload.on_hold
            or workload.admission_gates
            or workload.waiting_for_replacement_pods
            or local_queue is None
            or local_queue.stop_policy is not StopPolicy.NONE
            or local_queue.terminating
            or local_queue.cluster_queue not in self.cluster_queues
        ):
            return None
        return local_queue.cluster_queue

    def is_eligible(self, key: ObjectKey, name: str, now: int) -> bool:
        """Whether nothing but quota, or the workload itself, is in the way of a pending workload."""
        workload, selector = self.workloads[key], self.cluster_queues[name].namespace_selector
        labels = self.namespaces.get(key.namespace)
        selected = (
            selector is not None
            and labels is not None
            and all(
                labels.get(requirement.key) in requirement.values for requirement in selector.requirements
            )
        )
        kept_back = workload.requeue_blocked or (workload.requeue_at or 0) > now
        return selected and not kept_back

    def is_sound(self, key: ObjectKey) -> bool:
        """Whether the workload itself can be admitted."""
        workload = self.workloads[key]
        failed = any(state in ("Retry", "Rejected") for _, state in workload.admission_checks)
        return not workload.resource_problems and not failed

    def waiting(self, name: str, now: int) -> list[ObjectKey]:
        """Those that quota could admit in a ClusterQueue, in order."""
        keys = [
            key for key in self.workloads if self.waits_in(key) == name and self.is_eligible(key, name, now)
        ]

        def order(key: ObjectKey) -> tuple[int, int, str]:
            workload = self.workloads[key]
            return (-workload.priority, workload.queued_at, workload.uid)

        return sorted(keys, key=order)

    def fits(self, key: ObjectKey, name: str) -> bool:
        """Whether a workload of one podset fits now; with several, flavors depend on each other."""
        workload, queue = self.workloads[key], self.cluster_queues[name]
        if self.path(f"q:{name}") is None or not self.is_sound(key):
            return False
        (pod_set,) = workload.pod_sets
        count = max(0, pod_set.count - dict(workload.reclaimable_pods).get(pod_set.name, 0))
        needs = demanded(pod_set, count)
        covered = {resource for group in queue.resource_groups for resource in group.covered_resources}
        if "pods" in covered:
            needs["pods"] = count
        if any(amount and resource not in covered for resource, amount in needs.items()):
            return False
        return all(
            any(self._flavor_fits(name, flavor.name, group, needs) for flavor in group.flavors)
            for group in queue.resource_groups
            if any(resource in needs for resource in group.covered_resources)
        )

    def _flavor_fits(self, name: str, flavor: str, group: ResourceGroup, needs: Mapping[str, int]) -> bool:
        if any(taint.effect != "PreferNoSchedule" for taint in self.flavors[flavor].node_taints):
            return False
        pairs = {
            FlavorResource(flavor, resource): needs[resource]
            for resource in group.covered_resources
            if resource in needs
        }
        return all(
            amount <= min(self.available(f"q:{name}", pair), self.potential(f"q:{name}", pair))
            for pair, amount in pairs.items()
        )

    def is_strict(self, name: str) -> bool:
        return self.cluster_queues[name].queueing_strategy is QueueingStrategy.STRICT_FIFO
