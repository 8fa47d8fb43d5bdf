"""How few pods a workload has to give up for the rest to be admitted (semantics, Partial admission).

With D the sum of what all podsets may give up, step k of D leaves each podset all but ⌊d·k/D⌋ of what it
may give up itself. The smallest step that suffices is searched by halves, as if every step beyond one that
suffices sufficed too.
"""

from collections.abc import Callable

from admitq.core.assignments import Assignment
from admitq.core.requests import PodSetDemand


def _spare(demand: PodSetDemand) -> int:
    minimum = demand.pod_set.min_count
    return 0 if minimum is None else max(0, demand.count - minimum)


def may_shrink(demands: tuple[PodSetDemand, ...]) -> bool:
    """Whether some podset may run with fewer pods."""
    return any(_spare(demand) for demand in demands)


def assign_partially(
    demands: tuple[PodSetDemand, ...],
    attempt: Callable[[tuple[PodSetDemand, ...]], Assignment],
    suffices: Callable[[Assignment], bool],
) -> Assignment | None:
    """The assignment of as many pods as can be had; None if not even the fewest can.

    Args:
        demands: what all pods ask for.
        attempt: searches flavors for so many pods.
        suffices: whether an assignment can be made use of: it fits, or there is somebody to preempt for it.
    """
    spares = [_spare(demand) for demand in demands]
    total = sum(spares)
    found: Assignment | None = None
    low, high = 0, total + 1
    while low < high:
        step = (low + high) // 2
        fewer = tuple(
            demand.for_pods(demand.count - spare * step // total)
            for demand, spare in zip(demands, spares, strict=True)
        )
        assignment = attempt(fewer)
        if suffices(assignment):
            found, high = assignment, step
        else:
            low = step + 1
    return found
