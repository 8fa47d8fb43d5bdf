"""ProvisioningRequests of a Workload and the PodTemplates that they name (pure).

The source of every rule is semantics, ProvisioningRequest check.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import POD_TEMPLATES, Resource
from admitq.workloads.pod_counts import assigned_pod_counts
from admitq.workloads.template_injection import (
    FlavorLookup,
    exact_quantity,
    flavor_infos,
    inject_into_template,
)
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names
from admitq_api.syntax import check_label_value, check_qualified_name

GROUP: Final = "autoscaling.x-k8s.io"
PROVISIONING_REQUESTS: Final = Resource(
    GROUP, "v1", "provisioningrequests", "ProvisioningRequest", namespaced=True
)
"""The resource that the cluster serves if an autoscaler supports ProvisioningRequests."""

_CUT: Final = 247
_HASH_LENGTH: Final = 5
_ATTEMPTS_TRIED: Final = 10_000
"""How many attempts beyond the expected one are tried for a shortened name, which cannot be parsed."""

_CONTAINERS: Final = ("containers", "initContainers")
_SCHEDULING_FIELDS: Final = ("resources", "nodeSelector", "tolerations", "affinity", "resourceClaims")
"""Fields of a pod's spec that decide where the pod can run, besides the requests of its containers."""


# --- names ----------------------------------------------------------------------------------------


def _bounded(name: str) -> str:
    """Return the name; if it is too long for an object, its beginning and a hash."""
    if len(name) <= _CUT + 1 + _HASH_LENGTH:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    # A name cut after a dot would have a label that starts with a hyphen, which is invalid.
    return f"{name[:_CUT].rstrip('.')}-{digest}"


def request_name(workload: str, check: str, attempt: int) -> str:
    """Return the name of a Workload's ProvisioningRequest for a check; attempts count from 1."""
    return _bounded(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    """Return the name of the PodTemplate for one podset of a ProvisioningRequest."""
    return _bounded(f"ppt-{request}-{pod_set}")


def attempt_of(name: str, workload: str, check: str, expected: int = 1) -> int | None:
    """Return the number of the attempt in a ProvisioningRequest's name.

    None if it is not a request of the check.
    """
    prefix = f"{workload}-{check}-"
    if name.startswith(prefix):
        digits = name[len(prefix) :]
        if digits.isascii() and digits.isdigit():
            return int(digits)
    if len(prefix) < _CUT:
        return None
    attempts = range(1, expected + _ATTEMPTS_TRIED)
    return next((attempt for attempt in attempts if request_name(workload, check, attempt) == name), None)


# --- podsets --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestedPodSet:
    """Pods for which nodes are requested. Merged podsets have the name of the first one."""

    name: str
    template: JsonObject
    count: int


def _names_resource(pod_set: JsonObject, managed: Iterable[str]) -> bool:
    resources = set(managed)
    return any(
        resources & set(value_at(container, ("resources", place), {}))
        for field in _CONTAINERS
        for container in value_at(pod_set, ("template", "spec", field), [])
        for place in ("requests", "limits")
    )


def pod_sets_needing_nodes(workload: JsonObject, config: JsonObject) -> list[JsonObject]:
    """Return the podsets for which nodes are requested: with pods, and with a managed resource."""
    managed = value_at(config, ("spec", "managedResources"), [])
    counts = assigned_pod_counts(workload)
    return [
        pod_set
        for pod_set in value_at(workload, ("spec", "podSets"), [])
        if pod_set.get("count", 1) > 0
        and counts.get(pod_set.get("name", "main"), 0) > 0
        and (not managed or _names_resource(pod_set, managed))
    ]


def requested_pod_sets(
    workload: JsonObject, config: JsonObject, flavors: FlavorLookup
) -> list[RequestedPodSet]:
    """Return the podsets of the request, with the flavors injected, and merged by the policy of the config.

    Raises:
        InjectionConflict: a template contradicts the flavors that were assigned to it.
        FlavorMissing: an assigned flavor does not exist.
    """
    infos = {info.name: info for info in flavor_infos(workload, flavors)}
    pod_sets = [
        RequestedPodSet(
            info.name, _with_requests(inject_into_template(pod_set.get("template") or {}, info)), info.count
        )
        for pod_set in pod_sets_needing_nodes(workload, config)
        for info in (infos[pod_set.get("name", "main")],)
    ]
    return _merged(pod_sets, value_at(config, ("spec", "podSetMergePolicy")))


def _with_requests(template: JsonObject) -> JsonObject:
    """Return the template in which each container requests its limits, unless it has requests of its own."""
    spec: dict[str, Any] = dict(template.get("spec") or {})
    for field in _CONTAINERS:
        if spec.get(field):
            spec[field] = [_requesting(container) for container in spec[field]]
    return {**template, "spec": spec}


def _requesting(container: JsonObject) -> JsonObject:
    limits = value_at(container, ("resources", "limits"), {})
    if not limits:
        return container
    resources = container["resources"]
    return {
        **container,
        "resources": {**resources, "requests": {**limits, **(resources.get("requests") or {})}},
    }


def _needs(template: JsonObject) -> object:
    """Return what decides where pods of the template can run."""
    spec = template.get("spec") or {}
    requests = [
        [_by_value(value_at(container, ("resources", "requests"), {})) for container in spec.get(field) or ()]
        for field in _CONTAINERS
    ]
    return requests, [spec.get(field) or None for field in _SCHEDULING_FIELDS]


def _by_value(requests: JsonObject) -> JsonObject:
    return {resource: exact_quantity(quantity) for resource, quantity in requests.items()}


def _merged(pod_sets: Sequence[RequestedPodSet], policy: str | None) -> list[RequestedPodSet]:
    if policy is None:
        return list(pod_sets)
    result: list[RequestedPodSet] = []
    for pod_set in pod_sets:
        for place, other in enumerate(result):
            alike = (
                pod_set.template == other.template
                if policy == "IdenticalPodTemplates"
                else _needs(pod_set.template) == _needs(other.template)
            )
            if alike:
                result[place] = replace(other, count=other.count + pod_set.count)
                break
        else:
            result.append(pod_set)
    return result


# --- objects --------------------------------------------------------------------------------------


def parameters_of(workload: JsonObject, config: JsonObject, names: Names) -> dict[str, str]:
    """Return the parameters of a request: those of the config, overridden by annotations of the job."""
    prefix = names.provisioning_annotation_prefix
    annotations = value_at(workload, ("metadata", "annotations"), {})
    own = {key.removeprefix(prefix): value for key, value in annotations.items() if key.startswith(prefix)}
    return {**value_at(config, ("spec", "parameters"), {}), **own}


def is_in_sync(request: JsonObject, workload: JsonObject, config: JsonObject, names: Names) -> bool:
    """Whether the request has the class and parameters of the config. It may have further parameters."""
    expected = parameters_of(workload, config, names)
    actual = value_at(request, ("spec", "parameters"), {})
    return value_at(request, ("spec", "provisioningClassName")) == class_of(config) and all(
        actual.get(key) == expected[key] for key in value_at(config, ("spec", "parameters"), {})
    )


def class_of(config: JsonObject) -> str:
    """Return the provisioning class that the config names."""
    return value_at(config, ("spec", "provisioningClassName"), "")


def _metadata(name: str, workload: JsonObject, names: Names) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": workload["metadata"]["namespace"],
        "labels": {names.managed: "true"},
        "ownerReferences": [controller_reference(workload, kinds_of(names).workloads)],
    }


