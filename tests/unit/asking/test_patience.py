import pytest

from admitq.asking.patience import percent_used


@pytest.mark.parametrize(
    ("seconds", "passed", "percent"),
    [(2.0, 0.0, 0), (2.0, 0.5, 25), (2.0, 2.0, 100), (2.0, 3.0, 150), (0, 0, 100)],
)
def test_time_is_used_up_from_the_call_on(seconds: float, passed: float, percent: int) -> None:
    now = 10.0
    used = percent_used(seconds, lambda: now)
    now += passed
    assert used() == percent
