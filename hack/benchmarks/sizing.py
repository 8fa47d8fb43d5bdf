"""How much CPU, memory and API server time admitq needs for a number of jobs an hour, from measured costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SECONDS_PER_HOUR: Final = 3_600
JOBS_OF_COSTS: Final = 1_000
"""The number of jobs to which costs of CPU time refer."""

PENDING_HOURS: Final = 10
"""A queue is sized for the jobs of so many hours that wait at the same time."""
FINISHED_HOURS: Final = 24
"""Finished Workloads are assumed to be kept for so many hours."""
CPU_RESERVE: Final = 4.0
"""A request of CPU is this multiple of the mean use: jobs do not arrive evenly."""
MEMORY_RESERVE: Final = 1.25
"""A request of memory is this multiple of the estimated use, and a limit is twice the request."""
CALLS_RESERVE: Final = 10.0
"""The rate limit of the client is this multiple of the mean rate of calls."""

_CPU_STEP_MILLI: Final = 50
_MEMORY_STEP_MIB: Final = 64
_CALLS_STEP: Final = 50
_MB_PER_MIB: Final = 1.048576


@dataclass(frozen=True)
class MeasuredCosts:
    """What admitq used in benchmarks.

    Attributes:
        manager_cpu_s: CPU-seconds of the manager for 1,000 jobs.
        webhook_cpu_s: CPU-seconds of all webhooks for 1,000 jobs.
        calls: calls of the manager for a job, without watches.
        writes: those of them that change objects.
        write_cpu_ms: CPU-milliseconds of the API server for a write.
        base_mb: memory of a manager without Workloads, in MB.
        pending_kb: memory for a Workload that waits, in KB.
        finished_kb: memory for a finished Workload, in KB.
    """

    manager_cpu_s: float
    webhook_cpu_s: float
    calls: float
    writes: float
    write_cpu_ms: float
    base_mb: float
    pending_kb: float
    finished_kb: float

    @property
    def api_server_cpu_s(self) -> float:
        """CPU-seconds of the API server for the writes of the manager for 1,000 jobs."""
        return self.writes * self.write_cpu_ms * JOBS_OF_COSTS / 1_000

    def manager_mb(self, pending: int, finished: int) -> float:
        """Return the memory of the manager in MB.

        Args:
            pending: the number of Workloads that wait.
            finished: the number of finished Workloads.
        """
        return self.base_mb + (pending * self.pending_kb + finished * self.finished_kb) / 1_000


@dataclass(frozen=True)
class ChartDefaults:
    """What the chart and the configuration file set if nothing else is chosen.

    Attributes:
        manager_cpu_milli: requested CPU of the manager, in thousandths of a core.
        manager_memory_mib: requested memory of the manager.
        manager_memory_limit_mib: memory limit of the manager.
        webhook_cpu_milli: requested CPU of a webhook.
        qps: the rate limit of the manager's client, in calls a second.
    """

    manager_cpu_milli: int
    manager_memory_mib: int
    manager_memory_limit_mib: int
    webhook_cpu_milli: int
    qps: int


@dataclass(frozen=True)
class Sizing:
    """The size of admitq for a number of jobs an hour. Values of the chart are never below its defaults.

    Attributes:
        jobs_per_hour: the jobs that are created in an hour, as a mean.
        pending: the Workloads that wait at the same time.
        finished: the finished Workloads that are kept.
        manager_cores: mean CPU use of the manager, in cores.
        webhook_cores: mean CPU use of all webhooks together.
        api_server_cores: mean CPU use of the API server for the writes of the manager.
        manager_mb: memory of the manager in MB.
        calls_per_s: calls of the manager in a second, as a mean.
        manager_cpu_milli: CPU to request for the manager, in thousandths of a core.
        manager_memory_mib: memory to request for the manager.
        manager_memory_limit_mib: memory limit of the manager.
        webhook_cpu_milli: CPU to request for each webhook.
        qps: the rate limit of the manager's client, in calls a second.
    """

    jobs_per_hour: int
    pending: int
    finished: int
    manager_cores: float
    webhook_cores: float
    api_server_cores: float
    manager_mb: float
    calls_per_s: float
    manager_cpu_milli: int
    manager_memory_mib: int
    manager_memory_limit_mib: int
    webhook_cpu_milli: int
    qps: int


def size_for(jobs_per_hour: int, costs: MeasuredCosts, defaults: ChartDefaults) -> Sizing:
    """Return the size of admitq for a number of jobs an hour.

    Each webhook is sized for all reviews, because the others may be restarting.
    """
    jobs_per_s = jobs_per_hour / SECONDS_PER_HOUR
    pending, finished = jobs_per_hour * PENDING_HOURS, jobs_per_hour * FINISHED_HOURS
    manager_cores = jobs_per_s * costs.manager_cpu_s / JOBS_OF_COSTS
    webhook_cores = jobs_per_s * costs.webhook_cpu_s / JOBS_OF_COSTS
    manager_mb = costs.manager_mb(pending, finished)
    memory_mib = max(
        defaults.manager_memory_mib, _round_up(manager_mb / _MB_PER_MIB * MEMORY_RESERVE, _MEMORY_STEP_MIB)
    )
    calls_per_s = jobs_per_s * costs.calls
    return Sizing(
        jobs_per_hour=jobs_per_hour,
        pending=pending,
        finished=finished,
        manager_cores=manager_cores,
        webhook_cores=webhook_cores,
        api_server_cores=jobs_per_s * costs.api_server_cpu_s / JOBS_OF_COSTS,
        manager_mb=manager_mb,
        calls_per_s=calls_per_s,
        manager_cpu_milli=_requested_cpu(manager_cores, defaults.manager_cpu_milli),
        manager_memory_mib=memory_mib,
        manager_memory_limit_mib=max(defaults.manager_memory_limit_mib, 2 * memory_mib),
        webhook_cpu_milli=_requested_cpu(webhook_cores, defaults.webhook_cpu_milli),
        qps=max(defaults.qps, _round_up(calls_per_s * CALLS_RESERVE, _CALLS_STEP)),
    )


def fit_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the value at 0 and the slope of the line that fits points best (least squares).

    Raises:
        ValueError: all points have the same x.
    """
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        raise ValueError("a line needs points with different x")
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return mean_y - slope * mean_x, slope


def _requested_cpu(cores: float, least_milli: int) -> int:
    return max(least_milli, _round_up(cores * 1_000 * CPU_RESERVE, _CPU_STEP_MILLI))


def _round_up(value: float, step: int) -> int:
    """Return the smallest multiple of a step that is not smaller than the value."""
    # A value that is a multiple but for rounding stays.
    return math.ceil(round(value / step, 9)) * step
