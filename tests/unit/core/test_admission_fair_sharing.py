"""What LocalQueues used lately: decay, penalties and the order that follows."""

from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.admission_fair_sharing import NEVER_USED, PastUse, UsageAccounts, remaining
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


def books(settings: AdmissionFairSharing = HALVED_IN_TEN, *queues: LocalQueue) -> UsageAccounts:
    result = UsageAccounts(settings)
    for each in queues or (queue(),):
        result.open(each, 0)
    return result


def used(of: UsageAccounts, key: ObjectKey = MAIN) -> float:
    return float(of.usage(key).amount)


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
def test_what_remains_of_past_use(elapsed: int, half_life: int, share: float) -> None:
    assert remaining(elapsed, half_life) / ONE == pytest.approx(share, abs=5e-5)


@given(st.integers(0, 40 * DEFAULT_HALF_LIFE), st.integers(1, 2 * DEFAULT_HALF_LIFE))
def test_it_is_the_true_value_rounded_once(elapsed: int, half_life: int) -> None:
    with localcontext(prec=80):
        true = Decimal(2) ** (-Decimal(elapsed) / Decimal(half_life)) * ONE
        assert remaining(elapsed, half_life) == int(true.to_integral_value(ROUND_HALF_UP))


def test_it_never_grows() -> None:
    shares = [remaining(elapsed, 97) for elapsed in range(97 * 60)]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (ONE, 0)


# --- consumption ----------------------------------------------------------------------------------------


def test_e_consumption_dated_in_the_future_decays_from_now_on() -> None:
    consumed = ConsumedResources((("cpu", 8000),), 10**6 * MINUTE)
    of = books(HALVED_IN_TEN, queue(consumed=consumed))
    assert of.next_sample(MAIN) == 5 * MINUTE
    of.sample(MAIN, {}, 10 * MINUTE)
    assert used(of) == 4


def test_past_use_goes_half_way_to_the_present_every_half_life() -> None:
    some = books()
    for minute, expected in ((10, 4.0), (20, 6.0), (30, 7.0)):
        some.sample(MAIN, {"cpu": 8000}, minute * MINUTE)
        assert used(some) == expected
    some.sample(MAIN, {}, 40 * MINUTE)
    assert used(some) == 3.5
    assert some.consumed(MAIN) == ConsumedResources((("cpu", 3500),), 40 * MINUTE)


def test_time_does_not_go_back() -> None:
    some = books()
    some.sample(MAIN, {"cpu": 8000}, 10 * MINUTE)
    some.sample(MAIN, {"cpu": 9000}, 3 * MINUTE)
    assert some.consumed(MAIN) == ConsumedResources((("cpu", 4000),), 10 * MINUTE)
    assert some.next_sample(MAIN) == 15 * MINUTE


def test_use_that_is_long_past_is_forgotten() -> None:
    some = books(HALVED_IN_TEN, queue(consumed=ConsumedResources((("gpu", 8),), 0)))
    some.sample(MAIN, {}, 10**6 * MINUTE)
    assert some.consumed(MAIN) == ConsumedResources((), 10**6 * MINUTE)


def test_the_status_is_taken_up_once() -> None:
    known = ConsumedResources((("cpu", 3000),), 7 * MINUTE)
    some = UsageAccounts(HALVED_IN_TEN)
    some.open(queue(consumed=known), 7 * MINUTE)
    assert used(some) == 3
    some.open(queue(consumed=ConsumedResources((("cpu", 9000),), 9 * MINUTE)), 9 * MINUTE)
    assert some.consumed(MAIN) == known
    some.sample(MAIN, {}, 17 * MINUTE)
    assert used(some) == 1.5


def test_without_a_half_life_nothing_is_ever_counted() -> None:
    some = books(AdmissionFairSharing(half_life=0))
    some.penalize(MAIN, "u", [(("cpu", 4000),)])
    some.settle(MAIN, "u", {"cpu": 4000}, MINUTE)
    assert some.usage(MAIN) == NEVER_USED


# --- penalties ------------------------------------------------------------------------------------------


def test_a_workload_is_charged_for_the_first_interval() -> None:
    some = books()
    some.penalize(MAIN, "u", [(("cpu", 3000),), (("cpu", 1000),)])
    assert used(some) == pytest.approx(1.17, abs=0.005)
    assert some.consumed(MAIN) == ConsumedResources((), 0)


def test_it_is_charged_once() -> None:
    some = books()
    some.penalize(MAIN, "u", [(("cpu", 4000),)])
    charged = some.usage(MAIN)
    some.penalize(MAIN, "u", [(("cpu", 4000),)])
    assert some.usage(MAIN) == charged
    some.settle(MAIN, "u", {}, 0)
    some.penalize(MAIN, "u", [(("cpu", 4000),)])
    some.settle(MAIN, "u", {}, 0)
    assert some.usage(MAIN) == charged


