"""The results of a search for flavors."""

from typing import Final, NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.instructions import ConsideredFlavor, FitMode
from admitq.core.model import PodSetAssignment
from admitq.core.refusals import NoFlavorFits


class FlavorFit(NamedTuple):
    """How a flavor fits a request: the mode, and the borrow level."""

    mode: FitMode
    borrow_level: int


NO_FIT: Final = FlavorFit(FitMode.NO_FIT, 0)
FITS_WITHOUT_BORROWING: Final = FlavorFit(FitMode.FIT, 0)


class ScanStop(NamedTuple):
    """The flavor at which the scan of a resource group stopped, for podsets that are assigned together.

    The first podset and the first resource identify the scan.
    """

    pod_set: str
    resource: str
    flavor_index: int


class Assignment(NamedTuple):
    """Flavors for each podset, or the refusal of the first podset that no flavor fits."""

    pod_sets: tuple[PodSetAssignment, ...]
    usage: tuple[tuple[FlavorResource, int], ...]
    """The usage of the workload, without amounts of zero."""
    mode: FitMode
    """The worst mode of any request. With any mode but ``FIT``, the workload does not fit now."""
    borrow_level: int
    """The highest borrow level of any request, including those before a request that no flavor fits."""
    contested: frozenset[FlavorResource]
    """The (flavor, resource) pairs that do not fit into unused quota."""
    refusal: NoFlavorFits | None
    """Why the workload does not fit into unused quota; None if it fits."""
    considered_flavors: tuple[ConsideredFlavor, ...]
    """If the workload fits: the flavors that were tried, except those that fit without borrowing."""
    scan_stops: tuple[ScanStop, ...]
    """The scans that have flavors left to try."""

    @property
    def shortfall(self) -> NoFlavorFits:
        """The refusal of an assignment that does not fit."""
        assert self.refusal is not None  # noqa: S101 narrows the type
        return self.refusal
