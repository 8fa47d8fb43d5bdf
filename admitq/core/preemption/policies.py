"""Whom the preemption policies of a ClusterQueue let a workload preempt: one row for each value of the API.

Priorities are effective ones. "Newer" compares queue-order timestamps and is strict: of two workloads that
began to wait at the same instant neither may preempt the other for it (semantics, Preemption).
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from admitq.core.model import ClusterQueuePreemption, PreemptionPolicy

_BELOW_ALL: Final = -(1 << 63)
ABOVE_ALL: Final = 1 << 63
"""Above every priority there is."""


class _Rule(NamedTuple):
    """The highest priority that may be preempted, by the preemptor's, and whether equals must be newer."""

    highest: Callable[[int], int]
    newer_if_equal: bool = False


_RULES: Final[Mapping[PreemptionPolicy, _Rule]] = {
    PreemptionPolicy.NEVER: _Rule(lambda _priority: _BELOW_ALL),
    PreemptionPolicy.LOWER_PRIORITY: _Rule(lambda priority: priority - 1),
    PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY: _Rule(lambda priority: priority, newer_if_equal=True),
    PreemptionPolicy.ANY: _Rule(lambda _priority: ABOVE_ALL),
}


def never_preempts(policy: ClusterQueuePreemption) -> bool:
    """Whether workloads of a ClusterQueue preempt nobody, whatever there is to gain."""
    never = PreemptionPolicy.NEVER
    return policy.within_cluster_queue is never and policy.reclaim_within_cohort is never


def reserves_capacity(policy: ClusterQueuePreemption) -> bool:
    """Whether a head that finds no target reserves capacity: not if it can reclaim whenever it needs to."""
    return policy.reclaim_within_cohort is not PreemptionPolicy.ANY


def highest_priority(policy: PreemptionPolicy, priority: int) -> int:
    """The highest priority at which anybody may be preempted by a workload of this priority."""
    return _RULES[policy].highest(priority)


def equals_must_be_newer(policy: PreemptionPolicy) -> bool:
    """Whether a candidate of the same priority may be preempted only if it began to wait later."""
    return _RULES[policy].newer_if_equal
