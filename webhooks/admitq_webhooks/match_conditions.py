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
    group: str, kind: str, operations: Collection[str], names: Names
) -> tuple[dict[str, str], ...]:
    """Return the conditions of the webhook for a kind, as its configuration writes them; all must hold."""
    if (group, kind) != ("", "Pod") or "UPDATE" not in operations:
        return ()
    return ({"name": "new-or-marked", "expression": new_or_marked(names)},)


def new_or_marked(names: Names) -> str:
    """Return the CEL expression that is true of new pods, and of pods with a name of ours before or after."""
    finalizers, gates = _keys(names, "finalizer"), _keys(names, "scheduling gate")
    marked = " || ".join(
        (
            _has_key("labels", _keys(names, *_LABELS)),
            _has_key("annotations", _keys(names, *_ANNOTATIONS)),
            f"has(o.metadata.finalizers) && o.metadata.finalizers.exists(f, f in {finalizers})",
            f"has(o.spec.schedulingGates) && o.spec.schedulingGates.exists(g, g.name in {gates})",
        )
    )
    return f"request.operation == 'CREATE' || [object, oldObject].exists(o, {marked})"


def _has_key(field: str, keys: str) -> str:
    return f"has(o.metadata.{field}) && {keys}.exists(k, k in o.metadata.{field})"


def _keys(names: Names, *kinds: KeyKind) -> str:
    return "[" + ", ".join(f"'{row.key}'" for row in names.rows() if row.kind in kinds) + "]"
