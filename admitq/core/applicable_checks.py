"""The admission checks of a ClusterQueue that apply to a workload, and the limit of their number."""

from collections.abc import Collection, Iterable
from typing import Final

from admitq.core.model import AdmissionCheckRule, PodSetAssignment
from admitq.core.refusals import TooManyChecks

MOST_CHECKS: Final = 8
"""The number of checks that the status of a workload can list. A ClusterQueue can name more."""


def assigned_flavors(pod_sets: Iterable[PodSetAssignment]) -> frozenset[str]:
    """Return the flavors of an assignment."""
    return frozenset(flavor for part in pod_sets for _, flavor in part.flavors)


def applicable_checks(
    rules: Iterable[AdmissionCheckRule], all_flavors: Collection[str], assigned: Collection[str] | None = None
) -> frozenset[str]:
    """Return the checks that apply to the assigned flavors; without these, the checks that apply to all.

    Args:
        rules: the checks that the ClusterQueue names.
        all_flavors: the flavors that the ClusterQueue names.
        assigned: the flavors that the workload was assigned.
    """
    return frozenset(rule.name for rule in rules if _applies(rule, all_flavors, assigned))


def _applies(
    rule: AdmissionCheckRule, all_flavors: Collection[str], assigned: Collection[str] | None
) -> bool:
    if not rule.on_flavors:
        return True
    if assigned is None:
        return set(rule.on_flavors).issuperset(all_flavors)
    return not set(rule.on_flavors).isdisjoint(assigned)


def too_many_checks(
    cluster_queue: str,
    rules: Collection[AdmissionCheckRule],
    all_flavors: Collection[str],
    assigned: Collection[str] | None = None,
) -> TooManyChecks | None:
    """Return the refusal of a workload to which more checks apply than its status can list; None if it can.

    Checks that apply to all flavors are counted first: every assignment needs them.
    """
    if len(rules) <= MOST_CHECKS:
        return None
    of_every_flavor = len(applicable_checks(rules, all_flavors))
    if of_every_flavor > MOST_CHECKS:
        return TooManyChecks(cluster_queue, of_every_flavor, MOST_CHECKS)
    if assigned is None:
        return None
    count = len(applicable_checks(rules, all_flavors, assigned))
    return (
        TooManyChecks(cluster_queue, count, MOST_CHECKS, tuple(sorted(assigned)))
        if count > MOST_CHECKS
        else None
    )
