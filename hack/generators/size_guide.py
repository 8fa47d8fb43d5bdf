"""Generate the section of docs/performance.md that tells how to size admitq, from measured costs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import yaml

from admitq_api.configuration import Configuration
from admitq_api.quantity import parse_quantity
from benchmarks.measured_costs import job_costs, measured_costs
from benchmarks.result_charts import latency_cases
from benchmarks.sizing import (
    CALLS_RESERVE,
    CPU_RESERVE,
    FINISHED_HOURS,
    JOBS_OF_COSTS,
    MEMORY_RESERVE,
    PENDING_HOURS,
    ChartDefaults,
    MeasuredCosts,
    Sizing,
    size_for,
)
from benchmarks.stored_results import StoredResults
from generators import chart_values
from generators.figures import cores, number, paragraph
from generators.reference_tables import table

JOBS_PER_HOUR: Final = (100, 1_000, 10_000)
"""The columns of the table of sizes."""

_SIZES: Final[Mapping[str, Callable[[Sizing], str]]] = {
    "Workloads that wait": lambda one: f"{one.pending:,}",
    "finished Workloads": lambda one: f"{one.finished:,}",
    "manager: mean use of CPU": lambda one: cores(one.manager_cores),
    "webhook: mean use of CPU, all replicas": lambda one: cores(one.webhook_cores),
    "API server: mean use of CPU for the writes of admitq": lambda one: cores(one.api_server_cores),
    "manager: use of memory": lambda one: f"{number(one.manager_mb)} MB",
    "calls of the manager a second, mean": lambda one: number(one.calls_per_s),
    "`manager.resources.requests.cpu`": lambda one: f"`{one.manager_cpu_milli}m`",
    "`manager.resources.requests.memory`": lambda one: f"`{one.manager_memory_mib}Mi`",
    "`manager.resources.limits.memory`": lambda one: f"`{one.manager_memory_limit_mib}Mi`",
    "`webhook.resources.requests.cpu`, each replica": lambda one: f"`{one.webhook_cpu_milli}m`",
    "`config.clientConnection.qps`": lambda one: f"`{one.qps}`",
}
"""The rows of the table of sizes."""


def sizes(results: StoredResults) -> Iterator[str]:
    """Yield how to size admitq, from the measured costs."""
    costs = measured_costs(results)
    if costs is None:
        return
    sizings = [size_for(jobs, costs, chart_defaults()) for jobs in JOBS_PER_HOUR]
    yield from ("## How to size admitq", "", paragraph(_BASICS), "")
    yield from table(
        ("jobs an hour", *(f"{each.jobs_per_hour:,}" for each in sizings)),
        [(title, *map(text, sizings)) for title, text in _SIZES.items()],
    )
    yield from ("", paragraph(_ASSUMPTIONS), "", "For other numbers, use these costs:", "")
    yield from table(("what", "cost"), [*_costs(costs, results)])
    yield from ("", paragraph(_SOURCES), "")
    yield from table(
        (
            "load of 1,000 jobs",
            "manager, CPU-seconds",
            "webhook, CPU-seconds",
            "calls of the manager",
            "writes of the manager",
            "API server for these writes, CPU-seconds",
        ),
        [*_cost_rows(results)],
    )
    yield from ("", f"Values of the chart for {sizings[-1].jobs_per_hour:,} jobs an hour:", "")
    yield _values(sizings[-1])


_BASICS: Final = """
The CPU time of admitq grows with the number of jobs, and the memory of the manager with the number of
Workloads that exist. The API server needs CPU time for the writes of admitq, in addition to that for jobs and
pods."""

_ASSUMPTIONS: Final = f"""
The table assumes that the jobs of {PENDING_HOURS} hours wait, and that finished Workloads are kept for
{FINISHED_HOURS} hours. A request of CPU is {CPU_RESERVE:g} times the mean use, because jobs do not arrive
evenly. A request of memory is {MEMORY_RESERVE:g} times the use, and the limit is twice the request. `qps` is
{CALLS_RESERVE:g} times the mean rate of calls. No value is smaller than the default of the chart. Each
replica of the webhook can answer all reviews."""

_SOURCES: Final = """
These are the highest figures of the following loads. `depth` and `restart` measured the memory."""


def _costs(costs: MeasuredCosts, results: StoredResults) -> Iterator[tuple[str, str]]:
    yield "manager, CPU for 1,000 jobs", f"{number(costs.manager_cpu_s)} CPU-seconds"
    yield "webhook, CPU for 1,000 jobs", f"{number(costs.webhook_cpu_s)} CPU-seconds"
    cases = {} if (webhook := results.get("webhook")) is None else latency_cases(webhook)
    if "jobs" in cases:
        yield "webhook, CPU for a review", f"{number(cases['jobs']['cpu_ms_per_review'])} ms"
    yield "API server, CPU for the writes of 1,000 jobs", f"{number(costs.api_server_cpu_s)} CPU-seconds"
    yield "writes of the manager for 1,000 jobs", number(round(costs.writes * JOBS_OF_COSTS))
    yield "API server, CPU for a write", f"{number(costs.write_cpu_ms)} ms"
    yield "calls of the manager for 1,000 jobs", number(round(costs.calls * JOBS_OF_COSTS))
    yield "manager, memory without Workloads", f"{number(costs.base_mb)} MB"
    yield "manager, memory for a Workload that waits", f"{number(costs.pending_kb)} KB"
    yield "manager, memory for a finished Workload", f"{number(costs.finished_kb)} KB"


def chart_defaults() -> ChartDefaults:
    """Return the defaults of the chart and of the configuration file."""
    defaults = {value.path: value.default for value in chart_values.documented()}
    manager, webhook_resources = defaults["manager.resources"], defaults["webhook.resources"]
    return ChartDefaults(
        manager_cpu_milli=_milli(manager["requests"]["cpu"]),
        manager_memory_mib=_mebibytes(manager["requests"]["memory"]),
        manager_memory_limit_mib=_mebibytes(manager["limits"]["memory"]),
        webhook_cpu_milli=_milli(webhook_resources["requests"]["cpu"]),
        qps=round(Configuration().client_connection.qps),
    )


def _milli(cpu: str) -> int:
    """Return a quantity of CPU in thousandths of a core."""
    return int(parse_quantity(cpu) * 1_000)


def _mebibytes(memory: str) -> int:
    return int(parse_quantity(memory) / (1 << 20))


def _cost_rows(results: StoredResults) -> Iterator[tuple[str, ...]]:
    for each in job_costs(results):
        counts = (each.calls, each.writes)
        yield (
            each.load,
            number(each.manager_cpu_s),
            number(each.webhook_cpu_s),
            *(number(None if count is None else round(count * JOBS_OF_COSTS)) for count in counts),
            number(each.api_server_cpu_s),
        )


def _values(sizing: Sizing) -> str:
    values = {
        "manager": {
            "resources": {
                "requests": {
                    "cpu": f"{sizing.manager_cpu_milli}m",
                    "memory": f"{sizing.manager_memory_mib}Mi",
                },
                "limits": {"memory": f"{sizing.manager_memory_limit_mib}Mi"},
            }
        },
        "webhook": {"resources": {"requests": {"cpu": f"{sizing.webhook_cpu_milli}m"}}},
        "config": {"clientConnection": {"qps": sizing.qps}},
    }
    return f"```yaml\n# values.yaml\n{yaml.safe_dump(values, sort_keys=False)}```"
