"""The assignment of a podset to domains (semantics, Workload, TopologyAssignment)."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TopologyAssignment:
    """The leaves that a podset was assigned, in the order of all of their values.

    ``levels`` are the labels that identify a leaf: that of host names alone, or else all of the topology.
    ``domains`` has the values of these labels, and the number of pods.
    """

    levels: tuple[str, ...]
    domains: tuple[tuple[tuple[str, ...], int], ...]

    @property
    def pod_count(self) -> int:
        """The number of pods in all domains."""
        return sum(count for _, count in self.domains)

    def keep(self, count: int) -> "TopologyAssignment":
        """Return the assignment of so many pods at most: those of the first domains stay."""
        kept: list[tuple[tuple[str, ...], int]] = []
        for values, pods in self.domains:
            kept.append((values, min(pods, count)))
            count -= kept[-1][1]
        return replace(self, domains=tuple(domain for domain in kept if domain[1]))
