"""Taints of nodes and flavors, and tolerations of pods."""

from typing import Any

from admitq.core.model import Taint, Toleration
from admitq_api.stored_fields import items, text


def read_tolerations(raw: Any, field: str) -> tuple[Toleration, ...]:
    """Read a list of tolerations; an absent operator is Equal.

    Raises:
        Malformed: the list or a field of an item has another type.
    """
    return tuple(
        Toleration(
            key=text(item.get("key"), field),
            operator=text(item.get("operator"), field) or "Equal",
            value=text(item.get("value"), field),
            effect=text(item.get("effect"), field),
            toleration_seconds=item.get("tolerationSeconds"),
        )
        for item in items(raw, field)
    )


def read_taints(raw: Any, field: str) -> tuple[Taint, ...]:
    """Read a list of taints.

    Raises:
        Malformed: the list or a field of an item has another type.
    """
    return tuple(
        Taint(*(text(item.get(name), field) for name in ("key", "value", "effect")))
        for item in items(raw, field)
    )
