"""Run a scenario with other numbers of racks, and other numbers of hosts in each, to find the size to buy.

The workloads are the same in all runs. Quotas of flavors with a topology grow and shrink with their nodes,
unless they are kept.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

from admitq.core import events as happened
from admitq.core.amounts import UNLIMITED
from admitq.core.events import Event
from admitq.core.model import SECOND, ResourceGroup, ResourceQuota
from admitq.core.percentiles import percentile
from admitq.manifests.documents import InputError, Place, Problem
from admitq.simulator.cluster_racks import NODES_OPTION, find_cluster_racks
from admitq.simulator.files import Files, read_files, read_files_beside
from admitq.simulator.plan import SimulationPlan, read
from admitq.simulator.present import PresentCluster
from admitq.simulator.report import report
from admitq.simulator.run import Ending, Simulation
from admitq.simulator.schema import Nanoseconds, NodeGroup, Scenario

PERCENT: Final = 95
"""The percentile of waits that is compared."""


class RackSize(NamedTuple):
    """A size: the number of racks in each domain of the level above, and of hosts in each rack."""

    racks: int
    hosts: int


class SizeTarget(NamedTuple):
    """What a size must reach. None sets no target.

    Attributes:
        wait: the longest wait of 95 % of the workloads, in nanoseconds.
        in_one_rack: the smallest share of the workloads with several pods that are in one rack.
    """

    wait: Nanoseconds | None = None
    in_one_rack: float | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is a target."""
        return self.wait is not None or self.in_one_rack is not None


NO_TARGET: Final = SizeTarget()


@dataclass(frozen=True, slots=True)
class SizeFigures:
    """The figures of a run with one size.

    Attributes:
        size: the size.
        nodes: the number of nodes of all flavors with a topology.
        wait: the wait in seconds that 95 % of the workloads do not exceed. None if more of them got no quota.
        utilisation: the mean use of racks; None without racks.
        in_one_rack: the share of the workloads with several pods that are in one rack; None without any.
        waiting: the number of workloads that are pending at the end.
        meets_target: whether the size meets the target.
    """

    size: RackSize
    nodes: int
    wait: float | None
    utilisation: float | None
    in_one_rack: float | None
    waiting: int
    meets_target: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the JSON document."""
        return {
            "racks": self.size.racks,
            "hosts": self.size.hosts,
            "nodes": self.nodes,
            "waitP95": self.wait,
            "utilisation": self.utilisation,
            "inOneRack": self.in_one_rack,
            "waiting": self.waiting,
            "meetsTarget": self.meets_target,
        }


@dataclass(frozen=True, slots=True)
class RackSizing:
    """The figures of all sizes that were run.

    ``is_bisected`` is true if sizes were left out, on the assumption that a size with more racks meets each
    target that one with fewer meets.
    """

    scenario: str
    seed: int
    target: SizeTarget
    sizes: tuple[SizeFigures, ...]
    is_bisected: bool
    scales_quota: bool

    @property
    def smallest(self) -> SizeFigures | None:
        """The size with the fewest nodes, then the fewest racks, that meets the target; None without any."""
        met = (each for each in self.sizes if each.meets_target and self.target.is_set)
        return min(met, key=lambda each: (each.nodes, each.size), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the JSON document."""
        smallest, wait = self.smallest, self.target.wait
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "target": {
                "maxWait": None if wait is None else wait / SECOND,
                "minInOneRack": self.target.in_one_rack,
            },
            "bisected": self.is_bisected,
            "quotaScaled": self.scales_quota,
            "sizes": [each.to_dict() for each in self.sizes],
            "smallest": None if smallest is None else smallest.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class SizeSearch:
    """Runs a scenario with several sizes of one group of nodes.

    Args:
        paths: the files of the scenario.
        group: the name of the group of nodes, or of the flavor of a cluster; None for the only one.
        target: what a size must reach.
        scales_quota: whether quotas follow the number of nodes.
        seed: the random seed, instead of the seed of the scenario.
        until: the end of the runs, instead of the end in the scenario.
        run: runs a simulation to its end.
        present: the cluster with which the runs begin. Without nodes in the files, its racks get other sizes.
    """

    paths: Sequence[Path]
    group: str | None = None
    target: SizeTarget = NO_TARGET
    scales_quota: bool = True
    seed: int | None = None
    until: Nanoseconds | None = None
    run: Callable[[Simulation], object] = Simulation.run
    present: PresentCluster | None = None

    def find(self, racks: Iterable[int], hosts: Iterable[int]) -> RackSizing:
        """Run the sizes: all of them without a target, else those of a bisection over the numbers of racks.

        Raises:
            InputError: a file is invalid, or the group of nodes does not exist.
        """
        resizing = self._find_racks()
        # The first run may draw the random seed. All runs have the same one.
        first = read(self.paths, seed=self.seed, until=self.until, present=self.present)
        ordered = sorted(set(racks))
        results: dict[RackSize, SizeFigures] = {}

        def meets(size: RackSize) -> bool:
            if size not in results:
                results[size] = self._run(size, resizing, first)
            return results[size].meets_target

        for count in sorted(set(hosts)):
            sizes = [RackSize(number, count) for number in ordered]
            if self.target.is_set:
                _bisect(sizes, meets)
            else:
                for size in sizes:
                    meets(size)
        done = sorted(results, key=lambda size: (size.hosts, size.racks))
        return RackSizing(
            first.name,
            first.seed,
            self.target,
            tuple(results[size] for size in done),
            len(results) < len(ordered) * len(set(hosts)),
            self.scales_quota,
        )

    def _find_racks(self) -> "_Resizing":
        """Return how runs get another size.

        Raises:
            InputError: a file is invalid, or the nodes do not exist.
        """
        present = self.present
        files = read_files(self.paths) if present is None else read_files_beside(present.files, self.paths)
        if present is not None and not files.scenario.nodes:
            racks = find_cluster_racks(present, self.group)
            return _Resizing(lambda scenario: _with_group(scenario, racks.group), -1, racks.present)
        return _Resizing(lambda scenario: scenario, find_group(files, self.group), present)

    def _run(self, size: RackSize, resizing: "_Resizing", first: SimulationPlan) -> SizeFigures:
        plan = read(
            self.paths,
            seed=first.seed,
            until=self.until,
            present=resizing.present,
            revise=lambda scenario: with_size(resizing.prepare(scenario), resizing.group, size),
        )
        if self.scales_quota:
            scale_quotas(plan, first.start)
        simulation = Simulation(plan)
        self.run(simulation)
        return _figures(size, simulation, self.target)


