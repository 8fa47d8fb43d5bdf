"""Find the greatest number of pods with which a workload fits (semantics, Partial admission).

Let d be the number of pods that a podset may go without, and D the sum over all podsets. In step k of D, each
podset goes without ⌊d·k/D⌋ pods. A binary search finds the smallest step that suffices. It assumes that all
later steps suffice, too.
"""

from collections.abc import Callable

from admitq.core.assignments import Assignment
from admitq.core.requests import PodSetDemand


def _spare(demand: PodSetDemand) -> int:
    minimum = demand.pod_set.min_count
    return 0 if minimum is None else max(0, demand.count - minimum)


def may_shrink(demands: tuple[PodSetDemand, ...]) -> bool:
    """Whether a podset may run with fewer pods."""
    return any(_spare(demand) for demand in demands)


def assign_partially(
    demands: tuple[PodSetDemand, ...],
    attempt: Callable[[tuple[PodSetDemand, ...]], Assignment],
    suffices: Callable[[Assignment], bool],
) -> Assignment | None:
    """Return the assignment with the most pods that suffices; None if not even the fewest pods do.

    Args:
        demands: the requests of all pods.
        attempt: searches flavors for fewer pods.
        suffices: whether an assignment fits, or there are workloads to preempt for it.
    """
    spares = [_spare(demand) for demand in demands]
    total = sum(spares)
    best: Assignment | None = None
    low, high = 0, total + 1
    while low < high:
        step = (low + high) // 2
        fewer = tuple(
            demand.for_pods(demand.count - spare * step // total)
            for demand, spare in zip(demands, spares, strict=True)
        )
        assignment = attempt(fewer)
        if suffices(assignment):
            best, high = assignment, step
        else:
            low = step + 1
    return best
