"""The match condition of the webhook that validates Jobs of ``batch/v1``.

The API server has validated the Job before it evaluates the condition, so fields have the types of the API.
"""

from typing import Final

from admitq_api.labels import Names
from admitq_api.syntax import SUBDOMAIN_PATTERN
from admitq_webhooks.match_conditions.expressions import (
    LONGEST_LABEL_VALUE,
    MOST_ENTRIES,
    differs,
    list_of,
    map_at,
)

_TEMPLATE: Final = "spec.template"
_RESTRICTED_FIELDS: Final = (
    "metadata.labels",
    "metadata.annotations",
    "metadata.ownerReferences",
    "spec.parallelism",
    "spec.completions",
    *(
        f"{_TEMPLATE}.spec.{field}"
        for field in (
            "containers",
            "initContainers",
            "overhead",
            "resources",
            "resourceClaims",
            "runtimeClassName",
        )
    ),
)
"""Fields of a Job of which rules restrict changes, besides its template. The fields of the template decide
what its pods request."""


def may_break_rule(names: Names) -> str:
    """Return the CEL expression that is true if the rules of Jobs may reject a request."""
    created, updated = _is_new_job_restricted(names), _is_update_restricted(names)
    return f"request.operation == 'CREATE' ? ({created}) : ({updated})"


def _is_new_job_restricted(names: Names) -> str:
    """All rules of new Jobs are about labels and annotations of admitq.

    Of a name of a queue, only the syntax is restricted. No rule restricts the name of a priority class.
    """
    queue, labels = f"'{names.queue_name}'", "object.metadata.labels"
    maps = (labels, "object.metadata.annotations", f"object.{_TEMPLATE}.metadata.annotations")
    unrestricted = list_of((names.queue_name, names.priority_class))
    is_restricted = f"k.startsWith('{names.group}/') && !(k in {unrestricted})"
    has_restricted_key = f"m.size() > {MOST_ENTRIES} || m.exists(k, {is_restricted})"
    return (
        f"[{', '.join(map(map_at, maps))}].exists(m, {has_restricted_key})"
        f" || (has({labels}) && {queue} in {labels} && !{_is_name_of_queue(f'{labels}[{queue}]')})"
    )


def _is_name_of_queue(text: str) -> str:
    return f"({text}.size() <= {LONGEST_LABEL_VALUE} && {text}.matches(r'{SUBDOMAIN_PATTERN}'))"


def _is_update_restricted(names: Names) -> str:
    """Most updates start or stop a Job, and change labels and the placement of its pods.

    The webhook accepts such an update from every user. If it starts a Job without quota, the job controller
    of admitq stops the Job again. The template of a running Job has marks that are protected. Those of a
    suspended Job are not. Its template may change in annotations that admitq injects, but not in those that
    request a topology.
    """
    states = ("object", "oldObject")
    is_suspended = " || ".join(f"(has({state}.spec.suspend) && {state}.spec.suspend)" for state in states)
    annotations = ", ".join(map_at(f"{state}.{_TEMPLATE}.metadata.annotations") for state in states)
    injected = list_of((names.workload, names.workload_slice_name))
    is_free = f"!k.startsWith('{names.group}/') || k in {injected}"
    is_annotation_changed = (
        f"[[{annotations}]].exists(m, m[0].size() > {MOST_ENTRIES} || m[1].size() > {MOST_ENTRIES}"
        f" || !m[0].all(k, {is_free} || (k in m[1] && m[0][k] == m[1][k]))"
        f" || !m[1].all(k, {is_free} || k in m[0]))"
    )
    return " || ".join(
        (
            *map(differs, _RESTRICTED_FIELDS),
            f"(!({is_suspended}) && object.{_TEMPLATE} != oldObject.{_TEMPLATE})",
            is_annotation_changed,
        )
    )
