"""``workload.codeflare.dev/v1beta2`` AppWrapper: other objects, made together when it is not suspended.

What its pods are stands in the wrapped objects, which themselves never change. What an admission gives pods
is written beside them, and the controller adds it to those that it makes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from admitq.integrations.base import (
    Delegation,
    Difference,
    Elastic,
    Finished,
    Integration,
    KindOwnership,
    PodSetTemplate,
    PodTemplates,
)
from admitq.integrations.children import Pods, differing_pods, first_difference, is_pod_within
from admitq.integrations.families.wrapped_pods import pods_in
from admitq.integrations.job_fields import is_condition_true
from admitq.integrations.pod_templates import entries_beside, items_beside, pod_template
from admitq.integrations.workload_names import LONGEST_LABEL
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
INFOS: Final = "podSetInfos"
_AUTOSCALING: Final = (
    ("spec", "enableInTreeAutoscaling"),
    ("spec", "rayClusterSpec", "enableInTreeAutoscaling"),
)
"""Where a wrapped object says that Ray changes its number of pods."""

_ENTRIES: Final[Mapping[str, FieldPath]] = {
    "labels": ("metadata", "labels"),
    "annotations": ("metadata", "annotations"),
    "nodeSelector": ("spec", "nodeSelector"),
}
_ITEMS: Final[Mapping[str, FieldPath]] = {
    "tolerations": ("spec", "tolerations"),
    "schedulingGates": ("spec", "schedulingGates"),
}
"""Where in a template the fields of what is added to it stand."""


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """Pods of a component: the component's place, theirs among its podsets, where their template is."""

    component: int
    place: int
    template: FieldPath
    count: int


def _components(job: JsonObject) -> list[Any]:
    return as_list(value_at(job, COMPONENTS))


def _wrapped(job: JsonObject) -> list[_Wrapped]:
    """All pods of all components, in the order of the podsets."""
    found: list[_Wrapped] = []
    for index, component in enumerate(_components(job)):
        for place, (path, count) in enumerate(pods_in(component)):
            found.append(_Wrapped(index, place, (*COMPONENTS, index, "template", *path), count))
    return found


def _name(job: JsonObject, index: int) -> str:
    """Name of a podset: that of the AppWrapper with a number, as far as it can be a podset's name."""
    suffix = f"-{index}"
    readable = text_at(job, ("metadata", "name")).replace(".", "-")[: LONGEST_LABEL - len(suffix)]
    return f"{readable.rstrip('-')}{suffix}"


def _info(job: JsonObject, pods: _Wrapped) -> JsonObject:
    """What is added to the template of pods."""
    return object_at(job, (*COMPONENTS, pods.component, INFOS, pods.place))


def _base(job: JsonObject, pods: _Wrapped) -> JsonObject:
    """The template of pods as it is wrapped; it may be a whole Pod."""
    template = pod_template(value_at(job, pods.template))
    return {part: template[part] for part in ("metadata", "spec") if part in template}


def _template(job: JsonObject, pods: _Wrapped) -> JsonObject:
    template, info = _base(job, pods), _info(job, pods)
    for field, path in _ENTRIES.items():
        if added := text_fields_at(info, (field,)):
            template = with_value(template, path, {**added, **object_at(template, path)})
    for field, path in _ITEMS.items():
        if as_list := objects_at(info, (field,)):
            template = with_value(template, path, [*objects_at(template, path), *as_list])
    return template


