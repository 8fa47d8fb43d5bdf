"""Match conditions of webhooks, in CEL: the API server only calls a webhook if all of them are true.

A call costs the API server as much CPU time as the rest of a write. Therefore it does not call the webhooks
of Workloads if they would neither change nor reject the object. Most updates of the status change only
conditions, which no rule restricts.

Updates of pods without labels, annotations or gates of admitq must not depend on webhooks: kubelets and the
Job controller update pods all the time, also while no webhook answers. The conditions look up keys and never
iterate over labels or annotations, so their cost does not grow with the object. The API server would reject a
request if an evaluation exceeded its cost limit.
"""

from collections.abc import Collection
from typing import Final

from admitq_api.labels import KeyKind, Names

_LABELS: Final[tuple[KeyKind, ...]] = ("label", "label or annotation")
RESTRICTED_STATUS_FIELDS: Final = ("admission", "admissionChecks", "clusterName", "reclaimablePods")
"""Fields of the status of a Workload that rules restrict, besides the condition QuotaReserved."""

_HAS_MINIMUM_COUNT: Final = (
    "has(object.spec) && has(object.spec.podSets) && type(object.spec.podSets) == list"
    " && object.spec.podSets.exists(p, type(p) == map && has(p.minCount))"
)

_ANNOTATIONS: Final[tuple[KeyKind, ...]] = ("annotation", "label or annotation")


def match_conditions(
    group: str, kind: str, operations: Collection[str], names: Names, aspect: str = ""
) -> tuple[dict[str, str], ...]:
    """Return the match conditions of the webhook for a kind, in the format of its configuration.

    ``aspect`` is the part of the kind that the webhook reviews: ``marks``, ``resize``, or all if it is empty.
    """
    if (group, kind) == (names.group, "Workload"):
        if "UPDATE" not in operations:
            return ({"name": "with-field-to-change", "expression": has_field_to_change(names)},)
        return ({"name": "restricted-by-a-rule", "expression": may_break_rule_of_workloads()},)
    if (group, kind) != ("", "Pod") or "UPDATE" not in operations:
        return ()
    if aspect == "marks":
        return ({"name": "marked-and-changed", "expression": are_marks_changed(names)},)
    if aspect == "resize":
        return ({"name": "marked-or-of-job", "expression": is_marked_or_of_job(names)},)
    return ({"name": "new-or-marked", "expression": is_new_or_marked(names)},)


def has_field_to_change(names: Names) -> str:
    """Return the CEL expression that is true if the webhook may change a new Workload.

    It only removes minimum counts and the label of finished Workloads. The schema is checked afterwards, so
    the fields may have values of any type.
    """
    labels = "object.metadata.labels"
    return f"({_HAS_MINIMUM_COUNT}) || (has({labels}) && '{names.finished}' in {labels})"


def may_break_rule_of_workloads() -> str:
    """Return the CEL expression that is true if the rules of Workloads may reject a request.

    They never reject an update of the status that leaves ``RESTRICTED_STATUS_FIELDS`` as they are and that
    does not begin a reservation. Such an update changes no spec and no metadata either.
    """
    reserved, was_reserved = _is_reserved("object"), _is_reserved("oldObject")
    return " || ".join(
        (
            "request.operation == 'CREATE'",
            "!has(request.subResource)",
            "request.subResource != 'status'",
            *map(_is_status_field_changed, RESTRICTED_STATUS_FIELDS),
            f"({reserved} && !({was_reserved}))",
        )
    )


def _is_status_field_changed(field: str) -> str:
    now, before = (f"has({each}.status) && has({each}.status.{field})" for each in ("object", "oldObject"))
    return f"({now}) != ({before}) || ({now} && object.status.{field} != oldObject.status.{field})"


def _is_reserved(obj: str) -> str:
    reserved = "c.type == 'QuotaReserved' && c.status == 'True'"
    conditions = f"{obj}.status.conditions"
    return f"has({obj}.status) && has({conditions}) && {conditions}.exists(c, {reserved})"


def is_new_or_marked(names: Names) -> str:
    """Return the CEL expression that is true for new pods, and for pods that are marked before or after."""
    return f"request.operation == 'CREATE' || {_marked(names)}"


def are_marks_changed(names: Names) -> str:
    """Return the CEL expression that is true if a marked pod changes in a field that can contain marks.

    Kubelets, the scheduler and the Job controller do not change these fields of running pods.
    """
    fields = ("metadata.labels", "metadata.annotations", "metadata.ownerReferences", "spec.schedulingGates")
    differs = " || ".join(
        f"has(object.{field}) != has(oldObject.{field})"
        f" || (has(object.{field}) && object.{field} != oldObject.{field})"
        for field in fields
    )
    return f"({differs}) && {_marked(names)}"


def is_marked_or_of_job(names: Names) -> str:
    """Return the CEL expression that is true for marked pods, and for pods of any job.

    Kinds of the group ``apps`` are not jobs; their queued pods are marked.
    """
    of_job = "has(r.controller) && r.controller && !r.apiVersion.startsWith('apps/')"
    references = "oldObject.metadata.ownerReferences"
    return f"{_marked(names)} || (has({references}) && {references}.exists(r, {of_job}))"


def _marked(names: Names) -> str:
    finalizers, gates = _keys(names, "finalizer"), _keys(names, "scheduling gate")
    marked = " || ".join(
        (
            _has_key("labels", _keys(names, *_LABELS)),
            _has_key("annotations", _keys(names, *_ANNOTATIONS)),
            f"has(o.metadata.finalizers) && o.metadata.finalizers.exists(f, f in {finalizers})",
            f"has(o.spec.schedulingGates) && o.spec.schedulingGates.exists(g, g.name in {gates})",
        )
    )
    return f"[object, oldObject].exists(o, {marked})"


def _has_key(field: str, keys: str) -> str:
    return f"has(o.metadata.{field}) && {keys}.exists(k, k in o.metadata.{field})"


def _keys(names: Names, *kinds: KeyKind) -> str:
    return "[" + ", ".join(f"'{row.key}'" for row in names.list_rows() if row.kind in kinds) + "]"
