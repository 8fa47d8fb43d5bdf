"""Remembers admissions, to add up the time of those that another program ended without adding it up."""

from dataclasses import dataclass

from admitq.core.model import Instant
from admitq.integrations.paths import Object, value_at
from admitq.runtime.store import Key
from admitq.transitions import holds, since
from admitq_api.conditions import ConditionType


@dataclass(frozen=True, slots=True)
class _Admission:
    uid: str
    began: Instant
    past_seconds: int
    """The time of former admissions as the status stated it while this one lasted."""


def _past_seconds(workload: Object) -> int:
    return value_at(workload, ("status", "accumulatedPastExecutionTimeSeconds"), 0)


class Executions:
    """The admissions that were seen, by Workload."""

    def __init__(self) -> None:
        self._seen: dict[Key, _Admission] = {}

    def unrecorded(self, key: Key, workload: Object) -> Instant:
        """How long an admission lasted that has ended and was not added up; nanoseconds."""
        seen, uid = self._seen.get(key), workload["metadata"]["uid"]
        if holds(workload, ConditionType.FINISHED):
            self.forget(key)
            return 0
        if holds(workload, ConditionType.ADMITTED):
            if (began := since(workload, ConditionType.ADMITTED)) is not None:
                self._seen[key] = _Admission(uid, began, _past_seconds(workload))
            return 0
        ended = since(workload, ConditionType.ADMITTED)
        if seen is None or ended is None or (seen.uid, seen.past_seconds) != (uid, _past_seconds(workload)):
            self.forget(key)
            return 0
        return max(0, ended - seen.began)

    def forget(self, key: Key) -> None:
        """Forget a Workload."""
        self._seen.pop(key, None)
