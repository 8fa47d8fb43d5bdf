"""Rules for the choice of domains that feature gates switch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """How domains are chosen among those with room.

    Attributes:
        small_gaps_first: whether pods that require no domain get the fullest domains (gate TASProfileMixed).
        balanced: whether pods that prefer a level get equal shares of several domains, if one does not
            suffice (gate TASBalancedPlacement).
        prefers_nodes: whether hosts that the preferred node affinity of the pods names come first (gate
            TASRespectNodeAffinityPreferred).
    """

    small_gaps_first: bool = True
    balanced: bool = False
    prefers_nodes: bool = False


USUAL_RULES = PlacementRules()
