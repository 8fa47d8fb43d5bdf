"""Rules with which kinds recognize the objects that their controllers create for a job.

An owner reference is no proof, because every tenant can write one. The rules compare what a controller
derives from the job: the name, the ordinal, the number of pods, and the requests of each pod. They must
accept all objects of a real controller: admitq queues objects that differ by themselves, or stops them.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, Final

from admitq.integrations.base import ChildDifference
from admitq_api.json_objects import JsonObject, as_text, object_at, objects_at, text_fields_at, value_at
from admitq_api.quantity import QuantityError, parse_quantity

_ORDINAL: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_GENERATED: Final = re.compile(r"[a-z0-9]{5}")
MAX_GENERATED_STEM: Final = 58
"""How many characters of ``generateName`` the API server keeps before it appends five others."""
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class PodsOfTemplate:
    """A pod template and its number of pods."""

    template: JsonObject
    count: int


# --- names ----------------------------------------------------------------------------------------


def get_name(obj: JsonObject) -> str:
    """Return the name of an object; empty if it has none."""
    name: Any = value_at(obj, ("metadata", "name"), "")
    return name if isinstance(name, str) else ""


def has_ordinal(name: str, stem: str, count: int, start: int = 0) -> bool:
    """Whether a name is ``<stem>-<ordinal>`` with an ordinal from ``start`` to ``start + count - 1``."""
    ordinal = name.removeprefix(f"{stem}-")
    if not name.startswith(f"{stem}-") or not _ORDINAL.fullmatch(ordinal):
        return False
    return start <= int(ordinal) < start + count


def is_generated(obj: JsonObject, stem: str) -> bool:
    """Whether the API server has generated, or will generate, the name of an object from a stem.

    A mutating webhook reviews an object before the API server generates the name.
    """
    stem_kept = stem[:MAX_GENERATED_STEM]
    name = get_name(obj)
    if not name:
        return as_text(value_at(obj, ("metadata", "generateName"))) in (stem, stem_kept)
    return name.startswith(stem_kept) and bool(_GENERATED.fullmatch(name[len(stem_kept) :]))


def is_selected(owner: JsonObject, child: JsonObject) -> bool:
    """Whether the child has the labels by which its owner's controller selects its children.

    A controller releases an object without these labels. The object then runs independently.
    """
    selector = text_fields_at(owner, ("spec", "selector", "matchLabels"))
    return selector.items() <= text_fields_at(child, ("metadata", "labels")).items()


# --- pods and their requests ------------------------------------------------------------------------


def compare_pods(
    child: PodsOfTemplate, granted: PodsOfTemplate | None, *, counted: bool = True
) -> ChildDifference | None:
    """Return how the pods of a child exceed those that its owner was charged for; None if they do not.

    Args:
        child: the pods of the child.
        granted: the pods of the owner; None if the owner states none.
        counted: whether the number of pods is compared too.
    """
    if granted is None:
        return ChildDifference.PODS if child.count else None
    if counted and child.count > granted.count:
        return ChildDifference.PODS
    return None if is_template_within(child.template, granted.template) else ChildDifference.REQUESTS


def find_first_difference(differences: Iterable[ChildDifference | None]) -> ChildDifference | None:
    """Return the first difference; None if there is none."""
    return next((difference for difference in differences if difference is not None), None)


def is_template_within(child: JsonObject, template: JsonObject) -> bool:
    """Whether pods of the child's template are charged at most as much as pods of another template.

    It compares requests of all containers, pod-level requests, overhead, runtime class and resource claims.
    """
    return _is_within(object_at(child, ("spec",)), object_at(template, ("spec",)), is_pod=False)


def is_pod_within(pod: JsonObject, template: JsonObject) -> bool:
    """Whether a pod is charged at most as much as its template, apart from additions at its creation.

    LimitRanges and RuntimeClasses add requests that the template does not state, and injectors add
    containers. Neither is charged to quota.
    """
    return _is_within(object_at(pod, ("spec",)), object_at(template, ("spec",)), is_pod=True)


def _is_within(child: JsonObject, template: JsonObject, *, is_pod: bool) -> bool:
    return (
        all(
            _are_containers_within(objects_at(child, (field,)), objects_at(template, (field,)), is_pod=is_pod)
            for field in ("containers", "initContainers")
        )
        and _count_claims(child) <= _count_claims(template)
        and _is_at_most(_get_requests(child), _get_requests(template), is_pod=is_pod)
        and _is_at_most(
            *(_parse_amounts(object_at(spec, ("overhead",))) for spec in (child, template)), is_pod=is_pod
        )
        and (is_pod or child.get("runtimeClassName") == template.get("runtimeClassName"))
    )


def _are_containers_within(
    containers: list[JsonObject], templates: list[JsonObject], *, is_pod: bool
) -> bool:
    """Compare containers by name, because operators add containers at any position."""
    unmatched = list(templates)
    for container in containers:
        known = next((known for known in unmatched if known.get("name") == container.get("name")), None)
        if known is None:
            if is_pod:
                continue
            return False
        unmatched.remove(known)
        is_equal = container.get("restartPolicy") == known.get("restartPolicy")
        if not is_equal or not _is_at_most(_get_requests(container), _get_requests(known), is_pod=is_pod):
            return False
    return True


def _is_at_most(amounts: dict[str, Any], others: dict[str, Any], *, is_pod: bool) -> bool:
    for resource, amount in amounts.items():
        other = others.get(resource)
        if other is None and (is_pod or amount == 0):
            continue
        if isinstance(amount, Fraction) and isinstance(other, Fraction):
            if amount > other:
                return False
        elif amount != other:
            return False
    return True


def _count_claims(spec: JsonObject) -> Counter[tuple[Any, Any]]:
    return Counter(
        (str(claim.get("resourceClaimName")), str(claim.get("resourceClaimTemplateName")))
        for claim in objects_at(spec, ("resourceClaims",))
    )


def _get_requests(holder: JsonObject) -> dict[str, Any]:
    """Return the requests. For a resource without a request, its limit counts as request."""
    resources = object_at(holder, ("resources",))
    return _parse_amounts({**object_at(resources, ("limits",)), **object_at(resources, ("requests",))})


def _parse_amounts(quantities: JsonObject) -> dict[str, Any]:
    return {resource: _parse_amount(quantity) for resource, quantity in quantities.items()}


def _parse_amount(quantity: Any) -> Fraction | str:
    """Return a quantity as the API server stores it in a pod template: rounded up to thousandths."""
    try:
        return Fraction(ceil(parse_quantity(quantity) * _MILLI), _MILLI)
    except QuantityError:
        return repr(quantity)
