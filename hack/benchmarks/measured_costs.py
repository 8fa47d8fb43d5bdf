"""The costs of jobs and Workloads for `sizing`, from stored results."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.api_calls import WRITE_VERBS
from benchmarks.sizing import JOBS_OF_COSTS, MeasuredCosts, fit_line
from benchmarks.stored_results import StoredResult, StoredResults, seed_results
from benchmarks.throughput_shapes import SHAPES

FORM: Final = "10000x1"
"""The form of the shape `pods` that has the most Jobs."""
_WATCH: Final = "watch"


@dataclass(frozen=True)
class JobCosts:
    """What the jobs of one load cost.

    Attributes:
        load: what the load is, as in a table.
        manager_cpu_s: CPU-seconds of the manager for 1,000 jobs.
        webhook_cpu_s: CPU-seconds of the webhook for 1,000 jobs.
        calls: calls of the manager for a job, without watches; None if they were not counted.
        writes: those of them that change objects.
        write_cpu_ms: CPU-milliseconds of the API server for a write of any caller.
    """

    load: str
    manager_cpu_s: float
    webhook_cpu_s: float
    calls: float | None = None
    writes: float | None = None
    write_cpu_ms: float | None = None

    @property
    def api_server_cpu_s(self) -> float | None:
        """CPU-seconds of the API server for the writes of the manager for 1,000 jobs."""
        if self.writes is None or self.write_cpu_ms is None:
            return None
        return self.writes * self.write_cpu_ms * JOBS_OF_COSTS / 1_000


def job_costs(results: StoredResults) -> Iterator[JobCosts]:
    """Yield the costs of all loads for which there are results."""
    for shape in SHAPES:
        if (result := results.get(shape)) is not None:
            load = f"`{shape}`: Workloads without jobs, from their creation to their end"
            yield _counted_costs(load, result.figures, result.figures["workloads"])
    form = _queue_form(results.get("pods"))
    if form is not None:
        yield _counted_costs("`pods`: Jobs of one pod, until it runs", form, form["jobs"])
    for result in seed_results(results):
        if result.figures["queue"] and not result.figures["failed"]:
            used, share = result.figures["processes"], JOBS_OF_COSTS / result.figures["jobs"]
            setting, slots = result.figures["setting"], result.figures["slots"]
            yield JobCosts(
                f"`seed`, setting `{setting}`, room for {slots:,} pods: Jobs of ten pods, until their end",
                used["admitq-manager"]["cpu_s"] * share,
                used["admitq-webhook"]["cpu_s"] * share,
            )


def measured_costs(results: StoredResults) -> MeasuredCosts | None:
    """Return the costs for which admitq must be sized: of each, the highest of all loads.

    None if the results of a job load with counted calls, of `depth` or of `restart` are missing.
    """
    costs = [*job_costs(results)]
    calls = [each.calls for each in costs if each.calls is not None]
    writes = [each for each in costs if each.api_server_cpu_s is not None]
    depth, restart = results.get("depth"), results.get("restart")
    if not calls or not writes or depth is None or restart is None:
        return None
    dearest = max(writes, key=lambda each: each.api_server_cpu_s or 0.0)
    base_mb, pending_mb = fit_line(
        [(one["depth"], one["rss_mb"]["manager"]) for one in depth.figures["depths"]]
    )
    rest_mb = restart.figures["rss_peak_mb"] - base_mb - restart.figures["pending"] * pending_mb
    return MeasuredCosts(
        manager_cpu_s=max(each.manager_cpu_s for each in costs),
        webhook_cpu_s=max(each.webhook_cpu_s for each in costs),
        calls=max(calls),
        writes=dearest.writes or 0.0,
        write_cpu_ms=dearest.write_cpu_ms or 0.0,
        base_mb=base_mb,
        pending_kb=max(0.0, pending_mb * 1_000),
        finished_kb=max(0.0, rest_mb * 1_000 / restart.figures["finished"]),
    )


def _queue_form(result: StoredResult | None) -> Mapping[str, Any] | None:
    """Return the figures of `FORM` with admitq."""
    return None if result is None else result.figures["forms"].get(FORM, {}).get("queue")


def _counted_costs(load: str, figures: Mapping[str, Any], jobs: int) -> JobCosts:
    calls = {key.split()[0]: 0 for key in figures["api_calls"]["manager"]}
    for key, count in figures["api_calls"]["manager"].items():
        calls[key.split()[0]] += count
    return JobCosts(
        load,
        figures["cpu_s"]["manager"] * JOBS_OF_COSTS / jobs,
        figures["cpu_s"]["webhook"] * JOBS_OF_COSTS / jobs,
        sum(count for verb, count in calls.items() if verb != _WATCH) / jobs,
        sum(count for verb, count in calls.items() if verb in WRITE_VERBS) / jobs,
        figures["api_cpu_ms_per_write"],
    )
