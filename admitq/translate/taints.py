"""Taints of nodes and flavors, and tolerations of pods."""

from typing import Any

from admitq.core.model import Taint, Toleration
from admitq_api.stored_fields import require_list, require_text


def read_tolerations(raw: Any, field: str) -> tuple[Toleration, ...]:
    """Read a list of tolerations; an absent operator is Equal.

    Raises:
        MalformedField: the list or a field of an item has another type.
    """
    return tuple(
        Toleration(
            key=require_text(item.get("key"), field),
            operator=require_text(item.get("operator"), field) or "Equal",
            value=require_text(item.get("value"), field),
            effect=require_text(item.get("effect"), field),
            toleration_seconds=item.get("tolerationSeconds"),
        )
        for item in require_list(raw, field)
    )


def read_taints(raw: Any, field: str) -> tuple[Taint, ...]:
    """Read a list of taints.

    Raises:
        MalformedField: the list or a field of an item has another type.
    """
    return tuple(
        Taint(*(require_text(item.get(name), field) for name in ("key", "value", "effect")))
        for item in require_list(raw, field)
    )
