"""A limit of concurrent writes grows by addition and shrinks by multiplication."""

import pytest

from admitq.runtime.adaptive_limit import NO_GROWTH_AFTER_REJECTION_S, AdaptiveLimit, LimitBounds

BOUNDS = LimitBounds(least=2, most=16, tolerance=4)
SHARE = LimitBounds(least=0.1, most=4, tolerance=4)


def adapted(bounds: LimitBounds, *writes: tuple[float, bool, bool], interval: float = 0.0) -> float:
    """Return the limit after writes: slowness, whether it was rejected, whether the limit was used.

    ``interval`` is the time between two writes, in seconds.
    """
    limit = AdaptiveLimit(bounds)
    for number, (slowness, is_rejected, is_used) in enumerate(writes):
        limit.adapt(slowness, number * interval, is_rejected=is_rejected, is_used=is_used)
    return limit.value


SLOW, FAST, REJECTED, UNUSED = (5, False, True), (1, False, True), (1, True, True), (1, False, False)


@pytest.mark.parametrize(
    ("bounds", "writes", "value"),
    [
        pytest.param(BOUNDS, [], 16, id="begins with the largest"),
        pytest.param(BOUNDS, [FAST], 16, id="stays at the largest"),
        pytest.param(BOUNDS, [SLOW], 12.8, id="shrinks if the API server is slow"),
        pytest.param(BOUNDS, [(4, False, True)], 16, id="stays at the tolerance"),
        pytest.param(BOUNDS, [REJECTED], 8, id="halves after a rejection"),
        pytest.param(BOUNDS, [SLOW] * 16, 12.8, id="shrinks once for the writes that were in progress"),
        pytest.param(BOUNDS, [SLOW] * 17, 10.24, id="shrinks again after these"),
        pytest.param(BOUNDS, [SLOW] * 200, 2, id="does not fall below the smallest"),
        pytest.param(BOUNDS, [SLOW, UNUSED], 12.8, id="does not grow if it is not used"),
        pytest.param(BOUNDS, [SLOW, FAST], 12.878125, id="grows by one for each round"),
        pytest.param(BOUNDS, [REJECTED, *[FAST] * 50], 8, id="does not grow soon after a rejection"),
        pytest.param(SHARE, [SLOW] * 50, 0.1, id="falls to a share of time"),
        pytest.param(SHARE, [SLOW] * 50 + [FAST] * 2, 0.4, id="doubles below one"),
    ],
)
def test_limit_after_writes(
    bounds: LimitBounds, writes: list[tuple[float, bool, bool]], value: float
) -> None:
    assert adapted(bounds, *writes) == pytest.approx(value)


def test_limit_reaches_the_largest_again() -> None:
    assert adapted(SHARE, *[SLOW] * 50, *[FAST] * 60) == 4


def test_limit_grows_again_some_time_after_the_last_rejection() -> None:
    pause = NO_GROWTH_AFTER_REJECTION_S
    assert adapted(BOUNDS, REJECTED, FAST, interval=pause / 2) == 8
    assert adapted(BOUNDS, REJECTED, FAST, interval=pause) == 8.125


def test_limit_shrinks_after_a_rejection_of_a_higher_class() -> None:
    limit = AdaptiveLimit(SHARE)
    limit.shrink_after_rejection(0.0)
    assert limit.value == 2
    limit.adapt(1, 1.0, is_rejected=False, is_used=True)
    assert limit.value == 2
