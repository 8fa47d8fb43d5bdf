"""The differences that hypothetical events make, as text and as JSON values.

A viewer (``viewers``) sees the names of workloads in some namespaces only, and the names of the ClusterQueues
and cohorts from which these namespaces get quota. Of all others, texts and JSON values have the number only.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from admitq.core.amounts import FlavorResource
from admitq.core.asking.forecast import Delay
from admitq.core.asking.what_if import (
    AmountChange,
    Difference,
    Move,
    NodeName,
    Place,
    ShareChange,
    Stop,
)
from admitq.core.fair_sharing import Share
from admitq.core.instructions import PreemptionReason
from admitq.core.model import Admission, Instant, ObjectKey
from admitq.translate.forecasts import delay_json, delay_text
from admitq.translate.viewers import EVERYTHING, Viewer, hidden_text, workload_json, workload_text
from admitq_api.quantity import format_amount

Item = TypeVar("Item")

MOST_LINES: Final = 20
"""The number of workloads in one list of the text."""

MOST_ITEMS: Final = 1_000
"""The number of entries in one list of the JSON value. The field ``more`` has the number of the others."""

_PREEMPTIONS: Final[Mapping[PreemptionReason, str]] = {
    PreemptionReason.IN_CLUSTER_QUEUE: "in its ClusterQueue",
    PreemptionReason.IN_COHORT_RECLAMATION: "which reclaims nominal quota",
    PreemptionReason.IN_COHORT_FAIR_SHARING: "for a fair share of the cohort",
    PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: "which reclaims nominal quota while it borrows",
}


@dataclass(frozen=True, slots=True)
class DifferenceAnswer:
    """The difference that hypothetical events make, as text and JSON for one viewer.

    Attributes:
        difference: the difference.
        delays: the changed starts of some pending workloads.
        now: the instant of the question.
        viewer: the workloads that the answer may name.
        nodes: the ClusterQueues and cohorts that the answer may name; None: all.
    """

    difference: Difference
    delays: Mapping[ObjectKey, Delay]
    now: Instant
    viewer: Viewer = EVERYTHING
    nodes: Collection[NodeName] | None = None

    # --- names ------------------------------------------------------------------------------------

    def _may_see(self, node: NodeName) -> bool:
        return self.nodes is None or node in self.nodes

    def _queue_name(self, workload: ObjectKey, name: str) -> str | None:
        node = NodeName(is_cohort=False, name=name)
        return name if self.viewer.may_see(workload) or self._may_see(node) else None

    # --- text -------------------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """The difference as lines of text."""
        difference = self.difference
        preempted = {key: stop for key, stop in difference.stopped.items() if stop.reason is not None}
        drained = [key for key, stop in difference.stopped.items() if stop.reason is None]
        lines = [
            *self._listed("Admitted", difference.admitted.items(), self._admitted_text),
            *self._listed("Preempted", preempted.items(), self._preempted_text),
            *self._listed("Evicted from stopped queues", ((key, None) for key in drained), _no_text),
            *self._listed(
                "Not admitted any more", ((key, None) for key in difference.not_admitted), _no_text
            ),
            *self._listed("Other quota", difference.reassigned.items(), self._reassigned_text),
            *self._listed("Positions", difference.moves.items(), self._move_text),
            *self._listed("Starts", self.delays.items(), self._delay_text),
            *self._node_lines("Usage", difference.usage, _usage_lines),
            *self._node_lines("Shares", difference.shares, _share_lines),
        ]
        return lines or ["Nothing changes."]

    def _listed(
        self, title: str, items: Iterable[tuple[ObjectKey, Item]], text: Callable[[Item], str]
    ) -> Iterator[str]:
        """Yield a list of workloads, and how many are hidden or not listed."""
        entries = list(items)
        if not entries:
            return
        yield f"{title}:"
        visible = [(key, item) for key, item in entries if self.viewer.may_see(key)]
        for key, item in visible[:MOST_LINES]:
            yield f"  workload {key}{text(item)}"
        if len(visible) > MOST_LINES:
            yield f"  {len(visible) - MOST_LINES} more"
        if hidden := len(entries) - len(visible):
            yield f"  {hidden_text(hidden)}"

    def _admitted_text(self, admission: Admission) -> str:
        return f" in ClusterQueue {admission.cluster_queue}, {_flavors_text(admission)}"

    def _preempted_text(self, stop: Stop) -> str:
        preemptor = "" if stop.preemptor is None else f" by {workload_text(stop.preemptor, self.viewer)}"
        why = "" if stop.reason is None else f" {_PREEMPTIONS[stop.reason]}"
        return f"{preemptor}{why}"

    def _reassigned_text(self, admissions: tuple[Admission, Admission]) -> str:
        before, after = admissions
        if before.cluster_queue == after.cluster_queue:
            return f": {_flavors_text(after)} instead of {_flavors_text(before)}"
        return f":{self._admitted_text(after)} instead of{self._admitted_text(before)}"

    def _move_text(self, move: Move) -> str:
        before, after = move
        if after is None:
            return ": not pending any more"
        queue = f"in ClusterQueue {after.cluster_queue}"
        if before is None:
            return f": {after.position + 1} {queue}"
        if before.cluster_queue == after.cluster_queue:
            return f": {after.position + 1} instead of {before.position + 1} {queue}"
        return f": {after.position + 1} {queue} instead of {before.position + 1} in {before.cluster_queue}"

    def _delay_text(self, delay: Delay) -> str:
        return f": {delay_text(delay, self.now)}"

    def _node_lines(
        self,
        title: str,
        changes: Mapping[NodeName, Item],
        text: Callable[[Item], Iterable[str]],
    ) -> Iterator[str]:
        visible = {node: change for node, change in changes.items() if self._may_see(node)}
        if visible:
            yield f"{title}:"
        for node, change in islice(visible.items(), MOST_LINES):
            name = f"{'cohort' if node.is_cohort else 'ClusterQueue'} {node.name}"
            for line in text(change):
                yield f"  {name}: {line}"
        if len(visible) > MOST_LINES:
            yield f"  {len(visible) - MOST_LINES} more"

    # --- JSON -------------------------------------------------------------------------------------

    @property
    def json(self) -> dict[str, Any]:
        """The difference as JSON values. Hidden workloads and ClusterQueues are null, positions begin with 0.

        ``more`` has the number of entries that are left out of a list, by the name of its field.
        """
        difference = self.difference
        usage = [
            {
                **_node_json(node),
                "flavor": pair.flavor,
                "resource": pair.resource,
                "before": format_amount(pair.resource, change.before),
                "after": format_amount(pair.resource, change.after),
            }
            for node, changes in difference.usage.items()
            if self._may_see(node)
            for pair, change in changes.items()
        ]
        shares = [
            {**_node_json(node), "before": _share_json(change.before), "after": _share_json(change.after)}
            for node, change in difference.shares.items()
            if self._may_see(node)
        ]
        lists: dict[str, list[dict[str, Any]]] = {
            "admitted": [
                {**self._workload(key), **self._admission_json(key, admission)}
                for key, admission in difference.admitted.items()
            ],
            "preempted": [
                {
                    **self._workload(key),
                    "reason": str(stop.reason),
                    "preemptor": None
                    if stop.preemptor is None
                    else workload_json(stop.preemptor, self.viewer),
                }
                for key, stop in difference.stopped.items()
                if stop.reason is not None
            ],
            "drained": [
                self._workload(key) for key, stop in difference.stopped.items() if stop.reason is None
            ],
            "notAdmitted": [self._workload(key) for key in difference.not_admitted],
            "reassigned": [
                {
                    **self._workload(key),
                    "before": self._admission_json(key, before),
                    "after": self._admission_json(key, after),
                }
                for key, (before, after) in difference.reassigned.items()
            ],
            "positions": [
                {
                    **self._workload(key),
                    "before": self._place_json(key, move.before),
                    "after": self._place_json(key, move.after),
                }
                for key, move in difference.moves.items()
            ],
            "starts": [{**self._workload(key), **delay_json(delay)} for key, delay in self.delays.items()],
            "usage": usage,
            "shares": shares,
        }
        more = {name: len(items) - MOST_ITEMS for name, items in lists.items() if len(items) > MOST_ITEMS}
        return {**{name: items[:MOST_ITEMS] for name, items in lists.items()}, "more": more}

    def _workload(self, key: ObjectKey) -> dict[str, Any]:
        return {"workload": workload_json(key, self.viewer)}

    def _admission_json(self, key: ObjectKey, admission: Admission) -> dict[str, Any]:
        queue = {"clusterQueueName": self._queue_name(key, admission.cluster_queue)}
        if not self.viewer.may_see(key):
            return queue
        return {
            **queue,
            "podSets": [
                {"name": each.name, "count": each.count, "flavors": dict(each.flavors)}
                for each in admission.pod_set_assignments
            ],
        }

    def _place_json(self, key: ObjectKey, place: Place | None) -> dict[str, Any] | None:
        if place is None:
            return None
        return {"clusterQueueName": self._queue_name(key, place.cluster_queue), "position": place.position}


def _no_text(_item: None) -> str:
    return ""


def _flavors_text(admission: Admission) -> str:
    """Return the flavors of an admission, and the number of pods."""
    flavors = sorted({flavor for each in admission.pod_set_assignments for _, flavor in each.flavors})
    pods = sum(each.count for each in admission.pod_set_assignments)
    counted = "1 pod" if pods == 1 else f"{pods} pods"
    return f"{counted} with flavor {', '.join(flavors)}" if flavors else counted


def _usage_lines(changes: Mapping[FlavorResource, AmountChange]) -> Iterator[str]:
    for pair, change in changes.items():
        before, after = (format_amount(pair.resource, amount) for amount in change)
        yield f"{after} instead of {before} {pair.resource} of flavor {pair.flavor}"


def _share_lines(change: ShareChange) -> Iterator[str]:
    before, after = (_share_text(share) for share in change)
    yield f"{after} instead of {before}"


def _share_text(share: Share | None) -> str:
    if share is None:
        return "none"
    return "infinite" if share.infinite else str(share.weighted_share)


def _share_json(share: Share | None) -> int | None:
    """Return a share as statuses show it; None if the node does not exist."""
    return None if share is None else share.weighted_share


def _node_json(node: NodeName) -> dict[str, str]:
    return {"kind": "Cohort" if node.is_cohort else "ClusterQueue", "name": node.name}
