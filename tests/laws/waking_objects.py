"""Objects for the cases of waking."""

from dataclasses import dataclass, replace
from typing import Any, Final

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.model import (
    SECOND,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ObjectKey,
    PodSet,
    ResourceFlavor,
    Workload,
)
from admitq.core.settings import CoreSettings
from tests.laws.drawing import requesting

NOW: Final = 1000 * SECOND

WAITING: Final = ObjectKey("team", "waiting")


def waiting(**changes: Any) -> Workload:
    """Return the waiting workload; it requests two CPUs by default."""
    plain = Workload(WAITING, "waiting", "to-a", NOW, (PodSet("main", 1, requesting(cpu=2)),))
    return replace(plain, **changes)


Observation = ClusterQueue | Cohort | LocalQueue | ResourceFlavor | AdmissionCheck | Workload | Event
"""An object to observe, or an event."""


BLUE = (("team", "blue"),)
F1 = ResourceFlavor("f1")
TEAM = happened.NamespaceChanged("team", BLUE)
TO_A = LocalQueue(ObjectKey("team", "to-a"), "a")


PLAIN: Final = CoreSettings()


@dataclass(frozen=True)
class Case:
    """The objects beside the common ones, and the one change."""

    changed: str
    """The changed input, as ``Kind.field``."""
    world: tuple[Observation, ...]
    edit: Observation | None
    preempts: bool = False
    """Whether the change lets the workload preempt; otherwise it is admitted."""
    settings: CoreSettings = PLAIN
    now: int = NOW
    note: str = ""
