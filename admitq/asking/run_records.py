"""Run times of stored Workloads: finished ones as runs, and what is known of others.

The *group* of a Workload names the jobs that probably run alike: jobs of a namespace and a kind with the same
label ``app.kubernetes.io/name``, or else with the same prefix of their names. The prefix is the name of the
owner without a trailing number or generated suffix, and without a date.
"""

import re
from typing import Final, NamedTuple

from admitq.core.asking.run_times import Run
from admitq.core.model import SECOND, Instant
from admitq_api import conditions
from admitq_api.conditions import ConditionsByType, ConditionType, Reason, create_deactivation_reason
from admitq_api.json_objects import JsonObject, value_at

APP_NAME: Final = "app.kubernetes.io/name"
"""The label that names an application, as recommended by Kubernetes."""

_SUFFIX: Final = re.compile(r"([-.](\d+|[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9a-f]{8,}))+$")
"""Numbers, dates, and suffixes that Kubernetes generates, at the end of a name."""

_LIMIT_REACHED: Final = create_deactivation_reason(Reason.MAXIMUM_EXECUTION_TIME_EXCEEDED)


class RunTimeFacts(NamedTuple):
    """What a Workload itself says about its run time: its group, and the longest run time that is allowed.

    The limit is that of its present or next admission, in nanoseconds; None without a limit.
    """

    group: str
    limit: Instant | None


def read_run(workload: JsonObject) -> Run | None:
    """Read the run of a Workload that has finished, or that reached the limit of its execution time.

    None if the Workload has not ended, or if its times are not known.
    """
    state = ConditionsByType(value_at(workload, ("status", "conditions"), []))
    cluster_queue = value_at(workload, ("status", "admission", "clusterQueue"), "")
    group = read_group(workload)
    evicted = state.find(ConditionType.EVICTED) or {}
    if (evicted.get("status"), evicted.get("reason")) == ("True", _LIMIT_REACHED):
        limit = value_at(workload, ("spec", "maximumExecutionTimeSeconds"), 0)
        return Run(group, cluster_queue, limit * SECOND, is_censored=True) if limit else None
    began, ended = _since(state, ConditionType.ADMITTED), _since(state, ConditionType.FINISHED)
    if began is None or ended is None or ended < began:
        return None
    past = value_at(workload, ("status", "accumulatedPastExecutionTimeSeconds"), 0)
    duration = ended - began + past * SECOND
    limit = _limit(workload)
    return Run(group, cluster_queue, duration, is_censored=limit is not None and duration >= limit)


def read_run_time_facts(workload: JsonObject) -> RunTimeFacts:
    """Read the group of a Workload, and the limit of its run time from now on.

    The limit is the smallest of the maximum execution time, less the time of earlier admissions, and of the
    active deadlines of its pods.
    """
    limit = _limit(workload)
    past = value_at(workload, ("status", "accumulatedPastExecutionTimeSeconds"), 0)
    return RunTimeFacts(read_group(workload), None if limit is None else max(0, limit - past * SECOND))


def read_group(workload: JsonObject) -> str:
    """Return the group of a Workload; empty if it has no owner and no label."""
    metadata = workload["metadata"]
    namespace = metadata.get("namespace", "")
    kind = value_at(metadata, ("ownerReferences", 0, "kind"), "")
    name = value_at(metadata, ("ownerReferences", 0, "name"), "")
    application = value_at(metadata, ("labels", APP_NAME))
    if application:
        return f"{namespace}/{kind}/{APP_NAME}={application}"
    return f"{namespace}/{kind}/{_SUFFIX.sub('', name)}" if name else ""


def read_training_estimate(train_job: JsonObject, now: Instant) -> Instant | None:
    """Return the remaining run time that a TrainJob itself reports; nanoseconds from now.

    The training program writes ``status.trainerStatus.estimatedRemainingSeconds`` and the time of its last
    update. None if the TrainJob reports none.
    """
    remaining: object = value_at(train_job, ("status", "trainerStatus", "estimatedRemainingSeconds"))
    if not isinstance(remaining, int) or remaining < 0:
        return None
    updated = value_at(train_job, ("status", "trainerStatus", "lastUpdatedTime"))
    since = 0 if updated is None else max(0, now - conditions.parse_time(updated))
    return max(0, remaining * SECOND - since)


def _limit(workload: JsonObject) -> Instant | None:
    limits: list[int] = [
        value_at(workload, ("spec", "maximumExecutionTimeSeconds"), 0),
        *(
            value_at(pod_set, ("template", "spec", "activeDeadlineSeconds"), 0)
            for pod_set in value_at(workload, ("spec", "podSets"), [])
        ),
    ]
    stated = [limit for limit in limits if limit]
    return min(stated) * SECOND if stated else None


def _since(state: ConditionsByType, type: ConditionType) -> Instant | None:  # noqa: A002 the name in the API
    condition = state.find(type)
    if condition is None or condition.get("status") != "True":
        return None
    return conditions.parse_time(condition["lastTransitionTime"])
