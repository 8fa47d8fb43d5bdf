"""Estimates of run times from stored Workloads."""

from collections.abc import Iterable, Iterator
from typing import Final

from admitq.asking.run_records import RunTimeFacts, read_run, read_run_time_facts, read_training_estimate
from admitq.core.asking.forecast import EstimateOf
from admitq.core.asking.run_times import Run, RunTimeEstimate, RunTimeHistory
from admitq.core.model import Instant, ObjectKey, Workload
from admitq.translate.metadata import key_of
from admitq.translate.observations import READ_ERRORS
from admitq_api.conditions import ConditionsByType, ConditionType, parse_time
from admitq_api.json_objects import JsonObject, text_at, value_at

_TRAIN_JOB: Final = "TrainJob"


def run_time_estimates(
    workloads: Iterable[JsonObject],
    local_queues: Iterable[JsonObject],
    now: Instant,
    *,
    jobs: Iterable[JsonObject] = (),
) -> EstimateOf:
    """Return a function that estimates the run times of workloads.

    Finished Workloads are the history. Running ones count as runs that have not ended, because short runs
    would prevail otherwise. Workloads that are not among the given ones have the estimate of their queue.

    Args:
        workloads: the stored Workloads. Those that cannot be read do not count.
        local_queues: the stored LocalQueues.
        now: the present instant, in nanoseconds since the Unix epoch.
        jobs: other stored objects. The estimates that TrainJobs among them report count.
    """
    stored = list(workloads)
    queues = {key_of(each): text_at(each, ("spec", "clusterQueue")) for each in local_queues}
    facts = {key_of(each): known for each in stored if (known := _facts_of(each)) is not None}
    remaining = _reported_times(stored, jobs, now)
    history = RunTimeHistory([*_finished_runs(stored), *_running_runs(stored, now)])

    def estimate_of(workload: Workload) -> RunTimeEstimate:
        own = facts.get(workload.key, RunTimeFacts("", None))
        if workload.admission is not None:
            queue = workload.admission.cluster_queue
        else:
            queue = queues.get(ObjectKey(workload.key.namespace, workload.queue_name), "")
        return history.estimate(own.group, queue, limit=own.limit, remaining=remaining.get(workload.key))

    return estimate_of


def _facts_of(workload: JsonObject) -> RunTimeFacts | None:
    try:
        return read_run_time_facts(workload)
    except READ_ERRORS:
        return None


def _reported_times(
    workloads: Iterable[JsonObject], jobs: Iterable[JsonObject], now: Instant
) -> dict[ObjectKey, Instant]:
    """Return the remaining run times that TrainJobs report, by Workload."""
    reported = {
        text_at(job, ("metadata", "uid")): left
        for job in jobs
        if job.get("kind") == _TRAIN_JOB and (left := read_training_estimate(job, now)) is not None
    }
    owners = ((each, value_at(each, ("metadata", "ownerReferences", 0, "uid"), "")) for each in workloads)
    return {key_of(each): reported[owner] for each, owner in owners if owner in reported}


def _finished_runs(workloads: Iterable[JsonObject]) -> list[Run]:
    """Return the runs of Workloads that have ended, the earliest first."""
    runs: list[tuple[str, Run]] = []
    for each in workloads:
        try:
            run = read_run(each)
        except READ_ERRORS:
            continue
        if run is not None:
            runs.append((_time_of_end(each), run))
    return [run for _, run in sorted(runs, key=lambda pair: pair[0])]


def _time_of_end(workload: JsonObject) -> str:
    state = ConditionsByType(value_at(workload, ("status", "conditions"), []))
    ended = state.find(ConditionType.FINISHED) or state.find(ConditionType.EVICTED) or {}
    return text_at(ended, ("lastTransitionTime",))


def _running_runs(workloads: Iterable[JsonObject], now: Instant) -> Iterator[Run]:
    """Yield the runs of Workloads that are admitted and have not ended."""
    for each in workloads:
        state = ConditionsByType(value_at(each, ("status", "conditions"), []))
        admitted = state.find(ConditionType.ADMITTED) or {}
        if admitted.get("status") != "True" or state.find(ConditionType.FINISHED) is not None:
            continue
        facts = _facts_of(each)
        try:
            began = parse_time(text_at(admitted, ("lastTransitionTime",)))
        except ValueError:
            continue
        if facts is not None and began <= now:
            queue = text_at(each, ("status", "admission", "clusterQueue"))
            yield Run(facts.group, queue, now - began, is_censored=True)
