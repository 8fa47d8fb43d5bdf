"""What readers of answers may see: the names of workloads in some namespaces only.

Other workloads are "a workload of another namespace" in texts, and null in JSON values.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from admitq.core.model import ObjectKey


@dataclass(frozen=True, slots=True)
class Viewer:
    """A caller who may see the names of workloads in ``namespaces``; None: in all namespaces."""

    namespaces: frozenset[str] | None = None

    def may_see(self, workload: ObjectKey) -> bool:
        """Whether the viewer may see the name of a workload."""
        return self.namespaces is None or workload.namespace in self.namespaces


EVERYTHING: Final = Viewer()


def workload_text(workload: ObjectKey, viewer: Viewer) -> str:
    """Return the name of a workload, or that it is hidden."""
    return f"workload {workload}" if viewer.may_see(workload) else hidden_text(1)


def hidden_text(count: int) -> str:
    """Return the text for a number of workloads of other namespaces."""
    return "a workload of another namespace" if count == 1 else f"{count} workloads of other namespaces"


def workloads_text(workloads: Iterable[ObjectKey], viewer: Viewer, more: int = 0) -> str:
    """Return names, and the number of workloads that are hidden or not listed."""
    listed = list(workloads)
    visible = [str(workload) for workload in listed if viewer.may_see(workload)]
    hidden = len(listed) - len(visible)
    parts = [f"{'workload' if len(visible) == 1 else 'workloads'} {', '.join(visible)}"] if visible else []
    if hidden:
        parts.append(hidden_text(hidden))
    if more:
        parts.append(f"{more} more")
    return " and ".join(parts)


def workload_json(workload: ObjectKey, viewer: Viewer) -> dict[str, str] | None:
    """Return namespace and name; None if the viewer may not see them."""
    return {"namespace": workload.namespace, "name": workload.name} if viewer.may_see(workload) else None
