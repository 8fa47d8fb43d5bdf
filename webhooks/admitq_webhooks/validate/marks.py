"""Protected marks: labels, annotations and gates of pods and jobs by which admitq enforces quota.

Pure functions. ``admitq_webhooks.mark_reviews`` decides which accounts may change a mark.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from admitq.integrations.base import Integration
from admitq.integrations.families.pods import has_ended
from admitq.integrations.ownership import get_controller
from admitq_api.field_errors import ErrorPath, FieldError
from admitq_api.json_objects import JsonObject, aligned_objects_at, object_at
from admitq_api.labels import Names


class ProtectedMark(NamedTuple):
    """A row of the table of marks.

    Attributes:
        attribute: the attribute of ``Names``.
        on_templates: whether the pod templates of admitted jobs have the mark, too.
        is_set_by_users: whether users set the mark on new pods. It is then protected on managed pods only.
    """

    attribute: str
    on_templates: bool = False
    is_set_by_users: bool = False


MARKS: Final = (
    ProtectedMark("managed"),
    ProtectedMark("podset", on_templates=True),
    ProtectedMark("workload", on_templates=True),
    ProtectedMark("workload_slice_name", on_templates=True),
    ProtectedMark("role_hash"),
    ProtectedMark("pod_suspending_parent"),
    ProtectedMark("pod_group_name", is_set_by_users=True),
    ProtectedMark("pod_group_total_count", is_set_by_users=True),
    ProtectedMark("pod_group_fast_admission", is_set_by_users=True),
    ProtectedMark("pod_group_serving", is_set_by_users=True),
    ProtectedMark("admission_gate"),
    ProtectedMark("topology_gate", on_templates=True),
    ProtectedMark("elastic_gate", on_templates=True),
)
"""All protected marks of pods. The gates can only be removed: the API server rejects new gates of a pod."""

JOB_MARKS: Final = ("stopping",)
"""Protected annotations of jobs themselves."""

_SELECTOR_LABELS: Final = frozenset(
    {"controller-uid", "job-name", "group-name", "replica-type", "replica-index"}
    | {"spark-app-selector", "spark-role", "spark-exec-id"}
)
"""Labels without a prefix by which controllers find their pods."""

_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "label": ("labels",),
    "annotation": ("annotations",),
    "label or annotation": ("labels", "annotations"),
}
_GATE: Final = "scheduling gate"
_GATES: Final = "schedulingGates"


class _MarkLocation(NamedTuple):
    """A map of the metadata that can contain a mark, or the scheduling gates if ``place`` is empty."""

    place: str
    key: str


def _locations(mark: ProtectedMark, names: Names) -> Iterator[_MarkLocation]:
    row = getattr(Names, mark.attribute)
    places = ("",) if row.kind == _GATE else _PLACES[row.kind]
    return (_MarkLocation(place, getattr(names, mark.attribute)) for place in places)


def changed_pod_marks(old: JsonObject, new: JsonObject, names: Names) -> list[ErrorPath]:
    """Return the protected marks that differ between two states of a pod.

    A managed pod has all its marks from the start, so no mark can be added either. On other pods, only marks
    that admitq sets are protected: pods of elastic jobs have such marks.
    """
    is_managed = object_at(old, ("metadata", "labels")).get(names.managed) == "true"
    return [
        _path(ErrorPath(), location)
        for mark in MARKS
        if is_managed or not mark.is_set_by_users
        for location in _locations(mark, names)
        if (is_managed or _value(old, location) is not None) and _differs(old, new, location)
    ]


def is_charged_to_job(pod: JsonObject, names: Names) -> bool:
    """Whether a pod is charged to its job: it names a podset, is not managed itself, and has not ended."""
    labels = object_at(pod, ("metadata", "labels"))
    return names.podset in labels and labels.get(names.managed) != "true" and not has_ended(pod)


def changed_labels(old: JsonObject, new: JsonObject) -> set[str]:
    """Return the keys of labels that a change removes from an object, or gives another value."""
    before, after = (object_at(obj, ("metadata", "labels")) for obj in (old, new))
    return {key for key, value in before.items() if after.get(key) != value}


def removed_selection_fields(
    old: JsonObject, new: JsonObject, names: Names, selected: Collection[str] = ()
) -> list[ErrorPath]:
    """Return the changed fields by which the controller of a job finds a pod.

    The controller would replace a pod that it does not find any more, and both pods would run. It finds pods
    by the controller reference and by labels. Labels of controllers have a prefix, by the conventions of
    Kubernetes.

    Args:
        old: the stored pod.
        new: the changed pod.
        names: names of labels.
        selected: further keys of labels that the selector of the controller contains.
    """
    if not is_charged_to_job(old, names):
        return []
    reference = get_controller(old)
    is_lost = reference is not None and reference.get("uid") != (get_controller(new) or {}).get("uid")
    return [
        *([ErrorPath("metadata.ownerReferences")] if is_lost else ()),
        *(
            ErrorPath("metadata.labels").key(key)
            for key in sorted(changed_labels(old, new))
            if key in selected or key in _SELECTOR_LABELS or ("/" in key and not _is_ours(key, names))
        ),
    ]


def _is_ours(key: str, names: Names) -> bool:
    return key.startswith(f"{names.group}/")


def changed_job_marks(
    old: JsonObject, new: JsonObject, integration: Integration, names: Names
) -> list[ErrorPath]:
    """Return the protected marks that an update of a job removes or changes.

    Templates of a job that is suspended before or after the update are not protected: its pods do not run,
    and the next start writes the marks again. Pods of some kinds get a template from several fields, such as
    an object that the job wraps and additions to it. Such templates are compared as a whole.
    """
    changed = [
        _path(ErrorPath(), location)
        for location in (_MarkLocation("annotations", getattr(names, attribute)) for attribute in JOB_MARKS)
        if _value(old, location) is not None and _differs(old, new, location)
    ]
    if integration.is_suspended(old, names) or integration.is_suspended(new, names):
        return changed
    after = {pod_set.name: pod_set.get_template(new) for pod_set in integration.list_pod_sets(new, names)}
    fields = [location for mark in MARKS if mark.on_templates for location in _locations(mark, names)]
    for pod_set in integration.list_pod_sets(old, names):
        if pod_set.name not in after:
            # A removed podset creates no pods.
            continue
        before, now = pod_set.get_template(old), after[pod_set.name]
        for field in fields:
            if _value(before, field) is not None and _differs(before, now, field):
                written = _path(ErrorPath().at(*pod_set.template_path), field)
                places = [] if pod_set.template is None else _changed_paths(old, new, field)
                changed += [place for place in places or [written] if place not in changed]
    return changed


def _changed_paths(old: JsonObject, new: JsonObject, field: _MarkLocation) -> list[ErrorPath]:
    """Return all paths in the spec of a job at which a mark was added, changed or removed."""
    before, after = (dict(_find_in(obj.get("spec"), ErrorPath("spec"), field)) for obj in (old, new))
    return [path for path in {**before, **after} if before.get(path) != after.get(path)]


def _find_in(value: Any, path: ErrorPath, field: _MarkLocation) -> Iterator[tuple[ErrorPath, Any]]:
    """Yield each path of a mark at any depth, in maps of labels or annotations or in lists of gates."""
    if isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _find_in(item, path.at(index), field)
    elif isinstance(value, Mapping):
        entries = cast("JsonObject", value)
        if (field.place or _GATES) in entries and (value_of_mark := _value_in(entries, field)) is not None:
            yield path.at(field.place or _GATES).key(field.key), value_of_mark
        for key, item in entries.items():
            yield from _find_in(item, path.at(key), field)


def mark_errors(changed: list[ErrorPath], names: Names) -> list[FieldError]:
    """Return the errors for an account that may not change these marks."""
    remedy = (
        "keep the field as it is, or delete the object and create another; accounts that may change the "
        f"field: {names.product}, the controllers that own the object, and accounts that may update "
        "workloads/status in this namespace"
    )
    return [
        FieldError.forbidden(path, "this field protects quota, so this account may not change it", remedy)
        for path in changed
    ]


def _path(base: ErrorPath, field: _MarkLocation) -> ErrorPath:
    if not field.place:
        return base.at("spec", _GATES).key(field.key)
    return base.at("metadata", field.place).key(field.key)


def _value(holder: JsonObject, field: _MarkLocation) -> Any:
    return _value_in(object_at(holder, ("metadata" if field.place else "spec",)), field)


def _value_in(holder: JsonObject, field: _MarkLocation) -> Any:
    """Return the value of a mark in the object that holds the map or the list of gates."""
    if field.place:
        return object_at(holder, (field.place,)).get(field.key)
    gates = aligned_objects_at(holder, (_GATES,))
    return True if any(gate.get("name") == field.key for gate in gates) else None


def _differs(old: JsonObject, new: JsonObject, field: _MarkLocation) -> bool:
    return _value(old, field) != _value(new, field)
