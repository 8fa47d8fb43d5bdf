"""Past usage of LocalQueues: decay, penalties and the order that follows."""

from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.admission_fair_sharing import NEVER_USED, PastUsage, UsageAccounts, remaining
from admitq.core.model import SECOND, ConsumedResources, LocalQueue, ObjectKey
from admitq.core.settings import DEFAULT_HALF_LIFE, AdmissionFairSharing

MINUTE = 60 * SECOND
ONE = 2**53
MAIN, OTHER = ObjectKey("n", "main"), ObjectKey("n", "other")
HALVED_IN_TEN = AdmissionFairSharing(half_life=10 * MINUTE, sampling_interval=5 * MINUTE)


def queue(
    key: ObjectKey = MAIN, weight: Fraction = Fraction(1), consumed: ConsumedResources | None = None
) -> LocalQueue:
    return LocalQueue(key, "q", fair_weight=weight, consumed=consumed)


def usage_accounts(settings: AdmissionFairSharing = HALVED_IN_TEN, *queues: LocalQueue) -> UsageAccounts:
    accounts = UsageAccounts(settings)
    for each in queues or (queue(),):
        accounts.open(each, 0)
    return accounts


def past_usage(accounts: UsageAccounts, key: ObjectKey = MAIN) -> float:
    return float(accounts.usage(key).amount)


# --- decay ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("elapsed", "half_life", "share"),
    [
        (5 * MINUTE, 10 * MINUTE, 1 - 0.2929),
        (5 * MINUTE, 60 * MINUTE, 1 - 0.0561),
        (0, 10 * MINUTE, 1),
        (10 * MINUTE, 10 * MINUTE, 0.5),
        (30 * MINUTE, 10 * MINUTE, 0.125),
        (10**6 * MINUTE, MINUTE, 0),
        (10**6 * MINUTE, 0, 1),
    ],
)
def test_remaining_share_halves_with_each_half_life(elapsed: int, half_life: int, share: float) -> None:
    assert remaining(elapsed, half_life) / ONE == pytest.approx(share, abs=5e-5)


@given(st.integers(0, 40 * DEFAULT_HALF_LIFE), st.integers(1, 2 * DEFAULT_HALF_LIFE))
def test_remaining_share_is_exact_value_rounded_once(elapsed: int, half_life: int) -> None:
    with localcontext(prec=80):
        exact = Decimal(2) ** (-Decimal(elapsed) / Decimal(half_life)) * ONE
        assert remaining(elapsed, half_life) == int(exact.to_integral_value(ROUND_HALF_UP))


def test_remaining_share_never_grows() -> None:
    shares = [remaining(elapsed, 97) for elapsed in range(97 * 60)]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (ONE, 0)


# --- consumption ----------------------------------------------------------------------------------------


def test_e_consumption_dated_in_future_decays_from_now_on() -> None:
    consumed = ConsumedResources((("cpu", 8000),), 10**6 * MINUTE)
    accounts = usage_accounts(HALVED_IN_TEN, queue(consumed=consumed))
    assert accounts.next_sample(MAIN) == 5 * MINUTE
    accounts.sample(MAIN, {}, 10 * MINUTE)
    assert past_usage(accounts) == 4


def test_past_usage_moves_half_way_to_current_use_each_half_life() -> None:
    accounts = usage_accounts()
    for minute, expected in ((10, 4.0), (20, 6.0), (30, 7.0)):
        accounts.sample(MAIN, {"cpu": 8000}, minute * MINUTE)
        assert past_usage(accounts) == expected
    accounts.sample(MAIN, {}, 40 * MINUTE)
    assert past_usage(accounts) == 3.5
    assert accounts.consumed(MAIN) == ConsumedResources((("cpu", 3500),), 40 * MINUTE)


def test_sample_with_earlier_time_changes_nothing() -> None:
    accounts = usage_accounts()
    accounts.sample(MAIN, {"cpu": 8000}, 10 * MINUTE)
    accounts.sample(MAIN, {"cpu": 9000}, 3 * MINUTE)
    assert accounts.consumed(MAIN) == ConsumedResources((("cpu", 4000),), 10 * MINUTE)
    assert accounts.next_sample(MAIN) == 15 * MINUTE


