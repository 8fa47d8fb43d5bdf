import pytest

from admitq.core.activity import ActiveReason, InactiveCause, ReferencedObjects, inactive_causes
from admitq.core.model import (
    AdmissionCheck,
    AdmissionCheckRule,
    ClusterQueue,
    FlavorQuotas,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    StopPolicy,
)
from admitq.core.settings import CoreSettings

MULTIKUEUE, PROVISIONING = "x/multikueue", "x/provisioning"


def queue(*flavors: str, checks: tuple[AdmissionCheckRule, ...] = (), stopped: bool = False) -> ClusterQueue:
    quotas = tuple(FlavorQuotas(name, (("cpu", ResourceQuota(1)),)) for name in flavors)
    return ClusterQueue(
        "q",
        resource_groups=(ResourceGroup(("cpu",), quotas),),
        admission_checks=checks,
        stop_policy=StopPolicy.HOLD if stopped else StopPolicy.NONE,
    )


SURROUNDINGS = ReferencedObjects(
    {"plain": ResourceFlavor("plain"), "racks": ResourceFlavor("racks", topology_name="t")},
    {
        "ok": AdmissionCheck("ok", "x/any", active=True),
        "off": AdmissionCheck("off", "x/any", active=False),
        "remote": AdmissionCheck("remote", MULTIKUEUE, active=True),
        "remote-2": AdmissionCheck("remote-2", MULTIKUEUE, active=True),
        "nodes": AdmissionCheck("nodes", PROVISIONING, active=True),
    },
    {},
    CoreSettings(MULTIKUEUE, PROVISIONING),
)


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (queue("plain"), ()),
        (queue("plain", checks=(AdmissionCheckRule("ok"),)), ()),
        (queue("plain", stopped=True), (InactiveCause(ActiveReason.STOPPED),)),
        (queue("b", "plain", "a"), (InactiveCause(ActiveReason.FLAVOR_NOT_FOUND, ("b", "a")),)),
        (
            queue("plain", checks=(AdmissionCheckRule("z"), AdmissionCheckRule("off"))),
            (
                InactiveCause(ActiveReason.ADMISSION_CHECK_NOT_FOUND, ("z",)),
                InactiveCause(ActiveReason.ADMISSION_CHECK_INACTIVE, ("off",)),
            ),
        ),
        (queue("racks"), (InactiveCause(ActiveReason.TOPOLOGY_NOT_FOUND, ("t", "racks")),)),
        (queue("racks", checks=(AdmissionCheckRule("remote"),)), ()),
        (
            queue("plain", checks=(AdmissionCheckRule("remote"), AdmissionCheckRule("remote-2"))),
            (InactiveCause(ActiveReason.MULTIPLE_MULTIKUEUE, ("remote", "remote-2")),),
        ),
        (
            queue("plain", checks=(AdmissionCheckRule("remote", ("plain",)),)),
            (InactiveCause(ActiveReason.MULTIKUEUE_PER_FLAVOR, ("remote",)),),
        ),
        (
            queue("plain", checks=(AdmissionCheckRule("nodes"), AdmissionCheckRule("remote"))),
            (InactiveCause(ActiveReason.MULTIKUEUE_WITH_PROVISIONING, ("remote", "nodes")),),
        ),
    ],
    ids=[
        "active",
        "active check",
        "stopped",
        "two flavors not found",
        "check not found and check inactive",
        "topology not found",
        "MultiKueue needs no topology",
        "two MultiKueue checks",
        "MultiKueue check of one flavor",
        "MultiKueue and provisioning",
    ],
)
def test_inactive_causes_of_cluster_queue_are_listed(
    spec: ClusterQueue, causes: tuple[InactiveCause, ...]
) -> None:
    assert inactive_causes(spec, SURROUNDINGS) == causes


def test_checks_are_not_restricted_without_configured_controllers() -> None:
    surroundings = ReferencedObjects(SURROUNDINGS.flavors, SURROUNDINGS.checks, {}, CoreSettings())
    checks = (AdmissionCheckRule("remote", ("plain",)), AdmissionCheckRule("nodes"))
    assert inactive_causes(queue("plain", checks=checks), surroundings) == ()
