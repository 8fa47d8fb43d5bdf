"""The scheduling key: all of a workload that decides whether and how it fits.

What is found out about one workload holds for all of its ClusterQueue that have the same key. A constraint
that looks at anything else of a workload must add a part to the key (docs/internals/add-a-constraint.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from admitq.core.model import ObjectKey, Workload
from admitq.core.replacing import Original
from admitq.core.requests import DEFAULT_RULES, PodSetDemand, RequestRules, demands


class SchedulingKey(NamedTuple):
    """Workloads of a ClusterQueue with equal keys share a lane.

    ``local_queue`` is set where LocalQueues take turns by past use, ``original`` where the workload takes
    over the quota of another one, ``alone`` where each workload is evaluated for itself.
    """

    demands: tuple[PodSetDemand, ...]
    priority: int
    has_closed_preemption_gate: bool
    local_queue: ObjectKey | None = None
    original: Original | None = None
    alone: ObjectKey | None = None

    @property
    def equivalence(self) -> "EquivalenceClass":
        """The class that metrics count."""
        return EquivalenceClass(self.demands, self.priority)


class EquivalenceClass(NamedTuple):
    """What metrics count distinct pending workloads by: requests and priority."""

    demands: tuple[PodSetDemand, ...]
    priority: int


def local_queue_of(workload: Workload) -> ObjectKey:
    """Return the LocalQueue that a workload names."""
    return ObjectKey(workload.key.namespace, workload.queue_name)


def plain_rules(_namespace: str) -> RequestRules:
    """Return the rules of a namespace without LimitRanges, RuntimeClasses and resource transformations."""
    return DEFAULT_RULES


def replaces_nothing(_workload: Workload) -> Original | None:
    """Return the original of every workload where none replaces another."""
    return None


@dataclass(frozen=True, slots=True)
class KeyRules:
    """What a ClusterQueue makes scheduling keys of.

    ``request_rules`` gives the rules by which podsets of a namespace request resources, ``original_of`` the
    workload whose quota one takes over. ``shares_lanes`` is false where each workload is evaluated for
    itself (gate SchedulingEquivalenceHashing).
    """

    request_rules: Callable[[str], RequestRules] = plain_rules
    original_of: Callable[[Workload], Original | None] = replaces_nothing
    shares_lanes: bool = True

    def key_of(self, workload: Workload, *, by_local_queue: bool) -> SchedulingKey:
        """Return the scheduling key that a workload has now.

        Args:
            workload: the workload.
            by_local_queue: whether LocalQueues take turns by past use.
        """
        return SchedulingKey(
            demands(workload.pod_sets, workload.reclaimable_pods, self.request_rules(workload.key.namespace)),
            workload.priority,
            workload.has_closed_preemption_gate,
            local_queue_of(workload) if by_local_queue else None,
            None if workload.replaces is None else self.original_of(workload),
            None if self.shares_lanes else workload.key,
        )
