"""Custom labels of metrics: values that labels or annotations of objects have, as the configuration asks.

A series tells of objects of one or two kinds; of each it carries all custom labels that are configured for
that kind (semantics, Metrics and Configuration file).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from admitq_api.configuration import sections


class Source(StrEnum):
    """A kind of objects that values are taken from. Labels come in the order of their kinds' names."""

    CLUSTER_QUEUE = "ClusterQueue"
    COHORT = "Cohort"
    LOCAL_QUEUE = "LocalQueue"
    WORKLOAD = "Workload"


@dataclass(frozen=True, slots=True)
class CustomLabel:
    """One label: what it is called, and where its value is."""

    name: str
    source: Source
    key: str
    place: str
    """Where the key is looked for: "labels" or "annotations"."""
    tracked: frozenset[str]
    """The values that are told apart; empty: all."""
    untracked: str
    """What stands for every other value."""

    @classmethod
    def configured(cls, configured: sections.CustomLabel, untracked: str) -> Self:
        """The label that an entry of metrics.customLabels asks for."""
        return cls(
            configured.name,
            Source(configured.source_kind),
            configured.source_annotation_key or configured.source_label_key or configured.name,
            "annotations" if configured.source_annotation_key else "labels",
            frozenset(configured.tracked_values),
            untracked,
        )

    def value_in(self, obj: Mapping[str, Any]) -> str:
        """The value that an object gives it; empty if the object lacks the key."""
        value = ((obj.get("metadata") or {}).get(self.place) or {}).get(self.key)
        if value is None:
            return ""
        return value if not self.tracked or value in self.tracked else self.untracked


NONE: Final[Mapping[str, str]] = {}


class CustomLabels:
    """The labels of a process, in order: by kind, and those of one kind as configured."""

    def __init__(self, labels: Iterable[CustomLabel] = ()) -> None:
        self._of: dict[Source, tuple[CustomLabel, ...]] = {}
        for label in labels:
            self._of[label.source] = (*self._of.get(label.source, ()), label)

    def names(self, sources: Iterable[Source]) -> tuple[str, ...]:
        """The labels that a series which tells of these kinds carries."""
        return tuple(label.name for source in sorted(sources) for label in self._of.get(source, ()))

    def values(self, source: Source, obj: Mapping[str, Any] | None) -> Mapping[str, str]:
        """The values that an object of a kind gives; without an object all are empty."""
        labels = self._of.get(source)
        if labels is None:
            return NONE
        return {label.name: "" if obj is None else label.value_in(obj) for label in labels}
