"""Custom labels of metrics: labels or annotations of objects that the configuration adds to series.

A series describes objects of one or two kinds. It has all custom labels that are configured for these kinds
(semantics, Metrics and Configuration file).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    # Imported for types only: the simulator uses this module without a configuration.
    from admitq_api.configuration import process_sections


class LabelSource(StrEnum):
    """A kind of objects from which series have custom labels.

    Series list these labels by the names of the kinds.
    """

    CLUSTER_QUEUE = "ClusterQueue"
    COHORT = "Cohort"
    LOCAL_QUEUE = "LocalQueue"
    WORKLOAD = "Workload"


SERIES_PREFIX: Final = "custom_"
"""Prefix of the names of custom labels in series."""


class MetadataKey(NamedTuple):
    """A key in the metadata of an object; ``place`` is "labels" or "annotations"."""

    place: str
    key: str


def metadata_key_of(configured: "process_sections.CustomLabelSection") -> MetadataKey:
    """Return the metadata key from which an entry of metrics.customLabels takes its value."""
    if configured.source_annotation_key:
        return MetadataKey("annotations", configured.source_annotation_key)
    return MetadataKey("labels", configured.source_label_key or configured.name)


def metadata_copied_to_workloads(
    labels: "Iterable[process_sections.CustomLabelSection]",
) -> tuple[MetadataKey, ...]:
    """Return the metadata keys that are copied from a job to its Workload for custom labels."""
    return tuple(metadata_key_of(label) for label in labels if label.source_kind == LabelSource.WORKLOAD)


@dataclass(frozen=True, slots=True)
class SeriesLabel:
    """A custom label: its configured name, and the metadata key of its value."""

    name: str
    source: LabelSource
    key: str
    place: str
    """The map that contains the key: "labels" or "annotations"."""
    tracked_values: frozenset[str]
    """The values that appear in series; all values if it is empty."""
    untracked_value: str
    """The value that replaces all other values in series."""

    @classmethod
    def from_configuration(cls, configured: "process_sections.CustomLabelSection", untracked: str) -> Self:
        """Return the label of an entry of metrics.customLabels."""
        key = metadata_key_of(configured)
        return cls(
            configured.name,
            LabelSource(configured.source_kind),
            key.key,
            key.place,
            frozenset(configured.tracked_values),
            untracked,
        )

    @property
    def series_label(self) -> str:
        """The name of the label in series; the prefix avoids conflicts with other labels of the metric."""
        return f"{SERIES_PREFIX}{self.name}"

    def value_in(self, obj: Mapping[str, Any]) -> str:
        """Return the value of the label for an object; empty if the object does not have the key."""
        value = ((obj.get("metadata") or {}).get(self.place) or {}).get(self.key)
        if value is None:
            return ""
        return value if not self.tracked_values or value in self.tracked_values else self.untracked_value


NO_LABELS: Final[Mapping[str, str]] = {}


class SeriesLabels:
    """The custom labels of a process, sorted by kind; labels of one kind are in the configured order."""

    def __init__(self, labels: Iterable[SeriesLabel] = ()) -> None:
        self._of: dict[LabelSource, tuple[SeriesLabel, ...]] = {}
        for label in labels:
            self._of[label.source] = (*self._of.get(label.source, ()), label)

    def names(self, sources: Iterable[LabelSource]) -> tuple[str, ...]:
        """Return the names of the custom labels of a series that describes these kinds."""
        return tuple(label.series_label for source in sorted(sources) for label in self._of.get(source, ()))

    def values(self, source: LabelSource, obj: Mapping[str, Any] | None) -> Mapping[str, str]:
        """Return the custom labels of an object of a kind; without an object, all values are empty."""
        labels = self._of.get(source)
        if labels is None:
            return NO_LABELS
        return {label.series_label: "" if obj is None else label.value_in(obj) for label in labels}