def pod_sets(job: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """A podset for each wrapped pod template."""
    return [
        PodSetTemplate(_name(job, index), pods.count, pods.template, template=_template(job, pods))
        for index, pods in enumerate(_wrapped(job))
    ]


def with_template(
    job: JsonObject, pod_set: PodSetTemplate, template: JsonObject, _names: Names
) -> JsonObject:
    """The AppWrapper with what the template has beyond the wrapped one as info beside it."""
    every = _wrapped(job)
    for index, pods in enumerate(every):
        if _name(job, index) == pod_set.name:
            base, before = _base(job, pods), _info(job, pods)
            info: dict[str, Any] = {
                field: entries_beside(
                    text_fields_at(template, path),
                    text_fields_at(base, path),
                    text_fields_at(before, (field,)),
                )
                for field, path in _ENTRIES.items()
            }
            for field, path in _ITEMS.items():
                info[field] = items_beside(objects_at(template, path), objects_at(base, path))
            return _with_info(job, pods, {key: value for key, value in info.items() if value}, every)
    return job


def _with_info(job: JsonObject, pods: _Wrapped, info: JsonObject, every: list[_Wrapped]) -> JsonObject:
    """The AppWrapper with another info for pods. The controller takes infos by their places."""
    neighbors = [other for other in every if other.component == pods.component]
    infos = [info if other == pods else _info(job, other) for other in neighbors]
    path = (*COMPONENTS, pods.component, INFOS)
    return with_value(job, path, infos) if any(infos) else without_value(job, path)


def differs(job: JsonObject, child: JsonObject, is_elastic: Elastic) -> Difference | None:
    """In what the child differs from the wrapped object of its name."""
    identity = (child.get("apiVersion"), child.get("kind"))
    for component in _components(job):
        wrapped = object_at(component, ("template",))
        if (wrapped.get("apiVersion"), wrapped.get("kind")) != identity:
            continue
        for field in ("name", "generateName"):
            name = text_at(wrapped, ("metadata", field))
            if name and name == text_at(child, ("metadata", field)):
                return _differing_pods(component, wrapped, child, is_elastic)
    return Difference.IDENTITY


def _differing_pods(
    component: Any, wrapped: JsonObject, child: JsonObject, is_elastic: Elastic
) -> Difference | None:
    """Compare the pods where the component declares them or the kind is known.

    The number of pods is compared for known kinds, but not where Ray or an elastic job changes it.
    """
    if child.get("kind") == "Pod":
        return None if is_pod_within(child, wrapped) else Difference.REQUESTS
    counts = {path: Pods(object_at(wrapped, path), count) for path, count in pods_in({"template": wrapped})}
    of_child = {path: Pods(object_at(child, path), count) for path, count in pods_in({"template": child})}
    grows = is_elastic(wrapped) or any(value_at(wrapped, path) is True for path in _AUTOSCALING)
    declared = (path for path, _ in pods_in(component) if path not in counts)
    return first_difference(
        (
            *(differing_pods(pods, counts.get(path), counted=not grows) for path, pods in of_child.items()),
            *(
                differing_pods(Pods(object_at(child, one), 1), Pods(object_at(wrapped, one), 1))
                for one in declared
            ),
        )
    )


def finished(job: JsonObject) -> Finished | None:
    """As its phase says; a failed one has ended when what it made is gone."""
    phase = text_at(job, ("status", "phase"))
    if phase == "Succeeded":
        return Finished(True, "AppWrapper finished successfully")
    if phase == "Failed" and not is_condition_true(job, "ResourcesDeployed"):
        return Finished(False, "AppWrapper failed")
    return None


APP_WRAPPER: Final = Integration(
    framework="workload.codeflare.dev/appwrapper",
    group="workload.codeflare.dev",
    version="v1beta2",
    kind="AppWrapper",
    plural="appwrappers",
    pod_sets=pod_sets,
    finished=finished,
    is_active=lambda job: is_condition_true(job, "QuotaReserved"),
    pods_ready=lambda job: is_condition_true(job, "PodsReady"),
    templates=PodTemplates(
        pod_sets_field=".".join(COMPONENTS),
        with_template=with_template,
    ),
    ownership=KindOwnership(differs=differs),
    delegation=Delegation(
        adopts_prebuilt_workload=True,
        managed_by_path=("spec", "managedBy"),
        own_controller="workload.codeflare.dev/appwrapper-controller",
    ),
)
