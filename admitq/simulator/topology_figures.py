"""The figures of topologies in the report of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from admitq.simulator.schema import Nanoseconds
from admitq.simulator.series import Level
from admitq.simulator.topology_measures import FlavorMeter, TopologyMeasures


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """How many pods of the common shape fit into one domain of a level: the largest job."""

    label: str
    domains: int
    largest_mean: float
    largest_at_end: int
    share: float | None
    """The mean of the largest job, divided by the mean of all pods that fit; None if none fits."""


@dataclass(frozen=True, slots=True)
class RackFigures:
    """The occupancy of a rack: what workloads use, divided by what its nodes offer."""

    name: str
    mean: float | None
    peak: float | None


@dataclass(frozen=True, slots=True)
class TopologyFigures:
    """The figures of one flavor with a topology. Shares are between 0 and 1; None without a rack level."""

    flavor: str
    topology: str
    nodes: int
    rack_label: str | None
    resource: str | None
    """The resource of the occupancy: the one with the highest mean occupancy."""
    occupancy: float | None
    racks: tuple[RackFigures, ...]
    placed_workloads: int
    placed_pods: int
    workloads_across: float | None
    """The share of placed workloads with several pods that are in more than one rack."""
    pods_across: float | None
    """The share of the pods of placed workloads with several pods that are in such workloads."""
    pod_requests: Mapping[str, float]
    """What one pod of the common shape requests."""
    free: float
    """The mean of the number of pods that fit into all domains."""
    levels: tuple[LevelFigures, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the JSON document."""
        return {
            "flavor": self.flavor,
            "topology": self.topology,
            "nodes": self.nodes,
            "occupancy": {
                "level": self.rack_label or "",
                "ofResource": self.resource or "",
                "mean": self.occupancy,
                "racks": [{"name": rack.name, "mean": rack.mean, "peak": rack.peak} for rack in self.racks],
            },
            "placed": {
                "workloads": self.placed_workloads,
                "pods": self.placed_pods,
                "workloadsAcrossRacks": self.workloads_across,
                "podsAcrossRacks": self.pods_across,
            },
            "room": {
                "podRequests": dict(self.pod_requests),
                "free": self.free,
                "levels": [
                    {
                        "name": level.label,
                        "domains": level.domains,
                        "largestMean": level.largest_mean,
                        "largestAtEnd": level.largest_at_end,
                        "shareOfFree": level.share,
                    }
                    for level in self.levels
                ],
            },
        }


def topology_figures(measures: TopologyMeasures, end: Nanoseconds) -> tuple[TopologyFigures, ...]:
    """Return the figures of all flavors with a topology, by name.

    Args:
        measures: the measurements of a run that has ended.
        end: the end of the run, in nanoseconds from its start.
    """
    return tuple(
        _figures(name, meter, measures.pod_requests, end) for name, meter in sorted(measures.flavors.items())
    )


def occupied_resource(meter: FlavorMeter, end: Nanoseconds) -> str | None:
    """Return the resource of which workloads use the largest part until this time; None without nodes."""
    used: dict[str, int] = {}
    offered: dict[str, int] = {}
    for rack in meter.racks.values():
        for total, levels in ((used, rack.used), (offered, rack.offered)):
            for resource, level in levels.items():
                level.settle(end)
                total[resource] = total.get(resource, 0) + level.integral
    shares = {resource: used.get(resource, 0) / amount for resource, amount in offered.items() if amount > 0}
    return max(sorted(shares), key=shares.__getitem__, default=None)


def _figures(
    flavor: str, meter: FlavorMeter, pod_requests: Mapping[str, float], end: Nanoseconds
) -> TopologyFigures:
    tree, placed = meter.tree, meter.placed
    resource = occupied_resource(meter, end)
    pairs = {
        values: (rack.used.get(resource or ""), rack.offered.get(resource or ""))
        for values, rack in sorted(meter.racks.items())
    }
    free = _mean(meter.levels[0].total, end)
    return TopologyFigures(
        flavor=flavor,
        topology=meter.topology.name,
        nodes=tree.node_count,
        rack_label=None if meter.rack_level is None else tree.levels[meter.rack_level],
        resource=resource,
        occupancy=_ratio(
            sum(used.integral for used, _ in pairs.values() if used),
            sum(offered.integral for _, offered in pairs.values() if offered),
        ),
        racks=tuple(
            RackFigures(
                rack_name(values),
                _ratio(used.integral if used else 0, offered.integral if offered else 0),
                _ratio(used.peak if used else 0, offered.peak if offered else 0),
            )
            for values, (used, offered) in pairs.items()
        ),
        placed_workloads=placed.workloads,
        placed_pods=placed.pods,
        workloads_across=None
        if meter.rack_level is None
        else _ratio(placed.workloads_across, placed.workloads),
        pods_across=None if meter.rack_level is None else _ratio(placed.pods_across, placed.pods),
        pod_requests=pod_requests,
        free=round(free, 6),
        levels=tuple(
            LevelFigures(
                label,
                level.domains,
                round(_mean(level.largest, end), 6),
                level.largest.value,
                _ratio(_mean(level.largest, end), free),
            )
            for label, level in zip(tree.levels, meter.levels, strict=True)
        ),
    )


def rack_name(values: tuple[str, ...]) -> str:
    """Return the values of a rack and of the domains above it as one text."""
    return "/".join(values)


def _mean(level: Level, end: Nanoseconds) -> float:
    level.settle(end)
    return level.integral / end if end else 0.0


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole > 0 else None
