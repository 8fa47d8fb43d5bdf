"""``workload.codeflare.dev/v1beta2`` AppWrapper: wraps other objects, which its controller creates together.

The pods are described in the wrapped objects, which never change. admitq writes the additions of an admission
next to a wrapped object, and the controller adds them to the object that it creates.
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
"""Paths in a wrapped object of the field by which Ray changes the number of pods."""

_MAP_FIELDS: Final[Mapping[str, FieldPath]] = {
    "labels": ("metadata", "labels"),
    "annotations": ("metadata", "annotations"),
    "nodeSelector": ("spec", "nodeSelector"),
}
_LIST_FIELDS: Final[Mapping[str, FieldPath]] = {
    "tolerations": ("spec", "tolerations"),
    "schedulingGates": ("spec", "schedulingGates"),
}
"""Paths in a pod template of the fields that are added to it."""


@dataclass(frozen=True, slots=True)
class _WrappedPods:
    """Pods of a component: the component's index, their position among its podsets, and their template."""

    component_index: int
    position: int
    template_path: FieldPath
    count: int


def _list_components(job: JsonObject) -> list[Any]:
    return as_list(value_at(job, COMPONENTS))


def _list_wrapped_pods(job: JsonObject) -> list[_WrappedPods]:
    """Return the pods of all components, in the order of the podsets."""
    pods: list[_WrappedPods] = []
    for index, component in enumerate(_list_components(job)):
        for place, (path, count) in enumerate(find_pods(component)):
            pods.append(_WrappedPods(index, place, (*COMPONENTS, index, "template", *path), count))
    return pods


def _get_pod_set_name(job: JsonObject, index: int) -> str:
    """Return the name of a podset: the name of the AppWrapper, shortened if needed, and a number."""
    suffix = f"-{index}"
    readable = text_at(job, ("metadata", "name")).replace(".", "-")[: MAX_LABEL_LENGTH - len(suffix)]
    return f"{readable.rstrip('-')}{suffix}"


def _get_info(job: JsonObject, pods: _WrappedPods) -> JsonObject:
    """Return the additions to the template of pods."""
    return object_at(job, (*COMPONENTS, pods.component_index, POD_SET_INFOS, pods.position))


def _get_wrapped_template(job: JsonObject, pods: _WrappedPods) -> JsonObject:
    """Return the template of pods in the wrapped object, which can be a Pod itself."""
    template = clean_pod_template(value_at(job, pods.template_path))
    return {part: template[part] for part in ("metadata", "spec") if part in template}


def _get_template(job: JsonObject, pods: _WrappedPods) -> JsonObject:
    template, info = _get_wrapped_template(job, pods), _get_info(job, pods)
    for field, path in _MAP_FIELDS.items():
        if added := text_fields_at(info, (field,)):
            template = with_value(template, path, {**added, **object_at(template, path)})
    for field, path in _LIST_FIELDS.items():
        if items := objects_at(info, (field,)):
            template = with_value(template, path, [*objects_at(template, path), *items])
    return template


def list_pod_sets(job: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """Return a podset for each wrapped pod template."""
    return [
        PodSetTemplate(
            _get_pod_set_name(job, index), pods.count, pods.template_path, template=_get_template(job, pods)
        )
        for index, pods in enumerate(_list_wrapped_pods(job))
    ]


def with_template(
    job: JsonObject, pod_set: PodSetTemplate, template: JsonObject, _names: Names
) -> JsonObject:
    """Return the AppWrapper with the template's additions to the wrapped template as its podSetInfo."""
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
    """Return the AppWrapper with another podSetInfo at the position of the pods."""
    siblings = [sibling for sibling in every if sibling.component_index == pods.component_index]
    infos = [info if sibling == pods else _get_info(job, sibling) for sibling in siblings]
    path = (*COMPONENTS, pods.component_index, POD_SET_INFOS)
    return with_value(job, path, infos) if any(infos) else without_value(job, path)


def compare_child(job: JsonObject, child: JsonObject, is_elastic: ElasticityCheck) -> ChildDifference | None:
    """Return how the child differs from the wrapped object of its name."""
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
    """Compare the pods if the component declares them or the kind is known.

    The number of pods is compared for known kinds, unless Ray or an elastic job changes it.
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
                    PodsOfTemplate(object_at(child, path), 1), PodsOfTemplate(object_at(wrapped, path), 1)
                )
                for path in declared
            ),
        )
    )


def find_outcome(job: JsonObject) -> JobOutcome | None:
    """Return the outcome by the phase. A failed AppWrapper has ended when its objects are deleted."""
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
