import pytest

from admitq.core.amounts import LOWEST, UNLIMITED, add, amounts, multiply, subtract


@pytest.mark.parametrize(
    ("left", "right", "total"),
    [
        (1, 2, 3),
        (UNLIMITED, 1, UNLIMITED),
        (-5, UNLIMITED, UNLIMITED),
        (UNLIMITED - 1, 5, UNLIMITED),
        (LOWEST, -1, LOWEST),
    ],
)
def test_addition_saturates_and_unlimited_absorbs(left: int, right: int, total: int) -> None:
    assert add(left, right) == total


@pytest.mark.parametrize(
    ("left", "right", "rest"), [(3, 2, 1), (2, 3, -1), (UNLIMITED, 5, UNLIMITED), (LOWEST, 1, LOWEST)]
)
def test_subtraction_saturates_and_leaves_unlimited(left: int, right: int, rest: int) -> None:
    assert subtract(left, right) == rest


@pytest.mark.parametrize(
    ("amount", "times", "product"),
    [(3, 4, 12), (2**40, 2**40, UNLIMITED), (-(2**40), 2**40, LOWEST), (UNLIMITED, 0, 0)],
)
def test_multiplication_saturates(amount: int, times: int, product: int) -> None:
    assert multiply(amount, times) == product


def test_amounts_are_sorted_by_resource() -> None:
    assert amounts({"memory": 2, "cpu": 1}) == (("cpu", 1), ("memory", 2))
