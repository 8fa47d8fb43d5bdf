"""Reports changes in the stores to the core as events, updates metrics, and records events on jobs."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from admitq.core import events as happened
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.manager.job_events import JobEventRecorder
from admitq.manager.recovery import Recovery
from admitq.manager.transition_metrics import WorkloadVersions, count_transitions
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.process.logs import logger
from admitq.process.unexpected_errors import ErrorPart, UnexpectedErrors
from admitq.runtime.events import EventRecorder
from admitq.runtime.resources import Resource
from admitq.runtime.store import ObjectChange
from admitq.translate.observations import READ_ERRORS

log = logger(__name__)

ObservedObject = tuple[Resource, dict[str, Any]]


class ChangeObserver:
    """Reports changes of objects to the core.

    Args:
        workload_resource: the resource of Workloads.
        recovery: reads objects, and quarantines those on which the core failed.
        measures: the metrics of queues and workloads.
        errors: reports exceptions of metrics.
        clock: wall time in nanoseconds.
        run_between_cycles: runs work at once, or after the running cycle and earlier work.
        put: reports an event to the core, with the object of the event if it exists.
        forget_report: drops the unwritten report of a Workload that was deleted.
        state: the core, for the status of a cohort with a deleted object.
        reports_transitions: whether this process counts the transitions of Workloads now, and records
            events on their jobs.
        recorder: records Kubernetes events.
    """

    def __init__(
        self,
        workload_resource: Resource,
        recovery: Recovery[AdmissionState],
        measures: ManagerMeasures,
        errors: UnexpectedErrors,
        clock: Callable[[], Instant],
        run_between_cycles: Callable[[Callable[[], None]], None],
        put: Callable[[happened.Event, ObservedObject | None], None],
        forget_report: Callable[[ObjectKey], None],
        state: AdmissionState,
        reports_transitions: Callable[[], bool],
        recorder: EventRecorder,
    ) -> None:
        self._workload_resource = workload_resource
        self._recovery = recovery
        self._measures = measures
        self._errors = errors
        self._clock = clock
        self._run_between_cycles = run_between_cycles
        self._put = put
        self._forget_report = forget_report
        self._state = state
        self._reports_transitions = reports_transitions
        self._job_events = JobEventRecorder(recorder, state, errors, run_between_cycles)

    def observe(self, resource: Resource, change: ObjectChange) -> None:
        """Observe a change in a store, from a watch or from the answer to a write. Never raises.

        While a cycle runs, the core observes the change after the cycle.
        """
        self._run_between_cycles(partial(self._report_to_core, resource, change))
        if resource == self._workload_resource and self._reports_transitions():
            self._report_transitions(change)

    def _report_transitions(self, change: ObjectChange) -> None:
        if change.old is None:
            return
        with self._errors.contain(ErrorPart.METRICS, change.key), self._log_malformed(change):
            versions = WorkloadVersions(change.old, change.new, self._clock())
            count_transitions(versions, self._measures.workloads)
        with self._errors.contain(ErrorPart.REPORT, change.key), self._log_malformed(change):
            self._job_events.record_changed_reason(change.old, change.new)

    @contextmanager
    def _log_malformed(self, change: ObjectChange) -> Generator[None]:
        """Log that a malformed Workload cannot be reported."""
        try:
            yield
        except READ_ERRORS as error:
            log.warning(
                "metrics not updated, workload is malformed", workload=str(change.key), error=str(error)
            )

    def _report_to_core(self, resource: Resource, change: ObjectChange) -> None:
        obj, key = change.object, ObjectKey(*change.key)
        if change.new is None:
            deletion = self._recovery.forget_deleted(resource, obj)
            if resource == self._workload_resource:
                self._forget_report(key)
            self._put(deletion, None)
            with self._errors.contain(ErrorPart.METRICS, key):
                self._drop_metrics(deletion)
            return
        event, is_whole = self._recovery.read_changed(resource, obj)
        if event is None:
            return
        if is_whole:
            # The core must observe the event even if a metric has a defect.
            with self._errors.contain(ErrorPart.METRICS, key):
                self._update_metrics(event, obj)
        self._put(event, (resource, obj))

    def _update_metrics(self, event: happened.Event, obj: dict[str, Any]) -> None:
        """Update the metrics of an object."""
        match event:
            case happened.WorkloadChanged(workload):
                self._measures.gauges.workload_observed(workload, obj)
            case happened.ClusterQueueChanged(cluster_queue):
                self._measures.queues.cluster_queue_observed(cluster_queue, obj)
                self._measures.changed.cluster_queue_changed(cluster_queue.name)
            case happened.LocalQueueChanged(local_queue):
                self._measures.queues.local_queue_observed(local_queue.key, obj)
                self._measures.changed.local_queue_changed(local_queue.key)
            case happened.CohortChanged(cohort):
                self._measures.queues.cohort_observed(cohort.name, obj)
                self._measures.changed.cohort_changed(cohort.name)
                self._measures.queues.cohorts_changed()
            case _:
                pass

    def _drop_metrics(self, deletion: happened.Event) -> None:
        """Update metrics after the core has observed that an object was deleted."""
        match deletion:
            case happened.WorkloadDeleted(key):
                self._measures.gauges.workload_deleted(key)
            case happened.ClusterQueueDeleted(name):
                self._measures.forget_cluster_queue(name)
            case happened.LocalQueueDeleted(key):
                self._measures.forget_local_queue(key)
            case happened.CohortDeleted(name):
                self._measures.queues.cohorts_changed()
                self._measures.queues.cohort_object_deleted(name, self._state.queries.cohort_status(name))
            case _:
                pass
