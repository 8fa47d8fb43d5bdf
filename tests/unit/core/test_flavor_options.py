"""Whether a flavor's nodes may hold pods, whatever quota there is."""

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
    ("pod_sets", "flavor", "unfit"),
    [
        ((PLAIN,), None, FlavorNotFound("spot")),
        ((PLAIN,), SPOT, UNTOLERATED),
        ((TOLERANT,), SPOT, None),
        ((FOR_X86,), SPOT, NodeAffinityMismatch("spot")),
        ((TOLERANT, PLAIN), SPOT, UNTOLERATED),
        ((TOLERANT, FOR_X86), SPOT, NodeAffinityMismatch("spot")),
        ((PLAIN,), ResourceFlavor("spot"), None),
    ],
)
def test_nodes_that_cannot_hold_the_pods(
    pod_sets: tuple[PodSet, ...], flavor: ResourceFlavor | None, unfit: NodeRefusal | None
) -> None:
    assert find_node_refusal(pod_sets, "spot", flavor) == unfit
