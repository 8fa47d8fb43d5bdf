"""Rules by which kinds recognise the objects that their own controllers create for a job.

An owner reference alone proves nothing: every tenant can write one. A rule compares what a controller derives
from the job: the name, the ordinal, the number of pods and what each pod is charged. It must accept all
objects of a real controller, for what differs is queued for itself or stopped.
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
"""Characters that the API server keeps of ``generateName``, before the five that it adds."""
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class PodsOfTemplate:
    """Pods of one template, and how many."""

    template: JsonObject
    count: int


# --- names ----------------------------------------------------------------------------------------


def get_name(obj: JsonObject) -> str:
    """Name of an object; empty without one."""
    name: Any = value_at(obj, ("metadata", "name"), "")
    return name if isinstance(name, str) else ""


def has_ordinal(name: str, stem: str, count: int, start: int = 0) -> bool:
    """Whether a name is ``<stem>-<ordinal>`` with one of ``count`` ordinals from ``start``."""
    ordinal = name.removeprefix(f"{stem}-")
    if not name.startswith(f"{stem}-") or not _ORDINAL.fullmatch(ordinal):
        return False
    return start <= int(ordinal) < start + count


def is_generated(obj: JsonObject, stem: str) -> bool:
    """Whether the API server generated, or is yet to generate, the name of an object from a stem.

    A mutating webhook reviews an object before its name is generated.
    """
    kept = stem[:MAX_GENERATED_STEM]
    name = get_name(obj)
    if not name:
        return as_text(value_at(obj, ("metadata", "generateName"))) in (stem, kept)
    return name.startswith(kept) and bool(_GENERATED.fullmatch(name[len(kept) :]))


def is_selected(owner: JsonObject, child: JsonObject) -> bool:
    """Whether the child has the labels that its owner's controller counts its children by.

    A controller gives up an object without them, which then goes on by itself.
    """
    wanted = text_fields_at(owner, ("spec", "selector", "matchLabels"))
    return wanted.items() <= text_fields_at(child, ("metadata", "labels")).items()


# --- pods and what they are charged -----------------------------------------------------------------


def compare_pods(
    child: PodsOfTemplate, granted: PodsOfTemplate | None, *, counted: bool = True
) -> ChildDifference | None:
    """In what pods of a child differ from those that its owner was charged for; None if they are no more.

    Args:
        child: pods of the child.
        granted: what the owner says of them; None if it says nothing.
        counted: whether their number is compared, too.
    """
    if granted is None:
        return ChildDifference.PODS if child.count else None
    if counted and child.count > granted.count:
        return ChildDifference.PODS
    return None if is_template_within(child.template, granted.template) else ChildDifference.REQUESTS


def find_first_difference(found: Iterable[ChildDifference | None]) -> ChildDifference | None:
    """The first that there is."""
    return next((one for one in found if one is not None), None)


def is_template_within(child: JsonObject, template: JsonObject) -> bool:
    """Whether pods of the child's template are charged at most what those of a template are.

    Compares requests of all containers, pod-level requests, overhead, runtime class and resource claims.
    """
    return _is_within(object_at(child, ("spec",)), object_at(template, ("spec",)), is_pod=False)


def is_pod_within(pod: JsonObject, template: JsonObject) -> bool:
    """Whether a pod is charged at most what a template says of it, but for what others add to pods.

    LimitRanges and RuntimeClasses add amounts of resources that the template does not state, and injectors
    add containers. Neither is charged.
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
            *(_parse_amounts(object_at(one, ("overhead",))) for one in (child, template)), is_pod=is_pod
        )
        and (is_pod or child.get("runtimeClassName") == template.get("runtimeClassName"))
    )


def _are_containers_within(
    containers: list[JsonObject], templates: list[JsonObject], *, is_pod: bool
) -> bool:
    """Compare by name, as operators add containers at places of their own."""
    left = list(templates)
    for one in containers:
        other = next((known for known in left if known.get("name") == one.get("name")), None)
        if other is None:
            if is_pod:
                continue
            return False
        left.remove(other)
        is_equal = one.get("restartPolicy") == other.get("restartPolicy")
        if not is_equal or not _is_at_most(_get_requests(one), _get_requests(other), is_pod=is_pod):
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
        (str(one.get("resourceClaimName")), str(one.get("resourceClaimTemplateName")))
        for one in objects_at(spec, ("resourceClaims",))
    )


def _get_requests(holder: JsonObject) -> dict[str, Any]:
    """Requests, and the limits that stand in for those that are not written."""
    resources = object_at(holder, ("resources",))
    return _parse_amounts({**object_at(resources, ("limits",)), **object_at(resources, ("requests",))})


def _parse_amounts(quantities: JsonObject) -> dict[str, Any]:
    return {resource: _parse_amount(quantity) for resource, quantity in quantities.items()}


def _parse_amount(quantity: Any) -> Fraction | str:
    """A quantity as the API server stores it in a pod template, where it rounds up to thousandths."""
    try:
        return Fraction(ceil(parse_quantity(quantity) * _MILLI), _MILLI)
    except QuantityError:
        return repr(quantity)