def controller_reference(owner: JsonObject, resource: Resource) -> dict[str, Any]:
    """Return the owner reference that makes an object the controller."""
    metadata = owner["metadata"]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def pod_template(
    request: str, pod_set: RequestedPodSet, workload: JsonObject, names: Names
) -> dict[str, Any]:
    """Return the PodTemplate for one podset of a request. The Workload owns it until the request exists."""
    return {
        "apiVersion": POD_TEMPLATES.api_version,
        "kind": POD_TEMPLATES.kind,
        "metadata": _metadata(template_name(request, pod_set.name), workload, names),
        "template": dict(pod_set.template),
    }


def provisioning_request(
    name: str, requested: Iterable[RequestedPodSet], workload: JsonObject, config: JsonObject, names: Names
) -> dict[str, Any]:
    """Return the ProvisioningRequest to create."""
    pod_sets = [
        {"podTemplateRef": {"name": template_name(name, pod_set.name)}, "count": pod_set.count}
        for pod_set in requested
    ]
    return {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": _metadata(name, workload, names),
        "spec": {
            "provisioningClassName": class_of(config),
            "parameters": parameters_of(workload, config, names),
            "podSets": pod_sets,
        },
    }


class _Selector(NamedTuple):
    """A node selector, and the provisioning class detail that has its value."""

    key: str
    detail: str
    value: str


def _selectors(request: JsonObject, config: JsonObject) -> Iterator[_Selector]:
    """Yield the node selectors that the config takes from the request's status.

    Selectors without a detail are skipped.
    """
    details = value_at(request, ("status", "provisioningClassDetails"), {})
    for rule in value_at(config, ("spec", "podSetUpdates", "nodeSelector"), []):
        key, detail = rule["key"], rule["valueFromProvisioningClassDetail"]
        if detail in details:
            yield _Selector(key, detail, details[detail])


def unusable_detail(request: JsonObject, config: JsonObject) -> str | None:
    """Return why a detail of the request's status is not a valid node selector; None if all are valid."""
    for selector in _selectors(request, config):
        wrong = check_qualified_name(selector.key) or check_label_value(selector.value)
        if wrong is not None:
            return (
                f"provisioningClassDetails[{selector.detail}] cannot be the node selector {selector.key}: "
                f"{wrong}; correct spec.podSetUpdates.nodeSelector of the ProvisioningRequestConfig"
            )
    return None


def pod_set_updates(
    workload: JsonObject, request: JsonObject, config: JsonObject
) -> tuple[Mapping[str, Any], ...]:
    """Return the annotations and node selectors that let pods use the provisioned nodes."""
    name = request["metadata"]["name"]
    annotations = {
        f"{GROUP}/consume-provisioning-request": name,
        f"{GROUP}/provisioning-class-name": value_at(request, ("spec", "provisioningClassName"), ""),
    }
    selectors = {selector.key: selector.value for selector in _selectors(request, config)}
    named = {
        template_name(name, pod_set.get("name", "main")): pod_set.get("name", "main")
        for pod_set in value_at(workload, ("spec", "podSets"), [])
    }
    references = [
        value_at(pod_set, ("podTemplateRef", "name"), "")
        for pod_set in value_at(request, ("spec", "podSets"), [])
    ]
    return tuple(
        {
            "name": named[reference],
            "annotations": annotations,
            **({"nodeSelector": selectors} if selectors else {}),
        }
        for reference in references
        if reference in named
    )
