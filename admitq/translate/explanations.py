"""Explanations of waiting workloads as text and as JSON values.

A viewer (``viewers``) sees the names of workloads in some namespaces only. The ClusterQueues of other
workloads are hidden, too, except that of the explained workload. Amounts, priorities and times stay visible:
they show what holds the quota.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from admitq.core.asking.changes import (
    ActivateChecks,
    AddQuota,
    AllowFlavor,
    Change,
    CreateFlavors,
    FinishWorkloads,
    LiftHolds,
    RaisePriority,
    ReducePods,
    ResumeClusterQueue,
    ResumeLocalQueue,
)
from admitq.core.asking.cheapest_changes import CheapestChanges, SufficientChanges
from admitq.core.asking.explanations import (
    BindingLimit,
    BindingNode,
    FlavorVerdict,
    QuotaHolding,
    QuotaHoldings,
    ResourceConstraint,
    WaitCause,
    WaitingBehindHead,
    WaitingForActivation,
    WaitingForBackoff,
    WaitingForChange,
    WaitingForChecks,
    WaitingForClusterQueue,
    WaitingForJobToStop,
    WaitingForLocalQueue,
    WaitingForOpenPreemptionGate,
    WaitingForOtherHeads,
    WaitingForPodsReady,
    WaitingForRelease,
    WaitingForTargetsToLeave,
    WaitingForTurn,
    WaitingForUnusedQuota,
    WorkloadExplanation,
)
from admitq.core.model import Instant, Toleration
from admitq.core.refusals import Refusal
from admitq.translate.messages import flavor_refusal_message, inactive_cause_message, pending_condition
from admitq.translate.topology_rooms import room_json, room_lines
from admitq.translate.viewers import EVERYTHING, Viewer, workload_json, workload_text, workloads_text
from admitq_api.conditions import format_time
from admitq_api.quantity import format_amount


def _time_json(instant: Instant) -> str | None:
    return format_time(instant) if instant else None


# --- what a workload waits for --------------------------------------------------------------------------


def _refusal_text(refusal: Refusal | None) -> str:
    return "" if refusal is None else f": {pending_condition(refusal).message}"


def _local_queue(cause: WaitingForLocalQueue, _viewer: Viewer) -> str:
    return f"LocalQueue {cause.local_queue} {'is stopped' if cause.exists else 'does not exist'}"


def _cluster_queue(cause: WaitingForClusterQueue, _viewer: Viewer) -> str:
    name = f"ClusterQueue {cause.cluster_queue}"
    if not cause.exists:
        return f"{name} does not exist"
    if not cause.causes:
        return f"{name} is excluded from admission after an internal error"
    return f"{name} admits no workloads: {', '.join(map(inactive_cause_message, cause.causes))}"


def _release(cause: WaitingForRelease, _viewer: Viewer) -> str:
    reasons = [
        (bool(cause.admission_gates), f"admission gates {', '.join(cause.admission_gates)}"),
        (cause.on_hold, "it is on hold"),
        (cause.waits_for_replacement_pods, "it waits for replacement pods"),
        (cause.deleting, "it is being deleted"),
    ]
    return f"it is not queued: {', '.join(text for holds, text in reasons if holds)}"


def _backoff(cause: WaitingForBackoff, _viewer: Viewer) -> str:
    if cause.until is None:
        return "a backoff, which ends when its condition Requeued is True"
    return f"a backoff until {format_time(cause.until)}"


def _targets(cause: WaitingForTargetsToLeave, viewer: Viewer) -> str:
    if not cause.targets:
        return "workloads to stop that were preempted for another workload"
    return f"preempted workloads to stop: {workloads_text(cause.targets, viewer)}"


def _checks(cause: WaitingForChecks, _viewer: Viewer) -> str:
    if not cause.checks:
        return "its admission to be written"
    return "admission checks: " + ", ".join(
        f"{name} ({'not reported' if state is None else state})" for name, state in cause.checks
    )


class _CauseWords(NamedTuple):
    """The reason of a cause, and its text for a viewer."""

    reason: str
    text: Callable[[Any, Viewer], str]


_CAUSES: Final[Mapping[type[WaitCause], _CauseWords]] = {
    WaitingForLocalQueue: _CauseWords("LocalQueue", _local_queue),
    WaitingForClusterQueue: _CauseWords("ClusterQueue", _cluster_queue),
    WaitingForActivation: _CauseWords("Activation", lambda _, __: "it is deactivated"),
    WaitingForRelease: _CauseWords("Release", _release),
    WaitingForBackoff: _CauseWords("Backoff", _backoff),
    WaitingForChange: _CauseWords(
        "Change", lambda of, _: f"it cannot be admitted as it is{_refusal_text(of.refusal)}"
    ),
    WaitingForPodsReady: _CauseWords(
        "PodsReady",
        lambda of, viewer: f"pods of {workloads_text(of.workloads, viewer, of.more)} to be ready",
    ),
    WaitingForTurn: _CauseWords("Turn", lambda _, __: "its turn: it will be evaluated next in its queue"),
    WaitingBehindHead: _CauseWords(
        "Head",
        lambda of, viewer: f"its turn behind {workload_text(of.head, viewer)}, which blocks the ClusterQueue",
    ),
    WaitingForUnusedQuota: _CauseWords("Quota", lambda of, _: f"unused quota{_refusal_text(of.refusal)}"),
    WaitingForOpenPreemptionGate: _CauseWords(
        "PreemptionGate",
        lambda _, __: "its preemption gate to open: it fits only with preemption",
    ),
    WaitingForTargetsToLeave: _CauseWords("Preemption", _targets),
    WaitingForOtherHeads: _CauseWords(
        "OtherHeads",
        lambda of, _: f"other heads of its cohort, which hold what it needs{_refusal_text(of.refusal)}",
    ),
    WaitingForChecks: _CauseWords("AdmissionChecks", _checks),
    WaitingForJobToStop: _CauseWords("JobToStop", lambda _, __: "its evicted job to stop"),
}
"""The reason and the text of each cause."""


def wait_reason(cause: WaitCause) -> str:
    """Return the reason of a cause in CamelCase, for programs."""
    return _CAUSES[type(cause)].reason


def wait_message(cause: WaitCause, viewer: Viewer = EVERYTHING) -> str:
    """Return what a workload waits for, to be read after "Waits for:"."""
    return _CAUSES[type(cause)].text(cause, viewer)


# --- quota ----------------------------------------------------------------------------------------------


def binding_text(binding: BindingNode) -> str:
    """Return which quota or limit is too small, to be read after "limited by"."""
    node = f"{'cohort' if binding.is_cohort else 'ClusterQueue'} {binding.name}"
    return (
        f"the borrowing limit of {node}"
        if binding.limit is BindingLimit.BORROWING_LIMIT
        else f"the quota of {node}"
    )


def _constraint_lines(constraint: ResourceConstraint, own_queue: str | None, viewer: Viewer) -> Iterator[str]:
    resource = constraint.resource

    def text(amount: int) -> str:
        return format_amount(resource, amount)

    earlier = f" after {text(constraint.earlier)} of earlier podsets" if constraint.earlier else ""
    line = f"{resource}: requests {text(constraint.requested)}{earlier}, {text(constraint.free)} free"
    if constraint.binding is None:
        yield line
        return
    limit = f"{text(constraint.short_by)} missing, limited by {binding_text(constraint.binding)}"
    yield f"{line} of at most {text(constraint.maximum)}: {limit}"
    for holding in constraint.holdings.listed:
        yield "  " + _holding_text(resource, holding, own_queue, viewer)
    if constraint.holdings.more:
        yield f"  {constraint.holdings.more} more hold {text(constraint.holdings.more_amount)}"


def _is_queue_visible(holding: QuotaHolding, own_queue: str | None, viewer: Viewer) -> bool:
    return viewer.may_see(holding.workload) or holding.cluster_queue == own_queue


def _holding_text(resource: str, holding: QuotaHolding, own_queue: str | None, viewer: Viewer) -> str:
    where = f" in {holding.cluster_queue}" if _is_queue_visible(holding, own_queue, viewer) else ""
    since = f" since {format_time(holding.since)}" if holding.since else ""
    leaving = ", is stopping" if holding.is_leaving else ""
    amount = format_amount(resource, holding.amount)
    return (
        f"{workload_text(holding.workload, viewer)} holds {amount}{where}{since}"
        f" (priority {holding.priority}{leaving})"
    )


def _verdict_lines(verdict: FlavorVerdict, own_queue: str | None, viewer: Viewer) -> Iterator[str]:
    pod_sets = ", ".join(verdict.pod_sets)
    where = f"podset {pod_sets}, flavor {verdict.flavor}" if verdict.flavor else f"podset {pod_sets}"
    if verdict.refusal is not None:
        yield f"{where}: {flavor_refusal_message(verdict.refusal)}"
        return
    yield f"{where}:{' fits' if verdict.fits else ''}"
    for constraint in verdict.resources:
        for line in _constraint_lines(constraint, own_queue, viewer):
            yield f"  {line}"
    if verdict.room is not None:
        for line in room_lines(verdict.room):
            yield f"  {line}"


# --- changes --------------------------------------------------------------------------------------------


def _holds_text(change: LiftHolds, _viewer: Viewer) -> str:
    parts = [
        (change.activates, "activate it"),
        (change.releases, "take it off hold"),
        (bool(change.admission_gates), f"remove its admission gates {', '.join(change.admission_gates)}"),
        (change.opens_preemption_gate, "open its preemption gate"),
    ]
    return " and ".join(text for applies, text in parts if applies)


def _reduced_text(change: ReducePods, _viewer: Viewer) -> str:
    parts = (
        f"{each.remaining} instead of {each.present} pods in podset {each.name}" for each in change.pod_sets
    )
    return f"run {', '.join(parts)}"


def _toleration_text(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.value else ""
    return f"{toleration.key}{value}:{toleration.effect}"


def _flavor_text(change: AllowFlavor, _viewer: Viewer) -> str:
    parts: list[str] = []
    if change.tolerations:
        parts.append(f"tolerate {', '.join(map(_toleration_text, change.tolerations))}")
    if change.drops_node_selection:
        parts.append("remove its node selector and node affinity")
    return f"{' and '.join(parts)} in podset {', '.join(change.pod_sets)}, to use flavor {change.flavor}"


def _quota_text(change: AddQuota, _viewer: Viewer) -> str:
    parts = (
        f"{format_amount(pair.resource, amount)} {pair.resource} of flavor {pair.flavor}"
        for pair, amount in change.amounts
    )
    return f"add {' and '.join(parts)} to the nominal quota of ClusterQueue {change.cluster_queue}"


_CHANGES: Final[Mapping[type[Change], Callable[[Any, Viewer], str]]] = {
    LiftHolds: _holds_text,
    ReducePods: _reduced_text,
    AllowFlavor: _flavor_text,
    RaisePriority: lambda of, _: f"raise its priority to {of.priority}",
    ResumeLocalQueue: lambda of, _: f"resume LocalQueue {of.local_queue}",
    ResumeClusterQueue: lambda of, _: f"resume ClusterQueue {of.cluster_queue}",
    CreateFlavors: lambda of, _: f"create ResourceFlavor {', '.join(of.flavors)}",
    ActivateChecks: lambda of, _: f"make AdmissionCheck {', '.join(of.checks)} exist and be active",
    FinishWorkloads: lambda of, viewer: f"wait until {workloads_text(of.workloads, viewer)} finished",
    AddQuota: _quota_text,
}


def change_message(change: Change, viewer: Viewer = EVERYTHING) -> str:
    """Return a change as an imperative without a capital letter and without a full stop."""
    return _text_of(_CHANGES, change, viewer)


def _text_of(texts: Mapping[type, Callable[[Any, Viewer], str]], change: Change, viewer: Viewer) -> str:
    return texts[type(change)](change, viewer)


def _alternative_text(alternative: SufficientChanges, viewer: Viewer) -> str:
    text = ", and ".join(change_message(change, viewer) for change in alternative.changes)
    if not alternative.preempted:
        return text
    return f"{text} (preempts {workloads_text(alternative.preempted, viewer)})"


def _change_lines(changes: CheapestChanges, viewer: Viewer) -> Iterator[str]:
    if changes.needs_none:
        yield "It is admitted without any change."
    elif not changes.alternatives:
        yield "No single change that admits it was found."
    else:
        yield "Any of these admits it:"
        for number, alternative in enumerate(changes.alternatives, 1):
            yield f"  {number}. {_alternative_text(alternative, viewer)}"


# --- whole explanations ---------------------------------------------------------------------------------


def explanation_lines(
    explanation: WorkloadExplanation, changes: CheapestChanges | None = None, viewer: Viewer = EVERYTHING
) -> list[str]:
    """Return an explanation as lines of text.

    Args:
        explanation: the explanation. The viewer must be allowed to see its workload.
        changes: the changes that would admit the workload; None if they were not searched.
        viewer: what the reader may see.
    """
    queue = "" if explanation.cluster_queue is None else f", ClusterQueue {explanation.cluster_queue}"
    lines = [
        f"Workload {explanation.workload}: {explanation.phase}, priority {explanation.priority}",
        f"Queues: LocalQueue {explanation.local_queue}{queue}",
    ]
    position = explanation.position
    if position is not None:
        lines.append(
            f"Position: {position.in_local_queue + 1} in the LocalQueue, "
            f"{position.in_cluster_queue + 1} in the ClusterQueue"
        )
    if explanation.waits_for is not None:
        lines.append(f"Waits for: {wait_message(explanation.waits_for, viewer)}")
    if explanation.flavors:
        lines.append("Quota:")
        for verdict in explanation.flavors:
            lines += [f"  {line}" for line in _verdict_lines(verdict, explanation.cluster_queue, viewer)]
    if changes is not None:
        lines += _change_lines(changes, viewer)
    return lines


def explanation_json(
    explanation: WorkloadExplanation, changes: CheapestChanges | None = None, viewer: Viewer = EVERYTHING
) -> dict[str, Any]:
    """Return an explanation as JSON values; the arguments are those of ``explanation_lines``.

    Positions begin with 0. Amounts are quantities. Hidden workloads and ClusterQueues are null.
    """
    position, cause = explanation.position, explanation.waits_for
    return {
        "workload": {"namespace": explanation.workload.namespace, "name": explanation.workload.name},
        "phase": str(explanation.phase),
        "priority": explanation.priority,
        "localQueueName": explanation.local_queue.name,
        "clusterQueueName": explanation.cluster_queue,
        "positionInLocalQueue": None if position is None else position.in_local_queue,
        "positionInClusterQueue": None if position is None else position.in_cluster_queue,
        "waitsFor": None if cause is None else _cause_json(cause, viewer),
        "flavors": [
            _verdict_json(verdict, explanation.cluster_queue, viewer) for verdict in explanation.flavors
        ],
        **({} if changes is None else {"changes": _changes_json(changes, viewer)}),
    }


def _cause_json(cause: WaitCause, viewer: Viewer) -> dict[str, Any]:
    result: dict[str, Any] = {"reason": wait_reason(cause), "message": wait_message(cause, viewer)}
    match cause:
        case WaitingForBackoff(until):
            result["until"] = None if until is None else format_time(until)
        case WaitingBehindHead(head):
            result["workloads"] = [workload_json(head, viewer)]
        case WaitingForPodsReady(workloads, _) | WaitingForTargetsToLeave(workloads):
            result["workloads"] = [workload_json(workload, viewer) for workload in workloads]
        case _:
            pass
    return result


def _verdict_json(verdict: FlavorVerdict, own_queue: str | None, viewer: Viewer) -> dict[str, Any]:
    refusal = verdict.refusal
    return {
        "podSets": list(verdict.pod_sets),
        "flavor": verdict.flavor or None,
        "fits": verdict.fits,
        "refusal": None if refusal is None else flavor_refusal_message(refusal),
        "resources": [_constraint_json(each, own_queue, viewer) for each in verdict.resources],
        "topology": None if verdict.room is None else room_json(verdict.room),
    }


def _constraint_json(constraint: ResourceConstraint, own_queue: str | None, viewer: Viewer) -> dict[str, Any]:
    def text(amount: int) -> str:
        return format_amount(constraint.resource, amount)

    binding = constraint.binding
    return {
        "name": constraint.resource,
        "requested": text(constraint.requested),
        "requestedByEarlierPodSets": text(constraint.earlier),
        "free": text(constraint.free),
        "maximum": text(constraint.maximum),
        "missing": text(constraint.short_by),
        "limitedBy": None
        if binding is None
        else {
            "kind": "Cohort" if binding.is_cohort else "ClusterQueue",
            "name": binding.name,
            "limit": str(binding.limit),
        },
        "heldBy": _holdings_json(constraint.resource, constraint.holdings, own_queue, viewer),
    }


def _holdings_json(
    resource: str, holdings: QuotaHoldings, own_queue: str | None, viewer: Viewer
) -> dict[str, Any]:
    return {
        "workloads": [
            {
                "workload": workload_json(each.workload, viewer),
                "clusterQueueName": each.cluster_queue
                if _is_queue_visible(each, own_queue, viewer)
                else None,
                "amount": format_amount(resource, each.amount),
                "freed": format_amount(resource, each.freed),
                "priority": each.priority,
                "since": _time_json(each.since),
                "stopping": each.is_leaving,
            }
            for each in holdings.listed
        ],
        "more": holdings.more,
        "moreAmount": format_amount(resource, holdings.more_amount),
    }


def _changes_json(changes: CheapestChanges, viewer: Viewer) -> dict[str, Any]:
    return {
        "needsNone": changes.needs_none,
        "alternatives": [
            {
                "message": _alternative_text(alternative, viewer),
                "effort": alternative.cost.effort.name.title().replace("_", ""),
                "changes": [
                    {"type": type(change).__name__, "message": change_message(change, viewer)}
                    for change in alternative.changes
                ],
                "preempts": [workload_json(workload, viewer) for workload in alternative.preempted],
            }
            for alternative in changes.alternatives
        ],
    }
