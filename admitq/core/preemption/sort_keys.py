"""Sort keys of the children of a cohort: the order in which a search reaches them."""

from fractions import Fraction
from typing import NamedTuple

from admitq.core.cohorts import Node
from admitq.core.fair_sharing import Share
from admitq.core.quota_holders import PreemptionOrder


class OrderKey(NamedTuple):
    """The sort key of a cohort's child in classical preemption. Name and kind make it unique."""

    order: PreemptionOrder
    name: str
    is_cohort: bool


class ShareKey(NamedTuple):
    """The sort key of a cohort's child in fair preemption.

    A greater share comes first, then a cohort before a ClusterQueue, then the better first candidate.
    """

    finite: bool
    share_descending: Fraction
    candidate: tuple[object, ...]
    name: str


def share_key(node: Node, share: Share, candidate: tuple[object, ...] = ()) -> ShareKey:
    """Return the sort key of a node with this share; for a ClusterQueue, with its first candidate."""
    return ShareKey(not share.infinite, -share.amount, candidate, node.name)


def share_from_key(key: ShareKey) -> Share:
    """Return the share of the node with this sort key."""
    return Share(infinite=not key.finite, amount=-key.share_descending)


def candidate_key(order: PreemptionOrder, *, is_leaving: bool, is_own: bool) -> tuple[object, ...]:
    """Return the sort key of a first candidate in fair preemption.

    Args:
        order: its sort key in its ClusterQueue.
        is_leaving: whether it is leaving already.
        is_own: whether its ClusterQueue is the preemptor's.
    """
    return (not is_leaving, is_own, order)
