"""Numbers of workloads that are finished, admitted or neither, updated with each change of a Workload."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from admitq.core.model import ObjectKey, Workload
from admitq.metrics.custom_labels import LabelSource
from admitq.metrics.measures.scope import Labels, conditions_of
from admitq.metrics.registry import Metrics
from admitq_api import conditions
from admitq_api.conditions import ConditionType, Reason
from admitq_api.json_objects import JsonObject


class WorkloadState(NamedTuple):
    """The state by which one workload is counted."""

    queue: ObjectKey
    reserved_in: str
    """The ClusterQueue of the quota that the workload holds, or held when it finished; empty if none."""
    finished: bool
    unadmitted: tuple[str, str] | None
    is_admitted: bool
    custom_labels: Labels
    """The custom labels of the workload."""


_FINISHED, _UNADMITTED = "finished_workloads", "unadmitted_workloads"


class WorkloadStateCounter:
    """Counts workloads by their state.

    Args:
        metrics: the registry, which has the custom labels.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._states: dict[ObjectKey, WorkloadState] = {}
        self._shared: dict[WorkloadState, WorkloadState] = {}
        self._counts: Counter[WorkloadState] = Counter()

    def put(self, value: Workload, obj: JsonObject) -> None:
        """Count a workload as it is now."""
        self.remove(value.key)
        state = WorkloadState(
            queue=ObjectKey(value.key.namespace, value.queue_name),
            reserved_in="" if value.admission is None else value.admission.cluster_queue,
            finished=value.finished,
            unadmitted=_unadmitted_reason(obj) if not value.finished and not value.admitted else None,
            is_admitted=value.admitted and not value.finished and value.admission is not None,
            custom_labels=self._custom_of(obj),
        )
        # Many workloads share a state, and then also its memory.
        self._states[value.key] = self._shared.setdefault(state, state)
        self._counts[state] += 1

    def remove(self, key: ObjectKey) -> None:
        """Stop counting a workload."""
        state = self._states.pop(key, None)
        if state is not None:
            self._counts[state] -= 1
            if not self._counts[state]:
                del self._counts[state], self._shared[state]

    def custom_labels_of(self, key: ObjectKey) -> Labels:
        """Return the custom labels of a Workload."""
        state = self._states.get(key)
        return self._custom_of(None) if state is None else state.custom_labels

    def _custom_of(self, obj: JsonObject | None) -> Labels:
        return tuple(self._metrics.labels_from_object("pending_workloads", LabelSource.WORKLOAD, obj).items())

    def admitted(self) -> Iterator[tuple[WorkloadState, int]]:
        """Return the numbers of workloads that are admitted and have not finished, by state."""
        return ((state, count) for state, count in self._counts.items() if state.is_admitted)

    def counts(self, cluster_queue_of: Callable[[ObjectKey], str | None]) -> dict[str, Counter[Labels]]:
        """Return the numbers of finished and of unadmitted workloads, by series and labels."""
        of_cluster_queues = {_FINISHED: Counter[Labels](), _UNADMITTED: Counter[Labels]()}
        of_local_queues = {_FINISHED: Counter[Labels](), _UNADMITTED: Counter[Labels]()}
        for state, count in self._counts.items():
            cluster_queue = state.reserved_in or cluster_queue_of(state.queue) or ""
            of_queue = (("name", state.queue.name), ("namespace", state.queue.namespace))
            named = (("cluster_queue", cluster_queue),)
            if state.finished:
                of_cluster_queues[_FINISHED][named] += count
                of_local_queues[_FINISHED][of_queue] += count
            if state.unadmitted is not None:
                reason, cause = state.unadmitted
                labels = (*named, ("reason", reason), ("underlying_cause", cause))
                of_cluster_queues[_UNADMITTED][labels] += count
                of_local_queues[_UNADMITTED][(*of_queue, *labels)] += count
        return of_cluster_queues | {f"local_queue_{name}": of for name, of in of_local_queues.items()}


def _unadmitted_reason(obj: JsonObject) -> tuple[str, str]:
    admitted = conditions.find_condition(conditions_of(obj), ConditionType.ADMITTED) or {}
    reserved = conditions.find_condition(conditions_of(obj), ConditionType.QUOTA_RESERVED) or {}
    return admitted.get("reason") or Reason.NO_RESERVATION, reserved.get("reason") or ""