class _Resizing(NamedTuple):
    """How a run gets another size.

    Attributes:
        prepare: returns the scenario with the group of nodes.
        group: the index of this group.
        present: the cluster with which the run begins.
    """

    prepare: Callable[[Scenario], Scenario]
    group: int
    present: PresentCluster | None


def _with_group(scenario: Scenario, group: NodeGroup) -> Scenario:
    return scenario.model_copy(update={"nodes": (*scenario.nodes, group)})


def find_group(files: Files, name: str | None) -> int:
    """Return the index of the group of nodes with a size.

    Raises:
        InputError: there is no such group, or it has no racks.
    """
    groups = files.scenario.nodes
    names = ", ".join(group.name for group in groups)
    if not groups:
        raise files.document.error(("nodes",), "is required: write the nodes in compact form")
    if name is None and len(groups) > 1:
        raise _option_error(f"there are several groups of nodes: choose one of {names}")
    index = next((at for at, group in enumerate(groups) if name in (None, group.name)), None)
    if index is None:
        raise _option_error(f"there is no group of nodes {name}: choose one of {names}")
    if not groups[index].domains:
        raise files.document.error(
            ("nodes", index, "domains"), "is required: the last level is that of racks"
        )
    return index


def _option_error(remedy: str) -> InputError:
    return InputError([Problem(Place(NODES_OPTION), "", remedy)])


def with_size(scenario: Scenario, index: int, size: RackSize) -> Scenario:
    """Return the scenario with another size of one group of nodes."""
    index %= len(scenario.nodes)
    group = scenario.nodes[index]
    racks = group.domains[-1].model_copy(update={"count": size.racks})
    changed = group.model_copy(update={"domains": (*group.domains[:-1], racks), "hosts": size.hosts})
    nodes = (*scenario.nodes[:index], changed, *scenario.nodes[index + 1 :])
    return scenario.model_copy(update={"nodes": nodes})


