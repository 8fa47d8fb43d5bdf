"""The laws over many random histories, held against the reference model.

``hack/laws`` plays more of them. A failing seed replays exactly; what is told is its history made shorter.
"""

from random import Random

import pytest

from admitq.core import events as happened
from admitq.core.model import (
    ClusterQueue,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    ObjectKey,
    PodSet,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Workload,
)
from admitq.core.settings import AdmissionFairSharing, Settings
from tests.laws.drawing import asking
from tests.laws.history import ELASTIC, failure, generate, play, report
from tests.laws.player import Player

HISTORIES = (*range(400), *range(ELASTIC, ELASTIC + 100))
STEPS = 100
TOGETHER = 20
"""How many histories are one test, so that a run can be shared among workers."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", HISTORIES[::TOGETHER])
def test_laws_hold_over_histories(first: int) -> None:
    for seed in range(first, first + TOGETHER):
        history = generate(seed, STEPS)
        if failure(history) is not None:
            pytest.fail(report(seed, history), pytrace=False)


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        pytest.param(242, 110, id="waits to run whole, while others take that"),
        pytest.param(495, 110, id="beaten over a flavor by what was kept for one cycle"),
        pytest.param(5145, 110, id="keeps capacity at every other attempt"),
        pytest.param(30212, 110, id="a victim goes before its preemptor, borrowing from nearer by"),
        pytest.param(31308, 110, id="waits for pods, and then looks at other flavors only"),
        pytest.param(3000081, 110, id="fits after others' victims, but not beside who is tried in vain"),
        pytest.param(3000266, 110, id="could preempt, while admission waits for pods"),
        pytest.param(5000291, 110, id="waits for victims of the second flavor, and might find others"),
        pytest.param(5000515, 110, id="a reservation fails of one that was told to leave"),
        pytest.param(6002214, 110, id="beaten by who stands, but not if one who is parked is tried as well"),
        pytest.param(6003283, 110, id="takes back what it left for one who looks at other flavors next"),
        pytest.param(8000028, 110, id="waits for victims, and lacks what one keeps who is tried in vain"),
        pytest.param(6003784, 110, id="looks for other victims, after somebody took quota in the same cycle"),
        pytest.param(6004438, 110, id="gated, and somebody took what it would have preempted for"),
        pytest.param(6005221, 110, id="told what they lack in the same order after a restart"),
        pytest.param(6003265, 110, id="goes on with another flavor if one who is parked is tried as well"),
        pytest.param(8001524, 110, id="two victims take in turn what was freed for the other's preemptor"),
        pytest.param(8001773, 110, id="fits only after others took quota, and left it another flavor"),
        pytest.param(20002533, 110, id="reclaims, and leaves for one whom that had preempted"),
        pytest.param(20000529, 110, id="its LocalQueue has its turn before that of whom it left for"),
        pytest.param(20001668, 110, id="went on to preempt for the second flavor, and fits the first"),
        pytest.param(9300045, 110, id="used most, but may only be preempted by who does not borrow then"),
        pytest.param(8003380, 110, id="one of several who left for a borrower is within nominal quota"),
        pytest.param(930120, 120, id="its victim is back while it tries the flavor after the one it lost"),
        pytest.param(952697, 120, id="more refusals are outdated than one cycle refreshes"),
        pytest.param(901882, 120, id="may preempt another once a candidate has begun to leave"),
        pytest.param(962305, 120, id="preempts further once its own targets have begun to leave"),
        pytest.param(971279, 120, id="loses to another preemptor what its victim left, which is back"),
        pytest.param(8003691, 110, id="back while another is the first of its preemptor's StrictFIFO queue"),
    ],
)
def test_what_once_broke_a_law_holds(seed: int, steps: int) -> None:
    history = generate(seed, steps)
    if failure(history) is not None:
        pytest.fail(report(seed, history), pytrace=False)


def test_a_history_is_played_as_its_seed_tells() -> None:
    once, again = (play(generate(7, 40)) for _ in range(2))
    assert once.core.to_dict() == again.core.to_dict()


def test_a_local_queue_is_known_before_a_cycle_runs() -> None:
    """Which none does while admission waits for pods."""
    player = Player(
        Settings(admission_fair_sharing=AdmissionFairSharing(), block_admission=True),
        crowded=False,
        watches_statuses=False,
    )
    quota = ResourceGroup(("cpu",), (FlavorQuotas("f1", (("cpu", ResourceQuota(9)),)),))
    player.send(happened.ResourceFlavorChanged(ResourceFlavor("f1")))
    player.send(happened.NamespaceChanged("n1", ()))
    player.send(
        happened.ClusterQueueChanged(
            ClusterQueue(
                "a",
                resource_groups=(quota,),
                namespace_selector=LabelSelector(),
                usage_based_admission=True,
            )
        )
    )
    for number, name in enumerate(("l1", "l1", "l2")):
        player.send(happened.LocalQueueChanged(LocalQueue(ObjectKey("n1", name), "a")))
        key = ObjectKey("n1", f"w{number}")
        pods = (PodSet("main", 1, asking(cpu=1)),)
        player.send(happened.WorkloadChanged(Workload(key, player.uid(), name, player.now, pods)))
        player.run(None, Random(0))  # noqa: S311 a history, not a secret
    assert player.cycles > 1
    player.rest.check_nobody_is_forgotten()
