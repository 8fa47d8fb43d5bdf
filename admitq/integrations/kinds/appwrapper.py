"""``workload.codeflare.dev/v1beta2`` AppWrapper: other objects, made together when it is not suspended.

What its pods are stands in the wrapped objects, which themselves never change. What an admission gives pods
is written beside them, and the controller adds it to those that it makes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from admitq.integrations.base import (
    ChildDifference,
    Delegation,
    ElasticityCheck,
    Integration,
    JobOutcome,
    KindOwnership,
    PodSetTemplate,
    PodTemplates,
)
from admitq.integrations.children import PodsOfTemplate, compare_pods, find_first_difference, is_pod_within
from admitq.integrations.families.wrapped_pods import find_pods
from admitq.integrations.job_fields import is_condition_true
from admitq.integrations.pod_templates import clean_pod_template, select_entries_to_add, select_items_to_add
from admitq.integrations.workload_names import MAX_LABEL_LENGTH
from admitq_api.json_objects import (
    FieldPath,
    JsonObject,
    as_list,
    object_at,
    objects_at,
    text_at,
    text_fields_at,
    value_at,
    with_value,
    without_value,
)
from admitq_api.labels import Names

COMPONENTS: Final = ("spec", "components")
POD_SET_INFOS: Final = "podSetInfos"
_AUTOSCALING_PATHS: Final = (
    ("spec", "enableInTreeAutoscaling"),
    ("spec", "rayClusterSpec", "enableInTreeAutoscaling"),
)
"""Where a wrapped object says that Ray changes its number of pods."""

_MAP_FIELDS: Final[Mapping[str, FieldPath]] = {
    "labels": ("metadata", "labels"),
    "annotations": ("metadata", "annotations"),
    "nodeSelector": ("spec", "nodeSelector"),
}
_LIST_FIELDS: Final[Mapping[str, FieldPath]] = {
    "tolerations": ("spec", "tolerations"),
    "schedulingGates": ("spec", "schedulingGates"),
}
"""Where in a template the fields of what is added to it stand."""


@dataclass(frozen=True, slots=True)
class _WrappedPods:
    """Pods of a component: the component's place, theirs among its podsets, where their template is."""

    component_index: int
    position: int
    template_path: FieldPath
    count: int


def _list_components(job: JsonObject) -> list[Any]:
    return as_list(value_at(job, COMPONENTS))


def _list_wrapped_pods(job: JsonObject) -> list[_WrappedPods]:
    """All pods of all components, in the order of the podsets."""
    found: list[_WrappedPods] = []
    for index, component in enumerate(_list_components(job)):
        for place, (path, count) in enumerate(find_pods(component)):
            found.append(_WrappedPods(index, place, (*COMPONENTS, index, "template", *path), count))
    return found


def _get_pod_set_name(job: JsonObject, index: int) -> str:
    """Name of a podset: that of the AppWrapper with a number, as far as it can be a podset's name."""
    suffix = f"-{index}"
    readable = text_at(job, ("metadata", "name")).replace(".", "-")[: MAX_LABEL_LENGTH - len(suffix)]
    return f"{readable.rstrip('-')}{suffix}"


def _get_info(job: JsonObject, pods: _WrappedPods) -> JsonObject:
    """What is added to the template of pods."""
    return object_at(job, (*COMPONENTS, pods.component_index, POD_SET_INFOS, pods.position))


def _get_wrapped_template(job: JsonObject, pods: _WrappedPods) -> JsonObject:
    """The template of pods as it is wrapped; it may be a whole Pod."""
    template = clean_pod_template(value_at(job, pods.template_path))
    return {part: template[part] for part in ("metadata", "spec") if part in template}


def _get_template(job: JsonObject, pods: _WrappedPods) -> JsonObject:
    template, info = _get_wrapped_template(job, pods), _get_info(job, pods)
    for field, path in _MAP_FIELDS.items():
        if added := text_fields_at(info, (field,)):
            template = with_value(template, path, {**added, **object_at(template, path)})
    for field, path in _LIST_FIELDS.items():
        if as_list := objects_at(info, (field,)):
            template = with_value(template, path, [*objects_at(template, path), *as_list])
    return template


