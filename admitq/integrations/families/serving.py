"""Rules for kinds that serve and queue their pods: Deployment, StatefulSet and LeaderWorkerSet.

All functions are pure and accept raw objects of any form (semantics, Per kind; StatefulSet and
LeaderWorkerSet).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from admitq.integrations.base import RuleContext
from admitq.integrations.families.pods import get_annotation, get_label, get_mapping
from admitq.integrations.ownership import get_queue_name
from admitq.integrations.pod_shape import get_spec_shape
from admitq_api.field_errors import ErrorPath, FieldError
from admitq_api.json_objects import FieldPath, JsonObject, value_at, with_value
from admitq_api.labels import Names
from admitq_api.semantic_equality import are_equivalent

IMMUTABLE: Final = "field is immutable"
_LARGEST: Final = 2**31 - 1


def get_replicas(obj: JsonObject, *path: str, default: int = 1) -> int:
    """Return the number of replicas at a path; the default if it is absent or invalid."""
    replicas = value_at(obj, path or ("spec", "replicas"))
    is_number = isinstance(replicas, int) and not isinstance(replicas, bool)
    return min(replicas, _LARGEST) if is_number and replicas >= 0 else default


def has_no_ready_replicas(obj: JsonObject, _names: Names) -> bool:
    """Whether the object has no ready replicas. Only then it can move to another queue."""
    return get_replicas(obj, "status", "readyReplicas", default=0) == 0


def has_replicas(obj: JsonObject) -> bool:
    """Whether the object has replicas."""
    return get_replicas(obj, "status", "replicas", default=0) > 0


def are_all_replicas_ready(obj: JsonObject) -> bool:
    """Whether all desired replicas are ready."""
    return get_replicas(obj, "status", "readyReplicas", default=0) >= get_replicas(obj)


def get_queue_labels(obj: JsonObject, names: Names) -> dict[str, str]:
    """Return the labels of the object that determine the queue and the priority of its pods."""
    labels = {
        names.queue_name: get_queue_name(obj, names),
        names.priority_class: get_label(obj, names.priority_class),
    }
    return {key: value for key, value in labels.items() if value}


def with_template_metadata(
    obj: JsonObject, template: FieldPath, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> JsonObject:
    """Return the object with these labels and annotations in one of its pod templates."""
    for place, added in (("labels", labels), ("annotations", annotations)):
        path = (*template, "metadata", place)
        if added:
            obj = with_value(obj, path, {**get_mapping(obj, *map(str, path)), **added})
    return obj


def is_suspended_by(template: JsonObject, parent: str, names: Names) -> bool:
    """Whether a parent of this kind, and not an owner of that parent, suspends the template's pods."""
    return get_annotation(template, names.pod_suspending_parent) == parent


def find_queue_removal(old: JsonObject, new: JsonObject, context: RuleContext) -> Iterator[FieldError]:
    """Yield an error if an update removes the object from its queue: its pods would wait forever."""
    names = context.names
    if get_queue_name(old, names) and not get_queue_name(new, names) and has_no_ready_replicas(new, names):
        where = ErrorPath("metadata.labels").key(names.queue_name)
        yield FieldError.invalid(where, "", IMMUTABLE, "name another queue, or create another object")


def find_shape_changes(old: JsonObject, new: JsonObject, template: FieldPath) -> Iterator[FieldError]:
    """Yield an error for each field by which an update changes the shape of a template's pods."""
    path = (*map(str, template), "spec")
    before, after = (get_spec_shape(get_mapping(obj, *path)) for obj in (old, new))
    for field in sorted({*before, *after}):
        # Other programs may write the same value in another notation, which custom resources keep.
        if not are_equivalent({field: before.get(field)}, {field: after.get(field)}):
            where = ErrorPath(".".join((*path, field)))
            yield FieldError.invalid(where, after.get(field), IMMUTABLE, "create another object")
