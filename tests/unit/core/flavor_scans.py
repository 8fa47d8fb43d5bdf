"""ClusterQueues, requests and an oracle for tests of the scan of flavors."""

from collections.abc import Mapping
from typing import Any

from admitq.core.amounts import FlavorResource
from admitq.core.assignments import Assignment, FlavorFit, ScanStop
from admitq.core.cohorts import CohortTrees, declared_quotas
from admitq.core.flavor_options import FlavorOptions, build_flavor_options
from admitq.core.flavors import Oracle, PreemptionQuestion, answer_without_preemption, assign
from admitq.core.model import (
    BorrowWithinCohort,
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorFungibility,
    FlavorQuotas,
    PodSet,
    PodSetAssignment,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
)
from admitq.core.refusals import NoFitReason, NoFlavorFits, PodSetRefusals
from admitq.core.requests import demands, template_requesting
from admitq.core.settings import CoreSettings

FLAVORS = {name: ResourceFlavor(name) for name in ("f1", "f2", "f3")}
ANY_PREEMPTION = ClusterQueuePreemption(
    borrow_within_cohort=BorrowWithinCohort(PreemptionPolicy.LOWER_PRIORITY)
)


class Queue:
    """A ClusterQueue with cpu quota of some flavors, in a cohort with quota to borrow; some is in use."""

    def __init__(
        self,
        nominal: Mapping[str, int],
        *,
        lent: Mapping[str, int] | None = None,
        used: Mapping[str, int] | None = None,
        fungibility: FlavorFungibility | None = None,
        preemption: ClusterQueuePreemption = ANY_PREEMPTION,
        settings: CoreSettings | None = None,
        flavors: Mapping[str, ResourceFlavor] = FLAVORS,
    ) -> None:
        def group(of: Mapping[str, int]) -> ResourceGroup:
            offered = (FlavorQuotas(name, (("cpu", ResourceQuota(cpu)),)) for name, cpu in of.items())
            return ResourceGroup(("cpu",), tuple(offered))

        trees = CohortTrees()
        spec = ClusterQueue(
            "q",
            cohort="org",
            resource_groups=(group(nominal),),
            flavor_fungibility=fungibility or FlavorFungibility(),
            preemption=preemption,
        )
        node = trees.put_cluster_queue("q", "org", declared_quotas(spec.resource_groups))
        trees.put_cohort("org", None, declared_quotas((group(lent or {}),)))
        self.flavor_options: FlavorOptions = build_flavor_options(
            spec, trees, node, flavors, settings or CoreSettings()
        )
        self._trees, self._node = trees, node
        self.use(used or {})

    def use(self, more: Mapping[str, int]) -> None:
        """Add usage, by flavor."""
        usage = {pair: more.get(pair.flavor, 0) for pair in self._node.cells}
        self._trees.add_usage(self._node, tuple(usage.items()))

    def assign(
        self,
        *pod_sets: PodSet,
        scan_stops: tuple[ScanStop, ...] = (),
        oracle: Oracle = answer_without_preemption,
        restrict_to: tuple[PodSetAssignment, ...] | None = None,
    ) -> Assignment:
        return assign(
            demands(pod_sets),
            self.flavor_options,
            scan_stops=scan_stops,
            oracle=oracle,
            restrict_to=restrict_to,
        )


def options_without_cohort(
    *groups: ResourceGroup,
    settings: CoreSettings | None = None,
    used: Mapping[FlavorResource, int] | None = None,
) -> FlavorOptions:
    """Return the flavor options of a ClusterQueue without cohort."""
    trees = CohortTrees()
    spec = ClusterQueue("q", resource_groups=groups)
    node = trees.put_cluster_queue("q", None, declared_quotas(groups))
    trees.add_usage(node, tuple((used or {}).items()))
    return build_flavor_options(spec, trees, node, FLAVORS, settings or CoreSettings())


def group(flavor: str, **quotas: int) -> ResourceGroup:
    of = tuple((resource, ResourceQuota(amount)) for resource, amount in quotas.items())
    return ResourceGroup(tuple(quotas), (FlavorQuotas(flavor, of),))


def refusing(name: str, *refusals: Any, reason: NoFitReason) -> NoFlavorFits:
    return NoFlavorFits((PodSetRefusals(name, refusals),), reason)


def pods(cpu: int, name: str = "main", **of: Any) -> PodSet:
    return PodSet(name, 1, template_requesting({"cpu": cpu}), **of)


def chosen(assignment: Assignment) -> list[str]:
    return [dict(part.flavors)["cpu"] for part in assignment.pod_sets]


def oracle_of(prospects: Mapping[str, FlavorFit]) -> Oracle:
    def answer(question: PreemptionQuestion) -> FlavorFit:
        return prospects[question.pair.flavor]

    return answer
