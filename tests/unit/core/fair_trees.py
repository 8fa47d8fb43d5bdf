"""Trees of quota with fair sharing, for tests of fair preemption."""

from admitq.core.settings import CoreSettings, FairSharing, Gates, PreemptionStrategy
from tests.unit.core.quota_trees import QuotaTrees, Weight, policy

BY_SHARE = "InCohortFairSharing"

FINAL = PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE
INITIAL = PreemptionStrategy.LESS_THAN_INITIAL_SHARE

RECLAIM_ANY = policy("LowerPriority", "Any")


def fair(*strategies: PreemptionStrategy, within_nominal: bool = True) -> QuotaTrees:
    return QuotaTrees(
        CoreSettings(
            fair_sharing=FairSharing(strategies or (FINAL, INITIAL)),
            gates=Gates(fair_sharing_preempt_within_nominal=within_nominal),
        )
    )


def with_three_queues(trees: QuotaTrees, nominal: int = 3, **weights: Weight) -> QuotaTrees:
    """Add ClusterQueues a, b and c of equal quota."""
    for name in "abc":
        trees.queue(name, "all", nominal, RECLAIM_ANY, weight=weights.get(name, 1))
    return trees


def fill(trees: QuotaTrees, **workloads: int) -> None:
    """Add workloads of 1 CPU; the first workload of a queue is its last candidate."""
    for queue, count in workloads.items():
        for number in range(count):
            trees.add_holder(queue, f"{queue}{number + 1}", 1, since=number)
