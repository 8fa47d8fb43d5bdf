"""Measures the time of admissions that another program ended without recording it.

The end of an admission shows in the difference between two versions of a Workload. It is observed when
the store gets the later version, because the Workload may be admitted again before its next
reconciliation.
"""

from collections.abc import Callable

from admitq.core.model import Instant
from admitq.runtime.store import Key, ObjectChange
from admitq.workloads.transitions import condition_since, forgets_past_execution_time, is_condition_true
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, value_at


def _past_seconds(workload: JsonObject) -> int:
    return value_at(workload, ("status", "accumulatedPastExecutionTimeSeconds"), 0)


class ExecutionTimes:
    """Unrecorded execution times of Workloads.

    Args:
        clock: wall time in nanoseconds, for an end that the Workload does not date.
    """

    def __init__(self, clock: Callable[[], Instant]) -> None:
        self._clock = clock
        self._unrecorded: dict[Key, Instant] = {}

    def unrecorded(self, key: Key) -> Instant:
        """Return the unrecorded execution time of a Workload; nanoseconds."""
        return self._unrecorded.get(key, 0)

    def observe(self, change: ObjectChange) -> None:
        """Observe a change of a Workload. Its first version does not show whether an admission ended."""
        former, latter = change.old, change.new
        ran = 0 if former is None or latter is None else max(0, self._ended(former, latter))
        if not ran and change.key not in self._unrecorded:
            return
        if former is None or latter is None or _is_recorded(former, latter):
            self._unrecorded.pop(change.key, None)
        else:
            self._unrecorded[change.key] = self.unrecorded(change.key) + ran

    def _ended(self, former: JsonObject, latter: JsonObject) -> Instant:
        """Return the duration of the admission that ended between two versions; 0 if none did."""
        if not is_condition_true(former, ConditionType.ADMITTED):
            return 0
        began = condition_since(former, ConditionType.ADMITTED)
        if began is None:
            return 0
        changed = condition_since(latter, ConditionType.ADMITTED)
        if is_condition_true(latter, ConditionType.ADMITTED) and changed == began:
            return 0
        return (self._clock() if changed is None else changed) - began


def _is_recorded(former: JsonObject, latter: JsonObject) -> bool:
    """Whether the recorded time changed, or past executions no longer count."""
    return (
        _past_seconds(former) != _past_seconds(latter)
        or any(is_condition_true(workload, ConditionType.FINISHED) for workload in (former, latter))
        or forgets_past_execution_time(latter)
    )
