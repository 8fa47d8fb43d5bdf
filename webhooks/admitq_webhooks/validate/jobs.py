"""Rules of jobs: those of every kind, and those that a kind adds."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

from admitq.integrations.base import MAX_POD_SETS, Integration, PodSetTemplate
from admitq.integrations.ownership import get_queue_name, has_known_controller, list_prebuilt_names
from admitq.workloads.request_increases import find_request_increases
from admitq.workloads.topology_annotations import (
    configured_topology_rules,
    find_group_errors,
    find_template_errors,
    is_elastic,
    list_template_annotations,
)
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import ErrorPath, ErrorType, FieldError, check_text, select_new_errors
from admitq_api.json_objects import JsonObject, object_at
from admitq_api.labels import DEFAULT_QUEUE, Names
from admitq_api.syntax import check_dns_subdomain
from admitq_webhooks.ancestors import has_managed_ancestor
from admitq_webhooks.lookups import ClusterLookups
from admitq_webhooks.policy import Policy
from admitq_webhooks.validate import admission_gates
from admitq_webhooks.validate.syntax import is_being_deleted

_LABELS: Final = ErrorPath("metadata.labels")
_ANNOTATIONS: Final = ErrorPath("metadata.annotations")
_POSITIVE: Final = re.compile(r"\+?0*[1-9][0-9]{0,9}")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_IMMUTABLE: Final = "field is immutable"


def validate_create(job: JsonObject, integration: Integration, policy: Policy) -> list[FieldError]:
    """Check a new job. Only the rules of its kind apply to jobs without pods and to unmanaged pods."""
    names, own = policy.names, integration.webhook.validate_create(job, policy.kind_rules(job))
    if integration.lifecycle.is_ignored(job) or not _is_subject_to_rules(job, integration, names):
        return [*own]
    return [
        *_queue_name(job, names),
        *_prebuilt(job, integration, policy),
        *_max_exec_time(job, names),
        *_elastic_annotation(job, integration, names),
        *(admission_gates.validate_create(job, names) if _has_gates(policy) else ()),
        *(() if _has_too_many_error(own) else _pod_sets(job, integration, policy)),
        *_topology(job, integration, policy),
        *own,
    ]


def validate_update(
    old: JsonObject,
    new: JsonObject,
    namespace: str,
    integration: Integration,
    policy: Policy,
    lookups: ClusterLookups,
    workload: JsonObject | None = None,
) -> list[FieldError]:
    """Check an update of a job, given the Workload on which it depends.

    All updates of a job that is being deleted are allowed. Errors that the stored job has do not prevent an
    update that suspends the job or leaves it suspended: a job that cannot be stopped would run beyond its
    quota. A Job that was admitted with its minimum of pods has such an error, because the minimum must be
    below its parallelism.
    """
    if is_being_deleted(old):
        return []
    rules = policy.kind_rules(new, workload=workload)
    if not integration.webhook.should_validate_update(old, rules):
        return []
    names, own = policy.names, integration.webhook.validate_update(old, new, rules)
    suspended = integration.is_suspended(new, names)
    if suspended or integration.lifecycle.is_stop_in_progress(new, names):
        own = select_new_errors(own, integration.webhook.validate_create(old, policy.kind_rules(old)))
    is_held = _is_subject_to_rules(old, integration, names) or _is_subject_to_rules(new, integration, names)
    if integration.lifecycle.is_ignored(new) or not is_held:
        return [*own]
    was_suspended = integration.is_suspended(old, names)
    return [
        *_queue_name_update(
            old,
            new,
            names,
            suspended=suspended,
            has_default=lookups.has_local_queue(namespace, DEFAULT_QUEUE),
        ),
        *_prebuilt_update(old, new, integration, policy, suspended=suspended),
        *_max_exec_time_update(old, new, names, both_suspended=suspended and was_suspended),
        *_priority_class_update(old, new, names, suspended=suspended),
        *_elastic_update(old, new, names),
        *(() if suspended or was_suspended else _request_increases(old, new, integration, policy)),
        *(admission_gates.validate_update(old, new, names) if _has_gates(policy) else ()),
        *(() if _has_too_many_error(own) else _new_pod_sets_errors(old, new, integration, policy)),
        *_new_topology_errors(old, new, integration, policy),
        *own,
    ]


async def member_warnings(
    job: JsonObject, namespace: str, integration: Integration, policy: Policy, lookups: ClusterLookups
) -> tuple[str, ...]:
    """Return a warning for a managed pod of a queued owner: the pod itself is not queued.

    Raises:
        AncestryUnknown: the ancestors of the pod cannot be determined.
        LookupFailed: an owner cannot be read.
    """
    names = policy.names
    if (
        integration.composition is None
        or not _is_subject_to_rules(job, integration, names)
        or integration.ownership.is_held_by_parent(job, names)
        or not await has_managed_ancestor(job, namespace, policy, lookups)
    ):
        return ()
    where = _LABELS.key(names.managed)
    return (f"{where}: the owner of this {integration.kind} is queued, not the {integration.kind} itself",)


def _is_subject_to_rules(job: JsonObject, integration: Integration, names: Names) -> bool:
    """Whether the rules of jobs apply: to all jobs, and to managed pods."""
    return integration.composition is None or _label(job, names.managed) == "true"


def _has_gates(policy: Policy) -> bool:
    return policy.gates.is_enabled(Gate.ADMISSION_GATED_BY)


def _label(job: JsonObject, key: str) -> Any:
    return object_at(job, ("metadata", "labels")).get(key)


def _annotation(job: JsonObject, key: str) -> Any:
    return object_at(job, ("metadata", "annotations")).get(key)


def _queue_name(job: JsonObject, names: Names) -> Iterator[FieldError]:
    name = _label(job, names.queue_name)
    if name:
        yield from check_text(_LABELS.key(names.queue_name), name, check_dns_subdomain)


def _queue_name_update(
    old: JsonObject, new: JsonObject, names: Names, *, suspended: bool, has_default: bool
) -> Iterator[FieldError]:
    before, after = get_queue_name(old, names), get_queue_name(new, names)
    where = _LABELS.key(names.queue_name)
    if not suspended and before != after:
        yield FieldError.invalid(
            where, after, _IMMUTABLE, "it can only be changed while the job is suspended"
        )
    elif before != after:
        yield from _queue_name(new, names)
    if before and not after and has_default:
        yield FieldError.invalid(where, after, "queue-name must not be empty in namespace with default queue")


def _prebuilt_name(job: JsonObject, policy: Policy) -> tuple[ErrorPath, Any]:
    """Return where the prebuilt Workload is named, and its name."""
    paths = {"labels": _LABELS, "annotations": _ANNOTATIONS}
    by_annotation = policy.gates.is_enabled(Gate.WORKLOAD_IDENTIFIER_ANNOTATIONS)
    places = list_prebuilt_names(job, policy.names, by_annotation=by_annotation)
    place, name = next(iter(places), ("labels", None))
    return paths[place].key(policy.names.prebuilt_workload_name), name


def _prebuilt(job: JsonObject, integration: Integration, policy: Policy) -> Iterator[FieldError]:
    where, name = _prebuilt_name(job, policy)
    if name is None:
        return
    yield from check_text(where, name, check_dns_subdomain)
    if not integration.delegation.adopts_prebuilt_workload:
        gvk = f"{integration.api_version}, Kind={integration.kind}"
        yield FieldError.forbidden(where, f"Is not supported for {gvk}")


def _prebuilt_update(
    old: JsonObject, new: JsonObject, integration: Integration, policy: Policy, *, suspended: bool
) -> Iterator[FieldError]:
    _, before = _prebuilt_name(old, policy)
    where, after = _prebuilt_name(new, policy)
    if not suspended and _annotation(old, policy.names.elastic_job) != "true":
        if before != after:
            yield FieldError.invalid(where, after, _IMMUTABLE)
    elif before != after:
        yield from _prebuilt(new, integration, policy)


def _max_exec_time(job: JsonObject, names: Names) -> Iterator[FieldError]:
    where, value = _LABELS.key(names.max_exec_time), _label(job, names.max_exec_time)
    if value is None:
        return
    if not (isinstance(value, str) and _INTEGER.fullmatch(value)):
        yield FieldError.invalid(where, value, "must be a whole number of seconds")
    elif not _POSITIVE.fullmatch(value) or int(value) >= 2**31:
        yield FieldError.invalid(
            where, value, "should be greater than 0" if int(value) <= 0 else f"must be less than {2**31}"
        )


def _max_exec_time_update(
    old: JsonObject, new: JsonObject, names: Names, *, both_suspended: bool
) -> Iterator[FieldError]:
    before, after = _label(old, names.max_exec_time), _label(new, names.max_exec_time)
    if before == after:
        return
    if both_suspended:
        yield from _max_exec_time(new, names)
    else:
        yield FieldError.invalid(
            _LABELS.key(names.max_exec_time),
            after,
            _IMMUTABLE,
            "it can only be changed while the job is suspended",
        )


def _priority_class_update(
    old: JsonObject, new: JsonObject, names: Names, *, suspended: bool
) -> Iterator[FieldError]:
    before, after = _label(old, names.priority_class), _label(new, names.priority_class)
    where = _LABELS.key(names.priority_class)
    if not before and after and not suspended:
        yield FieldError.invalid(
            where, after, "WorkloadPriorityClass cannot be added to a non-suspended workload"
        )
    if before and not after:
        yield FieldError.invalid(
            where, after, "WorkloadPriorityClass cannot be removed from a workload", "name another one"
        )


def _elastic_annotation(job: JsonObject, integration: Integration, names: Names) -> Iterator[FieldError]:
    if _annotation(job, names.elastic_job) == "true" and not integration.scaling.can_be_elastic:
        yield FieldError.forbidden(
            _ANNOTATIONS.key(names.elastic_job),
            f"elastic jobs are not supported for {integration.api_version}, Kind={integration.kind}",
        )


def _elastic_update(old: JsonObject, new: JsonObject, names: Names) -> Iterator[FieldError]:
    before, after = _annotation(old, names.elastic_job), _annotation(new, names.elastic_job)
    if (before == "true") != (after == "true"):
        yield FieldError.invalid(_ANNOTATIONS.key(names.elastic_job), after, _IMMUTABLE, "create another job")


def _request_increases(
    old: JsonObject, new: JsonObject, integration: Integration, policy: Policy
) -> Iterator[FieldError]:
    """Reject larger requests of a running job, if the configuration says so.

    Pods, and jobs with pods that are queued singly or in groups, get quota for new pods only. Elastic jobs
    request quota for the difference.
    """
    is_elastic = _annotation(new, policy.names.elastic_job) == "true" and integration.scaling.can_be_elastic
    if (
        not policy.rejects_increases
        or not policy.kind_rules(new).is_managed
        or integration.composition is not None
        or integration.serving is not None
        or (is_elastic and policy.gates.is_enabled(Gate.ELASTIC_JOBS))
    ):
        return
    paths = {pod_set.name: pod_set.template_path for pod_set in integration.list_pod_sets(new, policy.names)}
    for increase in find_request_increases(
        job_pod_sets(new, integration, policy), job_pod_sets(old, integration, policy)
    ):
        path = paths[increase.pod_set]
        where = ErrorPath().at(*(path[:-1] if increase.additional_pods else path))
        yield FieldError.forbidden(where, str(increase), "suspend the job first, or create another one")


def job_pod_sets(job: JsonObject, integration: Integration, policy: Policy) -> list[JsonObject]:
    """Return the podsets of a job as a Workload lists them."""
    return [
        {"name": pod_set.name, "count": pod_set.count, "template": pod_set.get_template(job)}
        for pod_set in integration.list_pod_sets(job, policy.names)
    ]


def _pod_sets(job: JsonObject, integration: Integration, policy: Policy) -> Iterator[FieldError]:
    """Check that a managed job does not have more podsets than a Workload can have.

    Some kinds check this themselves, with their own message (semantics, Per kind).
    """
    pod_sets = integration.list_pod_sets(job, policy.names)
    if len(pod_sets) > MAX_POD_SETS and policy.kind_rules(job).is_managed:
        detail = f"a Workload has at most {MAX_POD_SETS} podsets"
        remedy = "use fewer podsets, or split the job into several jobs"
        yield FieldError(str(_largest_list_path(pod_sets)), ErrorType.TOO_MANY, len(pod_sets), detail, remedy)


def _has_too_many_error(errors: Iterable[FieldError]) -> bool:
    return any(error.type is ErrorType.TOO_MANY for error in errors)


def _largest_list_path(pod_sets: Sequence[PodSetTemplate]) -> ErrorPath:
    """Return the path of the list that contains most podsets of the job."""
    lists = Counter(
        tuple(takewhile(lambda step: isinstance(step, str), pod_set.template_path)) for pod_set in pod_sets
    )
    [(path, _)] = lists.most_common(1)
    return ErrorPath().at(*path)


def _new_pod_sets_errors(
    old: JsonObject, new: JsonObject, integration: Integration, policy: Policy
) -> Iterator[FieldError]:
    """Return errors that the stored job does not have, so that a job with old errors can still be updated."""
    if not any(_pod_sets(old, integration, policy)):
        yield from _pod_sets(new, integration, policy)


def _topology(job: JsonObject, integration: Integration, policy: Policy) -> Iterator[FieldError]:
    """Check the topology annotations of a job.

    A part of a job, such as a pod of a group, has the annotations of its podset, but not all pods of it. So
    the rules for the number of pods and for podset groups do not apply to parts.
    """
    names, rules, webhook = policy.names, configured_topology_rules(policy.gates), integration.webhook
    if rules is None:
        return
    if webhook.checks_templates_only_if_managed and not policy.kind_rules(job).is_managed:
        return
    pod_sets = (webhook.list_checked_templates or integration.list_pod_sets)(job, names)
    elastic, is_started = is_elastic(job, integration, names, rules), not integration.is_suspended(job, names)
    templates = list_template_annotations(job, pod_sets, is_started=is_started, elastic=elastic)
    is_part = _is_part_of_job(job, integration, policy)
    if is_part:
        templates = [template._replace(pods=None) for template in templates]
    yield from find_template_errors(templates, names, rules, elastic=elastic)
    if not is_part:
        yield from find_group_errors(templates, names)


def _is_part_of_job(job: JsonObject, integration: Integration, policy: Policy) -> bool:
    """Whether the object is a pod of a group, or may have been created for a job of another kind."""
    composition = integration.composition
    if composition is not None and (
        composition.get_group(job, policy.names) or not composition.is_member(job, policy.names)
    ):
        return True
    return has_known_controller(job, policy.integrations, policy.external_frameworks)


def _new_topology_errors(
    old: JsonObject, new: JsonObject, integration: Integration, policy: Policy
) -> list[FieldError]:
    """Return errors that the stored job does not have, so that a job with old errors can still be updated."""
    return select_new_errors(_topology(new, integration, policy), _topology(old, integration, policy))
