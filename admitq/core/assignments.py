"""What comes out of a search for flavors, and how good it is."""

from typing import Final, NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.instructions import FitMode, FlavorAttempt
from admitq.core.model import PodSetAssignment
from admitq.core.refusals import NoFlavorFits


class FlavorFit(NamedTuple):
    """What a flavor offers: a mode, and how far up the tree quota comes from."""

    mode: FitMode
    borrow_level: int


NO_FIT: Final = FlavorFit(FitMode.NO_FIT, 0)
FITS_WITHIN_QUOTA: Final = FlavorFit(FitMode.FIT, 0)


class TriedFlavor(NamedTuple):
    """How far the scan of one resource group got for podsets that are assigned together.

    The scan is named by the first podset and the first resource.
    """

    pod_set: str
    resource: str
    flavor_index: int


class Assignment(NamedTuple):
    """Flavors for every podset, or the refusal of the first that none fits."""

    pod_sets: tuple[PodSetAssignment, ...]
    usage: tuple[tuple[FlavorResource, int], ...]
    """All that the workload takes, without amounts of zero."""
    mode: FitMode
    """The worst mode of any request: with anything but ``FIT`` quota is not to be had without preemption."""
    borrow_level: int
    """The highest of any request; also of those before the one that no flavor fits."""
    contested: frozenset[FlavorResource]
    """What does not fit into unused quota."""
    refusal: NoFlavorFits | None
    """Why it does not fit, unless it does: also of an assignment for which others are to be preempted."""
    attempts: tuple[FlavorAttempt, ...]
    """The flavors that were looked at and not simply taken, where the assignment fits."""
    tried: tuple[TriedFlavor, ...]
    """Scans that have flavors left to try."""

    @property
    def shortfall(self) -> NoFlavorFits:
        """The refusal of an assignment that does not fit; every such has one."""
        assert self.refusal is not None  # noqa: S101 narrows the type
        return self.refusal
