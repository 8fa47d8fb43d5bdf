"""Quarantine of stored objects that cannot be read, or on which the core failed.

The core does not observe these objects, or only a reduced version. Events, conditions and a metric report
them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from admitq.core.model import Instant, ObjectKey
from admitq.manager.admission_writer import AdmissionWriter
from admitq.metrics.registry import Metrics
from admitq.process.logs import logger
from admitq.process.unexpected_errors import ErrorPart
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq.translate.messages import Explanation
from admitq.translate.metadata import key_of
from admitq.translate.observations import READ_ERRORS, describe_read_error
from admitq.workloads.admission_status import ADMISSION_MANAGER_SUFFIX
from admitq_api import conditions
from admitq_api.conditions import ConditionType, Reason

log = logger(__name__)


MALFORMED_EVENT: Final = "Malformed"
WITH_ACTIVE_CONDITION: Final = ("clusterqueues", "localqueues")


@dataclass(frozen=True, slots=True)
class QuarantinedObject:
    """A quarantined object and the problem."""

    resource: Resource
    obj: dict[str, Any]
    problem: str
    reason: str = MALFORMED_EVENT
    """The reason of the event about the object."""


@dataclass
class Quarantine:
    """The quarantined objects.

    Args:
        metrics: counts them.
        count_in_store: how many objects of a resource are quarantined in its store.
        report: called with each object that is added.
    """

    metrics: Metrics
    count_in_store: Callable[[Resource], int]
    report: Callable[[QuarantinedObject], None] = lambda _: None
    objects: dict[tuple[str, ObjectKey], QuarantinedObject] = field(
        default_factory=dict[tuple[str, ObjectKey], QuarantinedObject]
    )

    def add_unreadable(self, resource: Resource, obj: dict[str, Any], error: Exception) -> bool:
        """Quarantine and report an object that cannot be read; return whether the problem is new."""
        return self.add(resource, obj, describe_read_error(error), MALFORMED_EVENT)

    def add(self, resource: Resource, obj: dict[str, Any], problem: str, reason: str) -> bool:
        """Quarantine and report an object; return whether the problem is new."""
        key = key_of(obj)
        before = self.objects.get((resource.plural, key))
        now = self.objects[resource.plural, key] = QuarantinedObject(resource, obj, problem, reason)
        if before is not None and before.problem == problem:
            return False
        self.update_metric(resource)
        log.warning(
            "malformed object quarantined", resource=resource.plural, object=str(key), problem=problem
        )
        self.report(now)
        return True

    def remove(self, plural: str, key: ObjectKey) -> None:
        """Remove an object that can be read again or was deleted."""
        if (quarantined := self.objects.pop((plural, key), None)) is not None:
            self.update_metric(quarantined.resource)

    def report_all(self) -> None:
        """Report all quarantined objects, because this process may write now."""
        for quarantined in self.objects.values():
            self.report(quarantined)

    def update_metric(self, resource: Resource) -> None:
        """Set the metric of the quarantined objects of a resource."""
        with self.metrics.errors.contain(ErrorPart.METRICS, resource):
            unreadable = sum(plural == resource.plural for plural, _ in self.objects)
            count = unreadable + self.count_in_store(resource)
            self.metrics.set("malformed_objects", count, resource=resource.plural)


@dataclass(frozen=True)
class QuarantineReporter:
    """Reports quarantined objects by an event and by their status.

    Args:
        writer: writes the statuses of Workloads; its client and event recorder report other objects.
        clock: wall time in nanoseconds.
        leading: whether this process may write.
        spawn: starts a write in the background.
    """

    writer: AdmissionWriter
    clock: Callable[[], Instant]
    leading: Callable[[], bool]
    spawn: Callable[[Awaitable[None]], object]

    def report(self, quarantined: QuarantinedObject) -> None:
        """Report an object in the background, if this process may write."""
        self.spawn(self._report(quarantined))

    async def _report(self, quarantined: QuarantinedObject) -> None:
        if not self.leading():
            return
        key = key_of(quarantined.obj)
        self.writer.recorder.event(quarantined.obj, "Warning", quarantined.reason, quarantined.problem)
        try:
            if quarantined.resource == self.writer.writes.resource:
                uid = quarantined.obj["metadata"]["uid"]
                await self.writer.write_pending(
                    key, uid, Explanation(Reason.MISCONFIGURED, quarantined.problem), ()
                )
            elif quarantined.resource.plural in WITH_ACTIVE_CONDITION:
                await self._report_inactive(quarantined)
        except (ApiError, *READ_ERRORS) as error:
            # The event and the metric report the object anyway. Its status may not be writable.
            log.info("status of quarantined object not written", object=str(key), error=repr(error))

    async def _report_inactive(self, quarantined: QuarantinedObject) -> None:
        metadata = quarantined.obj["metadata"]
        before = (quarantined.obj.get("status") or {}).get("conditions") or []
        state = conditions.with_condition(
            before,
            type=ConditionType.ACTIVE,
            status=False,
            reason=Reason.UNKNOWN,
            message=quarantined.problem,
            now=self.clock(),
            observed_generation=metadata.get("generation"),
        )
        if state == before:
            return
        guard = {"resourceVersion": metadata["resourceVersion"]}
        written = await self.writer.writes.client.merge_patch(
            quarantined.resource,
            metadata["name"],
            {"metadata": guard, "status": {"conditions": state}},
            namespace=metadata.get("namespace"),
            subresource="status",
            field_manager=self.writer.names.field_manager(ADMISSION_MANAGER_SUFFIX),
        )
        self.writer.writes.store_answer(quarantined.resource, written)
