"""Which workloads a preemption policy allows to preempt: one row for each policy of the API.

Priorities are effective ones. A workload is newer if its queue-order timestamp is strictly later: of two
workloads with the same timestamp, neither is newer (semantics, Preemption).
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from admitq.core.model import ClusterQueuePreemption, PreemptionPolicy

_BELOW_ALL: Final = -(1 << 63)
ABOVE_ALL: Final = 1 << 63
"""Greater than every priority."""


class _Rule(NamedTuple):
    """The highest priority of candidates, by that of the preemptor; whether equal ones must be newer."""

    highest: Callable[[int], int]
    newer_if_equal: bool = False


_RULES: Final[Mapping[PreemptionPolicy, _Rule]] = {
    PreemptionPolicy.NEVER: _Rule(lambda _priority: _BELOW_ALL),
    PreemptionPolicy.LOWER_PRIORITY: _Rule(lambda priority: priority - 1),
    PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY: _Rule(lambda priority: priority, newer_if_equal=True),
    PreemptionPolicy.ANY: _Rule(lambda _priority: ABOVE_ALL),
}


def never_preempts(policy: ClusterQueuePreemption) -> bool:
    """Whether workloads of a ClusterQueue never preempt."""
    never = PreemptionPolicy.NEVER
    return policy.within_cluster_queue is never and policy.reclaim_within_cohort is never


def reserves_capacity(policy: ClusterQueuePreemption) -> bool:
    """Whether a head without targets reserves capacity. It does not if it may reclaim from any workload."""
    return policy.reclaim_within_cohort is not PreemptionPolicy.ANY


def highest_priority(policy: PreemptionPolicy, priority: int) -> int:
    """Return the highest priority of candidates for a preemptor of this priority."""
    return _RULES[policy].highest(priority)


def equals_must_be_newer(policy: PreemptionPolicy) -> bool:
    """Whether candidates of the preemptor's priority must have a later queue-order timestamp."""
    return _RULES[policy].newer_if_equal
