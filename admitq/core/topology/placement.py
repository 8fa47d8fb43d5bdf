"""Choose the domains for the pods of a podset (semantics, Placement algorithm, phase 2).

The search has two parts. First, it finds the domains of the requested level that hold all slices: one domain
if one suffices, or else several. Then it distributes the slices over the domains of each level below. Below
the level of the slices, it distributes the pods of each domain over the children of this domain.

The same greedy choice is made everywhere (``_choose``), by one of two algorithms:

- *BestFit* takes the domains with the most free capacity first, and at the end the smallest that suffices. So
  few domains are used.
- *LeastFreeCapacity* takes those with the least free capacity first. So large gaps stay free for others.

The last slice may be incomplete, if the number of pods is not a multiple of the size of slices.

Pods that prefer a level can get balanced shares of its domains instead (``balance``). Each domain then keeps
its share on the levels below. If no siblings hold all slices, the choice above is made.

If pods prefer hosts by node affinity, domains with the highest score come first. Among domains of which one
suffices, only those with the highest score are compared. A domain that does not suffice is never taken for
its score alone, where one domain is searched.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import log
from typing import NamedTuple

from admitq.core.topology.balance import Room, Share, balance
from admitq.core.topology.capacities import Capacities
from admitq.core.topology.domains import Domain, DomainTree


@dataclass(frozen=True, slots=True)
class PlacementOrder:
    """What to place, and where.

    Attributes:
        count: the number of pods, without the leader.
        level: the index of the requested level.
        may_widen: whether wider levels may be tried if no domain of the level suffices (preferred).
        may_spread: whether several domains of the level may be used (not required).
        least_free_first: whether to use LeastFreeCapacity.
        balanced: whether to try balanced shares first.
        within: the number of the only domain of the level that may be used; None for all.
    """

    count: int
    level: int
    may_widen: bool = False
    may_spread: bool = False
    least_free_first: bool = False
    balanced: bool = False
    within: int | None = None


class Placement(NamedTuple):
    """The leaves with the number of pods in each, sorted by values, and the leaf of the leader."""

    leaves: tuple[tuple[Domain, int], ...]
    leader: Domain | None = None


class Shortfall(NamedTuple):
    """How many slices fit at most; fewer than wanted."""

    fitting: int
    wanted: int


def place(order: PlacementOrder, tree: DomainTree, capacities: Capacities) -> Placement | Shortfall:
    """Return the leaves for the pods of a podset, or how much fits.

    Args:
        order: what to place. Its level is not below the level of the slices.
        tree: the domains of the flavor.
        capacities: the capacities of the tree for the shape of the pods. They must be up to date.
    """
    return _Search(order, tree, capacities).run()


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How many units each domain holds, and how many beside the leader.

    Units are slices at or above the level of slices. Below it, they are smaller slices or pods.
    """

    plain: Sequence[int]
    with_leader: Sequence[int]
    unit: int = 1

    def of(self, domain: int) -> int:
        """Return how many units fit."""
        return self.plain[domain] // self.unit

    def beside_leader(self, domain: int) -> int:
        """Return how many units fit beside the leader, if it fits."""
        return self.with_leader[domain] // self.unit

    def loss(self, domain: int) -> int:
        """Return how many units less fit beside the leader."""
        return self.of(domain) - self.beside_leader(domain)

    def total(self, domains: Iterable[int]) -> int:
        """Return how many units fit into domains."""
        return sum(map(self.plain.__getitem__ if self.unit == 1 else self.of, domains))


