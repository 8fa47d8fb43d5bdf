"""Evaluate label selectors and node selector terms."""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from admitq.core.model import (
    LabelSelector,
    NodeSelectorTerm,
    PodSet,
    SelectorOperator,
    SelectorRequirement,
    Taint,
    Toleration,
)

_NO_SCHEDULE: Final = ("NoSchedule", "NoExecute")

_INT64: Final = range(-(2**63), 2**63)
_DIGITS: Final = 19
"""The greatest number of digits of an integer of 64 bits."""


def _integer(text: str | None) -> int | None:
    """Return the integer of a text; None if it is no integer of 64 bits, as in the Kubernetes scheduler.

    The digits are counted first, because users may write any number of them, and ``int`` raises for too many.
    """
    if text is None:
        return None
    is_negative = text[:1] == "-"
    digits = text[1:] if text[:1] in ("-", "+") else text
    significant = digits.lstrip("0")
    if not (digits.isascii() and digits.isdecimal()) or len(significant) > _DIGITS:
        return None
    value = int(significant or "0") * (-1 if is_negative else 1)
    return value if value in _INT64 else None


def _compare_integers(value: str | None, values: tuple[str, ...], holds: Callable[[int, int], bool]) -> bool:
    left, right = _integer(value), _integer(values[0] if values else None)
    return left is not None and right is not None and holds(left, right)


_HOLDS: Final[Mapping[SelectorOperator, Callable[[str | None, tuple[str, ...]], bool]]] = {
    SelectorOperator.IN: lambda value, values: value is not None and value in values,
    SelectorOperator.NOT_IN: lambda value, values: value is None or value not in values,
    SelectorOperator.EXISTS: lambda value, _: value is not None,
    SelectorOperator.DOES_NOT_EXIST: lambda value, _: value is None,
    SelectorOperator.GREATER_THAN: lambda value, values: _compare_integers(value, values, int.__gt__),
    SelectorOperator.LESS_THAN: lambda value, values: _compare_integers(value, values, int.__lt__),
}


def requirement_holds(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Whether a requirement holds for the labels."""
    return _HOLDS[requirement.operator](labels.get(requirement.key), requirement.values)


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether a selector selects an object with these labels. Without requirements, it selects all."""
    requirements = selector.requirements
    return not requirements or all(requirement_holds(requirement, labels) for requirement in requirements)


def selects_namespace(selector: LabelSelector | None, labels: Mapping[str, str] | None) -> bool:
    """Whether a namespace is selected. Without a selector, or without labels (unknown), it is not."""
    if selector is None or labels is None:
        return False
    # This is a fast path: most selectors select all namespaces, and every cycle checks each head.
    return not selector.requirements or matches(selector, labels)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the toleration tolerates the taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return not toleration.key or toleration.key == taint.key
    return (
        toleration.operator in ("Equal", "")
        and toleration.key == taint.key
        and toleration.value == taint.value
    )


def find_untolerated_taint(taints: Collection[Taint], *tolerations: Collection[Toleration]) -> Taint | None:
    """Return the first NoSchedule or NoExecute taint that none of the tolerations tolerates."""
    for taint in taints:
        if taint.effect in _NO_SCHEDULE and not any(
            tolerates(toleration, taint) for group in tolerations for toleration in group
        ):
            return taint
    return None


def _term_holds(term: NodeSelectorTerm, labels: Mapping[str, str]) -> bool:
    return all(
        requirement_holds(requirement, labels)
        for requirement in term.requirements
        if requirement.key in labels
    )


def accepts_nodes(pod_set: PodSet, labels: Mapping[str, str]) -> bool:
    """Whether the node selector and required node affinity of a podset accept the nodes of a flavor.

    Only keys among the node labels of the flavor count: the values of other keys are not known. A term
    without a requirement on these keys accepts every node. The affinity accepts a node if one of its terms
    does.
    """
    if any(labels.get(key, value) != value for key, value in pod_set.node_selector):
        return False
    terms = pod_set.required_node_affinity
    return not terms or any(_term_holds(term, labels) for term in terms)
