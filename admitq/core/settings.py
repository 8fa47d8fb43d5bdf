"""What the configuration decides once, at start, for all decisions."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the core.

    The controller names are those that mark an AdmissionCheck as MultiKueue's or as ProvisioningRequest's,
    which restricts how a ClusterQueue may combine them; empty names mark none.
    """

    multikueue_controller: str = ""
    provisioning_controller: str = ""
