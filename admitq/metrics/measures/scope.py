"""Common parts of all measures: which objects have series, and the units of values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from admitq.core.amounts import UNLIMITED
from admitq.core.fair_sharing import Share
from admitq.core.model import ObjectKey
from admitq.metrics.registry import Metrics
from admitq_api import conditions
from admitq_api.json_objects import JsonObject

INFINITE: Final = float("inf")
_MILLI: Final = 1000

Labels = tuple[tuple[str, str], ...]
"""Labels with their values, hashable, so that workloads can be counted by them."""


@dataclass(frozen=True, slots=True)
class MeasureScope:
    """Which objects have series, and where measures look up how objects refer to each other.

    Args:
        metrics: the registry.
        cluster_queue_of: the ClusterQueue of a LocalQueue; None if there is no such LocalQueue.
        cohorts_of: the cohorts that a ClusterQueue is in, its parent first.
        of_local_queues: whether a LocalQueue has series of its own.
        with_resources: whether quota and usage of ClusterQueues have series by flavor and resource.
        of_cohorts: whether cohorts have series.
    """

    metrics: Metrics
    cluster_queue_of: Callable[[ObjectKey], str | None]
    cohorts_of: Callable[[str], Sequence[str]] = lambda _: ()
    has_local_queue_series: Callable[[ObjectKey], bool] = lambda _: True
    has_resource_series: bool = False
    has_cohort_series: bool = True


def metric_amount(resource: str, amount: int) -> float:
    """Return an amount in the unit of metrics: CPU in cores, other resources unchanged, unlimited as +Inf."""
    if amount >= UNLIMITED:
        return INFINITE
    return amount / _MILLI if resource == "cpu" else float(amount)


def metric_share(share: Share) -> float:
    """Return a weighted share as a metric: exact; NaN while a weight of 0 borrows."""
    return float("nan") if share.infinite else float(share.amount)


def add_custom_labels(custom: Labels, **labels: str) -> Labels:
    """Return labels that name an object, followed by custom labels."""
    return (*labels.items(), *custom)


def local_queue_of(workload: JsonObject) -> ObjectKey:
    """Return the LocalQueue that a Workload names."""
    metadata = workload["metadata"]
    return ObjectKey(metadata.get("namespace", ""), (workload.get("spec") or {}).get("queueName", ""))


def conditions_of(workload: JsonObject) -> list[conditions.Condition]:
    """Return the conditions of a Workload."""
    return (workload.get("status") or {}).get("conditions") or []


def set_counts(
    metrics: Metrics, series: str, counts: Mapping[Labels, int], objects: Sequence[Mapping[str, str]]
) -> None:
    """Replace all values of a series by counts; 0 for each of the objects that has no count.

    Labels that name the object precede custom labels in ``counts``.
    """
    metrics.clear(series)
    named = len(objects[0]) if objects else 0
    counted = {labels[:named] for labels in counts}
    for labels in objects:
        if tuple(labels.items()) not in counted:
            metrics.set(series, 0, **labels)
    for labels, count in counts.items():
        metrics.set(series, count, **dict(labels))
