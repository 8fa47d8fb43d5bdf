import pytest

from admitq.core.amounts import FlavorResource
from admitq.core.ledger import Ledger, Reservation, usage_of
from admitq.core.model import Admission, ObjectKey, PodSet, PodSetAssignment, Workload

CPU = FlavorResource("default", "cpu")
QUEUE = ObjectKey("n", "main")


def assigned(name: str, cpu: int, count: int, flavor: str = "default") -> PodSetAssignment:
    return PodSetAssignment(name, (("cpu", flavor),), (("cpu", cpu),), count)


@pytest.mark.parametrize(
    ("count", "assigned_count", "reclaimable", "used"),
    [
        (4, 4, 0, 8),
        (4, 4, 1, 6),
        (4, 4, 4, 0),
        (4, 4, 9, 0),
        (10, 4, 2, 8),  # partially admitted: 8 pods remain to run, more than the 4 that were assigned
        (10, 4, 7, 6),
    ],
)
def test_reclaimable_pods_reduce_usage(count: int, assigned_count: int, reclaimable: int, used: int) -> None:
    workload = Workload(
        ObjectKey("n", "w"),
        "u",
        "main",
        0,
        (PodSet("main", count),),
        reclaimable_pods=(("main", reclaimable),),
    )
    admission = Admission("cq", (assigned("main", 8, assigned_count),))
    assert dict(usage_of(workload, admission)).get(CPU, 0) == used


def test_reclaimable_pods_do_not_reduce_usage_when_gate_is_off() -> None:
    workload = Workload(
        ObjectKey("n", "w"), "u", "main", 0, (PodSet("main", 4),), reclaimable_pods=(("main", 3),)
    )
    admission = Admission("cq", (assigned("main", 8, 4),))
    assert usage_of(workload, admission) == ((CPU, 2),)
    assert usage_of(workload, admission, reclaimable_pods=False) == ((CPU, 8),)


@pytest.mark.parametrize("gate", [True, False], ids=["reclaimable pods on", "reclaimable pods off"])
@pytest.mark.parametrize(
    ("count", "used"), [(4, 8), (3, 6), (0, 0), (9, 8)], ids=["equal", "lower", "zero", "higher"]
)
def test_c14_count_below_the_assignment_scales_the_usage(count: int, used: int, gate: bool) -> None:
    workload = Workload(ObjectKey("n", "w"), "u", "main", 0, (PodSet("main", count),))
    admission = Admission("cq", (assigned("main", 8, 4),))
    assert dict(usage_of(workload, admission, reclaimable_pods=gate)).get(CPU, 0) == used


def test_c14_reclaimable_pods_are_subtracted_from_lower_count() -> None:
    workload = Workload(
        ObjectKey("n", "w"), "u", "main", 0, (PodSet("main", 3),), reclaimable_pods=(("main", 1),)
    )
    assert usage_of(workload, Admission("cq", (assigned("main", 8, 4),))) == ((CPU, 4),)


def test_usage_that_does_not_divide_by_pods_is_rounded_up() -> None:
    workload = Workload(
        ObjectKey("n", "w"), "u", "main", 0, (PodSet("main", 3),), reclaimable_pods=(("main", 1),)
    )
    assert usage_of(workload, Admission("cq", (assigned("main", 10, 3),))) == ((CPU, 7),)


def test_usage_adds_up_podsets_of_one_flavor_and_ignores_resources_without_flavor() -> None:
    workload = Workload(ObjectKey("n", "w"), "u", "main", 0, (PodSet("a", 1), PodSet("b", 1)))
    unflavored = PodSetAssignment("c", (), (("cpu", 5),), 1)
    admission = Admission("cq", (assigned("a", 1, 1), assigned("b", 2, 1), unflavored))
    assert usage_of(workload, admission) == ((CPU, 3),)


def test_ledger_counts_reservations_by_queue_and_drops_empty_accounts() -> None:
    ledger = Ledger()
    reserved = Reservation("cq", QUEUE, ((CPU, 2),), admitted=False)
    admitted = Reservation("cq", QUEUE, ((CPU, 3),), admitted=True)
    ledger.count(reserved, 1)
    ledger.count(admitted, 1)
    for account in (ledger.of_cluster_queue("cq"), ledger.of_local_queue(QUEUE)):
        assert (account.reserving, account.admitted) == (2, 1)
        assert (account.reserved_usage, account.admitted_usage) == ({CPU: 5}, {CPU: 3})
    ledger.count(admitted, -1)
    ledger.count(reserved, -1)
    assert not ledger.cluster_queues
    assert ledger.of_cluster_queue("cq").reserving == 0


def test_account_adds_up_changes_between_reads() -> None:
    ledger = Ledger()
    held = [Reservation("cq", QUEUE, ((CPU, amount),), admitted=amount % 3 == 0) for amount in range(1, 1001)]
    for each in held:
        ledger.count(each, 1)
    for each in held[:900]:
        ledger.count(each, -1)
    account = ledger.of_cluster_queue("cq")
    left = range(901, 1001)
    assert dict(account.reserved_usage) == {CPU: sum(left)}
    assert dict(account.admitted_usage) == {CPU: sum(amount for amount in left if amount % 3 == 0)}
    assert (account.reserving, account.admitted) == (100, sum(amount % 3 == 0 for amount in left))
