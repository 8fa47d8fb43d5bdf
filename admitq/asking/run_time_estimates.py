"""Estimates of run times from stored Workloads."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from admitq.asking.run_records import RunTimeFacts, read_run, read_run_time_facts, read_training_estimate
from admitq.core.asking.course import EstimateOf
from admitq.core.asking.run_times import Run, RunTimeEstimate, RunTimeHistory
from admitq.core.model import Instant, ObjectKey, Workload
from admitq.translate.metadata import key_of
from admitq.translate.observations import READ_ERRORS
from admitq_api.conditions import ConditionsByType, ConditionType, parse_time
from admitq_api.json_objects import JsonObject, text_at, value_at

_TRAIN_JOB: Final = "TrainJob"

_MOST_RUNS: Final = 10_000
"""The number of the latest runs that are kept, also of Workloads that were deleted."""


class _FinishedRun(NamedTuple):
    """A run, and the time of its end as in the API."""

    ended: str
    run: Run


class _UnfinishedRun(NamedTuple):
    """What is known of a Workload that has not ended: its facts, its owner, and since when it runs where."""

    facts: RunTimeFacts
    owner_uid: str
    began: Instant | None
    cluster_queue: str


class RunTimeRecords:
    """The run times of the Workloads that a process observes, and the estimates that TrainJobs report."""

    def __init__(self) -> None:
        self._finished: dict[str, _FinishedRun] = {}
        """By the uid of the Workload."""
        self._unfinished: dict[ObjectKey, _UnfinishedRun] = {}
        self._train_jobs: dict[str, JsonObject] = {}
        """TrainJobs that report an estimate, by uid."""

    def observe_workload(self, workload: JsonObject) -> None:
        """Observe a Workload that was created or changed. One that cannot be read does not count."""
        key, uid = key_of(workload), text_at(workload, ("metadata", "uid"))
        try:
            run, facts = read_run(workload), read_run_time_facts(workload)
        except READ_ERRORS:
            self.forget_workload(key)
            return
        if run is None:
            self._unfinished[key] = _read_unfinished(workload, facts)
            return
        self.forget_workload(key)
        self._finished[uid or str(key)] = _FinishedRun(_time_of_end(workload), run)
        if len(self._finished) > _MOST_RUNS:
            del self._finished[next(iter(self._finished))]

    def forget_workload(self, key: ObjectKey) -> None:
        """Forget a Workload that was deleted. Its run stays if it has finished."""
        self._unfinished.pop(key, None)

    def observe_train_job(self, job: JsonObject) -> None:
        """Observe a TrainJob that was created or changed."""
        uid = text_at(job, ("metadata", "uid"))
        if value_at(job, ("status", "trainerStatus")) is None:
            self._train_jobs.pop(uid, None)
        else:
            self._train_jobs[uid] = job

    def forget_train_job(self, job: JsonObject) -> None:
        """Forget a TrainJob that was deleted."""
        self._train_jobs.pop(text_at(job, ("metadata", "uid")), None)

    def estimates(self, cluster_queue_of: Callable[[ObjectKey], str], now: Instant) -> EstimateOf:
        """Return a function that estimates the run times of workloads.

        Finished Workloads are the history. Running ones count as runs that have not ended, because short
        runs would prevail otherwise. While no Workload has ended by itself, there is no history: running ones
        alone would look as if they ended at once. Workloads that were not observed have the estimate of
        their queue.

        Args:
            cluster_queue_of: returns the ClusterQueue of a LocalQueue; empty if there is none.
            now: the present instant, in nanoseconds since the Unix epoch.
        """
        finished = sorted(self._finished.values(), key=lambda each: each.ended)
        runs = [each.run for each in finished]
        if any(not run.is_censored for run in runs):
            runs += self._running(now)
        history = RunTimeHistory(runs)

        def estimate_of(workload: Workload) -> RunTimeEstimate:
            known = self._unfinished.get(workload.key)
            if workload.admission is not None:
                queue = workload.admission.cluster_queue
            else:
                queue = cluster_queue_of(ObjectKey(workload.key.namespace, workload.queue_name))
            if known is None:
                return history.estimate("", queue)
            job = self._train_jobs.get(known.owner_uid)
            remaining = None if job is None else read_training_estimate(job, now)
            return history.estimate(known.facts.group, queue, limit=known.facts.limit, remaining=remaining)

        return estimate_of

    def _running(self, now: Instant) -> Iterator[Run]:
        for each in self._unfinished.values():
            if each.began is not None and each.began <= now:
                yield Run(each.facts.group, each.cluster_queue, now - each.began, is_censored=True)


def run_time_estimates(
    workloads: Iterable[JsonObject],
    local_queues: Iterable[JsonObject],
    now: Instant,
    *,
    jobs: Iterable[JsonObject] = (),
) -> EstimateOf:
    """Return a function that estimates the run times of workloads.

    Args:
        workloads: the stored Workloads. Those that cannot be read do not count.
        local_queues: the stored LocalQueues.
        now: the present instant, in nanoseconds since the Unix epoch.
        jobs: other stored objects. The estimates that TrainJobs among them report count.
    """
    records = RunTimeRecords()
    for workload in workloads:
        records.observe_workload(workload)
    for job in jobs:
        if job.get("kind") == _TRAIN_JOB:
            records.observe_train_job(job)
    queues = {key_of(each): text_at(each, ("spec", "clusterQueue")) for each in local_queues}
    return records.estimates(lambda key: queues.get(key, ""), now)


def _time_of_end(workload: JsonObject) -> str:
    state = ConditionsByType(value_at(workload, ("status", "conditions"), []))
    ended = state.find(ConditionType.FINISHED) or state.find(ConditionType.EVICTED) or {}
    return text_at(ended, ("lastTransitionTime",))


def _read_unfinished(workload: JsonObject, facts: RunTimeFacts) -> _UnfinishedRun:
    state = ConditionsByType(value_at(workload, ("status", "conditions"), []))
    admitted = state.find(ConditionType.ADMITTED) or {}
    began: Instant | None = None
    if admitted.get("status") == "True" and state.find(ConditionType.FINISHED) is None:
        try:
            began = parse_time(text_at(admitted, ("lastTransitionTime",)))
        except ValueError:
            began = None
    owner = value_at(workload, ("metadata", "ownerReferences", 0, "uid"), "")
    return _UnfinishedRun(facts, owner, began, text_at(workload, ("status", "admission", "clusterQueue")))
