"""``batch/v1`` Job: one podset, suspended by the API itself, stopped in three steps.

The API server lets the template of a Job change only while the Job is suspended, has no pods and, for older
servers, was never started. So a stop suspends it, waits for its pods to end, takes back the start time, and
only then restores the template. An annotation marks the time between, so that a stop cut short is resumed by
whoever sees the Job next.
"""

import re
from collections.abc import Mapping
from typing import Any

from admitq.integrations.base import Finished, Integration, PodSetTemplate, Rules, Step
from admitq.integrations.paths import Object, merge_patch, value_at, with_value
from admitq.integrations.reading import ended, items, mapping, whole
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import FieldError
from admitq_api.field_errors import Path as FieldPath
from admitq_api.labels import Names

TEMPLATE = ("spec", "template")
SUSPEND = ("spec", "suspend")
PARALLELISM = ("spec", "parallelism")
COMPLETIONS = ("spec", "completions")
ANNOTATIONS = ("metadata", "annotations")
MAIN = "main"

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,10}")
_RANGE = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")

FINISHING_CONDITIONS = {"Complete": True, "Failed": False}
"""Whether the Job succeeded, by the condition that ends it."""

PLATFORM_LABELS = frozenset({"batch.kubernetes.io/controller-uid", "controller-uid", "job-name"})
"""Written by the API server into each Job's template, besides ``JOB_NAME``."""

JOB_NAME = "batch.kubernetes.io/job-name"
"""As stable as the Job's name, so that it stays in the Workload."""


def _pod_count(job: Object) -> int:
    """Pods that run at a time: never more than there are completions left to reach."""
    parallelism = whole(value_at(job, PARALLELISM), 1)
    return max(0, min(parallelism, whole(value_at(job, COMPLETIONS), parallelism)))


def _min_count(job: Object, names: Names) -> int | None:
    text = value_at(job, (*ANNOTATIONS, names.job_min_parallelism))
    fewest = int(text) if isinstance(text, str) and _WHOLE_NUMBER.fullmatch(text) else 0
    return fewest if fewest > 0 else None


def pod_sets(job: Object, names: Names) -> list[PodSetTemplate]:
    """One podset of all pods that run at a time."""
    return [PodSetTemplate(MAIN, _pod_count(job), TEMPLATE, _min_count(job, names))]


def finished(job: Object) -> Finished | None:
    """As the Job's conditions say."""
    return ended(job, FINISHING_CONDITIONS)


def is_active(job: Object) -> bool:
    """While pods are pending or running."""
    return whole(value_at(job, ("status", "active"))) != 0


def pods_ready(job: Object) -> bool:
    """When every pod that is to run at a time is ready or has succeeded."""
    status = mapping(job, ("status",))
    uncounted = value_at(status, ("uncountedTerminatedPods", "succeeded"))
    succeeded = whole(status.get("succeeded")) + (len(uncounted) if isinstance(uncounted, list) else 0)
    return succeeded + whole(status.get("ready")) >= _pod_count(job)


def _ranges(text: Any) -> list[tuple[int, int]]:
    """First and last of each range that a list such as ``1,3-5`` names; what cannot be read names none."""
    found: list[tuple[int, int]] = []
    for part in text.split(",") if isinstance(text, str) else ():
        match = _RANGE.fullmatch(part)
        if match is not None:
            found.append((int(match[1]), int(match[2] or match[1])))
    return found


def _ended_indexes(job: Object, completions: int) -> int:
    """Indexes that completed or failed, each once. Ranges are not spelled out: they may be huge."""
    status = mapping(job, ("status",))
    ended, following = 0, 0
    for first, last in sorted(_ranges(status.get("completedIndexes")) + _ranges(status.get("failedIndexes"))):
        start, end = max(first, following), min(last + 1, completions)
        ended += max(0, end - start)
        following = max(following, end)
    return ended


def reclaimable(job: Object) -> Mapping[str, int] | None:
    """Pods that ended while fewer completions are left than pods may run at a time."""
    count = _pod_count(job)
    completions = whole(value_at(job, COMPLETIONS), count)
    if value_at(job, ("spec", "completionMode")) == "Indexed":
        terminal = _ended_indexes(job, completions)
    else:
        terminal = whole(value_at(job, ("status", "succeeded")))
    if count <= 1 or terminal <= 0:
        return None
    return {MAIN: min(count, max(0, count - (completions - terminal)))}


def is_half_stopped(job: Object, names: Names) -> bool:
    """Between the first and the last step of a stop."""
    return value_at(job, (*ANNOTATIONS, names.stopping)) == "true"


def stop(job: Object, stopped: Object, names: Names) -> tuple[Step, ...]:
    """Suspend and mark; without pods, take back the start time, then restore and unmark."""
    mark = (*ANNOTATIONS, names.stopping)
    suspended = with_value(with_value(job, SUSPEND, True), mark, "true")
    steps = [Step(merge_patch(job, suspended))]
    if not is_active(job):
        started = value_at(job, ("status", "startTime")) is not None
        steps.append(Step({"status": {"startTime": None}} if started else {}, "status"))
        steps.append(Step(merge_patch(suspended, with_value(stopped, mark, None))))
    return tuple(step for step in steps if step.patch)


