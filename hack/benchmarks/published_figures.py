"""What others published about the load shapes of `hack/bench throughput`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class PublishedRun:
    """A run of a load shape with another queue manager.

    Attributes:
        machine: where it ran.
        wall_s: seconds until all workloads have finished.
        manager_cpu_s: CPU-seconds of the queue manager, if known.
        manager_mb: memory of the queue manager in MB, if known.
        use: mean share of the quota in use, if known.
    """

    machine: str
    wall_s: float
    manager_cpu_s: float | None = None
    manager_mb: float | None = None
    use: float | None = None


_PUBLISHED: Final = "published mean"
_TWO_CORES: Final = "on two cores"

PUBLISHED_RUNS: Final[Mapping[str, tuple[PublishedRun, ...]]] = {
    "baseline": (
        PublishedRun(_PUBLISHED, 351, use=0.56),
        PublishedRun(_TWO_CORES, 386, manager_cpu_s=107, manager_mb=668),
    ),
    "large": (
        PublishedRun(_PUBLISHED, 1_179, use=0.39),
        PublishedRun(_TWO_CORES, 1_223, manager_cpu_s=374, manager_mb=2_700),
    ),
}
"""The runs by load shape. Those on two cores were repeated on a machine like that of this page."""
