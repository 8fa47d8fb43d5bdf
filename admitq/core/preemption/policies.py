"""Whom the preemption policies of a ClusterQueue let a workload preempt: one row for each value of the API.

Priorities are effective ones. "Newer" compares queue-order timestamps and is strict: of two workloads that
began to wait at the same instant neither may preempt the other for it (semantics, Preemption).
"""

from collections.abc import Callable, Mapping
from typing import Final

from admitq.core.model import Workload

NEVER: Final = "Never"
ANY: Final = "Any"
LOWER_PRIORITY: Final = "LowerPriority"
LOWER_OR_NEWER_EQUAL_PRIORITY: Final = "LowerOrNewerEqualPriority"


def _never(_preemptor: Workload, _candidate: Workload) -> bool:
    return False


def _any(_preemptor: Workload, _candidate: Workload) -> bool:
    return True


def _lower_priority(preemptor: Workload, candidate: Workload) -> bool:
    return preemptor.priority > candidate.priority


def _lower_or_newer_equal_priority(preemptor: Workload, candidate: Workload) -> bool:
    return preemptor.priority > candidate.priority or (
        preemptor.priority == candidate.priority and preemptor.queued_at < candidate.queued_at
    )


_RULES: Final[Mapping[str, Callable[[Workload, Workload], bool]]] = {
    NEVER: _never,
    ANY: _any,
    LOWER_PRIORITY: _lower_priority,
    LOWER_OR_NEWER_EQUAL_PRIORITY: _lower_or_newer_equal_priority,
}


def may_preempt(policy: str, preemptor: Workload, candidate: Workload) -> bool:
    """Whether the policy lets the one be preempted for the other."""
    return _RULES[policy](preemptor, candidate)


_BELOW_ALL: Final = -(1 << 63)
ABOVE_ALL: Final = 1 << 63
"""Above every priority there is."""

_HIGHEST: Final[Mapping[str, Callable[[int], int]]] = {
    NEVER: lambda _priority: _BELOW_ALL,
    ANY: lambda _priority: ABOVE_ALL,
    LOWER_PRIORITY: lambda priority: priority - 1,
    LOWER_OR_NEWER_EQUAL_PRIORITY: lambda priority: priority,
}


def highest_priority(policy: str, priority: int) -> int:
    """The highest priority at which the policy lets anybody be preempted by a workload of a priority."""
    return _HIGHEST[policy](priority)