def with_counts(job: Object, counts: Mapping[str, int], names: Names) -> Object:
    """The Job with another parallelism; with as many completions where its owner keeps the two equal."""
    if MAIN not in counts:
        return job
    changed = with_value(job, PARALLELISM, counts[MAIN])
    if value_at(job, (*ANNOTATIONS, names.job_completions_equal_parallelism)) == "true":
        changed = with_value(changed, COMPLETIONS, counts[MAIN])
    return changed


def _min_parallelism_errors(job: Object, names: Names) -> list[FieldError]:
    key = names.job_min_parallelism
    text = value_at(job, (*ANNOTATIONS, key))
    if text is None:
        return []
    field = FieldPath("metadata.annotations").key(key)
    count = _pod_count(job)
    if not (isinstance(text, str) and _WHOLE_NUMBER.fullmatch(text)):
        return [FieldError.invalid(field, text, "must be a whole number")]
    errors: list[FieldError] = []
    if not 0 < int(text) < count:
        errors.append(FieldError.invalid(field, int(text), f"should be between 0 and {count - 1}"))
    if value_at(job, (*ANNOTATIONS, names.elastic_job)) == "true":
        errors.append(
            FieldError.invalid(field, text, "partial admission and elastic job cannot be used together")
        )
    return errors


def _equal_completions_errors(job: Object, names: Names) -> list[FieldError]:
    key = names.job_completions_equal_parallelism
    text = value_at(job, (*ANNOTATIONS, key))
    field = FieldPath("metadata.annotations").key(key)
    if text is None or text == "false":
        return []
    if text != "true":
        return [FieldError.invalid(field, text, 'must be "true" or "false"')]
    if value_at(job, ("spec", "completionMode")) != "Indexed":
        return [FieldError.invalid(field, text, "should not be enabled for NonIndexed jobs")]
    if value_at(job, COMPLETIONS) != value_at(job, PARALLELISM, 1):
        return [FieldError.invalid(field, text, "completions should be equal to parallelism")]
    return []


def mutate(job: Object, rules: Rules) -> Object:
    """Hold the pods of an elastic Job."""
    gate = {"name": rules.names.elastic_gate}
    gates = items(value_at(job, (*TEMPLATE, "spec", "schedulingGates")))
    is_elastic = value_at(job, (*ANNOTATIONS, rules.names.elastic_job)) == "true"
    if not is_elastic or not rules.gates.enabled(Gate.ELASTIC_JOBS) or gate in gates:
        return job
    if not isinstance(value_at(job, TEMPLATE), Mapping):
        return job
    return with_value(job, (*TEMPLATE, "spec", "schedulingGates"), [*gates, gate])


def validate_create(job: Object, rules: Rules) -> list[FieldError]:
    """Check the two annotations of partial admission."""
    names = rules.names
    return _min_parallelism_errors(job, names) + _equal_completions_errors(job, names)


def validate_update(old: Object, new: Object, rules: Rules) -> list[FieldError]:
    """Check the annotations while suspended; while running, that nothing undoes a partial admission."""
    if value_at(new, SUSPEND) is True:
        return validate_create(new, rules)
    names = rules.names
    errors: list[FieldError] = []
    is_partial = value_at(old, (*ANNOTATIONS, names.job_min_parallelism)) is not None
    was_running = value_at(old, SUSPEND) is not True
    if is_partial and was_running and value_at(old, PARALLELISM) != value_at(new, PARALLELISM):
        errors.append(
            FieldError.forbidden(
                "spec.parallelism",
                "cannot change when partial admission is enabled and the job is not suspended",
            )
        )
    sync = (*ANNOTATIONS, names.job_completions_equal_parallelism)
    if value_at(old, sync) != value_at(new, sync):
        errors.append(
            FieldError.forbidden(
                FieldPath("metadata.annotations").key(sync[-1]), "is immutable while the job runs"
            )
        )
    return errors


JOB = Integration(
    framework="batch/job",
    group="batch",
    version="v1",
    kind="Job",
    plural="jobs",
    pod_sets=pod_sets,
    finished=finished,
    is_active=is_active,
    pods_ready=pods_ready,
    suspend_path=SUSPEND,
    is_half_stopped=is_half_stopped,
    stop=stop,
    with_counts=with_counts,
    reclaimable=reclaimable,
    platform_labels=PLATFORM_LABELS,
    own_labels=frozenset({JOB_NAME}),
    managed_by_path=("spec", "managedBy"),
    own_controller="kubernetes.io/job-controller",
    creates=frozenset({("", "Pod")}),
    adopts_prebuilt_workload=True,
    can_be_elastic=True,
    mutate=mutate,
    validate_create=validate_create,
    validate_update=validate_update,
    patches_status=True,
)
