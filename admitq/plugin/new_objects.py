"""The objects that ``create`` creates, from the texts of its options. Pure.

Every error is a `CommandError` that names the option and shows a valid value.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from admitq.plugin.remedies import CommandError
from admitq_api.quantity import parse_quantity
from admitq_api.syntax import check_dns_subdomain, check_label_value, check_qualified_name

NOMINAL: Final = "--nominal-quota"
BORROWING: Final = "--borrowing-limit"
LENDING: Final = "--lending-limit"
LIMITS: Final = ((BORROWING, "borrowingLimit"), (LENDING, "lendingLimit"))

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")

Amounts = Mapping[str, Mapping[str, str]]
"""Quantities by flavor and resource, in the order of the text."""


class Quotas(NamedTuple):
    """The texts of the options with amounts: ``FLAVOR:RESOURCE=AMOUNT;…,FLAVOR:…`` each."""

    nominal: str = ""
    borrowing: str = ""
    lending: str = ""


def check_name(name: str) -> None:
    """Check the name of a new object.

    Raises:
        CommandError: it is not a valid name.
    """
    if problem := check_dns_subdomain(name):
        raise CommandError(f"NAME: {name!r}: {problem}")


def parse_amounts(option: str, text: str) -> Amounts:
    """Return the amounts that an option sets.

    Raises:
        CommandError: the text has another form, an amount is invalid or negative, or something is set twice.
    """
    amounts: dict[str, dict[str, str]] = {}
    for part in filter(None, text.split(",")):
        flavor, colon, resources = part.partition(":")
        if not (colon and flavor.strip() and resources.strip()):
            raise _malformed(option, part)
        if flavor.strip() in amounts:
            raise CommandError(
                f"{option}: flavor {flavor.strip()!r} is given twice\nJoin its resources by ';'."
            )
        of_flavor = amounts.setdefault(flavor.strip(), {})
        for assignment in filter(None, resources.split(";")):
            resource, equals, amount = (piece.strip() for piece in assignment.partition("="))
            if not (equals and resource and amount):
                raise _malformed(option, assignment)
            if resource in of_flavor:
                raise CommandError(f"{option}: {resource!r} of flavor {flavor.strip()!r} is given twice")
            of_flavor[resource] = _checked_amount(option, resource, amount)
    return amounts


def _malformed(option: str, text: str) -> CommandError:
    return CommandError(
        f"{option}: {text!r} is not FLAVOR:RESOURCE=AMOUNT\n"
        f"Write, for example, {option} 'default:cpu=10;memory=64Gi,spot:cpu=20;memory=128Gi'."
    )


def _checked_amount(option: str, resource: str, amount: str) -> str:
    try:
        is_valid = parse_quantity(amount) >= 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise CommandError(
            f"{option}: {amount!r} of {resource!r} is not an amount\nAmounts look like 10, 500m or 64Gi."
        )
    return amount


def resource_groups(quotas: Quotas) -> list[dict[str, Any]]:
    """Return the resource groups of a ClusterQueue. Flavors with the same resources share a group.

    Raises:
        CommandError: a text is invalid, a limit has no nominal quota, or the groups would share a resource.
    """
    nominal = parse_amounts(NOMINAL, quotas.nominal)
    limits = {
        field: parse_amounts(option, text)
        for (option, field), text in zip(LIMITS, (quotas.borrowing, quotas.lending), strict=True)
    }
    for option, field in LIMITS:
        for flavor, resources in limits[field].items():
            for resource in resources:
                if resource not in nominal.get(flavor, {}):
                    raise CommandError(
                        f"{option}: {resource!r} of flavor {flavor!r} has no nominal quota\n"
                        f"Add it to {NOMINAL}; it may be 0."
                    )
    groups: dict[frozenset[str], dict[str, Any]] = {}
    for flavor, resources in nominal.items():
        group = groups.setdefault(frozenset(resources), {"coveredResources": list(resources), "flavors": []})
        entries = [
            {"name": resource, "nominalQuota": resources[resource]}
            | {
                field: of_field[flavor][resource]
                for field, of_field in limits.items()
                if resource in of_field.get(flavor, {})
            }
            for resource in group["coveredResources"]
        ]
        group["flavors"].append({"name": flavor, "resources": entries})
    _check_groups(groups.values())
    return list(groups.values())


def _check_groups(groups: Iterable[Mapping[str, Any]]) -> None:
    flavors: dict[str, str] = {}
    for group in groups:
        for resource in group["coveredResources"]:
            first = group["flavors"][0]["name"]
            if resource in flavors:
                raise CommandError(
                    f"{NOMINAL}: flavors {flavors[resource]!r} and {first!r} both have {resource!r}, but "
                    "not the same resources\nGive both the same resources; an amount may be 0."
                )
            flavors[resource] = first


def parse_labels(option: str, text: str) -> dict[str, str]:
    """Return labels from a text ``KEY=VALUE,…``.

    Raises:
        CommandError: the text has another form, or a key or value is not valid.
    """
    labels: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise CommandError(
                f"{option}: {part!r} is not KEY=VALUE\nWrite, for example, {option} team=a,tier=b."
            )
        if problem := check_qualified_name(key):
            raise CommandError(f"{option}: {key!r}: {problem}")
        if problem := check_label_value(value):
            raise CommandError(f"{option}: {value!r}: {problem}")
        labels[key] = value
    return labels


def parse_taints(option: str, text: str) -> list[dict[str, str]]:
    """Return taints from a text ``KEY[=VALUE]:EFFECT,…``.

    Raises:
        CommandError: the text has another form, or a part of it is not valid.
    """
    taints: list[dict[str, str]] = []
    for part in filter(None, text.split(",")):
        key, value, effect = _parse_taint(option, part)
        if not effect:
            raise _not_a_taint(option, part)
        taints.append({"key": key, **({"value": value} if value else {}), "effect": effect})
    return taints


def parse_tolerations(option: str, text: str) -> list[dict[str, str]]:
    """Return tolerations from a text ``KEY[=VALUE][:EFFECT],…``. Without a value, any is tolerated.

    Raises:
        CommandError: the text has another form, or a part of it is not valid.
    """
    tolerations: list[dict[str, str]] = []
    for part in filter(None, text.split(",")):
        key, value, effect = _parse_taint(option, part)
        operator = {"operator": "Exists"} if value is None else {"operator": "Equal", "value": value}
        tolerations.append({"key": key, **operator, **({"effect": effect} if effect else {})})
    return tolerations


def _parse_taint(option: str, text: str) -> tuple[str, str | None, str]:
    assignment, _, effect = (piece.strip() for piece in text.partition(":"))
    key, equals, value = (piece.strip() for piece in assignment.partition("="))
    if effect and effect not in EFFECTS:
        raise CommandError(f"{option}: {effect!r} is not one of {', '.join(EFFECTS)}")
    if not key:
        raise _not_a_taint(option, text)
    if problem := check_qualified_name(key) or check_label_value(value):
        raise CommandError(f"{option}: {text!r}: {problem}")
    return key, value if equals else None, effect


def _not_a_taint(option: str, text: str) -> CommandError:
    return CommandError(
        f"{option}: {text!r} is not KEY[=VALUE]:EFFECT\nWrite, for example, {option} gpu=true:NoSchedule."
    )