class _Search:
    """One placement. Domains are numbers, in the order of their values."""

    def __init__(self, order: PlacementOrder, tree: DomainTree, capacities: Capacities) -> None:
        self._order = order
        self._tree = tree
        self._capacities = capacities
        shape = capacities.shape
        self._needs_leader = shape.leader is not None
        self._slice_level, self._slice_size = shape.layers[0]
        self._slices = -(-order.count // self._slice_size)
        self._in_slices = _Sizes(capacities.slices, capacities.slices_with_leader)

    def run(self) -> Placement | Shortfall:
        """Return the placement, or how much fits."""
        level, need = self._order.level, self._slices
        balanced = self._balance() if self._order.balanced and need else None
        if balanced is not None:
            return self._descend(balanced, level, keeps_shares=True)
        while True:
            within = self._order.within
            domains = self._tree.by_level[level] if within is None else [within]
            single = self._find_smallest(self._candidates(domains), need, self._in_slices)
            if single is not None:
                return self._descend([Share(single, need, self._needs_leader)], level)
            if not (self._order.may_widen and level > 0):
                break
            level -= 1
        most = self._most_in_all(domains) if self._order.may_spread else self._most_in_one(domains)
        if most < need:
            return Shortfall(most, need)
        shares = self._choose(domains, need, self._in_slices, needs_leader=self._needs_leader)
        return self._descend(shares, level)

    # --- the requested level ----------------------------------------------------------------------

    def _most_in_one(self, domains: Sequence[int]) -> int:
        return max(map(self._in_slices.beside_leader, self._candidates(domains)), default=0)

    def _most_in_all(self, domains: Sequence[int]) -> int:
        total = self._in_slices.total(domains)
        if not self._needs_leader:
            return total
        return total - min(map(self._in_slices.loss, self._candidates(domains)), default=total)

    def _candidates(self, domains: Sequence[int]) -> Sequence[int]:
        """Return the domains that can hold the leader; all if there is none."""
        if not self._needs_leader:
            return domains
        return [domain for domain in domains if self._capacities.has_leader[domain]]

    def _balance(self) -> list[Share] | None:
        """Return balanced shares of domains of the requested level; None if no siblings hold all slices."""
        tree, level, sizes = self._tree, self._order.level, self._in_slices
        above = [tree.domains[number].children for number in tree.by_level[level - 1]] if level else None
        has_leader = self._capacities.has_leader
        sets = [
            [
                Room(each, sizes.of(each), sizes.beside_leader(each) if has_leader[each] else None)
                for each in siblings
            ]
            for siblings in above or [tree.by_level[level]]
        ]
        return balance(sets, self._slices, needs_leader=self._needs_leader, order=self._evenest_first)

    def _evenest_first(self, number: int) -> tuple[float, tuple[str, ...]]:
        """Return the order of domains with equal room: by the entropy of the room in their children."""
        domain, pods = self._tree.domains[number], self._capacities.pods
        rooms = [pods[child] for child in domain.children if pods[child]]
        total = sum(rooms)
        entropy = -sum(room / total * log(room / total) for room in rooms)
        # Rounded, so that the order of the sum does not matter.
        return -round(entropy, 9), domain.values

    # --- the levels below -------------------------------------------------------------------------

    def _descend(self, shares: list[Share], level: int, *, keeps_shares: bool = False) -> Placement:
        """Distribute slices of domains of a level over leaves.

        Args:
            shares: what each domain of the level gets.
            level: the level.
            keeps_shares: whether the slices of a domain stay in it. Otherwise, they are distributed together
                over the children of all domains, down to the level of slices.
        """
        domains, values_of = self._tree.domains, self._tree.values_of
        while level < self._slice_level:
            level += 1
            shares.sort(key=lambda share: values_of(share.domain))
            pools = [[share] for share in shares] if keeps_shares else [shares]
            shares = [each for pool in pools for each in self._choose_below(pool)]
        shares = _in_pods(shares, self._order.count, self._slice_size)
        for below in range(level + 1, len(self._tree.levels)):
            shares = [each for share in shares for each in self._distribute(share, below)]
        shares.sort(key=lambda share: values_of(share.domain))
        leader = next((domains[share.domain] for share in shares if share.has_leader), None)
        return Placement(
            tuple((domains[share.domain], share.units) for share in shares if share.units), leader
        )

    def _choose_below(self, shares: Sequence[Share]) -> list[Share]:
        """Distribute the slices of domains together over their children."""
        children = [child for share in shares for child in self._tree.domains[share.domain].children]
        units, needs_leader = sum(share.units for share in shares), any(share.has_leader for share in shares)
        return self._choose(children, units, self._in_slices, needs_leader=needs_leader)

    def _distribute(self, share: Share, level: int) -> list[Share]:
        """Distribute the pods of a domain over its children."""
        capacities, unit = self._capacities, self._capacities.shape.unit_of(level)
        sizes = _Sizes(capacities.pods, capacities.pods_with_leader, unit)
        children, need = self._tree.domains[share.domain].children, -(-share.units // unit)
        shares = self._choose(children, need, sizes, needs_leader=share.has_leader)
        return _in_pods(shares, share.units, unit)

    # --- the greedy choice ------------------------------------------------------------------------

    def _choose(self, domains: Sequence[int], need: int, sizes: _Sizes, *, needs_leader: bool) -> list[Share]:
        """Choose domains that hold so many units together. All domains together must hold them.

        Args:
            domains: the domains to choose from, sorted by values.
            need: the number of units.
            sizes: how many units each domain holds.
            needs_leader: whether one of the domains must hold the leader.
        """
        shares: list[Share] = []
        if needs_leader:
            first = self._find_leader_domain(domains, need, sizes)
            units = min(need, sizes.beside_leader(first))
            shares.append(Share(first, units, has_leader=True))
            need -= units
            domains = [domain for domain in domains if domain != first]
        ordered = self._in_order(domains, sizes) if need else []
        for index, domain in enumerate(ordered):
            size = sizes.of(domain)
            if size >= need:
                if not self._order.least_free_first:
                    domain = self._find_last(ordered[index:], need, sizes)  # noqa: PLW2901
                shares.append(Share(domain, need, has_leader=False))
                break
            shares.append(Share(domain, size, has_leader=False))
            need -= size
        return shares

    def _in_order(self, domains: Iterable[int], sizes: _Sizes) -> list[int]:
        """Return domains with room, in the order of the algorithm; equal ones by the number of pods."""
        pods = self._capacities.pods
        of = sizes.plain.__getitem__ if sizes.unit == 1 else sizes.of
        ordered = list(filter(of, domains))
        if sizes.plain is not pods or sizes.unit > 1:
            ordered.sort(key=pods.__getitem__)
        # All sorts are stable, also the descending ones.
        ordered.sort(key=of, reverse=not self._order.least_free_first)
        scores = self._capacities.scores
        if scores:
            ordered.sort(key=scores.__getitem__, reverse=True)
        return ordered

    def _find_leader_domain(self, domains: Sequence[int], need: int, sizes: _Sizes) -> int:
        """Return the domain that gets the leader. The units must fit into all domains together with it."""
        slack = sizes.total(domains) - need
        affordable = [each for each in self._candidates(domains) if sizes.loss(each) <= slack]
        least_free_first, with_leader = self._order.least_free_first, self._capacities.pods_with_leader
        single = None if least_free_first else self._find_smallest(affordable, need, sizes)
        if single is not None:
            return single
        sign, score = 1 if least_free_first else -1, self._capacities.score_of
        return min(
            affordable, key=lambda each: (-score(each), sign * sizes.beside_leader(each), with_leader[each])
        )

    def _find_smallest(self, domains: Sequence[int], need: int, sizes: _Sizes) -> int | None:
        """Return the domain with the fewest units that suffice; of equal ones that with the fewest pods.

        Only domains with the highest score of those that suffice are compared.
        """
        found = sizes.with_leader if sizes.unit == 1 else [size // sizes.unit for size in sizes.with_leader]
        scores = self._capacities.scores
        if scores:
            highest = max((scores[domain] for domain in domains if found[domain] >= need), default=0)
            domains = [domain for domain in domains if scores[domain] == highest]
        least = min([size for size in map(found.__getitem__, domains) if size >= need], default=None)
        if least is None:
            return None
        smallest = [domain for domain in domains if found[domain] == least]
        return min(smallest, key=self._capacities.pods_with_leader.__getitem__)

    def _find_last(self, ordered: Sequence[int], need: int, sizes: _Sizes) -> int:
        """Return the smallest domain that suffices, of domains in order; the first of equal ones.

        The first domain suffices. Those with a lower score than it are not compared.
        """
        score, highest = self._capacities.score_of, self._capacities.score_of(ordered[0])
        sufficient = takewhile(lambda each: sizes.of(each) >= need and score(each) == highest, ordered)
        return min(sufficient, key=sizes.of)


def _in_pods(shares: Iterable[Share], count: int, unit: int) -> list[Share]:
    """Return shares in pods. If the last unit is not complete, the last domain gets fewer pods."""
    result: list[Share] = []
    for share in shares:
        pods = min(count, share.units * unit)
        count -= pods
        result.append(share._replace(units=pods))
    return result
