"""Places of the children of a cohort: the order in which a search gets to them."""

from fractions import Fraction
from typing import NamedTuple

from admitq.core.cohorts import Node
from admitq.core.fair_sharing import Share
from admitq.core.quota_holders import PreemptionOrder


class OrderKey(NamedTuple):
    """Place of a cohort's child in classical preemption; name and kind make it unique."""

    order: PreemptionOrder
    name: str
    is_cohort: bool


class ShareKey(NamedTuple):
    """Place of a cohort's child in fair preemption.

    A greater share comes first, then a cohort before a ClusterQueue, then the better first candidate.
    """

    finite: bool
    share_descending: Fraction
    candidate: tuple[object, ...]
    name: str


def share_key(node: Node, share: Share, candidate: tuple[object, ...] = ()) -> ShareKey:
    """Return the place of a node with this share; of a ClusterQueue, also by its first candidate."""
    return ShareKey(not share.infinite, -share.amount, candidate, node.name)


def share_from_key(key: ShareKey) -> Share:
    """Return the share by which a node has its place."""
    return Share(infinite=not key.finite, amount=-key.share_descending)


def candidate_key(order: PreemptionOrder, *, is_leaving: bool, is_own: bool) -> tuple[object, ...]:
    """Return how first candidates compare in fair preemption; ``is_own``: in the preemptor's ClusterQueue."""
    return (not is_leaving, is_own, order)
