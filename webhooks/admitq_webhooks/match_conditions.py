"""Conditions under which the API server calls a webhook at all, in CEL.

An update of a pod that carries none of our names is no business of ours: kubelets and the Job controller
update pods all the time, and must be able to while no webhook answers. The conditions look keys up and never
iterate over labels or annotations, so that their cost does not grow with the object: an evaluation that
exceeds the API server's cost limit counts as a failure, and the request would be rejected.
"""

from collections.abc import Collection
from typing import Final

from admitq_api.labels import KeyKind, Names

_LABELS: Final[tuple[KeyKind, ...]] = ("label", "label or annotation")
_ANNOTATIONS: Final[tuple[KeyKind, ...]] = ("annotation", "label or annotation")


def match_conditions(
    group: str, kind: str, operations: Collection[str], names: Names, aspect: str = ""
) -> tuple[dict[str, str], ...]:
    """Return the conditions of the webhook for a kind, as its configuration writes them; all must hold.

    ``aspect`` is what the webhook reviews of the kind: ``marks``, ``resize``, or, if empty, all.
    """
    if (group, kind) != ("", "Pod") or "UPDATE" not in operations:
        return ()
    if aspect == "marks":
        return ({"name": "marked-and-changed", "expression": are_marks_changed(names)},)
    if aspect == "resize":
        return ({"name": "marked-or-of-job", "expression": is_marked_or_of_job(names)},)
    return ({"name": "new-or-marked", "expression": is_new_or_marked(names)},)


def is_new_or_marked(names: Names) -> str:
    """Return the CEL expression that is true of new pods, and of pods with a name of ours before or after."""
    return f"request.operation == 'CREATE' || {_marked(names)}"


def are_marks_changed(names: Names) -> str:
    """Return the CEL expression that is true where a pod with a name of ours changes in what can hold marks.

    Neither kubelets nor the scheduler change that, nor does the Job controller when it counts a pod.
    """
    fields = ("metadata.labels", "metadata.annotations", "metadata.ownerReferences", "spec.schedulingGates")
    differs = " || ".join(
        f"has(object.{one}) != has(oldObject.{one}) || (has(object.{one}) && object.{one} != oldObject.{one})"
        for one in fields
    )
    return f"({differs}) && {_marked(names)}"


def is_marked_or_of_job(names: Names) -> str:
    """Return the CEL expression that is true of pods with a name of ours, and of those of any job.

    Kinds of ``apps`` are no jobs: the pods by which theirs are queued have names of ours.
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
