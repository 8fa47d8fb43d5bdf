"""Whether the nodes of a flavor can run pods, apart from quota."""

import pytest

from admitq.core.flavor_options import NodeRefusal, find_node_refusal
from admitq.core.model import PodSet, ResourceFlavor, Taint, Toleration
from admitq.core.refusals import FlavorNotFound, NodeAffinityMismatch, UntoleratedTaint

SPOT = ResourceFlavor("spot", (("arch", "arm"),), (Taint("spot", "yes", "NoSchedule"),))
PLAIN = PodSet("main", 1)
TOLERANT = PodSet("main", 1, tolerations=(Toleration("spot", "Exists"),))
FOR_X86 = PodSet("main", 1, tolerations=TOLERANT.tolerations, node_selector=(("arch", "x86"),))
UNTOLERATED = UntoleratedTaint("spot", "spot", "yes", "NoSchedule")


@pytest.mark.parametrize(
    ("pod_sets", "flavor", "refusal"),
    [
        ((PLAIN,), None, FlavorNotFound("spot")),
        ((PLAIN,), SPOT, UNTOLERATED),
        ((TOLERANT,), SPOT, None),
        ((FOR_X86,), SPOT, NodeAffinityMismatch("spot")),
        ((TOLERANT, PLAIN), SPOT, UNTOLERATED),
        ((TOLERANT, FOR_X86), SPOT, NodeAffinityMismatch("spot")),
        ((PLAIN,), ResourceFlavor("spot"), None),
    ],
    ids=[
        "flavor not found",
        "untolerated taint",
        "tolerated taint",
        "affinity mismatch",
        "one podset without toleration",
        "one podset with other affinity",
        "flavor without taint",
    ],
)
def test_node_refusal_is_found_for_missing_flavor_taint_or_affinity(
    pod_sets: tuple[PodSet, ...], flavor: ResourceFlavor | None, refusal: NodeRefusal | None
) -> None:
    assert find_node_refusal(pod_sets, "spot", flavor) == refusal
