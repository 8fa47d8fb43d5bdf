"""The results of a search for flavors."""

from typing import Final, NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.instructions import ConsideredFlavor, FitMode
from admitq.core.model import PodSetAssignment
from admitq.core.refusals import NoFlavorFits
from admitq.core.topology.topologies import Place


class FlavorFit(NamedTuple):
    """How a request fits into a flavor: the mode, and the borrow level."""

    mode: FitMode
    borrow_level: int


NO_FIT: Final = FlavorFit(FitMode.NO_FIT, 0)
FITS_WITHOUT_BORROWING: Final = FlavorFit(FitMode.FIT, 0)


class ScanStop(NamedTuple):
    """The flavor of a resource group at which an attempt stopped. The next attempt continues after it.

    Podsets of one podset group are assigned together. Such podsets have one stop for each resource group.

    Attributes:
        pod_set: the first of the podsets that are assigned together.
        resource: the first resource of the resource group.
        flavor_index: the index of the flavor among the flavors of the resource group.
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
    """The worst mode of all requests. The workload fits now only if the mode is ``FIT``."""
    borrow_level: int
    """The highest borrow level of all requests that were assigned, also if a later request fits no flavor."""
    contested: frozenset[FlavorResource]
    """The (flavor, resource) pairs of which unused quota is not enough."""
    refusal: NoFlavorFits | None
    """Why unused quota is not enough for the workload; None if it is."""
    considered_flavors: tuple[ConsideredFlavor, ...]
    """The flavors that the search considered, except those that fit without borrowing.

    Empty if the workload does not fit now.
    """
    scan_stops: tuple[ScanStop, ...]
    """Where the attempt stopped. Resource groups without flavors left have no stop."""
    places: tuple[Place, ...] = ()
    """The places of its pods in topologies. If it does not fit now, these are not free."""
    lacks_room: bool = False
    """Whether there is enough unused quota, and no place in a topology."""

    @property
    def shortfall(self) -> NoFlavorFits:
        """The refusal of an assignment that does not fit."""
        assert self.refusal is not None  # noqa: S101 narrows the type
        return self.refusal
