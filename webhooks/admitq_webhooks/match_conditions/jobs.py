"""The match condition of the webhook that validates Jobs of ``batch/v1``.

The API server has validated the Job before it evaluates the condition, so fields have the types of the API.
"""

from typing import Final

from admitq.integrations.written_fields import INJECTED_SPEC_FIELDS
from admitq_api.labels import Names
from admitq_api.syntax import SUBDOMAIN_PATTERN
from admitq_webhooks.match_conditions.expressions import (
    LONGEST_LABEL_VALUE,
    differs,
    is_only_changed_in,
    list_of,
    map_at,
)

_METADATA: Final = ("labels", "annotations", "ownerReferences")
_TEMPLATE: Final = "spec.template"


def may_break_rule(names: Names) -> str:
    """Return the CEL expression that is true if the rules of Jobs may reject a request."""
    return (
        f"request.operation == 'CREATE' ? {_is_new_job_restricted(names)} : !({_only_starts_or_stops(names)})"
    )


def _is_new_job_restricted(names: Names) -> str:
    """All rules of new Jobs are about labels and annotations of admitq.

    Of a name of a queue, only the syntax is restricted. No rule restricts the name of a priority class.
    """
    queue, labels = f"'{names.queue_name}'", "object.metadata.labels"
    maps = (labels, "object.metadata.annotations", f"object.{_TEMPLATE}.metadata.annotations")
    unrestricted = (names.queue_name, names.priority_class)
    restricted = list_of(key for key in _label_and_annotation_keys(names) if key not in unrestricted)
    return (
        f"([{', '.join(map(map_at, maps))}].exists(m, {restricted}.exists(k, k in m))"
        f" || (has({labels}) && {queue} in {labels} && !{_is_name_of_queue(f'{labels}[{queue}]')}))"
    )


def _is_name_of_queue(text: str) -> str:
    return f"({text}.size() <= {LONGEST_LABEL_VALUE} && {text}.matches(r'{SUBDOMAIN_PATTERN}'))"


def _only_starts_or_stops(names: Names) -> str:
    """An update that suspends or unsuspends a Job, and may change the placement of its pods.

    The webhook never rejects such an update, whoever sends it: the job controller of admitq stops a Job that
    runs without quota. It may change labels and annotations of the template that admitq injects, because the
    marks of a suspended Job are not protected. It may not change annotations that request a topology.
    """
    states = ("object", "oldObject")
    annotations = ", ".join(map_at(f"{state}.{_TEMPLATE}.metadata.annotations") for state in states)
    injected = (names.workload, names.workload_slice_name)
    restricted = list_of(key for key in _label_and_annotation_keys(names) if key not in injected)
    is_annotation_changed = (
        f"[[{annotations}]].exists(m, {restricted}.exists(k,"
        " (k in m[0]) != (k in m[1]) || (k in m[0] && m[0][k] != m[1][k])))"
    )
    is_suspended = " || ".join(f"(has({state}.spec.suspend) && {state}.spec.suspend)" for state in states)
    return " && ".join(
        (
            *(f"!({differs(f'metadata.{field}')})" for field in _METADATA),
            is_only_changed_in(("suspend", "template"), "spec"),
            f"({is_suspended} || object.{_TEMPLATE} == oldObject.{_TEMPLATE})",
            is_only_changed_in(INJECTED_SPEC_FIELDS, f"{_TEMPLATE}.spec"),
            f"!{is_annotation_changed}",
        )
    )


def _label_and_annotation_keys(names: Names) -> list[str]:
    kinds = ("label", "annotation", "label or annotation")
    return [row.key for row in names.list_rows() if row.kind in kinds]
