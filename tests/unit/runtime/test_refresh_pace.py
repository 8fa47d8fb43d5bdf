"""The pace of refreshes remembers a key for one interval after its last reconcile."""

from admitq.runtime.refresh_pace import RefreshPace


def test_key_may_be_reconciled_again_one_interval_after_the_last_reconcile_began() -> None:
    now = [100.0]
    pace = RefreshPace[str](2.0, lambda: now[0])
    assert pace.seconds_left("a") == 0
    pace.record("a")
    now[0] += 0.5
    pace.record("b")
    assert (pace.seconds_left("a"), pace.seconds_left("b")) == (1.5, 2.0)
    now[0] += 1.0
    pace.record("a")
    now[0] += 1.0
    assert (pace.seconds_left("a"), pace.seconds_left("b")) == (1.0, 0.0)


def test_keys_are_forgotten_after_one_interval() -> None:
    now = [100.0]
    pace = RefreshPace[int](2.0, lambda: now[0])
    for key in range(1000):
        now[0] += 0.5
        pace.record(key)
    assert len(pace) == 4


def test_key_without_interval_may_always_be_reconciled() -> None:
    pace = RefreshPace[str](0.0, lambda: 100.0)
    pace.record("a")
    assert pace.seconds_left("a") == 0
    assert len(pace) == 0
