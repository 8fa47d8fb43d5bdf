"""Fair sharing: how much of what it may borrow a node has borrowed, and who goes first by that."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Generic, Protocol, TypeVar

from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.model import Instant
from admitq.core.settings import Gates


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """A dominant resource share, exact and comparable: more borrowed, for its weight, is greater."""

    infinite: bool
    amount: Fraction
    resource: str = field(default="", compare=False)

    @property
    def weighted_share(self) -> int:
        """As statuses show it: rounded up, UNLIMITED if infinite."""
        return 0


def share(node: Node) -> Share:
    """The dominant resource share of a ClusterQueue or cohort; zero for a root."""
    _ = node
    return Share(infinite=False, amount=Fraction(0))


class Contender(Protocol):
    """The head of a ClusterQueue in a cycle, as far as its turn depends on it."""

    @property
    def node(self) -> Node:
        """Its ClusterQueue's node."""
        ...

    @property
    def usage(self) -> Iterable[tuple[FlavorResource, int]]:
        """What it would take; nothing if it was refused."""
        ...

    @property
    def priority(self) -> int:
        """Its effective priority."""
        ...

    @property
    def queued_at(self) -> Instant:
        """Its queue-order timestamp."""
        ...

    @property
    def uid(self) -> str:
        """Its uid."""
        ...

    @property
    def is_preemptor(self) -> bool:
        """Whether it waits for workloads that were preempted for it."""
        ...


C = TypeVar("C", bound=Contender)


class Tournament(Generic[C]):
    """Lets the heads of a cycle take turns by their shares; at most one contender a ClusterQueue."""

    def __init__(self, contenders: Iterable[C], gates: Gates) -> None:
        self._left = list(contenders)
        self._gates = gates

    def __len__(self) -> int:
        """How many are left."""
        return len(self._left)

    def usage_changed(self, node: Node) -> None:
        """Note that quota or usage at a ClusterQueue changed since its contenders were compared.

        To be called for the node of every workload that was added to the tree or taken off it in the cycle.
        """
        _ = node

    def pop(self) -> C:
        """Whose turn it is, as the tree stands now; it is out of the tournament then.

        Raises:
            IndexError: nobody is left.
        """
        return self._left.pop()
