"""Match conditions of the webhooks of pods.

Updates of pods without labels, annotations or gates of admitq must not depend on webhooks: kubelets and the
Job controller update pods all the time, also while no webhook answers.
"""

from typing import Final

from admitq_api.labels import KeyKind, Names
from admitq_webhooks.match_conditions.expressions import differs, keys

_LABELS: Final[tuple[KeyKind, ...]] = ("label", "label or annotation")
_ANNOTATIONS: Final[tuple[KeyKind, ...]] = ("annotation", "label or annotation")


def is_new_or_marked(names: Names) -> str:
    """Return the CEL expression that is true for new pods, and for pods that are marked before or after."""
    return f"request.operation == 'CREATE' || {_marked(names)}"


def are_marks_changed(names: Names) -> str:
    """Return the CEL expression that is true if a marked pod changes in a field that can contain marks.

    Kubelets, the scheduler and the Job controller do not change these fields of running pods.
    """
    fields = ("metadata.labels", "metadata.annotations", "metadata.ownerReferences", "spec.schedulingGates")
    return f"({' || '.join(map(differs, fields))}) && {_marked(names)}"


def is_marked_or_of_job(names: Names) -> str:
    """Return the CEL expression that is true for marked pods, and for pods of any job.

    Kinds of the group ``apps`` are not jobs; their queued pods are marked.
    """
    of_job = "has(r.controller) && r.controller && !r.apiVersion.startsWith('apps/')"
    references = "oldObject.metadata.ownerReferences"
    return f"{_marked(names)} || (has({references}) && {references}.exists(r, {of_job}))"


def _marked(names: Names) -> str:
    finalizers, gates = keys(names, "finalizer"), keys(names, "scheduling gate")
    marked = " || ".join(
        (
            _has_key("labels", keys(names, *_LABELS)),
            _has_key("annotations", keys(names, *_ANNOTATIONS)),
            f"has(o.metadata.finalizers) && o.metadata.finalizers.exists(f, f in {finalizers})",
            f"has(o.spec.schedulingGates) && o.spec.schedulingGates.exists(g, g.name in {gates})",
        )
    )
    return f"[object, oldObject].exists(o, {marked})"


def _has_key(field: str, keys: str) -> str:
    return f"has(o.metadata.{field}) && {keys}.exists(k, k in o.metadata.{field})"