def list_pod_sets(job: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """A podset for each wrapped pod template."""
    return [
        PodSetTemplate(
            _get_pod_set_name(job, index), pods.count, pods.template_path, template=_get_template(job, pods)
        )
        for index, pods in enumerate(_list_wrapped_pods(job))
    ]


def with_template(
    job: JsonObject, pod_set: PodSetTemplate, template: JsonObject, _names: Names
) -> JsonObject:
    """The AppWrapper with what the template has beyond the wrapped one as info beside it."""
    every = _list_wrapped_pods(job)
    for index, pods in enumerate(every):
        if _get_pod_set_name(job, index) == pod_set.name:
            base, before = _get_wrapped_template(job, pods), _get_info(job, pods)
            info: dict[str, Any] = {
                field: select_entries_to_add(
                    text_fields_at(template, path),
                    text_fields_at(base, path),
                    text_fields_at(before, (field,)),
                )
                for field, path in _MAP_FIELDS.items()
            }
            for field, path in _LIST_FIELDS.items():
                info[field] = select_items_to_add(objects_at(template, path), objects_at(base, path))
            return _with_info(job, pods, {key: value for key, value in info.items() if value}, every)
    return job


def _with_info(
    job: JsonObject, pods: _WrappedPods, info: JsonObject, every: list[_WrappedPods]
) -> JsonObject:
    """The AppWrapper with another info for pods. The controller takes infos by their places."""
    neighbors = [other for other in every if other.component_index == pods.component_index]
    infos = [info if other == pods else _get_info(job, other) for other in neighbors]
    path = (*COMPONENTS, pods.component_index, POD_SET_INFOS)
    return with_value(job, path, infos) if any(infos) else without_value(job, path)


def compare_child(job: JsonObject, child: JsonObject, is_elastic: ElasticityCheck) -> ChildDifference | None:
    """In what the child differs from the wrapped object of its name."""
    identity = (child.get("apiVersion"), child.get("kind"))
    for component in _list_components(job):
        wrapped = object_at(component, ("template",))
        if (wrapped.get("apiVersion"), wrapped.get("kind")) != identity:
            continue
        for field in ("name", "generateName"):
            name = text_at(wrapped, ("metadata", field))
            if name and name == text_at(child, ("metadata", field)):
                return _compare_pods(component, wrapped, child, is_elastic)
    return ChildDifference.IDENTITY


def _compare_pods(
    component: Any, wrapped: JsonObject, child: JsonObject, is_elastic: ElasticityCheck
) -> ChildDifference | None:
    """Compare the pods where the component declares them or the kind is known.

    The number of pods is compared for known kinds, but not where Ray or an elastic job changes it.
    """
    if child.get("kind") == "Pod":
        return None if is_pod_within(child, wrapped) else ChildDifference.REQUESTS
    counts = {
        path: PodsOfTemplate(object_at(wrapped, path), count)
        for path, count in find_pods({"template": wrapped})
    }
    of_child = {
        path: PodsOfTemplate(object_at(child, path), count) for path, count in find_pods({"template": child})
    }
    grows = is_elastic(wrapped) or any(value_at(wrapped, path) is True for path in _AUTOSCALING_PATHS)
    declared = (path for path, _ in find_pods(component) if path not in counts)
    return find_first_difference(
        (
            *(compare_pods(pods, counts.get(path), counted=not grows) for path, pods in of_child.items()),
            *(
                compare_pods(
                    PodsOfTemplate(object_at(child, one), 1), PodsOfTemplate(object_at(wrapped, one), 1)
                )
                for one in declared
            ),
        )
    )


def find_outcome(job: JsonObject) -> JobOutcome | None:
    """As its phase says; a failed one has ended when what it made is gone."""
    phase = text_at(job, ("status", "phase"))
    if phase == "Succeeded":
        return JobOutcome(True, "AppWrapper finished successfully")
    if phase == "Failed" and not is_condition_true(job, "ResourcesDeployed"):
        return JobOutcome(False, "AppWrapper failed")
    return None


APP_WRAPPER: Final = Integration(
    framework="workload.codeflare.dev/appwrapper",
    group="workload.codeflare.dev",
    version="v1beta2",
    kind="AppWrapper",
    plural="appwrappers",
    list_pod_sets=list_pod_sets,
    find_outcome=find_outcome,
    is_active=lambda job: is_condition_true(job, "QuotaReserved"),
    are_pods_ready=lambda job: is_condition_true(job, "PodsReady"),
    templates=PodTemplates(
        pod_sets_field=".".join(COMPONENTS),
        with_template=with_template,
    ),
    ownership=KindOwnership(compare_child=compare_child),
    delegation=Delegation(
        adopts_prebuilt_workload=True,
        managed_by_path=("spec", "managedBy"),
        own_controller="workload.codeflare.dev/appwrapper-controller",
    ),
)
