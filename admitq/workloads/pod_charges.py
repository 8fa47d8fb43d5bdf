"""Charges of single pods, which follow from the pod spec.

Pods name their podset, but pods of one podset may request different amounts. So their charges are compared.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

from admitq.core.requests import pod_requests
from admitq.translate.pod_sets import read_pod_spec
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.quantity import QuantityError, parse_quantity


class PodCharge(NamedTuple):
    """The amounts and devices that a pod requests.

    Attributes:
        requests: requests of the whole pod with its overhead, as the scheduler counts them, in base units.
        claims: names of ResourceClaims and of ResourceClaimTemplates.
    """

    requests: Mapping[str, Fraction]
    claims: tuple[str, ...] = ()

    def resources_above(self, other: "PodCharge") -> list[str]:
        """Return the names of the resources of which this pod requests more than the other."""
        more = [
            resource
            for resource, amount in self.requests.items()
            if amount > other.requests.get(resource, Fraction())
        ]
        unmatched = list(other.claims)
        for claim in self.claims:
            if claim in unmatched:
                unmatched.remove(claim)
            else:
                more.append(f"resource claim {claim}")
        return sorted(more)


NO_CHARGE: Final = PodCharge({})
"""The charge of a pod that requests nothing."""


def pod_charge(spec: JsonObject) -> PodCharge:
    """Return the charge of a pod with this spec.

    Invalid requests count as 0. The API server does not store pods with such requests.
    """
    template = read_pod_spec(spec)
    return PodCharge(dict(pod_requests(template)), tuple(sorted(_claims(spec))))


def _claims(spec: JsonObject) -> Iterable[str]:
    listed: Any = value_at(spec, ("resourceClaims",), [])
    for claim in listed if isinstance(listed, list) else ():
        named = value_at(claim, ("resourceClaimName",))
        template_name = value_at(claim, ("resourceClaimTemplateName",))
        yield f"template {template_name}" if template_name else str(named)


def granted_charges(workload: JsonObject) -> dict[str, PodCharge]:
    """Return the largest charge of one pod that a Workload's reservation covers, by podset.

    For each resource, this is the larger of the template's request and the charged amount. The charged amount
    contains defaults of a LimitRange or a RuntimeClass, which the template does not contain.
    """
    charges = {
        pod_set.get("name", "main"): pod_charge(value_at(pod_set, ("template", "spec"), {}))
        for pod_set in value_at(workload, ("spec", "podSets"), [])
    }
    for assignment in value_at(workload, ("status", "admission", "podSetAssignments"), []):
        name = assignment.get("name", "main")
        count = value_at(assignment, ("count",), 0)
        if name not in charges or not isinstance(count, int) or count <= 0:
            continue
        requests = dict(charges[name].requests)
        for resource, total in value_at(assignment, ("resourceUsage",), {}).items():
            requests[resource] = max(requests.get(resource, Fraction()), _amount(total) / count)
        charges[name] = charges[name]._replace(requests=requests)
    return charges


def _amount(quantity: Any) -> Fraction:
    try:
        return parse_quantity(quantity)
    except QuantityError:
        return Fraction()


def find_role_mismatch(named: Mapping[str, Iterable[JsonObject]]) -> str | None:
    """Return why pods of one podset do not match; None if none requests more than the first of its podset.

    Args:
        named: pods by the podset that they name. The charge of the first pod counts for all pods of its
            podset.
    """
    for pod_set, (first, *others) in sorted((name, list(pods)) for name, pods in named.items()):
        charged = pod_charge(value_at(first, ("spec",), {}))
        for pod in others:
            if more := pod_charge(value_at(pod, ("spec",), {})).resources_above(charged):
                pod_name, first_name = (value_at(each, ("metadata", "name"), "") for each in (pod, first))
                return (
                    f"pods '{first_name}' and '{pod_name}' name the same role '{pod_set}', "
                    f"and '{pod_name}' requests more {', '.join(more)}: give them different roles"
                )
    return None
