"""The scheduling key: all of a workload that decides whether and how it fits.

What a cycle finds out about one workload holds for all workloads of the ClusterQueue with the same key. If a
constraint depends on anything else of a workload, the key needs another part
(docs/internals/add-a-constraint.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from admitq.core.model import ObjectKey, Workload
from admitq.core.replacing import Original
from admitq.core.requests import DEFAULT_RULES, PodSetDemand, RequestRules, demands


class SchedulingKey(NamedTuple):
    """Workloads of a ClusterQueue with equal keys share a lane.

    ``local_queue`` is set if the ClusterQueue orders LocalQueues by past usage. ``original`` is set if the
    workload takes over the quota of another workload. ``alone`` is set if no workloads share a lane.
    """

    demands: tuple[PodSetDemand, ...]
    priority: int
    has_closed_preemption_gate: bool
    local_queue: ObjectKey | None = None
    original: Original | None = None
    alone: ObjectKey | None = None

    @property
    def equivalence(self) -> "EquivalenceClass":
        """The equivalence class that metrics count."""
        return EquivalenceClass(self.demands, self.priority)


class EquivalenceClass(NamedTuple):
    """The requests and priority of pending workloads. Metrics count distinct values."""

    demands: tuple[PodSetDemand, ...]
    priority: int


def local_queue_of(workload: Workload) -> ObjectKey:
    """Return the LocalQueue that a workload names."""
    return ObjectKey(workload.key.namespace, workload.queue_name)


def plain_rules(_namespace: str) -> RequestRules:
    """Return the rules of a namespace without LimitRanges, RuntimeClasses and resource transformations."""
    return DEFAULT_RULES


def replaces_nothing(_workload: Workload) -> Original | None:
    """Return the original of a workload in a ClusterQueue in which no workload replaces another."""
    return None


@dataclass(frozen=True, slots=True)
class KeyRules:
    """The rules by which a ClusterQueue computes scheduling keys.

    ``request_rules`` returns the rules for requests in a namespace. ``original_of`` returns the workload from
    which a workload takes quota over. ``shares_lanes`` is false if each workload has a lane of its own (gate
    SchedulingEquivalenceHashing).
    """

    request_rules: Callable[[str], RequestRules] = plain_rules
    original_of: Callable[[Workload], Original | None] = replaces_nothing
    shares_lanes: bool = True

    def key_of(self, workload: Workload, *, by_local_queue: bool) -> SchedulingKey:
        """Return the present scheduling key of a workload.

        Args:
            workload: the workload.
            by_local_queue: whether the ClusterQueue orders LocalQueues by past usage.
        """
        return SchedulingKey(
            demands(workload.pod_sets, workload.reclaimable_pods, self.request_rules(workload.key.namespace)),
            workload.priority,
            workload.has_closed_preemption_gate,
            local_queue_of(workload) if by_local_queue else None,
            None if workload.replaces is None else self.original_of(workload),
            None if self.shares_lanes else workload.key,
        )
