"""Compare a load in a topology with the same load without one, through a real API server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from admitq_api.labels import DEFAULT_GROUP
from benchmarks import throughput
from benchmarks.throughput import ThroughputPlan
from benchmarks.throughput_shapes import BASELINE, TOPOLOGY
from localcluster.cluster import to_stderr

MOST_RATIO: Final = 1.3
"""The highest accepted time for a workload in a topology, as a multiple of the time without a topology."""

_FIGURES: Final = (
    "workloads",
    "finished",
    "wall_s",
    "bound_s",
    "admissions_per_s",
    "admit_mean_s",
    "use",
    "evictions",
    "cpu_s",
    "rss_mb",
)


@dataclass(frozen=True)
class EndToEndLoad:
    """The share of the workloads of each class, and the seconds after which each of the two loads stops."""

    scale: float
    timeout_s: float


def run(load: EndToEndLoad) -> tuple[dict[str, Any], bool]:
    """Run both loads, one after the other, each on a new cluster.

    Returns:
        The figures, and whether all workloads have finished and the ratio of the times is accepted.

    Raises:
        ClusterError, InstallationError, DefinitionsError, ThroughputFailed: see `throughput.run`.
    """
    found: dict[str, Mapping[str, Any]] = {}
    passed = True
    for shape in (BASELINE, TOPOLOGY):
        to_stderr(f"shape {shape}")
        result, finished = throughput.run(ThroughputPlan(shape, load.scale, load.timeout_s, DEFAULT_GROUP))
        found[shape] = {name: result[name] for name in _FIGURES}
        passed = passed and finished
    ratio = _seconds_of_workload(found[TOPOLOGY]) / _seconds_of_workload(found[BASELINE])
    figures = {"benchmark": "topology", "scale": load.scale, "end_to_end_ratio": round(ratio, 2), **found}
    return figures, passed and ratio <= MOST_RATIO


def _seconds_of_workload(figures: Mapping[str, Any]) -> float:
    """Return the time for one workload. Small shares of the two loads differ in their number of workloads."""
    return figures["wall_s"] / figures["workloads"]
