"""The admission in the status of a Workload, read and written."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from admitq.core.amounts import Amounts, amounts
from admitq.core.model import Admission, PodSetAssignment
from admitq.core.topology.assignment import TopologyAssignment
from admitq.translate.amounts import format_quantities
from admitq.translate.metadata import read_labels
from admitq_api.json_objects import value_at
from admitq_api.quantity import QuantityError, parse_amount
from admitq_api.stored_fields import (
    MalformedField,
    require_amount,
    require_int,
    require_list,
    require_object,
    require_text,
)
from admitq_api.topology_assignments import decode, encode


def read_admission(raw: Mapping[str, Any], pods: Mapping[str, int] = MappingProxyType({})) -> Admission:
    """Read ``status.admission``.

    Args:
        raw: the admission.
        pods: how many pods each podset has; an assignment without a count is for all of them.

    Raises:
        MalformedField: a usage is not a readable quantity, or a topology assignment is malformed.
    """
    path = "status.admission.podSetAssignments"
    return Admission(
        require_text(raw["clusterQueue"], "status.admission.clusterQueue"),
        tuple(
            _read_assignment(item, f"{path}[{index}]", pods)
            for index, item in enumerate(require_list(raw.get("podSetAssignments"), path))
        ),
    )


def _read_assignment(item: Mapping[str, Any], path: str, pods: Mapping[str, int]) -> PodSetAssignment:
    name, count = require_text(item.get("name", "main"), f"{path}.name"), item.get("count")
    usage = {
        resource: require_amount(resource, value, f"{path}.resourceUsage[{resource}]")
        for resource, value in require_object(item.get("resourceUsage"), path).items()
    }
    return PodSetAssignment(
        name=name,
        flavors=read_labels(require_object(item.get("flavors"), f"{path}.flavors"), f"{path}.flavors"),
        resource_usage=amounts(usage),
        count=pods.get(name, 0) if count is None else require_int(count, f"{path}.count"),
        lacks_topology_assignment=item.get("delayedTopologyRequest") == "Pending"
        and not item.get("topologyAssignment"),
        topology=read_topology_assignment(item.get("topologyAssignment"), f"{path}.topologyAssignment"),
    )


def read_topology_assignment(raw: object, path: str) -> TopologyAssignment | None:
    """Read a stored topology assignment; None if there is none.

    Raises:
        MalformedField: it does not have its form.
    """
    return None if not raw else TopologyAssignment(*decode(raw, path))


def read_admission_leniently(raw: Mapping[str, Any]) -> Admission:
    """Read the valid parts of an admission; an invalid or negative amount counts as 0.

    A malformed topology assignment counts as none.
    """
    assignments: list[PodSetAssignment] = []
    for item in require_list(raw.get("podSetAssignments"), "status.admission.podSetAssignments"):
        usage: dict[str, int] = {}
        with suppress(MalformedField, AttributeError):
            for resource, value in require_object(item.get("resourceUsage"), "resourceUsage").items():
                with suppress(QuantityError):
                    usage[resource] = max(0, parse_amount(resource, value))
            flavors = read_labels(require_object(item.get("flavors"), "flavors"))
            # The assignment has no count, so its whole usage stays charged.
            name = require_text(item.get("name", "main"), "name")
            topology = None
            with suppress(MalformedField):
                topology = read_topology_assignment(item.get("topologyAssignment"), "topologyAssignment")
            assignments.append(PodSetAssignment(name, flavors, amounts(usage), 0, topology=topology))
    return Admission(require_text(raw["clusterQueue"], "status.admission.clusterQueue"), tuple(assignments))


def format_admission(
    value: Admission, *, delayed: Collection[str] = (), by_hostname_prefix: bool = False
) -> dict[str, Any]:
    """Return the value of ``status.admission``.

    Args:
        value: the admission.
        delayed: the podsets with a stored delayedTopologyRequest. It is Ready once they have a topology
            assignment.
        by_hostname_prefix: whether topology assignments may have a slice for each prefix of host names.
    """
    return {
        "clusterQueue": value.cluster_queue,
        "podSetAssignments": [
            _format_assignment(assignment, by_hostname_prefix, is_delayed=assignment.name in delayed)
            for assignment in value.pod_set_assignments
        ],
    }


def _format_assignment(
    value: PodSetAssignment, by_hostname_prefix: bool, *, is_delayed: bool
) -> dict[str, Any]:
    maps = {"flavors": dict(value.flavors), "resourceUsage": format_quantities(value.resource_usage)}
    result = {"name": value.name, **_drop_empty_maps(maps), "count": value.count}
    if value.topology is not None:
        result["topologyAssignment"] = encode(
            value.topology.levels, value.topology.domains, by_hostname_prefix=by_hostname_prefix
        )
    if value.lacks_topology_assignment:
        result["delayedTopologyRequest"] = "Pending"
    elif is_delayed and value.topology is not None:
        result["delayedTopologyRequest"] = "Ready"
    return result


def list_delayed_pod_sets(raw: object) -> frozenset[str]:
    """Return the podsets with a delayedTopologyRequest in a stored ``status.admission`` of any form."""
    assignments = value_at(raw, ("podSetAssignments",), [])
    return frozenset(
        str(item.get("name", "main"))
        for item in (assignments if isinstance(assignments, list) else ())
        if isinstance(item, Mapping) and item.get("delayedTopologyRequest")
    )


def format_pod_set_request(name: str, of: Amounts) -> dict[str, Any]:
    """Return the item of ``status.resourceRequests`` for a podset."""
    return {"name": name, **_drop_empty_maps({"resources": format_quantities(of)})}


def _drop_empty_maps(maps: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """Remove empty maps, because typed clients drop them when they write an object back."""
    return {name: value for name, value in maps.items() if value}
