"""Who must be preempted so that a workload fits (semantics, Preemption)."""

from collections.abc import Collection, Mapping

from admitq.core.amounts import FlavorResource
from admitq.core.model import ObjectKey
from admitq.core.preemption.candidates import Preemptor, Victim
from admitq.core.world import World

__all__ = ["Preemptor", "Victim", "find_victims"]


def find_victims(
    world: World,
    preemptor: Preemptor,
    usage: Mapping[FlavorResource, int],
    contested: Collection[FlavorResource],
    gone: Collection[ObjectKey] = (),
) -> tuple[Victim, ...]:
    """Find whom to preempt."""
    _ = (world, preemptor, usage, contested, gone)
    return ()
