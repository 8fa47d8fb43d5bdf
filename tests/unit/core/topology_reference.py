"""Placement in a topology as semantics describes it, in the slowest and most obvious way.

A world is a mapping from the values of a leaf to its free amounts. Everything is computed again at each use,
by walking over all leaves.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
        for level in levels:
            fitting = [
                (self.slices(one, with_leader=True), self.pods(one, with_leader=True), one)
                for one in self.domains(level)
                if self.slices(one, with_leader=True) >= need and (self.leads(one) or not needs_leader)
            ]
            if fitting:
                return self.descend([(min(fitting)[2], need, needs_leader)])
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
                (sign * beside, self.pods(one, with_leader=True), one, beside)
                for one, size, beside in sized
                if self.leads(one) and size - beside <= slack
            ]
            if not able:
                return None
            enough = [(beside, pods, one, beside) for _, pods, one, beside in able if beside >= need]
            first = min(enough) if enough and not self.q.least_free else min(able)
            taken.append((first[2], min(need, first[3]), True))
            need -= taken[0][1]
            sized = [each for each in sized if each[0] != first[2]]
        order = sorted((sign * size, self.pods(one), one, size) for one, size, _ in sized)
        while need > 0:
            if not order:
                return None
            if order[0][3] < need:
                _, _, one, size = order.pop(0)
                taken.append((one, size, False))
                need -= size
                continue
            enough = [(size, pods, one) for _, pods, one, size in order if size >= need]
            last = order[0][2] if self.q.least_free else min(enough)[2]
            taken.append((last, need, False))
            need = 0
        return [(one, units, leads) for one, units, leads in taken if units or leads]

    def descend(self, chosen: list[tuple[Values, int, bool]]) -> tuple[dict[Values, int], Values | None]:
        slice_level, size = self.q.layers[0]
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
