"""Podsets of Workloads, and resource requests of stored pods."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import orjson

from admitq.core.model import (
    ContainerResources,
    ExactAmounts,
    NodeSelectorTerm,
    PodSet,
    PodTemplate,
    PreferredTerm,
    ResourceProblem,
)
from admitq.translate.amounts import read_countable_amounts
from admitq.translate.metadata import read_labels
from admitq.translate.selectors import read_selector_requirement
from admitq.translate.taints import read_tolerations
from admitq.translate.topology_requests import read_topology_request
from admitq_api.stored_fields import optional_int, require_int, require_list, require_object, require_text


def _read_requests_and_limits(
    raw: Any, field: str, problems: list[ResourceProblem]
) -> tuple[ExactAmounts, ExactAmounts]:
    resources = require_object(raw, field)
    return (
        read_countable_amounts(resources.get("requests"), f"{field}.requests", problems),
        read_countable_amounts(resources.get("limits"), f"{field}.limits", problems),
    )


def _read_containers(
    spec: Mapping[str, Any], name: str, field: str, problems: list[ResourceProblem]
) -> Iterator[ContainerResources]:
    for index, item in enumerate(require_list(spec.get(name), f"{field}.{name}")):
        container = require_object(item, f"{field}.{name}[{index}]")
        stated = _read_requests_and_limits(
            container.get("resources"), f"{field}.{name}[{index}].resources", problems
        )
        yield ContainerResources(*stated, restartable=container.get("restartPolicy") == "Always")


def _read_template(spec: Mapping[str, Any], field: str, problems: list[ResourceProblem]) -> PodTemplate:
    requests, limits = _read_requests_and_limits(spec.get("resources"), f"{field}.resources", problems)
    overhead = spec.get("overhead")
    return PodTemplate(
        containers=tuple(_read_containers(spec, "containers", field, problems)),
        init_containers=tuple(_read_containers(spec, "initContainers", field, problems)),
        requests=requests,
        limits=limits,
        overhead=None
        if overhead is None
        else read_countable_amounts(overhead, f"{field}.overhead", problems),
        runtime_class=require_text(spec.get("runtimeClassName"), f"{field}.runtimeClassName") or None,
    )


def read_pod_spec(spec: Mapping[str, Any]) -> PodTemplate:
    """Read the resource requests of a stored pod; leave out those that are invalid.

    Raises:
        MalformedField: the structure of the spec is not readable.
    """
    return _read_template(spec, "spec", [])


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def _read_node_affinity(spec: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    affinity = require_object(spec.get("affinity"), f"{field}.affinity")
    return require_object(affinity.get("nodeAffinity"), f"{field}.affinity.nodeAffinity")


def _read_required_node_affinity(spec: Mapping[str, Any], field: str) -> tuple[NodeSelectorTerm, ...] | None:
    required = _read_node_affinity(spec, field).get(_REQUIRED)
    if required is None:
        return None
    path = f"{field}.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    return tuple(
        _read_term(term, f"{path}[{index}]")
        for index, term in enumerate(require_list(required.get("nodeSelectorTerms"), path))
    )


def _read_preferred_node_affinity(spec: Mapping[str, Any], field: str) -> tuple[PreferredTerm, ...]:
    path = f"{field}.affinity.nodeAffinity.{_PREFERRED}"
    preferred = require_list(_read_node_affinity(spec, field).get(_PREFERRED), path)
    return tuple(_read_preferred_term(item, f"{path}[{index}]") for index, item in enumerate(preferred))


def _read_preferred_term(raw: Any, path: str) -> PreferredTerm:
    item = require_object(raw, path)
    return PreferredTerm(
        require_int(item.get("weight"), f"{path}.weight"),
        _read_term(item.get("preference"), f"{path}.preference"),
    )


def _read_term(raw: Any, path: str) -> NodeSelectorTerm:
    term = require_object(raw, path)
    requirements = require_list(term.get("matchExpressions"), f"{path}.matchExpressions")
    return NodeSelectorTerm(
        tuple(
            read_selector_requirement(item, f"{path}.matchExpressions[{place}]")
            for place, item in enumerate(requirements)
        )
    )


_READ_OF_POD_SET: Final = ("name", "count", "minCount", "topologyRequest")
_READ_OF_TEMPLATE: Final = ("resources", "overhead", "runtimeClassName", "nodeSelector", "tolerations")
_READ_OF_CONTAINER: Final = ("resources", "restartPolicy")


def _select_read_fields(raw: Mapping[str, Any], spec: Mapping[str, Any], field: str) -> list[Any]:
    """Return all that decides the result of ``_read_pod_set``."""
    affinity = spec.get("affinity")
    return [
        field,
        *[raw.get(name) for name in _READ_OF_POD_SET],
        *[spec.get(name) for name in _READ_OF_TEMPLATE],
        affinity.get("nodeAffinity") if isinstance(affinity, dict) else affinity,
        *[_select_of_containers(spec.get(name)) for name in ("containers", "initContainers")],
    ]


def _select_of_containers(containers: Any) -> Any:
    if not isinstance(containers, list):
        return containers
    return [
        [item.get(name) for name in _READ_OF_CONTAINER] if isinstance(item, dict) else item
        for item in cast("list[Any]", containers)
    ]


_known: dict[bytes, PodSet] = {}
"""Podsets without problems, by all that decides them. Most jobs of a queue have equal podsets."""

_MOST_KNOWN: Final = 4096


def read_pod_set(raw: Mapping[str, Any], field: str, problems: list[ResourceProblem]) -> PodSet:
    """Read a podset of a Workload; add invalid resource requests to ``problems``.

    Raises:
        MalformedField: the template's structure or an operator is not readable.
    """
    template = require_object(raw.get("template"), f"{field}.template")
    spec = require_object(template.get("spec"), f"{field}.template.spec")
    try:
        read_fields = orjson.dumps(_select_read_fields(raw, spec, field))
    except TypeError:  # The object is not from JSON: a manifest in YAML can contain other values.
        return _read_pod_set(raw, spec, field, problems)
    known = _known.get(read_fields)
    if known is not None:
        return known
    count = len(problems)
    pod_set = _read_pod_set(raw, spec, field, problems)
    if len(problems) == count:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        # A copy, because orjson returns bytes in a buffer that is several times as large.
        _known[bytes(memoryview(read_fields))] = pod_set
    return pod_set


def _read_pod_set(
    raw: Mapping[str, Any], spec: Mapping[str, Any], field: str, problems: list[ResourceProblem]
) -> PodSet:
    spec_field = f"{field}.template.spec"
    topology_field = f"{field}.topologyRequest"
    topology = require_object(raw.get("topologyRequest"), topology_field)
    group = topology.get("podSetGroupName")
    return PodSet(
        name=require_text(raw.get("name", "main"), f"{field}.name"),
        count=require_int(raw.get("count", 1), f"{field}.count"),
        template=_read_template(spec, spec_field, problems),
        min_count=optional_int(raw.get("minCount"), f"{field}.minCount"),
        group=None if group is None else require_text(group, f"{topology_field}.podSetGroupName"),
        node_selector=read_labels(spec.get("nodeSelector"), f"{spec_field}.nodeSelector"),
        required_node_affinity=_read_required_node_affinity(spec, spec_field),
        preferred_node_affinity=_read_preferred_node_affinity(spec, spec_field),
        tolerations=read_tolerations(spec.get("tolerations"), f"{spec_field}.tolerations"),
        topology_request=read_topology_request(topology, topology_field),
    )
