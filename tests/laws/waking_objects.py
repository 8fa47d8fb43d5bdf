"""Objects for the cases of waking."""

from dataclasses import dataclass, replace
from typing import Any, Final

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.model import (
    SECOND,
    Admission,
    AdmissionCheck,
    AdmissionCheckRule,
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    FlavorQuotas,
    LabelSelector,
    LimitedType,
    LimitRange,
    LimitRangeItem,
    LocalQueue,
    NodeSelectorTerm,
    ObjectKey,
    PodSet,
    PodSetAssignment,
    PodTemplate,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    SelectorOperator,
    SelectorRequirement,
    Taint,
    Workload,
)
from admitq.core.settings import CoreSettings, FairSharing
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


LATER: Final = NOW + 10 * SECOND
OTHER: Final = ObjectKey("team", "other")
THIRD: Final = ObjectKey("team", "third")


def quota(nominal: int, borrowing: int | None = None, lending: int | None = None) -> ResourceQuota:
    return ResourceQuota(nominal, borrowing, lending)


def cpu(*of: tuple[str, ResourceQuota]) -> tuple[ResourceGroup, ...]:
    """Return one resource group of CPU with these flavors."""
    return (ResourceGroup(("cpu",), tuple(FlavorQuotas(name, (("cpu", each),)) for name, each in of)),)


def queue(name: str = "a", nominal: int = 2, **changes: Any) -> ClusterQueue:
    groups = cpu(("f1", quota(nominal)))
    return replace(ClusterQueue(name, resource_groups=groups, namespace_selector=LabelSelector()), **changes)


def holding(amount: int = 2, in_queue: str = "a", **changes: Any) -> Workload:
    """Return a workload that holds CPU in flavor f1."""
    assigned = PodSetAssignment("main", (("cpu", "f1"),), (("cpu", amount),), 1)
    plain = Workload(
        OTHER,
        "other",
        f"to-{in_queue}",
        NOW,
        (PodSet("main", 1, requesting(cpu=amount)),),
        admission=Admission(in_queue, (assigned,)),
        reserved_at=NOW,
        admitted=True,
        pods_ready=True,
    )
    return replace(plain, **changes)


FAIR = CoreSettings(fair_sharing=FairSharing())

SHARED = queue("b", 4, cohort="pool")
LOW = ClusterQueuePreemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
RECLAIM = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY)
RECLAIM_ANY = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.ANY)

IN_POOL = queue(cohort="pool", nominal=0)
BORROWER = (queue("b", 0, cohort="pool"), holding(2, "b"))
"""A ClusterQueue and a workload that borrows all quota of the pool."""

LABELLED = ResourceFlavor("f1", node_labels=(("zone", "one"),))
TAINTED = ResourceFlavor("f1", node_taints=(Taint("spot", "", "NoSchedule"),))
IN_ZONE_TWO = (PodSet("main", 1, requesting(cpu=2), node_selector=(("zone", "two"),)),)
AFFINE = (
    PodSet(
        "main",
        1,
        requesting(cpu=2),
        required_node_affinity=(
            NodeSelectorTerm((SelectorRequirement("zone", SelectorOperator.IN, ("two",)),)),
        ),
    ),
)
CHECKED = queue(admission_checks=(AdmissionCheckRule("check"),))
CHECK = AdmissionCheck("check", "controller", active=True)
IN_CIRCLE = (
    holding(replaces=THIRD),
    waiting(replaces=OTHER),
    Workload(THIRD, "third", "to-a", NOW, (), admission_gates=("gate",), replaces=WAITING),
)
LIMIT_RANGE = ObjectKey("team", "limits")


def range_of(**fields: Any) -> LimitRange:
    return LimitRange((LimitRangeItem(LimitedType.CONTAINER, **fields),))


def set_range(limit_range: LimitRange) -> Event:
    return happened.LimitRangeChanged(LIMIT_RANGE, limit_range)


OF_CLASS = PodTemplate(requesting(cpu=2).containers, runtime_class="sandboxed")
