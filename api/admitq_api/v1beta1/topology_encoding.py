"""Convert topology assignments: v1beta1 lists domains, v1beta2 encodes them in slices of similar domains.

Source: semantics, Workload (TopologyAssignment encoding).
"""

from collections.abc import Mapping
from typing import Any, Final

from admitq_api.stored_fields import MalformedField, require_list, require_object
from admitq_api.topology_assignments import (
    Domain,
    decode,
    encode,
    require_nonempty_texts,
    require_positive_int,
)

MAX_LISTED_DOMAINS: Final = 50_000
"""The maximum number of domains in v1beta1. With more, their validation rule would be too expensive."""


def list_domains(assignment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an assignment of v1beta2 in the form of v1beta1.

    Raises:
        MalformedField: it does not have the form of v1beta2, or has more than `MAX_LISTED_DOMAINS`.
    """
    levels, domains = decode(assignment, "topologyAssignment", MAX_LISTED_DOMAINS)
    return {
        "levels": list(levels),
        "domains": [{"values": list(values), "count": count} for values, count in domains],
    }


def create_slices(assignment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an assignment of v1beta1 in the form of v1beta2, with as few slices as possible.

    Raises:
        MalformedField: it does not have the form of v1beta1.
    """
    levels = require_nonempty_texts(assignment.get("levels"), "levels")
    listed = require_list(assignment.get("domains"), "domains")
    if not listed:
        raise MalformedField("domains", "must not be empty")
    return encode(levels, [_parse_domain(require_object(item, "domains"), len(levels)) for item in listed])


def _parse_domain(domain: Mapping[str, Any], levels: int) -> Domain:
    values = require_nonempty_texts(domain.get("values"), "values")
    if len(values) != levels:
        raise MalformedField("values", "must have a value for each of levels")
    return values, require_positive_int(domain.get("count"), "count")
