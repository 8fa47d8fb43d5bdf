"""Custom labels of metrics: values that labels or annotations of objects have, as the configuration asks.

A series tells of objects of one or two kinds; of each it carries all custom labels that are configured for
that kind (semantics, Metrics and Configuration file).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    # The simulator copies Workloads without a configuration.
    from admitq_api.configuration import process_sections


class LabelSource(StrEnum):
    """A kind of objects that values are taken from. Labels come in the order of their kinds' names."""

    CLUSTER_QUEUE = "ClusterQueue"
    COHORT = "Cohort"
    LOCAL_QUEUE = "LocalQueue"
    WORKLOAD = "Workload"


SERIES_PREFIX: Final = "custom_"
"""What the name of every custom label starts with in a series."""


class MetadataKey(NamedTuple):
    """Where in the metadata of an object a value is: "labels" or "annotations", and the key there."""

    place: str
    key: str


def metadata_key_of(configured: "process_sections.CustomLabelSection") -> MetadataKey:
    """Where an entry of metrics.customLabels takes its value from."""
    if configured.source_annotation_key:
        return MetadataKey("annotations", configured.source_annotation_key)
    return MetadataKey("labels", configured.source_label_key or configured.name)


def metadata_copied_to_workloads(
    labels: "Iterable[process_sections.CustomLabelSection]",
) -> tuple[MetadataKey, ...]:
    """What the Workload of a job gets from the job, so that metrics can take it from the Workload."""
    return tuple(metadata_key_of(one) for one in labels if one.source_kind == LabelSource.WORKLOAD)


@dataclass(frozen=True, slots=True)
class SeriesLabel:
    """One label: its configured name, and where its value is."""

    name: str
    source: LabelSource
    key: str
    place: str
    """Where the key is looked for: "labels" or "annotations"."""
    tracked_values: frozenset[str]
    """The values that are told apart; empty: all."""
    untracked_value: str
    """What stands for every other value."""

    @classmethod
    def from_configuration(cls, configured: "process_sections.CustomLabelSection", untracked: str) -> Self:
        """The label that an entry of metrics.customLabels asks for."""
        found = metadata_key_of(configured)
        return cls(
            configured.name,
            LabelSource(configured.source_kind),
            found.key,
            found.place,
            frozenset(configured.tracked_values),
            untracked,
        )

    @property
    def series_label(self) -> str:
        """The name of the label in the series; the prefix keeps it apart from the labels of the metric."""
        return f"{SERIES_PREFIX}{self.name}"

    def value_in(self, obj: Mapping[str, Any]) -> str:
        """The value that an object gives it; empty if the object lacks the key."""
        value = ((obj.get("metadata") or {}).get(self.place) or {}).get(self.key)
        if value is None:
            return ""
        return value if not self.tracked_values or value in self.tracked_values else self.untracked_value


NO_LABELS: Final[Mapping[str, str]] = {}


class SeriesLabels:
    """The labels of a process, in order: by kind, and those of one kind as configured."""

    def __init__(self, labels: Iterable[SeriesLabel] = ()) -> None:
        self._of: dict[LabelSource, tuple[SeriesLabel, ...]] = {}
        for label in labels:
            self._of[label.source] = (*self._of.get(label.source, ()), label)

    def names(self, sources: Iterable[LabelSource]) -> tuple[str, ...]:
        """The labels that a series which tells of these kinds carries."""
        return tuple(label.series_label for source in sorted(sources) for label in self._of.get(source, ()))

    def values(self, source: LabelSource, obj: Mapping[str, Any] | None) -> Mapping[str, str]:
        """The values that an object of a kind gives; without an object all are empty."""
        labels = self._of.get(source)
        if labels is None:
            return NO_LABELS
        return {label.series_label: "" if obj is None else label.value_in(obj) for label in labels}
