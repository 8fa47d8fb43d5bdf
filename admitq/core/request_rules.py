"""The rules for requests in a namespace: LimitRanges, overheads of RuntimeClasses, and settings."""

from collections.abc import Mapping

from admitq.core.indexes import discard
from admitq.core.limit_ranges import limits_of
from admitq.core.model import ExactAmounts, LimitRange, ObjectKey, Workload
from admitq.core.requests import RequestRules, ResolvedRequests, resolve
from admitq.core.settings import CoreSettings


class RequestRulesByNamespace:
    """The rules of each namespace, computed when they are first needed after a change.

    Args:
        settings: the settings of resources, and the gate for reclaimable pods, are part of the rules.
    """

    def __init__(self, settings: CoreSettings) -> None:
        self._settings = settings
        self._limit_ranges: dict[str, dict[str, LimitRange]] = {}
        self._overheads: dict[str, ExactAmounts] = {}
        self._rules: dict[str, RequestRules] = {}

    @property
    def limit_ranges(self) -> tuple[tuple[ObjectKey, LimitRange], ...]:
        """All LimitRanges, sorted by namespace and name."""
        return tuple(
            (ObjectKey(namespace, name), ranges[name])
            for namespace, ranges in sorted(self._limit_ranges.items())
            for name in sorted(ranges)
        )

    @property
    def overheads(self) -> Mapping[str, ExactAmounts]:
        """The overheads of pods, by RuntimeClass."""
        return self._overheads

    def put_limit_range(self, key: ObjectKey, limit_range: LimitRange) -> bool:
        """Record a LimitRange as it is now. Return whether it changed."""
        ranges = self._limit_ranges.setdefault(key.namespace, {})
        if ranges.get(key.name) == limit_range:
            return False
        ranges[key.name] = limit_range
        self._rules.pop(key.namespace, None)
        return True

    def delete_limit_range(self, key: ObjectKey) -> bool:
        """Remove a LimitRange. Return whether it was known."""
        if key.name not in self._limit_ranges.get(key.namespace, ()):
            return False
        discard(self._limit_ranges, key.namespace, key.name)
        self._rules.pop(key.namespace, None)
        return True

    def put_overhead(self, runtime_class: str, overhead: ExactAmounts) -> bool:
        """Record the overhead of a RuntimeClass as it is now. Return whether it changed."""
        if self._overheads.get(runtime_class) == overhead:
            return False
        self._overheads[runtime_class] = overhead
        self._rules.clear()
        return True

    def delete_overhead(self, runtime_class: str) -> bool:
        """Remove a RuntimeClass. Return whether it was known."""
        if self._overheads.pop(runtime_class, None) is None:
            return False
        self._rules.clear()
        return True

    def rules_of(self, namespace: str) -> RequestRules:
        """Return the rules of a namespace."""
        rules = self._rules.get(namespace)
        if rules is None:
            ranges = self._limit_ranges.get(namespace, {})
            rules = self._rules[namespace] = RequestRules(
                self._settings.resources,
                limits_of(ranges[name] for name in sorted(ranges)),
                tuple(sorted(self._overheads.items())),
                self._settings.gates.reclaimable_pods,
            )
        return rules

    def resolve(self, workload: Workload) -> ResolvedRequests:
        """Return the requests of the podsets of a workload, and the problems that make them invalid."""
        return resolve(workload.pod_sets, workload.reclaimable_pods, self.rules_of(workload.key.namespace))
