"""Rules by which kinds recognise the objects that their own controllers create for a job.

An owner reference alone proves nothing: every tenant can write one. A rule compares what a controller derives
from the job: the name, the ordinal, the number of pods and what each pod is charged.
"""

import re
from fractions import Fraction
from typing import Any, Final

from admitq.integrations.paths import Object, value_at
from admitq.integrations.reading import mapping, objects
from admitq_api.quantity import QuantityError, parse

_ORDINAL: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def has_ordinal(name: str, stem: str, count: int) -> bool:
    """Whether a name is ``<stem>-<ordinal>`` with an ordinal below the count."""
    ordinal = name.removeprefix(f"{stem}-")
    return name.startswith(f"{stem}-") and bool(_ORDINAL.fullmatch(ordinal)) and int(ordinal) < count


def has_equal_charge(child: Object, template: Object) -> bool:
    """Whether pods of two templates are charged the same.

    Compares requests of all containers, pod-level requests, overhead and resource claims, by value.
    """
    return _charge(mapping(child, ("spec",))) == _charge(mapping(template, ("spec",)))


def _charge(spec: Object) -> tuple[Any, ...]:
    containers, initial = (
        [(one.get("restartPolicy"), _requests(one)) for one in objects(spec, (field,))]
        for field in ("containers", "initContainers")
    )
    claims = [
        (one.get("resourceClaimName"), one.get("resourceClaimTemplateName"))
        for one in objects(spec, ("resourceClaims",))
    ]
    return containers, initial, claims, _requests(spec), _amounts(mapping(spec, ("overhead",)))


def _requests(holder: Object) -> dict[str, Any]:
    """Requests, and the limits that stand in for those that are not written."""
    resources = mapping(holder, ("resources",))
    return _amounts({**mapping(resources, ("limits",)), **mapping(resources, ("requests",))})


def _amounts(quantities: Object) -> dict[str, Any]:
    return {resource: _amount(quantity) for resource, quantity in quantities.items()}


def _amount(quantity: Any) -> Fraction | str:
    try:
        return parse(quantity)
    except QuantityError:
        return repr(quantity)


def name_of(obj: Object) -> str:
    """Name of an object; empty without one."""
    name: Any = value_at(obj, ("metadata", "name"), "")
    return name if isinstance(name, str) else ""