def test_resource_is_dropped_when_its_past_usage_has_decayed_to_zero() -> None:
    accounts = usage_accounts(HALVED_IN_TEN, queue(consumed=ConsumedResources((("gpu", 8),), 0)))
    accounts.sample(MAIN, {}, 10**6 * MINUTE)
    assert accounts.consumed(MAIN) == ConsumedResources((), 10**6 * MINUTE)


def test_status_of_local_queue_is_read_only_when_account_is_opened() -> None:
    known = ConsumedResources((("cpu", 3000),), 7 * MINUTE)
    accounts = UsageAccounts(HALVED_IN_TEN)
    accounts.open(queue(consumed=known), 7 * MINUTE)
    assert past_usage(accounts) == 3
    accounts.open(queue(consumed=ConsumedResources((("cpu", 9000),), 9 * MINUTE)), 9 * MINUTE)
    assert accounts.consumed(MAIN) == known
    accounts.sample(MAIN, {}, 17 * MINUTE)
    assert past_usage(accounts) == 1.5


def test_past_usage_is_not_counted_when_half_life_is_zero() -> None:
    accounts = usage_accounts(AdmissionFairSharing(half_life=0))
    accounts.penalize(MAIN, "u", [(("cpu", 4000),)])
    accounts.settle(MAIN, "u", {"cpu": 4000}, MINUTE)
    assert accounts.usage(MAIN) == NEVER_USED


# --- penalties ------------------------------------------------------------------------------------------


def test_penalty_is_use_in_first_sampling_interval() -> None:
    accounts = usage_accounts()
    accounts.penalize(MAIN, "u", [(("cpu", 3000),), (("cpu", 1000),)])
    assert past_usage(accounts) == pytest.approx(1.17, abs=0.005)
    assert accounts.consumed(MAIN) == ConsumedResources((), 0)


def test_workload_is_charged_only_once() -> None:
    accounts = usage_accounts()
    accounts.penalize(MAIN, "u", [(("cpu", 4000),)])
    charged = accounts.usage(MAIN)
    accounts.penalize(MAIN, "u", [(("cpu", 4000),)])
    assert accounts.usage(MAIN) == charged
    accounts.settle(MAIN, "u", {}, 0)
    accounts.penalize(MAIN, "u", [(("cpu", 4000),)])
    accounts.settle(MAIN, "u", {}, 0)
    assert accounts.usage(MAIN) == charged


def test_settle_decays_past_usage_until_admission_and_adds_penalty() -> None:
    accounts = usage_accounts(HALVED_IN_TEN, queue(consumed=ConsumedResources((("cpu", 8000),), 0)))
    accounts.penalize(MAIN, "u", [(("cpu", 4000),)])
    accounts.settle(MAIN, "u", {"cpu": 2000}, 10 * MINUTE)
    assert past_usage(accounts) == pytest.approx(4 + 1 + 4 * 0.2929, abs=0.005)
    assert accounts.consumed(MAIN) == ConsumedResources((("cpu", 6172),), 10 * MINUTE)
    accounts.roll_back("u")
    assert past_usage(accounts) == pytest.approx(4 + 1 + 4 * 0.2929, abs=0.005)


def test_roll_back_removes_charge_that_is_not_settled() -> None:
    accounts = usage_accounts()
    accounts.penalize(MAIN, "u", [(("cpu", 4000),)])
    accounts.penalize(MAIN, "v", [(("gpu", 1),)])
    accounts.roll_back("u")
    accounts.roll_back("v")
    accounts.roll_back("v")
    assert accounts.usage(MAIN) == NEVER_USED
    accounts.penalize(MAIN, "u", [(("cpu", 4000),)])
    assert past_usage(accounts) > 1


def test_charge_stays_with_local_queue_that_was_penalized() -> None:
    accounts = usage_accounts(HALVED_IN_TEN, queue(), queue(OTHER))
    accounts.penalize(MAIN, "u", [(("cpu", 4000),)])
    accounts.settle(OTHER, "u", {}, 0)
    assert past_usage(accounts) > 1
    assert accounts.usage(OTHER) == NEVER_USED


