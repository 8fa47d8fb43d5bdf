"""Why a workload waits, in one short sentence for the events of its job.

The sentence names no other workload, because all users of a namespace read its events. Amounts are rounded:
they hold at the time of the event only.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from admitq.core.asking.explanations import (
    BindingNode,
    FlavorVerdict,
    RefusalExplanation,
    ResourceConstraint,
)
from admitq.core.refusals import WaitingForTargets
from admitq.translate.explanations import binding_text
from admitq.translate.messages import flavor_refusal_message, pending_condition
from admitq_api.conditions import Reason
from admitq_api.quantity import format_rounded_amount

MOST_PARTS: Final = 3
"""How many flavors and resources a sentence names. Others are counted."""


def short_explanation(explanation: RefusalExplanation) -> str:
    """Return why a workload waits, as a sentence without a full stop."""
    refusal, queue = explanation.refusal, explanation.cluster_queue
    why = pending_condition(refusal)
    lacking = _join(_lacking(explanation.flavors))
    if isinstance(refusal, WaitingForTargets):
        number = "1 preempted workload" if refusal.victims == 1 else f"{refusal.victims} preempted workloads"
        return f"Waits for {number} to stop{f': {lacking}' if lacking else ''}"
    if not lacking:
        return why.message
    match why.reason:
        case Reason.WAITING_FOR_QUOTA:
            return f"Waits for unused quota in ClusterQueue {queue}: {lacking}"
        case Reason.EXCEEDS_MAX_QUOTA:
            return f"Needs more than ClusterQueue {queue} can ever have: {lacking}"
        case _:
            return why.message


def _join(parts: Iterable[str]) -> str:
    listed = list(dict.fromkeys(parts))
    more = f"; and {len(listed) - MOST_PARTS} more" if len(listed) > MOST_PARTS else ""
    return "; ".join(listed[:MOST_PARTS]) + more


def _lacking(verdicts: Iterable[FlavorVerdict]) -> Iterator[str]:
    """Yield what each flavor lacks, and then why other flavors are refused, if any flavor lacks quota."""
    refused: list[str] = []
    has_any = False
    for verdict in verdicts:
        if verdict.refusal is not None:
            refused.append(flavor_refusal_message(verdict.refusal))
            continue
        for constraint in verdict.resources:
            if constraint.binding is not None:
                has_any = True
                yield _shortage(verdict.flavor, constraint, constraint.binding)
    if has_any:
        yield from refused


def _shortage(flavor: str, constraint: ResourceConstraint, binding: BindingNode) -> str:
    resource, needed = constraint.resource, constraint.earlier + constraint.requested
    maximum = format_rounded_amount(resource, constraint.maximum)
    free = (
        f"at most {maximum}"
        if needed > constraint.maximum
        else f"{format_rounded_amount(resource, constraint.free)} of {maximum} free"
    )
    return (
        f"{resource} in flavor {flavor}: needs {format_rounded_amount(resource, needed, up=True)}, {free}, "
        f"limited by {binding_text(binding)}"
    )
