"""Ways in which unused quota could serve a workload, and what each lacks: one flavor for each podset."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from admitq.core import quota
from admitq.core.amounts import FlavorResource, add
from admitq.core.flavor_options import FlavorOption, GroupOptions, RequestOptions
from admitq.core.quota import Cell


@dataclass(slots=True, eq=False)
class FlavorPlan:
    """The amounts that a workload requests with one choice of flavors, and their cells."""

    requested: dict[FlavorResource, int] = field(default_factory=dict[FlavorResource, int])
    cells: dict[FlavorResource, Cell] = field(default_factory=dict[FlavorResource, Cell])

    def add(self, option: FlavorOption) -> None:
        """Add the amounts that podsets request from a flavor."""
        for pair, cell, amount in option.demands:
            self.requested[pair] = add(self.requested.get(pair, 0), amount)
            self.cells[pair] = cell

    @property
    def shortage(self) -> Mapping[FlavorResource, int]:
        """The amounts that are missing in unused quota now."""
        missing = {
            pair: amount - max(0, quota.available(self.cells[pair]))
            for pair, amount in self.requested.items()
        }
        return {pair: amount for pair, amount in missing.items() if amount > 0}

    @property
    def missing_quota(self) -> Mapping[FlavorResource, int]:
        """The least amounts of nominal quota with which the request would fit.

        They exceed the shortage if usage exceeds quota, or if the request exceeds what a limit allows.
        """
        missing: dict[FlavorResource, int] = {}
        for pair in self.shortage:
            cell = self.cells[pair]
            available = min(quota.available(cell), quota.potential_available(cell))
            missing[pair] = self.requested[pair] - available
        return missing

    @property
    def exceeds_maximum(self) -> bool:
        """Whether the request exceeds what would be available without any usage."""
        return any(
            amount > quota.potential_available(self.cells[pair]) for pair, amount in self.requested.items()
        )


def find_plans(options: RequestOptions) -> Iterator[FlavorPlan]:
    """Yield one plan for each flavor: podsets get this flavor if they can, else the flavor that lacks least.

    There are none if a podset can get no flavor.
    """
    seen: set[tuple[FlavorResource, ...]] = set()
    groups = [group for unit in options.units for group in unit.groups]
    uncovered = any(unit.uncovered_refusals for unit in options.units)
    preferred = {option.flavor: None for group in groups for option in group.flavor_options}
    for flavor in () if uncovered else preferred:
        plan = FlavorPlan()
        choices = [option for group in groups if (option := _choose(group, flavor)) is not None]
        if len(choices) < len(groups):
            return
        for option in choices:
            plan.add(option)
        pairs = tuple(plan.requested)
        if pairs not in seen:
            seen.add(pairs)
            yield plan


def _choose(group: GroupOptions, flavor: str) -> FlavorOption | None:
    allowed = [option for option in group.flavor_options if option.refusal is None]
    wanted = [option for option in allowed if option.flavor == flavor]
    return (wanted or sorted(allowed, key=_missing) or [None])[0]


def _missing(option: FlavorOption) -> int:
    """Return the amount that is missing for the request, over all resources."""
    return sum(max(0, amount - max(0, quota.available(cell))) for _, cell, amount in option.demands)
