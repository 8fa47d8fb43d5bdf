"""Which objects exist, which decisions are unanswered, which workload waits where and which holds what."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from admitq.core import events as happened
from admitq.core.amounts import FlavorResource
from admitq.core.events import Event
from admitq.core.model import (
    SECOND,
    Admission,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    ExactAmounts,
    Instant,
    Labels,
    LabelSelector,
    LimitRange,
    LocalQueue,
    ObjectKey,
    QueueingStrategy,
    ResourceFlavor,
    SelectorOperator,
    StopPolicy,
    Workload,
)
from admitq.core.settings import CoreSettings
from tests.laws.reference.tree import Tree


class Assumed(NamedTuple):
    """A decided reservation; its write has no answer yet."""

    admission: Admission
    at: Instant
    admit: bool


class Failed(NamedTuple):
    """How many reservations in a row could not be written, and until when none is decided."""

    in_a_row: int
    until: Instant


class Holder(NamedTuple):
    """A workload that holds quota."""

    workload: Workload
    queue: str
    usage: dict[FlavorResource, int]
    reserved_at: Instant
    evicted: bool
    """Whether it is evicted, or its eviction was decided."""
    admission: Admission

    @property
    def key(self) -> ObjectKey:
        """Its key."""
        return self.workload.key

    @property
    def flavors(self) -> dict[tuple[str, str], str]:
        """Its assigned flavors by podset and resource."""
        admission = self.admission
        return {
            (part.name, resource): name
            for part in admission.pod_set_assignments
            for resource, name in part.flavors
        }


def selects(selector: LabelSelector | None, labels: Labels | None) -> bool:
    """Whether a namespace is selected. No selector selects none; an unknown namespace is not selected."""
    if selector is None or labels is None:
        return False
    values = dict(labels)
    for requirement in selector.requirements:
        value = values.get(requirement.key)
        holds = {
            SelectorOperator.IN: value in requirement.values,
            SelectorOperator.NOT_IN: value not in requirement.values,
            SelectorOperator.EXISTS: value is not None,
            SelectorOperator.DOES_NOT_EXIST: value is None,
        }[requirement.operator]
        if not holds:
            return False
    return True


@dataclass
class Observed:
    """All observed objects, and the decisions without an answer."""

    settings: CoreSettings = field(default_factory=CoreSettings)
    cluster_queues: dict[str, ClusterQueue] = field(default_factory=dict)
    cohorts: dict[str, Cohort] = field(default_factory=dict)
    local_queues: dict[ObjectKey, LocalQueue] = field(default_factory=dict)
    flavors: dict[str, ResourceFlavor] = field(default_factory=dict)
    checks: dict[str, AdmissionCheck] = field(default_factory=dict)
    topologies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The levels of each topology."""
    namespaces: dict[str, Labels] = field(default_factory=dict)
    limit_ranges: dict[ObjectKey, LimitRange] = field(default_factory=dict)
    runtime_classes: dict[str, ExactAmounts] = field(default_factory=dict)
    workloads: dict[ObjectKey, Workload] = field(default_factory=dict)
    assumed: dict[ObjectKey, Assumed] = field(default_factory=dict)
    failed: dict[ObjectKey, Failed] = field(default_factory=dict)
    """Workloads with a last reservation that could not be written, unless they changed since."""
    preempting: set[ObjectKey] = field(default_factory=set)
    """Targets with a decided eviction that is not observed yet."""

    # --- events -----------------------------------------------------------------------------------

    def observe(self, event: Event, now: Instant) -> None:
        """Apply an event other than a request for cycles."""
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
            case happened.AdmissionCheckChanged(check):
                self.checks[check.name] = check
            case happened.AdmissionCheckDeleted(name):
                self.checks.pop(name, None)
            case happened.TopologyChanged(name, levels):
                self.topologies[name] = levels
            case happened.TopologyDeleted(name):
                self.topologies.pop(name, None)
            case (
                happened.NodeChanged()
                | happened.NodeDeleted()
                | happened.PodOfOthersChanged()
                | happened.PodOfOthersDeleted()
                | happened.TopologyAssignmentFailed()
            ):
                pass  # ``Places`` observes them.
            case happened.NamespaceChanged(name, labels):
                self.namespaces[name] = labels
            case happened.NamespaceDeleted(name):
                self.namespaces.pop(name, None)
            case happened.LimitRangeChanged(key, limit_range):
                self.limit_ranges[key] = limit_range
            case happened.LimitRangeDeleted(key):
                self.limit_ranges.pop(key, None)
            case happened.RuntimeClassChanged(name, overhead):
                self.runtime_classes[name] = overhead
            case happened.RuntimeClassDeleted(name):
                self.runtime_classes.pop(name, None)
            case happened.WorkloadChanged(workload):
                self._observe_workload(workload)
            case happened.WorkloadDeleted(key, uid):
                if key in self.workloads and self.workloads[key].uid == uid:
                    self._forget(key)
            case happened.ReservationFailed(key, uid):
                if key in self.workloads and self.workloads[key].uid == uid and key in self.assumed:
                    self._hold_back(key, now)
                    self._discard(key)
            case happened.ReservationDiscarded(key, uid):
                if key in self.workloads and self.workloads[key].uid == uid:
                    self._discard(key)
            case happened.PreemptionFailed(key, uid):
                if key in self.workloads and self.workloads[key].uid == uid:
                    self.preempting.discard(key)
            case happened.CyclesRequested():
                raise AssertionError(event)

    def _hold_back(self, key: ObjectKey, now: Instant) -> None:
        """Each failure in a row doubles the backoff: 50 ms, 100 ms and so on, at most 30 s."""
        count = self.failed[key].in_a_row + 1 if key in self.failed else 1
        self.failed[key] = Failed(count, now + min(SECOND * 2 ** (count - 1) // 20, 30 * SECOND))

    def _discard(self, key: ObjectKey) -> None:
        self.assumed.pop(key, None)
        self._settle_preemption(key)

    def _observe_workload(self, workload: Workload) -> None:
        key = workload.key
        former = self.workloads.get(key)
        if former is not None and former.uid != workload.uid:
            self._forget(key)
        if workload.admission is not None or workload.finished:
            self.assumed.pop(key, None)
        if workload != former:
            self.failed.pop(key, None)
        self.workloads[key] = workload
        self._settle_preemption(key)

    def _settle_preemption(self, key: ObjectKey) -> None:
        """Stop expecting an eviction that is observed, or of a workload that holds nothing any more."""
        holds_nothing = self.admission(key) is None
        if holds_nothing or (self.workloads[key].evicted and self.workloads[key].admission is not None):
            self.preempting.discard(key)

    def _forget(self, key: ObjectKey) -> None:
        del self.workloads[key]
        self.assumed.pop(key, None)
        self.failed.pop(key, None)
        self.preempting.discard(key)

    # --- held quota -------------------------------------------------------------------------------

    def admission(self, key: ObjectKey) -> Admission | None:
        """Return what a workload holds, also by a decision that is being written."""
        workload = self.workloads[key]
        if workload.finished:
            return None
        if workload.admission is not None:
            return workload.admission
        return self.assumed[key].admission if key in self.assumed else None

    def is_not_charged(self, key: ObjectKey) -> bool:
        """Whether the reservation of an inactive workload belongs to a former ClusterQueue of this name."""
        workload = self.workloads[key]
        if workload.admission is None or workload.active or not (workload.evicted and workload.evicted_at):
            return False
        queue = self.cluster_queues.get(workload.admission.cluster_queue)
        return queue is not None and max(workload.evicted_at, workload.reserved_at) < queue.created_at

    def holder(self, key: ObjectKey) -> Holder | None:
        """Return a workload as a holder of quota; None if it holds none."""
        admission, workload = self.admission(key), self.workloads[key]
        if admission is None or self.is_not_charged(key):
            return None
        observed = workload.admission is not None
        return Holder(
            workload,
            admission.cluster_queue,
            self._counted(workload, admission),
            self._reserved_at(key),
            (workload.evicted and observed) or key in self.preempting,
            admission,
        )

    def quota_holders(self) -> Iterator[Holder]:
        """Return all holders of quota by key."""
        for key in sorted(self.workloads):
            holder = self.holder(key)
            if holder is not None:
                yield holder

    def _usage(self, workload: Workload, admission: Admission) -> dict[FlavorResource, int]:
        """Return the assigned usage in proportion to the pods that are still to run.

        Pods that a scale-down removed and reclaimable pods do not count.
        """
        counts = {pod_set.name: pod_set.count for pod_set in workload.pod_sets}
        reclaimable = dict(workload.reclaimable_pods) if self.settings.gates.reclaimable_pods else {}
        usage: dict[FlavorResource, int] = {}
        for part in admission.pod_set_assignments:
            amounts = dict(part.resource_usage)
            left = max(0, counts.get(part.name, part.count) - reclaimable.get(part.name, 0))
            for resource, flavor in part.flavors:
                amount = amounts.get(resource, 0)
                if left < part.count:
                    amount = amount * left // part.count
                pair = FlavorResource(flavor, resource)
                usage[pair] = usage.get(pair, 0) + amount
        return {pair: amount for pair, amount in usage.items() if amount}

    def _reserved_at(self, key: ObjectKey) -> Instant:
        """Return since when a workload holds quota. Timestamps of conditions have whole seconds."""
        workload = self.workloads[key]
        return (
            workload.reserved_at
            if workload.admission is not None
            else self.assumed[key].at // SECOND * SECOND
        )

    # --- replacements -----------------------------------------------------------------------------

    def former(self, key: ObjectKey, queue: str) -> Holder | None:
        """Return the workload whose quota another takes over if it gets quota in a ClusterQueue.

        It is the one that the workload replaces, with all that it was assigned, while it holds quota there.
        There is none if another workload replaced it already, or if the chain of replacements leads back to
        the workload.
        """
        name = self.workloads[key].replaces
        if name is None or name == key or name not in self.workloads:
            return None
        former = self.holder(name)
        if former is None or former.queue != queue or self.leads_back(key) or self.replacement(name):
            return None
        return former._replace(usage=self.assigned(name))

    def replacement_chain(self, key: ObjectKey) -> list[ObjectKey]:
        """Return a workload, the one that it replaces, the one that this replaces, and so on, each once."""
        line = [key]
        while (at := self.workloads[line[-1]].replaces) is not None:
            if at not in self.workloads or at in line or self.workloads[at].finished:
                break
            line.append(at)
        return line

    def leads_back(self, key: ObjectKey) -> bool:
        """Whether the chain of replacements leads back to the workload."""
        return self.workloads[self.replacement_chain(key)[-1]].replaces == key

    def assigned(self, key: ObjectKey) -> dict[FlavorResource, int]:
        """Return what a workload holds, also if another workload counts it."""
        admission = self.admission(key)
        return {} if admission is None else self._usage(self.workloads[key], admission)

    def original(self, key: ObjectKey, queue: str) -> Holder | None:
        """Return the workload whose flavors a replacement keeps, if it gets quota in a ClusterQueue.

        An evicted workload is no original: its replacement is evaluated like any other workload (semantics,
        Elastic jobs).
        """
        former = self.former(key, queue)
        return None if former is None or former.evicted or not former.workload.active else former

    def replacement(self, name: ObjectKey) -> ObjectKey | None:
        """Return the workload that replaced one that still holds quota: the first that got quota after it."""
        former = self.admission(name) if name in self.workloads else None
        return (
            None if former is None else self._replacement(name, former.cluster_queue, self._reserved_at(name))
        )

    def later_replacement(self, name: ObjectKey, queue: str, now: Instant) -> Holder | None:
        """Return the workload that counts with less once its original gets quota now.

        Timestamps have whole seconds, so that it is unknown which of the two had quota first.
        """
        key = self._replacement(name, queue, now // SECOND * SECOND)
        return None if key is None else self.holder(key)

    def _replacement(self, name: ObjectKey, queue: str, since: Instant) -> ObjectKey | None:
        heirs = [
            (self._reserved_at(key), workload.uid, key)
            for key, workload in self.workloads.items()
            if workload.replaces == name != key
            and (admission := self.admission(key)) is not None
            and admission.cluster_queue == queue
            and not self.leads_back(key)
            and since <= self._reserved_at(key)
        ]
        return min(heirs)[2] if heirs else None

    def _counted(self, workload: Workload, admission: Admission) -> dict[FlavorResource, int]:
        """Return the usage that counts for a workload, without what it takes over from another."""
        usage, name = self._usage(workload, admission), self.replaced_by(workload.key)
        return usage if name is None else usage_beyond(usage, self.assigned(name))

    def replaced_by(self, key: ObjectKey) -> ObjectKey | None:
        """Return the workload that this one replaces, while both hold quota: what both have counts once."""
        name = self.workloads[key].replaces
        if name is None or self.replacement(name) != key or self.is_not_charged(name):
            return None
        return name

    def without(self, keys: Collection[ObjectKey]) -> "Observed":
        """Return the same objects, but with no quota for these workloads."""
        return replace(
            self,
            assumed={key: held for key, held in self.assumed.items() if key not in keys},
            workloads={
                key: replace(workload, admission=None) if key in keys else workload
                for key, workload in self.workloads.items()
            },
        )

    def tree(self) -> Tree:
        """Return the cohort trees with the usage of all holders."""
        tree = Tree(self.cluster_queues, self.cohorts)
        for key, workload in self.workloads.items():
            admission = self.admission(key)
            if admission is not None and not self.is_not_charged(key):
                tree.add(admission.cluster_queue, self._counted(workload, admission))
        return tree

    def waits_for_pods(self) -> bool:
        """Whether pods of an admitted workload, or of one that is about to be, are not ready.

        Workloads of a ClusterQueue that does not exist do not count.
        """
        queues = self.cluster_queues
        admitted = [
            key
            for key, assumed in self.assumed.items()
            if assumed.admit and assumed.admission.cluster_queue in queues
        ]
        admitted += [
            key
            for key, each in self.workloads.items()
            if each.admission
            and each.admission.cluster_queue in queues
            and each.admitted
            and not each.finished
            and not self.is_not_charged(key)
        ]
        return not all(self.workloads[key].pods_ready for key in admitted)

    # --- pending workloads --------------------------------------------------------------------------------

    def is_active(self, name: str) -> bool:
        """Whether a ClusterQueue admits. Histories have no MultiKueue checks, which have further rules."""
        queue = self.cluster_queues[name]
        flavors = {flavor.name for group in queue.resource_groups for flavor in group.flavors}
        if queue.terminating or queue.stop_policy is not StopPolicy.NONE or not flavors <= set(self.flavors):
            return False
        topologies = {self.flavors[flavor].topology_name for flavor in flavors} - {None}
        if not topologies <= self.topologies.keys():
            return False
        checks = [self.checks.get(rule.name) for rule in queue.admission_checks]
        return all(check is not None and check.active for check in checks)

    def is_strict(self, name: str) -> bool:
        """Whether the head of a ClusterQueue blocks the queue."""
        return self.cluster_queues[name].queueing_strategy is QueueingStrategy.STRICT_FIFO

    def waits_in(self, key: ObjectKey) -> str | None:
        """Return the ClusterQueue in which a workload waits; None if it does not wait."""
        workload = self.workloads[key]
        if (
            self.admission(key) is not None
            or workload.finished
            or not workload.active
            or workload.deleting
            or workload.on_hold
            or workload.admission_gates
            or workload.waiting_for_replacement_pods
        ):
            return None
        local_queue = self.local_queues.get(ObjectKey(key.namespace, workload.queue_name))
        if (
            local_queue is None
            or local_queue.stop_policy is not StopPolicy.NONE
            or local_queue.terminating
            or local_queue.cluster_queue not in self.cluster_queues
        ):
            return None
        return local_queue.cluster_queue

    def is_held_back(self, key: ObjectKey, now: Instant) -> bool:
        """Whether a workload may not be evaluated yet."""
        workload = self.workloads[key]
        until = self.failed[key].until if key in self.failed else 0
        return workload.requeue_blocked or max(workload.requeue_at or 0, until) > now

    def is_selected(self, key: ObjectKey, queue: str) -> bool:
        """Whether the ClusterQueue selects the workload's namespace."""
        return selects(self.cluster_queues[queue].namespace_selector, self.namespaces.get(key.namespace))

    def waiting(self, queue: str, now: Instant) -> list[ObjectKey]:
        """Return the workloads of a ClusterQueue that may be evaluated now, in queue order."""
        keys = [
            key
            for key in self.workloads
            if self.waits_in(key) == queue
            and not self.is_held_back(key, now)
            and self.is_selected(key, queue)
        ]
        return sorted(keys, key=lambda key: queue_order(self.workloads[key]))

    def outstanding_checks(self, key: ObjectKey, queue: str, flavors: Collection[str]) -> list[str]:
        """Return the admission checks that apply with these flavors and are not Ready for a workload."""
        states = dict(self.workloads[key].admission_checks)
        return [
            rule.name
            for rule in self.cluster_queues[queue].admission_checks
            if (not rule.on_flavors or set(flavors) & set(rule.on_flavors))
            and states.get(rule.name) != "Ready"
        ]

    def answered(self, key: ObjectKey) -> Workload:
        """Return a workload as it is observed once its reservation is written."""
        assumed, workload = self.assumed[key], self.workloads[key]
        return replace(
            workload,
            admission=assumed.admission,
            reserved_at=assumed.at // SECOND * SECOND,
            admitted=assumed.admit,
            evicted=False,
            requeue_at=None,
        )


def usage_beyond(
    usage: Mapping[FlavorResource, int], former: Mapping[FlavorResource, int]
) -> dict[FlavorResource, int]:
    """Return the usage that exceeds another one."""
    return {pair: more for pair, amount in usage.items() if (more := amount - former.get(pair, 0)) > 0}


def queue_order(workload: Workload) -> tuple[int, int, str]:
    """Return the sort key of queue order: higher priority, then earlier queued, then uid."""
    return (-workload.priority, workload.queued_at, workload.uid)


def limit_ranges_of(limit_ranges: Mapping[ObjectKey, LimitRange], namespace: str) -> list[LimitRange]:
    """Return the LimitRanges of a namespace by name."""
    return [limit_ranges[key] for key in sorted(limit_ranges) if key.namespace == namespace]
