"""Changes that may admit a workload. Each knows the events that apply it to a state."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from admitq.core.amounts import FlavorResource, add
from admitq.core.events import (
    AdmissionCheckChanged,
    ClusterQueueChanged,
    Event,
    LocalQueueChanged,
    ResourceFlavorChanged,
    WorkloadChanged,
)
from admitq.core.model import (
    AdmissionCheck,
    ClusterQueue,
    FlavorQuotas,
    ObjectKey,
    PodSet,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
    Toleration,
    Workload,
)
from admitq.core.quota import NO_QUOTA
from admitq.core.world import World


@dataclass(frozen=True, slots=True)
class LiftHolds:
    """Activate a workload, take it off hold, remove its admission gates, or open its preemption gate."""

    workload: ObjectKey
    activates: bool = False
    releases: bool = False
    admission_gates: tuple[str, ...] = ()
    opens_preemption_gate: bool = False

    def events(self, world: World) -> Iterator[Event]:
        """Yield the events that apply the change."""
        yield _changed_workload(world, self.workload, self._lifted)

    def _lifted(self, workload: Workload) -> Workload:
        return replace(
            workload,
            active=workload.active or self.activates,
            on_hold=workload.on_hold and not self.releases,
            admission_gates=tuple(
                gate for gate in workload.admission_gates if gate not in self.admission_gates
            ),
            has_closed_preemption_gate=workload.has_closed_preemption_gate and not self.opens_preemption_gate,
        )


class ReducedPodSet(NamedTuple):
    """A podset, its present number of pods, and the number that remains."""

    name: str
    present: int
    remaining: int


@dataclass(frozen=True, slots=True)
class ReducePods:
    """Run a workload with fewer pods."""

    workload: ObjectKey
    pod_sets: tuple[ReducedPodSet, ...]

    def events(self, world: World) -> Iterator[Event]:
        """Yield the events that apply the change."""
        counts = {reduced.name: reduced.remaining for reduced in self.pod_sets}

        def reduced(pod_set: PodSet) -> PodSet:
            count = counts.get(pod_set.name, pod_set.count)
            minimum = pod_set.min_count
            return replace(pod_set, count=count, min_count=None if minimum is None else min(minimum, count))

        yield _changed_pod_sets(world, self.workload, reduced)


@dataclass(frozen=True, slots=True)
class AllowFlavor:
    """Let the pods of podsets run on the nodes of a flavor.

    ``tolerations`` are added to each of these podsets. ``drops_node_selection``: their node selector and
    required node affinity, which exclude these nodes, are removed.
    """

    workload: ObjectKey
    flavor: str
    pod_sets: tuple[str, ...]
    tolerations: tuple[Toleration, ...]
    drops_node_selection: bool

    def events(self, world: World) -> Iterator[Event]:
        """Yield the events that apply the change."""

        def allowed(pod_set: PodSet) -> PodSet:
            if pod_set.name not in self.pod_sets:
                return pod_set
            changed = replace(pod_set, tolerations=(*pod_set.tolerations, *self.tolerations))
            if not self.drops_node_selection:
                return changed
            return replace(changed, node_selector=(), required_node_affinity=None)

        yield _changed_pod_sets(world, self.workload, allowed)


@dataclass(frozen=True, slots=True)
class RaisePriority:
    """Give a workload a higher priority."""

    workload: ObjectKey
    priority: int

    def events(self, world: World) -> Iterator[Event]:
        """Yield the events that apply the change."""
        yield _changed_workload(
            world, self.workload, lambda workload: replace(workload, priority=self.priority)
        )


@dataclass(frozen=True, slots=True)
class ResumeLocalQueue:
    """Remove the stop policy of a LocalQueue."""

    local_queue: ObjectKey

    def events(self, world: World) -> Iterator[Event]:
        """Yield the events that apply the change."""
        spec = world.local_queues[self.local_queue].spec
        yield LocalQueueChanged(replace(spec, stop_policy=StopPolicy.NONE))


@dataclass(frozen=True, slots=True)
class ResumeClusterQueue:
    """Remove the stop policy of a ClusterQueue."""

    cluster_queue: str

    def events(self, world: World) -> Iterator[Event]:
        """Yield the events that apply the change."""
        spec = world.cluster_queues[self.cluster_queue].spec
        yield ClusterQueueChanged(replace(spec, stop_policy=StopPolicy.NONE))


@dataclass(frozen=True, slots=True)
class CreateFlavors:
    """Create the ResourceFlavors to which a ClusterQueue refers, without labels and taints."""

    flavors: tuple[str, ...]

    def events(self, world: World) -> Iterator[Event]:
        """Yield the events that apply the change."""
        del world
        yield from (ResourceFlavorChanged(ResourceFlavor(name)) for name in self.flavors)


@dataclass(frozen=True, slots=True)
class ActivateChecks:
    """Create the AdmissionChecks to which a ClusterQueue refers, or make them active."""

    checks: tuple[str, ...]

    def events(self, world: World) -> Iterator[Event]:
        """Yield the events that apply the change."""
        for name in self.checks:
            known = world.catalog.checks.get(name)
            controller = "" if known is None else known.controller_name
            yield AdmissionCheckChanged(AdmissionCheck(name, controller, active=True))


@dataclass(frozen=True, slots=True)
class FinishWorkloads:
    """Workloads that hold quota have finished."""

    workloads: tuple[ObjectKey, ...]

    def events(self, world: World) -> Iterator[Event]:
        """Yield the events that apply the change."""
        for key in self.workloads:
            yield _changed_workload(world, key, lambda workload: replace(workload, finished=True))


@dataclass(frozen=True, slots=True)
class AddQuota:
    """Add amounts to the nominal quota of a ClusterQueue. Amounts are in the units of the resources."""

    cluster_queue: str
    amounts: tuple[tuple[FlavorResource, int], ...]

    def events(self, world: World) -> Iterator[Event]:
        """Yield the events that apply the change."""
        yield ClusterQueueChanged(self._raised(world.cluster_queues[self.cluster_queue].spec))

    def _raised(self, spec: ClusterQueue) -> ClusterQueue:
        amounts = dict(self.amounts)

        def raised(group: ResourceGroup, flavor: FlavorQuotas) -> FlavorQuotas:
            quotas = dict.fromkeys(group.covered_resources, NO_QUOTA) | dict(flavor.resources)
            for resource, quota in quotas.items():
                more = amounts.get(FlavorResource(flavor.name, resource), 0)
                if more:
                    quotas[resource] = replace(quota, nominal=add(quota.nominal, more))
            return replace(flavor, resources=tuple(quotas.items()))

        groups = tuple(
            replace(group, flavors=tuple(raised(group, flavor) for flavor in group.flavors))
            for group in spec.resource_groups
        )
        return replace(spec, resource_groups=groups)


Change = (
    LiftHolds
    | ReducePods
    | AllowFlavor
    | RaisePriority
    | ResumeLocalQueue
    | ResumeClusterQueue
    | CreateFlavors
    | ActivateChecks
    | FinishWorkloads
    | AddQuota
)


def _changed_workload(world: World, key: ObjectKey, change: Callable[[Workload], Workload]) -> Event:
    return WorkloadChanged(change(world.workloads[key].workload))


def _changed_pod_sets(world: World, key: ObjectKey, change: Callable[[PodSet], PodSet]) -> Event:
    def changed(workload: Workload) -> Workload:
        pod_sets = tuple(change(pod_set) for pod_set in workload.pod_sets)
        return replace(workload, pod_sets=pod_sets, generation=workload.generation + 1)

    return _changed_workload(world, key, changed)