def test_closed_account_loses_its_charges() -> None:
    accounts = usage_accounts()
    accounts.penalize(MAIN, "u", [(("cpu", 4000),)])
    accounts.close(MAIN)
    accounts.roll_back("u")
    accounts.open(queue(), MINUTE)
    assert accounts.usage(MAIN) == NEVER_USED


def test_local_queue_without_account_has_no_past_usage() -> None:
    accounts = usage_accounts()
    accounts.penalize(OTHER, "u", [(("cpu", 4000),)])
    accounts.settle(OTHER, "u", {}, 0)
    accounts.sample(OTHER, {"cpu": 1}, 0)
    accounts.close(OTHER)
    assert (accounts.usage(OTHER), accounts.consumed(OTHER), accounts.version(OTHER)) == (NEVER_USED, None, 0)


# --- the order ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "resource_weights", "expected"),
    [
        (Fraction(1), (), PastUsage(infinite=False, amount=Fraction(5))),
        (Fraction(2), (), PastUsage(infinite=False, amount=Fraction(5, 2))),
        (Fraction(1), (("gpu", Fraction(10)),), PastUsage(infinite=False, amount=Fraction(32))),
        (Fraction(1), (("cpu", Fraction(0)),), PastUsage(infinite=False, amount=Fraction(3))),
        (Fraction(0), (), PastUsage(infinite=True, amount=Fraction(0))),
        (Fraction(-1), (), PastUsage(infinite=True, amount=Fraction(0))),
    ],
)
def test_past_usage_is_weighted_by_resource_and_divided_by_queue_weight(
    weight: Fraction, resource_weights: tuple[tuple[str, Fraction], ...], expected: PastUsage
) -> None:
    settings = AdmissionFairSharing(resource_weights=resource_weights)
    consumed = ConsumedResources((("cpu", 2000), ("gpu", 3)), 0)
    assert usage_accounts(settings, queue(weight=weight, consumed=consumed)).usage(MAIN) == expected


def test_infinite_past_usage_sorts_after_every_amount() -> None:
    much = PastUsage(infinite=False, amount=Fraction(10**9))
    assert NEVER_USED < much < PastUsage(infinite=True, amount=Fraction(0))


def test_past_usage_follows_changed_weight_at_once() -> None:
    accounts = usage_accounts(HALVED_IN_TEN, queue(consumed=ConsumedResources((("cpu", 4000),), 0)))
    assert past_usage(accounts) == 4
    accounts.open(queue(weight=Fraction(2)), 0)
    assert past_usage(accounts) == 2


def test_version_counts_changes_of_past_usage() -> None:
    accounts = usage_accounts(HALVED_IN_TEN, queue(consumed=ConsumedResources((("cpu", 4000),), 0)))
    assert accounts.version(MAIN) == 0
    accounts.open(queue(weight=Fraction(2)), 0)
    assert accounts.version(MAIN) == 1
    accounts.open(queue(weight=Fraction(2)), 0)
    accounts.sample(MAIN, {}, 0)
    assert accounts.version(MAIN) == 2


def test_restored_usage_accounts_equal_dumped_accounts() -> None:
    accounts = usage_accounts(
        HALVED_IN_TEN, queue(consumed=ConsumedResources((("cpu", 4000),), 0)), queue(OTHER)
    )
    accounts.penalize(MAIN, "u", [(("cpu", 3),)])
    accounts.penalize(MAIN, "v", [(("gpu", 3),)])
    accounts.penalize(OTHER, "w", [(("gpu", 3),)])
    accounts.settle(MAIN, "v", {"cpu": 1}, MINUTE)
    restored = UsageAccounts(HALVED_IN_TEN)
    restored.restore(accounts.to_dump())
    assert restored.to_dump() == accounts.to_dump()
    assert [restored.usage(key) for key in (MAIN, OTHER)] == [accounts.usage(key) for key in (MAIN, OTHER)]
    for each in (accounts, restored):
        each.roll_back("u")
        each.settle(OTHER, "w", {"gpu": 1}, MINUTE)
    assert restored.to_dump() == accounts.to_dump()
