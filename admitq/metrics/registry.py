"""The registry of metrics. It drops the series of objects that do not exist any more.

Every series has the label ``replica_role``: leader, follower or standalone. Durations are seconds.
"""

import platform
import threading
from collections import Counter as Count
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

from admitq.metrics.custom_labels import NO_LABELS, SERIES_PREFIX, LabelSource, SeriesLabel, SeriesLabels
from admitq.metrics.table import (
    FROM_CLUSTER_QUEUE_AND_WORKLOAD,
    FROM_LOCAL_QUEUE_AND_WORKLOAD,
    NAME_LABELS,
    SERIES_BY_NAME_LABELS,
    SERIES_WITHOUT_NAME,
    TABLE,
    UNEXPECTED_ERRORS,
    Series,
    SeriesType,
)
from admitq.process.unexpected_errors import ErrorPart, UnexpectedErrors
from admitq_api.version import VERSION

ReplicaRole = str
AnySeries = Counter | Gauge | Histogram
SeriesKey = tuple[str | tuple[str, str], ...]
"""The role of the replica, then the other labels with their values."""

# No series for the creation times of counters: they would double the number of series.
disable_created_metrics()


ROLE: Final = "replica_role"


async def _do_not_wait() -> None:
    """Return at once: this process runs no cycles."""


def label_name_problems(custom: Sequence[SeriesLabel]) -> list[str]:
    """Return the errors in the names of custom labels: the labels of one series need different names."""
    labels = SeriesLabels(custom)
    problems: list[str] = []
    for carries in (FROM_CLUSTER_QUEUE_AND_WORKLOAD, FROM_LOCAL_QUEUE_AND_WORKLOAD):
        twice = [name for name, count in Count(labels.names(carries)).items() if count > 1]
        kinds = " and ".join(carries)
        remedy = f"is taken from {kinds}, which one metric carries: rename one"
        problems += [f"{name.removeprefix(SERIES_PREFIX)!r} {remedy}" for name in twice]
    return problems


