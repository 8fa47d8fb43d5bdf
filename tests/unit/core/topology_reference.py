"""Placement in a topology as semantics describes it, in the slowest and most obvious way.

A world is a mapping from the values of a leaf to its free amounts. Everything is computed again at each use,
by walking over all leaves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from math import log

Values = tuple[str, ...]
Free = Mapping[Values, Mapping[str, int]]


@dataclass(frozen=True)
class Question:
    """A request: amounts of one pod, layers as (level, size) with the outermost first, and the search."""

    requests: Mapping[str, int]
    count: int
    level: int
    layers: tuple[tuple[int, int], ...]
    leader: Mapping[str, int] | None = None
    mode: str = "required"
    least_free: bool = False
    balanced: bool = False
    weights: Mapping[str, int] = field(default_factory=dict[str, int])
    """The weights of hosts that the pods prefer."""


class Reference:
    """Answers one question."""

    def __init__(self, free: Free, question: Question) -> None:
        self.free = free
        self.q = question
        self.depth = len(next(iter(free)))

    # --- capacities -------------------------------------------------------------------------------

    def children(self, domain: Values) -> list[Values]:
        length = len(domain) + 1
        return sorted({leaf[:length] for leaf in self.free if leaf[: length - 1] == domain})

    def multiple(self, level: int) -> int:
        """Of how many pods the capacity of a domain of this level below the slices is a multiple."""
        inner = [size for at, size in self.q.layers[1:] if at >= level]
        return inner[0] if inner else 1

    def leads(self, domain: Values) -> bool:
        if self.q.leader is None:
            return False
        if len(domain) < self.depth:
            return any(self.leads(child) for child in self.children(domain))
        free = self.free[domain]
        return all(free.get(resource, 0) >= amount for resource, amount in self.q.leader.items())

    def pods(self, domain: Values, *, with_leader: bool = False) -> int:
        if len(domain) == self.depth:
            free = dict(self.free[domain])
            if with_leader and self.leads(domain) and self.q.leader is not None:
                for resource, amount in self.q.leader.items():
                    free[resource] = free.get(resource, 0) - amount
            fitting = [free.get(resource, 0) // amount for resource, amount in self.q.requests.items()]
            return max(0, min(fitting))
        children = self.children(domain)
        total = sum(self.usable(child) for child in children)
        if not with_leader:
            return total
        losses = [
            self.usable(child) - self.usable(child, with_leader=True)
            for child in children
            if self.leads(child)
        ]
        return total - min(losses) if losses else total

    def usable(self, domain: Values, *, with_leader: bool = False) -> int:
        """Pods of a domain for its parent: below the slice level, only whole inner slices count."""
        pods = self.pods(domain, with_leader=with_leader)
        level = len(domain) - 1
        unit = self.multiple(level) if level > self.q.layers[0][0] else 1
        return pods // unit * unit

    def slices(self, domain: Values, *, with_leader: bool = False) -> int:
        level, size = self.q.layers[0]
        if len(domain) - 1 == level:
            return self.pods(domain, with_leader=with_leader) // size
        children = self.children(domain)
        total = sum(self.slices(child) for child in children)
        losses = [
            self.slices(child) - self.slices(child, with_leader=True)
            for child in children
            if self.leads(child)
        ]
        return total - min(losses) if with_leader and losses else total

    def score(self, domain: Values) -> int:
        """The weights of the hosts of a domain that have room."""
        return sum(
            self.q.weights.get(leaf[-1], 0)
            for leaf in self.free
            if leaf[: len(domain)] == domain and (self.pods(leaf) or self.leads(leaf))
        )

    # --- the search -------------------------------------------------------------------------------

    def domains(self, level: int) -> list[Values]:
        return sorted({leaf[: level + 1] for leaf in self.free})

    def answer(self) -> tuple[dict[Values, int], Values | None] | tuple[int, int]:
        """The pods of each leaf and the leaf of the leader; or how many slices fit, and are wanted."""
        size = self.q.layers[0][1]
        need = -(-self.q.count // size)
        levels = [self.q.level]
        if self.q.mode == "preferred":
            levels = list(range(self.q.level, -1, -1))
        needs_leader = self.q.leader is not None
        balanced = self.balance(need) if self.q.balanced and self.q.mode == "preferred" else None
        if balanced is not None:
            return self.descend(balanced, keeps_shares=True)
        for level in levels:
            fitting = [
                (-self.score(one), self.slices(one, with_leader=True), self.pods(one, with_leader=True), one)
                for one in self.domains(level)
                if self.slices(one, with_leader=True) >= need and (self.leads(one) or not needs_leader)
            ]
            if fitting:
                return self.descend([(min(fitting)[3], need, needs_leader)])
        domains = self.domains(levels[-1])
        leading = [one for one in domains if self.leads(one)]
        if self.q.mode == "required":
            candidates = leading if needs_leader else domains
            return max((self.slices(one, with_leader=True) for one in candidates), default=0), need
        chosen = self.choose(
            [(one, self.slices(one), self.slices(one, with_leader=True)) for one in domains], need
        )
        if chosen is None:
            total = sum(self.slices(one) for one in domains)
            if not needs_leader:
                return total, need
            losses = [self.slices(one) - self.slices(one, with_leader=True) for one in leading]
            return (total - min(losses) if losses else 0), need
        return self.descend(chosen)

    def choose(
        self, sized: list[tuple[Values, int, int]], need: int, *, needs_leader: bool | None = None
    ) -> list[tuple[Values, int, bool]] | None:
        """Take domains, given their sizes without and with the leader; without those that get nothing."""
        if needs_leader is None:
            needs_leader = self.q.leader is not None
        sign = 1 if self.q.least_free else -1
        taken: list[tuple[Values, int, bool]] = []
        if needs_leader:
            slack = sum(size for _, size, _ in sized) - need
            able = [
                (-self.score(one), sign * beside, self.pods(one, with_leader=True), one, beside)
                for one, size, beside in sized
                if self.leads(one) and size - beside <= slack
            ]
            if not able:
                return None
            enough = [
                (score, beside, pods, one, beside) for score, _, pods, one, beside in able if beside >= need
            ]
            first = min(enough) if enough and not self.q.least_free else min(able)
            taken.append((first[3], min(need, first[4]), True))
            need -= taken[0][1]
            sized = [each for each in sized if each[0] != first[3]]
        order = sorted(
            (-self.score(one), sign * size, self.pods(one), one, size) for one, size, _ in sized if size
        )
        while need > 0:
            if not order:
                return None
            if order[0][4] < need:
                _, _, _, one, size = order.pop(0)
                taken.append((one, size, False))
                need -= size
                continue
            enough = [(score, size, pods, one) for score, _, pods, one, size in order if size >= need]
            last = order[0][3] if self.q.least_free else min(enough)[3]
            taken.append((last, need, False))
            need = 0
        return [(one, units, leads) for one, units, leads in taken if units or leads]

    # --- balanced placement -----------------------------------------------------------------------

    def balance(self, need: int) -> list[tuple[Values, int, bool]] | None:
        """Equal shares of siblings: of all choices, the best."""
        parents = sorted({domain[:-1] for domain in self.domains(self.q.level)})
        choices = [choice for parent in parents if (choice := self.balance_in(parent, need)) is not None]
        if not choices:
            return None
        _, _, _, shares = min(choices, key=lambda choice: choice[:3])
        return shares

    def balance_in(
        self, parent: Values, need: int
    ) -> tuple[int, int, int, list[tuple[Values, int, bool]]] | None:
        siblings = sorted(self.children(parent), key=lambda one: (-self.evenness(one), one))
        roles: list[list[tuple[int, bool]]] = [
            [
                (self.slices(one), False),
                *([(self.slices(one, with_leader=True), True)] if self.leads(one) else []),
            ]
            for one in siblings
        ]
        threshold = self.threshold(sorted(siblings), need)
        if not threshold:
            return None
        for number in range(1, len(siblings) + 1):
            found: list[tuple[int, list[tuple[int, bool]], list[int], dict[int, int]]] = []
            for indexes in combinations(range(len(siblings)), number):
                for used in product(*(roles[index] for index in indexes)):
                    sizes = [size for size, _ in used]
                    leaders = sum(leads for _, leads in used)
                    if (
                        min(sizes) >= threshold
                        and sum(sizes) >= need
                        and leaders == (self.q.leader is not None)
                    ):
                        last_first = [
                            (index, leads) for index, (_, leads) in zip(indexes, used, strict=True)
                        ][::-1]
                        found.append(
                            (sum(sizes), last_first, list(indexes), dict(zip(indexes, sizes, strict=True)))
                        )
            if found:
                total, roles_last_first, indexes_, size_of = min(found, key=lambda each: each[:2])
                leads_of = dict(roles_last_first)
                left = need - threshold * number
                shares: list[tuple[Values, int, bool]] = []
                for index in sorted(indexes_, key=lambda index: (-size_of[index], index)):
                    more = min(left, size_of[index] - threshold)
                    left -= more
                    shares.append((siblings[index], threshold + more, leads_of[index]))
                return -threshold, number, total, shares
        raise AssertionError("the domains with the threshold hold the need")

    def threshold(self, siblings: list[Values], need: int) -> int:
        """The smallest share of a greedy choice, at most an equal one; 0 if not all fits."""
        sizes = {one: self.slices(one) for one in siblings}
        taken: list[int] = []
        if self.q.leader is not None:
            beside = {one: self.slices(one, with_leader=True) for one in siblings if self.leads(one)}
            able = [one for one in beside if sum(sizes.values()) - sizes[one] + beside[one] >= need]
            if not able:
                return 0
            first = max(able, key=lambda one: beside[one])
            taken.append(beside[first])
            del sizes[first]
        for size in sorted(sizes.values(), reverse=True):
            if sum(taken) < need:
                taken.append(size)
        return min(need // len(taken), *taken) if sum(taken) >= need else 0

    def evenness(self, domain: Values) -> float:
        """The entropy of the room in the children."""
        rooms = [self.pods(child) for child in self.children(domain)] if len(domain) < self.depth else []
        total = sum(rooms)
        return round(-sum(room / total * log(room / total) for room in rooms if room), 9)

    # --- the levels below -------------------------------------------------------------------------

    def descend(
        self, chosen: list[tuple[Values, int, bool]], *, keeps_shares: bool = False
    ) -> tuple[dict[Values, int], Values | None]:
        slice_level, size = self.q.layers[0]
        while keeps_shares and len(chosen[0][0]) - 1 < slice_level:
            below_chosen: list[tuple[Values, int, bool]] = []
            for one, units, leads in sorted(chosen):
                sized = [
                    (child, self.slices(child), self.slices(child, with_leader=True))
                    for child in self.children(one)
                ]
                found = self.choose(sized, units, needs_leader=leads)
                assert found is not None
                below_chosen.extend(found)
            chosen = below_chosen
        while len(chosen[0][0]) - 1 < slice_level:
            children = [child for one, _, _ in chosen for child in self.children(one)]
            sized = [(one, self.slices(one), self.slices(one, with_leader=True)) for one in children]
            found = self.choose(sized, sum(units for _, units, _ in chosen))
            assert found is not None
            chosen = found
        left = self.q.count
        placed: list[tuple[Values, int, bool]] = []
        for one, units, has_leader in chosen:
            placed.append((one, min(left, units * size), has_leader))
            left -= placed[-1][1]
        while len(placed[0][0]) < self.depth:
            below: list[tuple[Values, int, bool]] = []
            for one, pods, has_leader in placed:
                unit = self.multiple(len(one))
                sized = [
                    (child, self.pods(child) // unit, self.pods(child, with_leader=True) // unit)
                    for child in self.children(one)
                ]
                found = self.choose(sized, -(-pods // unit), needs_leader=has_leader)
                assert found is not None
                left = pods
                for child, units, leads in found:
                    below.append((child, min(left, units * unit), leads))
                    left -= below[-1][1]
            placed = below
        leader = next((one for one, _, has_leader in placed if has_leader), None)
        return {one: pods for one, pods, _ in placed if pods}, leader