def _bisect(sizes: Sequence[RackSize], meets: Callable[[RackSize], bool]) -> None:
    """Find the first size that meets the target, if each later one meets it, too."""
    low, high = 0, len(sizes) - 1
    if high < 0 or not meets(sizes[high]):
        return
    while low < high:
        middle = (low + high) // 2
        if meets(sizes[middle]):
            high = middle
        else:
            low = middle + 1


# --- quotas ---------------------------------------------------------------------------------------


def scale_quotas(plan: SimulationPlan, before: Iterable[Event]) -> None:
    """Multiply the quotas of flavors with a topology by the growth of their nodes.

    Args:
        plan: the plan to change, also its later changes of quotas.
        before: the events at the start of the run with the nodes for which the quotas were written.
    """
    factors = _growth(before, plan.start)
    plan.start[:] = [_with_quotas(event, factors) for event in plan.start]
    plan.changes[:] = [(at, _with_quotas(event, factors)) for at, event in plan.changes]


def _growth(before: Iterable[Event], after: Sequence[Event]) -> dict[str, Fraction]:
    """Return by which factor the number of nodes of each flavor with a topology grows."""
    old, new = (
        [{*event.node.labels} for event in events if isinstance(event, happened.NodeChanged)]
        for events in (before, after)
    )
    factors: dict[str, Fraction] = {}
    for event in after:
        if isinstance(event, happened.ResourceFlavorChanged) and event.flavor.topology_name is not None:
            labels = {*event.flavor.node_labels}
            count = sum(labels <= node for node in old)
            factors[event.flavor.name] = Fraction(sum(labels <= node for node in new), count or 1)
    return factors


def _with_quotas(event: Event, factors: dict[str, Fraction]) -> Event:
    match event:
        case happened.ClusterQueueChanged(cluster_queue=queue):
            groups = _scaled(queue.resource_groups, factors)
            return happened.ClusterQueueChanged(replace(queue, resource_groups=groups))
        case happened.CohortChanged(cohort=cohort):
            groups = _scaled(cohort.resource_groups, factors)
            return happened.CohortChanged(replace(cohort, resource_groups=groups))
        case _:
            return event


def _scaled(groups: Iterable[ResourceGroup], factors: dict[str, Fraction]) -> tuple[ResourceGroup, ...]:
    return tuple(
        replace(
            group,
            flavors=tuple(
                replace(
                    flavor,
                    resources=tuple(
                        (resource, _scaled_quota(quota, factors.get(flavor.name, Fraction(1))))
                        for resource, quota in flavor.resources
                    ),
                )
                for flavor in group.flavors
            ),
        )
        for group in groups
    )


def _scaled_quota(quota: ResourceQuota, factor: Fraction) -> ResourceQuota:
    def scaled(amount: int) -> int:
        return amount if amount >= UNLIMITED else int(amount * factor)

    borrowing, lending = quota.borrowing_limit, quota.lending_limit
    return ResourceQuota(
        scaled(quota.nominal),
        None if borrowing is None else scaled(borrowing),
        None if lending is None else scaled(lending),
    )


# --- figures --------------------------------------------------------------------------------------


def _figures(size: RackSize, simulation: Simulation, target: SizeTarget) -> SizeFigures:
    result = report(simulation)
    topology = max(result.topologies, key=lambda each: each.placed_workloads, default=None)
    across = None if topology is None else topology.workloads_across
    waits = sorted(simulation.measures.all.waits)
    never = result.all.submitted - len(waits)
    wait = percentile([*waits, *[inf] * never], PERCENT) if waits else inf
    in_one_rack = None if across is None else round(1 - across, 6)
    is_met = (target.wait is None or wait <= target.wait) and (
        target.in_one_rack is None or (in_one_rack is not None and in_one_rack >= target.in_one_rack)
    )
    return SizeFigures(
        size,
        sum(each.nodes for each in result.topologies),
        None if wait == inf else round(wait / SECOND, 6),
        None if topology is None else topology.occupancy,
        in_one_rack,
        result.waiting,
        is_met and target.is_set and result.ending is not Ending.STUCK,
    )
