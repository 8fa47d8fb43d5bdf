"""Label selectors and node selector terms: what they mean, as a table of operators."""

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
"""How many digits an integer of 64 bits has at most."""


def _integer(text: str | None) -> int | None:
    """Return the integer of a text; None for other texts, and beyond 64 bits, as in the Kubernetes scheduler.

    The digits are counted first: users may write any number of them, and Python limits what ``int`` reads.
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


def _compares(value: str | None, values: tuple[str, ...], holds: Callable[[int, int], bool]) -> bool:
    left, right = _integer(value), _integer(values[0] if values else None)
    return left is not None and right is not None and holds(left, right)


_HOLDS: Final[Mapping[SelectorOperator, Callable[[str | None, tuple[str, ...]], bool]]] = {
    SelectorOperator.IN: lambda value, values: value is not None and value in values,
    SelectorOperator.NOT_IN: lambda value, values: value is None or value not in values,
    SelectorOperator.EXISTS: lambda value, _: value is not None,
    SelectorOperator.DOES_NOT_EXIST: lambda value, _: value is None,
    SelectorOperator.GREATER_THAN: lambda value, values: _compares(value, values, int.__gt__),
    SelectorOperator.LESS_THAN: lambda value, values: _compares(value, values, int.__lt__),
}


def requirement_holds(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Whether one requirement holds of the labels."""
    return _HOLDS[requirement.operator](labels.get(requirement.key), requirement.values)


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether the selector selects an object with these labels; without requirements it selects all."""
    requirements = selector.requirements
    return not requirements or all(requirement_holds(requirement, labels) for requirement in requirements)


def selects_namespace(selector: LabelSelector | None, labels: Mapping[str, str] | None) -> bool:
    """Whether a namespace is selected. An absent selector selects none; an unknown namespace is not."""
    if selector is None or labels is None:
        return False
    # A fast path: most selectors select all, and each head is checked.
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


def untolerated(taints: Collection[Taint], *tolerations: Collection[Toleration]) -> Taint | None:
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
    """Whether node selector and required affinity accept the nodes of a flavor.

    Only keys among the node labels of the flavor count; values of other keys are not known. A term without a
    requirement on these keys accepts every node, and so does the whole affinity.
    """
    if any(labels.get(key, value) != value for key, value in pod_set.node_selector):
        return False
    terms = pod_set.required_node_affinity
    return not terms or any(_term_holds(term, labels) for term in terms)
