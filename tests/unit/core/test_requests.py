import pytest

from admitq.core.amounts import UNLIMITED, Amounts
from admitq.core.model import PodSet
from admitq.core.requests import InitContainer, PodRequirements, demand, demands, pod_requests


def cpu(amount: int) -> Amounts:
    return (("cpu", amount),)


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        pytest.param(PodRequirements(), (), id="nothing asked for"),
        pytest.param(PodRequirements((cpu(1), cpu(2))), cpu(3), id="containers run together"),
        pytest.param(
            PodRequirements((cpu(1),), (InitContainer(cpu(5)), InitContainer(cpu(4)))),
            cpu(5),
            id="init containers run one after the other, before",
        ),
        pytest.param(
            PodRequirements((cpu(4),), (InitContainer(cpu(3)),)), cpu(4), id="the larger phase counts"
        ),
        pytest.param(
            PodRequirements((cpu(1),), (InitContainer(cpu(2), restartable=True),)),
            cpu(3),
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            PodRequirements((cpu(1),), (InitContainer(cpu(2), restartable=True), InitContainer(cpu(5)))),
            cpu(7),
            id="a sidecar runs beside the init containers after it",
        ),
        pytest.param(
            PodRequirements((cpu(1),), (InitContainer(cpu(5)), InitContainer(cpu(2), restartable=True))),
            cpu(5),
            id="and not beside those before it",
        ),
        pytest.param(
            PodRequirements((cpu(1),), overhead=(("cpu", 1), ("memory", 7))),
            (("cpu", 2), ("memory", 7)),
            id="the runtime's overhead comes on top",
        ),
        pytest.param(
            PodRequirements(((("cpu", 1), ("memory", 2)),), pod_level=cpu(9), overhead=cpu(1)),
            (("cpu", 10), ("memory", 2)),
            id="what the pod level states stands instead, before the overhead",
        ),
        pytest.param(PodRequirements((cpu(UNLIMITED - 1), cpu(5))), cpu(UNLIMITED), id="sums saturate"),
        pytest.param(
            PodRequirements(((("cpu", 1),), (("gpu", 1),)), (InitContainer((("disk", 3),)),)),
            (("cpu", 1), ("disk", 3), ("gpu", 1)),
            id="each resource for itself",
        ),
    ],
)
def test_requests_of_a_pod(requirements: PodRequirements, expected: Amounts) -> None:
    assert pod_requests(requirements) == expected


@pytest.mark.parametrize(
    ("count", "reclaimable", "left", "total"),
    [(4, 0, 4, 8), (4, 1, 3, 6), (4, 4, 0, 0), (4, 9, 0, 0), (0, 0, 0, 0)],
)
def test_a_podset_asks_for_the_pods_still_to_run(count: int, reclaimable: int, left: int, total: int) -> None:
    asked = demand(PodSet("main", count, cpu(2)), reclaimable)
    assert (asked.count, asked.totals) == (left, cpu(total))


def test_reclaimable_pods_are_those_of_the_podset_named() -> None:
    asked = demands((PodSet("a", 2, cpu(1)), PodSet("b", 2, cpu(1))), (("b", 1), ("unknown", 5)))
    assert [each.count for each in asked] == [2, 1]