def test_admission_settles_the_penalty_after_the_time_until_then() -> None:
    some = books(HALVED_IN_TEN, queue(consumed=ConsumedResources((("cpu", 8000),), 0)))
    some.penalize(MAIN, "u", [(("cpu", 4000),)])
    some.settle(MAIN, "u", {"cpu": 2000}, 10 * MINUTE)
    assert used(some) == pytest.approx(4 + 1 + 4 * 0.2929, abs=0.005)
    assert some.consumed(MAIN) == ConsumedResources((("cpu", 6172),), 10 * MINUTE)
    some.roll_back("u")
    assert used(some) == pytest.approx(4 + 1 + 4 * 0.2929, abs=0.005)


def test_what_was_not_settled_is_taken_back() -> None:
    some = books()
    some.penalize(MAIN, "u", [(("cpu", 4000),)])
    some.penalize(MAIN, "v", [(("gpu", 1),)])
    some.roll_back("u")
    some.roll_back("v")
    some.roll_back("v")
    assert some.usage(MAIN) == NEVER_USED
    some.penalize(MAIN, "u", [(("cpu", 4000),)])
    assert used(some) > 1


def test_a_charge_stays_with_the_queue_it_was_made_to() -> None:
    some = books(HALVED_IN_TEN, queue(), queue(OTHER))
    some.penalize(MAIN, "u", [(("cpu", 4000),)])
    some.settle(OTHER, "u", {}, 0)
    assert used(some) > 1
    assert some.usage(OTHER) == NEVER_USED


def test_a_queue_that_is_gone_takes_its_charges_along() -> None:
    some = books()
    some.penalize(MAIN, "u", [(("cpu", 4000),)])
    some.close(MAIN)
    some.roll_back("u")
    some.open(queue(), MINUTE)
    assert some.usage(MAIN) == NEVER_USED


def test_queues_that_are_not_on_the_books_used_nothing() -> None:
    some = books()
    some.penalize(OTHER, "u", [(("cpu", 4000),)])
    some.settle(OTHER, "u", {}, 0)
    some.sample(OTHER, {"cpu": 1}, 0)
    some.close(OTHER)
    assert (some.usage(OTHER), some.consumed(OTHER), some.age(OTHER)) == (NEVER_USED, None, 0)


# --- the order ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "resource_weights", "expected"),
    [
        (Fraction(1), (), PastUse(infinite=False, amount=Fraction(5))),
        (Fraction(2), (), PastUse(infinite=False, amount=Fraction(5, 2))),
        (Fraction(1), (("gpu", Fraction(10)),), PastUse(infinite=False, amount=Fraction(32))),
        (Fraction(1), (("cpu", Fraction(0)),), PastUse(infinite=False, amount=Fraction(3))),
        (Fraction(0), (), PastUse(infinite=True, amount=Fraction(0))),
        (Fraction(-1), (), PastUse(infinite=True, amount=Fraction(0))),
    ],
)
def test_the_order_weighs_resources_and_queues(
    weight: Fraction, resource_weights: tuple[tuple[str, Fraction], ...], expected: PastUse
) -> None:
    settings = AdmissionFairSharing(resource_weights=resource_weights)
    consumed = ConsumedResources((("cpu", 2000), ("gpu", 3)), 0)
    assert books(settings, queue(weight=weight, consumed=consumed)).usage(MAIN) == expected


def test_a_weight_of_nothing_goes_last() -> None:
    much = PastUse(infinite=False, amount=Fraction(10**9))
    assert NEVER_USED < much < PastUse(infinite=True, amount=Fraction(0))


def test_a_changed_weight_counts_at_once_and_every_change_is_counted() -> None:
    some = books(HALVED_IN_TEN, queue(consumed=ConsumedResources((("cpu", 4000),), 0)))
    assert (used(some), some.age(MAIN)) == (4, 0)
    some.open(queue(weight=Fraction(2)), 0)
    assert (used(some), some.age(MAIN)) == (2, 1)
    some.open(queue(weight=Fraction(2)), 0)
    some.sample(MAIN, {}, 0)
    assert some.age(MAIN) == 2


def test_dump_contains_the_whole_state() -> None:
    some = books(HALVED_IN_TEN, queue(consumed=ConsumedResources((("cpu", 4000),), 0)), queue(OTHER))
    some.penalize(MAIN, "u", [(("cpu", 3),)])
    some.penalize(MAIN, "v", [(("gpu", 3),)])
    some.penalize(OTHER, "w", [(("gpu", 3),)])
    some.settle(MAIN, "v", {"cpu": 1}, MINUTE)
    again = UsageAccounts(HALVED_IN_TEN)
    again.restore(some.taken())
    assert again.taken() == some.taken()
    assert [again.usage(key) for key in (MAIN, OTHER)] == [some.usage(key) for key in (MAIN, OTHER)]
    for each in (some, again):
        each.roll_back("u")
        each.settle(OTHER, "w", {"gpu": 1}, MINUTE)
    assert again.taken() == some.taken()
