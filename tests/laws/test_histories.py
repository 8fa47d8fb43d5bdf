"""The laws hold over many random histories, and the core decides as the reference model.

``hack/laws`` plays more of them. A failing seed replays exactly, and the failure shows its shortened history.
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
from admitq.core.settings import AdmissionFairSharing, CoreSettings
from tests.laws.drawing import requesting
from tests.laws.history import (
    ELASTIC,
    PLACED,
    PLACED_ELASTIC,
    History,
    Step,
    find_failure,
    generate,
    play,
    report,
)
from tests.laws.player import Player

HISTORIES = (
    *range(40),
    *range(ELASTIC, ELASTIC + 20),
    *range(PLACED, PLACED + 40),
    *range(PLACED_ELASTIC, PLACED_ELASTIC + 20),
)
FURTHER_HISTORIES = (
    *range(40, 400),
    *range(ELASTIC + 20, ELASTIC + 100),
    *range(PLACED + 40, PLACED + 300),
    *range(PLACED_ELASTIC + 20, PLACED_ELASTIC + 200),
)
"""Played before a release. Histories that broke a law stay in each run, see below."""
STEPS = 100
TOGETHER = 20
"""How many histories one test plays. With several tests, pytest workers share them."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "first",
    [
        *HISTORIES[::TOGETHER],
        *(pytest.param(first, marks=pytest.mark.release) for first in FURTHER_HISTORIES[::TOGETHER]),
    ],
)
def test_laws_hold_over_histories(first: int) -> None:
    for seed in range(first, first + TOGETHER):
        history = generate(seed, STEPS)
        if find_failure(history) is not None:
            pytest.fail(report(seed, history), pytrace=False)


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        pytest.param(242, 110, id="waits for a full admission while others reserve"),
        pytest.param(495, 110, id="lost a flavor to capacity reserved for one cycle"),
        pytest.param(5145, 110, id="reserves capacity in every other attempt"),
        pytest.param(30212, 110, id="a victim has a lower borrow level and comes before its preemptor"),
        pytest.param(31308, 110, id="waits for ready pods and then evaluates other flavors only"),
        pytest.param(
            3000081, 110, id="fits after the targets of others left but not beside reserved capacity"
        ),
        pytest.param(3000266, 110, id="could preempt while admission waits for ready pods"),
        pytest.param(5000291, 110, id="waits for targets in the second flavor and might find others"),
        pytest.param(5000515, 110, id="the reservation of a preempted workload fails"),
        pytest.param(6002214, 110, id="loses to a blocking head but not if a parked workload is retried too"),
        pytest.param(
            6003283, 110, id="reserves again what it freed for a preemptor that tries further flavors"
        ),
        pytest.param(8000028, 110, id="waits for targets and lacks capacity reserved for one cycle"),
        pytest.param(6003784, 110, id="looks for other targets after a reservation in the same cycle"),
        pytest.param(6004438, 110, id="gated while another reserves what it would have preempted for"),
        pytest.param(6005221, 110, id="refusals have the same order after a restart"),
        pytest.param(6003265, 110, id="continues with another flavor if a parked workload is retried too"),
        pytest.param(
            8001524, 110, id="two victims each reserve what was freed for the preemptor of the other"
        ),
        pytest.param(8001773, 110, id="fits only after others reserved and left another flavor"),
        pytest.param(
            20002533, 110, id="reclaims and is preempted by a workload that its preemptor had preempted"
        ),
        pytest.param(20000529, 110, id="its LocalQueue has its turn before that of its preemptor"),
        pytest.param(20001668, 110, id="preempts for the second flavor and then fits the first"),
        pytest.param(
            9300045, 110, id="has most past usage but only a preemptor that does not borrow may preempt it"
        ),
        pytest.param(8003380, 110, id="one of several victims of a borrower is within nominal quota"),
        pytest.param(
            930120, 120, id="its victim reserved again while it tries the flavor after the lost one"
        ),
        pytest.param(952697, 120, id="more refusals are outdated than one cycle refreshes"),
        pytest.param(901882, 120, id="may preempt another once a candidate began to leave"),
        pytest.param(962305, 120, id="preempts further once its own targets began to leave"),
        pytest.param(
            971279, 120, id="loses what its victim freed to another preemptor and the victim reserved again"
        ),
        pytest.param(
            8003691, 110, id="its victim reserved again while another is first of its StrictFIFO queue"
        ),
        pytest.param(700106, 120, id="two borrowing limits are reached at once"),
    ],
)
def test_laws_hold_over_histories_that_broke_them_before(seed: int, steps: int) -> None:
    history = generate(seed, steps)
    if find_failure(history) is not None:
        pytest.fail(report(seed, history), pytrace=False)


LATER_HEAD_FITS_IN_RETRY_ALONE = """
    submit 1499, submit 611, change_quota 0, change_namespace 994, run 0, run 0, run_busy_period 132,
    run_busy_period 27999, run_busy_period 1, run_busy_period 164, run_busy_period 427587, finish 1,
    answer_reservations 1, restore_objects 14, run 32, run_busy_period 1360, submit 67726,
    answer_reservations 3, run_busy_period 0, run_busy_period 66590, run_busy_period 0, submit 566,
    create_again 302708, run 56297
"""


def test_laws_hold_while_the_first_of_a_strict_queue_withholds_quota_from_two_workloads() -> None:
    steps = LATER_HEAD_FITS_IN_RETRY_ALONE.replace("\n", " ").split(",")
    play(History(12071, tuple(Step(name, int(seed)) for name, seed in map(str.split, steps))))


def test_histories_of_one_seed_end_in_equal_states() -> None:
    first, second = (play(generate(7, 40)) for _ in range(2))
    assert first.core.to_dict() == second.core.to_dict()


def test_past_usage_of_new_local_queue_is_known_while_admission_waits_for_pods() -> None:
    player = Player(
        CoreSettings(admission_fair_sharing=AdmissionFairSharing(), block_admission=True),
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
        pods = (PodSet("main", 1, requesting(cpu=1)),)
        player.send(happened.WorkloadChanged(Workload(key, player.uid(), name, player.now, pods)))
        player.run_cycles(None, Random(0))  # noqa: S311 a history, not a secret
    assert player.cycles > 1
    player.rest.check_nothing_is_missed()
