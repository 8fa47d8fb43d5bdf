"""Usage accounts of LocalQueues compared with accounts that decay exactly to sixty digits."""

from fractions import Fraction

import pytest

from admitq.core.admission_fair_sharing import UsageAccounts
from admitq.core.model import SECOND, LocalQueue, ObjectKey
from tests.laws.drawing import Draw
from tests.laws.reference.usage_accounts import Account, ExactAccounts

QUEUES = ("l1", "l2", "l3")
UIDS = tuple(f"u{n}" for n in range(8))
TOLERANCE = Fraction(1, 2**40)
"""Each of some hundred operations rounds an amount below a hundred by up to 2⁻⁵³."""


def key(name: str) -> ObjectKey:
    return ObjectKey("n", name)


@pytest.mark.parametrize("seed", range(60))
def test_usage_accounts_agree_with_exact_decay(seed: int) -> None:
    draw = Draw(seed)
    settings = draw.admission_fair_sharing()
    accounts, exact_accounts = UsageAccounts(settings), ExactAccounts(settings)
    now = 1000 * SECOND
    for name in QUEUES:
        weight = draw.weight()
        accounts.open(LocalQueue(key(name), "a", fair_weight=weight), now)
        exact_accounts.accounts[name] = Account(weight, now)
    for _ in range(150):
        now += draw.choice((0, 1, SECOND // 3, SECOND, 7 * SECOND, 400 * SECOND))
        name, uid = draw.choice(QUEUES), draw.choice(UIDS)
        amounts = {resource: draw.randrange(50) for resource in draw.some(("cpu", "mem", "gpu"))}
        match draw.choice(("penalize", "penalize", "roll back", "settle", "sample", "late")):
            case "penalize":
                accounts.penalize(key(name), uid, (tuple(sorted(amounts.items())),))
                exact_accounts.penalize(name, uid, amounts)
            case "roll back":
                accounts.roll_back(uid)
                exact_accounts.roll_back(uid)
            case "settle":
                accounts.settle(key(name), uid, amounts, now)
                exact_accounts.settle(name, uid, amounts, now)
            case "sample":
                accounts.sample(key(name), amounts, now)
                exact_accounts.sample(name, amounts, now)
            case _:
                accounts.sample(key(name), amounts, now - SECOND)
                exact_accounts.sample(name, amounts, now - SECOND)
        for each in QUEUES:
            found, expected = accounts.usage(key(each)), exact_accounts.usage(each)
            assert found.infinite == (expected is None)
            assert expected is None or abs(found.amount - expected) <= TOLERANCE
    restored = UsageAccounts(settings)
    for name in QUEUES:
        restored.open(LocalQueue(key(name), "a", fair_weight=exact_accounts.accounts[name].weight), now)
    restored.restore(accounts.to_dump())
    assert restored.to_dump() == accounts.to_dump()
    assert [restored.usage(key(name)) for name in QUEUES] == [accounts.usage(key(name)) for name in QUEUES]