class Metrics:
    """The registry of one process.

    Args:
        prefix: the prefix of all names, "admitq" by default.
        role: the role of the replica at the start.
        custom: custom labels.

    Attributes:
        role: the current role of the replica.
        errors: logs unexpected exceptions of the process and counts them here.
        wait_for_cycle_end: awaited before ``count``, because numbers are not consistent during a cycle.
    """

    def __init__(
        self, prefix: str = "admitq", *, role: ReplicaRole = "standalone", custom: Iterable[SeriesLabel] = ()
    ) -> None:
        # The library registers the counter x_total as family x, which would conflict with a gauge x.
        self._counters, self._others = CollectorRegistry(), CollectorRegistry()
        self.role = role
        self._custom = SeriesLabels(custom)
        self._described: dict[tuple[LabelSource, tuple[str, ...]], Mapping[str, str]] = {}
        self._carries = {
            series.name: tuple(source for source in series.label_sources if self._custom.names((source,)))
            for series in TABLE
        }
        self._at_reading: list[Callable[[], None]] = []
        self.wait_for_cycle_end: Callable[[], Awaitable[None]] = _do_not_wait
        self._series = {series.name: self._build(prefix, series) for series in TABLE}
        self._by_labels: dict[str, dict[SeriesKey, AnySeries]] = {name: {} for name in self._series}
        """Series by metric and labels. The search of the library takes several microseconds."""
        self._lock = threading.Lock()
        """Held while ``_by_labels`` gets a series, or series are dropped: a dropped one must not be found."""
        self.errors = UnexpectedErrors(
            lambda part, route: self.increment(UNEXPECTED_ERRORS, part=part, route=route)
        )
        self._sources = [(part, "") for part in ErrorPart if part is not ErrorPart.REVIEW]
        self._initialise_error_counters()
        self.set(
            "build_info",
            1,
            git_version=f"v{VERSION}",
            git_commit="",
            build_date="",
            go_version="",
            compiler=f"{platform.python_implementation()} {platform.python_version()}",
            platform=f"{platform.system().lower()}/{platform.machine()}",
        )

    def _build(self, prefix: str, series: Series) -> AnySeries:
        labels = (*series.labels, *self._custom.names(series.label_sources), ROLE)
        name = f"{prefix}_{series.name}"
        if series.type is SeriesType.COUNTER:
            return Counter(name, series.help, labels, registry=self._counters)
        if series.type is SeriesType.HISTOGRAM:
            return Histogram(name, series.help, labels, registry=self._others, buckets=series.buckets)
        return Gauge(name, series.help, labels, registry=self._others)

    def increment(self, name: str, by: float = 1, /, **labels: str) -> None:
        """Increment a counter."""
        series = self._find_series(name, labels)
        assert isinstance(series, Counter), name  # noqa: S101
        series.inc(by)

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Record a duration in a histogram; a negative duration counts as 0."""
        series = self._find_series(name, labels)
        assert isinstance(series, Histogram), name  # noqa: S101
        series.observe(max(0.0, seconds))

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        series = self._find_series(name, labels)
        assert isinstance(series, Gauge), name  # noqa: S101
        series.set(value)

    def _find_series(self, name: str, labels: Mapping[str, str]) -> AnySeries:
        """Return the series of a metric with these labels and the custom labels that are not among them."""
        if self._carries[name]:
            labels = {**labels, **self._missing_custom_labels(name, labels)}
        by_labels, key = self._by_labels[name], (self.role, *labels.items())
        series = by_labels.get(key)
        if series is None:
            with self._lock:
                series = by_labels[key] = self._series[name].labels(**labels, replica_role=self.role)
        return series

    def forget(self, names: Iterable[str], /, **labels: str) -> None:
        """Drop the series with these labels, whatever their other labels are."""
        for name in names:
            with self._lock:
                self._series[name].remove_by_labels(labels)
                self._by_labels[name].clear()

    def clear(self, name: str) -> None:
        """Drop all series of a metric."""
        with self._lock:
            self._series[name].clear()
            self._by_labels[name].clear()

    def change_role(self, role: ReplicaRole) -> None:
        """Change the role: gauges move to the new role, all other series stay with the former role."""
        if role == self.role:
            return
        self._move_gauges(self._series, {ROLE: self.role}, {ROLE: role})
        self.role = role
        # Counters stay with the former role. Counters of errors that are 0 are dropped.
        errors = self._series[UNEXPECTED_ERRORS]
        for sample in [
            sample for family in errors.collect() for sample in family.samples if not sample.value
        ]:
            self.forget((UNEXPECTED_ERRORS,), **sample.labels)
        self._initialise_error_counters()

    def _initialise_error_counters(self) -> None:
        """Expose counters of errors with 0; a counter that appears with its first error has no rate."""
        for part, route in self._sources:
            self.increment(UNEXPECTED_ERRORS, 0, part=part, route=route)

    def add_webhook_routes(self, routes: Iterable[str]) -> None:
        """Expose the counters of errors in reviews for the paths of these webhooks."""
        self._sources += [(ErrorPart.REVIEW, route) for route in routes]
        self._initialise_error_counters()

    def update_on_scrape(self, count: Callable[[], None]) -> None:
        """Register an update that runs before each scrape, for metrics that changes do not update."""
        self._at_reading.append(count)

    def run_scrape_updates(self) -> None:
        """Run the updates before a scrape, in the thread of the event loop.

        If an update raises, its metrics may be old or missing; other metrics are not affected.
        """
        for count in self._at_reading:
            with self.errors.contain(ErrorPart.METRICS, getattr(count, "__qualname__", "")):
                count()

    def render(self) -> bytes:
        """Return all series in the Prometheus text format, without updates. Any thread may call it."""
        return generate_latest(self._counters) + generate_latest(self._others)

    def exposition(self) -> bytes:
        """Run the updates, and return all series in the Prometheus text format."""
        self.run_scrape_updates()
        return self.render()

    # --- custom labels ----------------------------------------------------------------------------

    def has_custom_labels_from(self, source: LabelSource) -> bool:
        """Whether custom labels are configured for a kind."""
        return bool(self._custom.names((source,)))

    def labels_from_object(
        self, series: str, source: LabelSource, obj: Mapping[str, Any] | None
    ) -> Mapping[str, str]:
        """Return the custom labels of an object for a series that does not name the object; may be empty."""
        return self._custom.values(source, obj) if source in self._carries[series] else NO_LABELS

    def stored_labels(self, series: str, source: LabelSource, *key: str) -> Mapping[str, str]:
        """Return the stored custom labels of an object, for a series that does not name the object."""
        if source not in self._carries[series]:
            return NO_LABELS
        return self._described.get((source, key)) or self._custom.values(source, None)

    def has_current_labels(self, source: LabelSource, obj: Mapping[str, Any], *key: str) -> bool:
        """Whether the stored custom labels of an object are current."""
        if not self.has_custom_labels_from(source):
            return True
        former = self._described.get((source, key)) or self._custom.values(source, None)
        return former == self._custom.values(source, obj)

    def store_labels(self, source: LabelSource, obj: Mapping[str, Any], *key: str) -> None:
        """Store the custom labels of an object.

        Gauges move to the new values. Counters and histograms with the former values stay.
        """
        if self.has_current_labels(source, obj, *key):
            return
        values = self._described[source, key] = self._custom.values(source, obj)
        for parts in NAME_LABELS[source]:
            carrying = (
                name for name in SERIES_BY_NAME_LABELS[source, parts] if source in self._carries[name]
            )
            self._move_gauges(carrying, dict(zip(parts, key, strict=True)), values)

    def _move_gauges(
        self, names: Iterable[str], labels: Mapping[str, str], values: Mapping[str, str]
    ) -> None:
        """Change the values of labels of all gauges that have ``labels``."""
        for name in names:
            gauge = self._series[name]
            if not isinstance(gauge, Gauge):
                continue
            moved = [
                (sample.labels, sample.value)
                for family in gauge.collect()
                for sample in family.samples
                if labels.items() <= sample.labels.items()
            ]
            self.forget((name,), **labels)
            for former, value in moved:
                gauge.labels(**{**former, **values}).set(value)

    def _missing_custom_labels(self, name: str, labels: Mapping[str, str]) -> Mapping[str, str]:
        """Return the custom labels of a series that are not in ``labels``."""
        sources = self._carries[name]
        if not sources:
            return NO_LABELS
        missing: dict[str, str] = {}
        for source in sources:
            key = next(
                (
                    tuple(labels[part] for part in parts)
                    for parts in NAME_LABELS.get(source, ())
                    if all(part in labels for part in parts)
                ),
                (),
            )
            values = self._described.get((source, key)) or self._custom.values(source, None)
            missing.update((name, value) for name, value in values.items() if name not in labels)
        return missing

    # --- deleted objects -----------------------------------------------------------------------------

    def forget_cluster_queue(self, name: str) -> None:
        """Drop all series of a deleted ClusterQueue."""
        self._drop_object(LabelSource.CLUSTER_QUEUE, (name,))

    def forget_local_queue(self, namespace: str, name: str) -> None:
        """Drop all series of a deleted LocalQueue."""
        self._drop_object(LabelSource.LOCAL_QUEUE, (namespace, name))

    def forget_cohort(self, name: str) -> None:
        """Drop all series of a deleted cohort."""
        self._drop_object(LabelSource.COHORT, (name,))

    def _drop_object(self, source: LabelSource, key: tuple[str, ...]) -> None:
        self._drop_series_with_name(source, key)
        self._drop_series_without_name(source, self._described.pop((source, key), NO_LABELS))

    def _drop_series_with_name(self, source: LabelSource, key: tuple[str, ...]) -> None:
        """Drop the series that name an object."""
        for parts in NAME_LABELS[source]:
            self.forget(SERIES_BY_NAME_LABELS[source, parts], **dict(zip(parts, key, strict=True)))

    def _drop_series_without_name(self, source: LabelSource, values: Mapping[str, str]) -> None:
        """Drop the series with these custom labels and without the name of an object, if no object has them.

        Objects without custom labels are not known here, so series with empty values stay.
        """
        value_sets = (theirs for (kind, _), theirs in self._described.items() if kind is source)
        if any(values.values()) and values not in value_sets:
            self.forget(
                (name for name in SERIES_WITHOUT_NAME[source] if source in self._carries[name]), **values
            )
