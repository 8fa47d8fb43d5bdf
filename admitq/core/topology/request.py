"""What a podset requests of a topology (semantics, Topology-aware scheduling)."""

from dataclasses import dataclass
from typing import NamedTuple


class SliceLayer(NamedTuple):
    """Pods that must be in one domain together: the label of the level of this domain, and their number."""

    level: str
    size: int


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """What a podset requests of the topology of its flavor.

    At most one of ``required``, ``preferred`` and ``unconstrained`` is set. ``slices`` has the slices, and
    the smaller slices of which these consist, outermost first. Levels are labels of nodes.
    """

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool = False
    slices: tuple[SliceLayer, ...] = ()

    @property
    def labels(self) -> set[str]:
        """The requested levels."""
        return {label for label in (self.required, self.preferred) if label} | {
            layer.level for layer in self.slices
        }

    @property
    def is_empty(self) -> bool:
        """Whether nothing is requested."""
        return not (self.required or self.preferred or self.unconstrained or self.slices)


NOTHING = TopologyRequest()

IMPLIED = TopologyRequest(unconstrained=True)
"""The request of a podset without a request, in a ClusterQueue with only flavors that have a topology."""
