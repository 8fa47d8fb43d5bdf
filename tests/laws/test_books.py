"""The books of what LocalQueues used, held against the same with decay that is exact to sixty digits."""

from fractions import Fraction

import pytest

from admitq.core.admission_fair_sharing import UsageAccounts
from admitq.core.model import SECOND, LocalQueue, ObjectKey
from tests.laws.drawing import Draw
from tests.laws.reference.books import Account
from tests.laws.reference.books import Books as Exact

QUEUES = ("l1", "l2", "l3")
UIDS = tuple(f"u{n}" for n in range(8))
TOLERANCE = Fraction(1, 2**40)
"""Of 2⁻⁵³ each, of rounding once for each of some hundred operations on amounts below a hundred."""


def key(name: str) -> ObjectKey:
    return ObjectKey("n", name)


@pytest.mark.parametrize("seed", range(60))
def test_the_books_agree_with_exact_decay(seed: int) -> None:
    draw = Draw(seed)
    settings = draw.admission_fair_sharing()
    books, exact = UsageAccounts(settings), Exact(settings)
    now = 1000 * SECOND
    for name in QUEUES:
        weight = draw.weight()
        books.open(LocalQueue(key(name), "a", fair_weight=weight), now)
        exact.accounts[name] = Account(weight, now)
    for _ in range(150):
        now += draw.choice((0, 1, SECOND // 3, SECOND, 7 * SECOND, 400 * SECOND))
        name, uid = draw.choice(QUEUES), draw.choice(UIDS)
        amounts = {resource: draw.randrange(50) for resource in draw.some(("cpu", "mem", "gpu"))}
        match draw.choice(("penalize", "penalize", "roll back", "settle", "sample", "late")):
            case "penalize":
                books.penalize(key(name), uid, (tuple(sorted(amounts.items())),))
                exact.penalize(name, uid, amounts)
            case "roll back":
                books.roll_back(uid)
                exact.roll_back(uid)
            case "settle":
                books.settle(key(name), uid, amounts, now)
                exact.settle(name, uid, amounts, now)
            case "sample":
                books.sample(key(name), amounts, now)
                exact.sample(name, amounts, now)
            case _:
                books.sample(key(name), amounts, now - SECOND)
                exact.sample(name, amounts, now - SECOND)
        for each in QUEUES:
            found, expected = books.usage(key(each)), exact.usage(each)
            assert found.infinite == (expected is None)
            assert expected is None or abs(found.amount - expected) <= TOLERANCE
    again = UsageAccounts(settings)
    for name in QUEUES:
        again.open(LocalQueue(key(name), "a", fair_weight=exact.accounts[name].weight), now)
    again.restore(books.to_dump())
    assert again.to_dump() == books.to_dump()
    assert [again.usage(key(name)) for name in QUEUES] == [books.usage(key(name)) for name in QUEUES]
