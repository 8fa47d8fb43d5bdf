"""Collections come rarely, and soon pass over objects that live on."""

import gc
from collections.abc import Iterator

import pytest

from admitq.process import garbage
from admitq.process.garbage import collect_rarely, spare_what_is_there


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Leave the collector as other tests expect it."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


def test_young_objects_are_looked_through_more_rarely_than_by_default() -> None:
    # Another test of this process may have let a command run that does the same.
    gc.set_threshold(700, 10, 10)
    collect_rarely()
    assert gc.get_threshold()[0] > 700


def test_objects_that_are_there_are_spared() -> None:
    before = gc.get_freeze_count()
    spare_what_is_there()
    assert gc.get_freeze_count() > before


@pytest.mark.parametrize(("long_seconds", "spares"), [(-1.0, True), (1e9, False)])
def test_collection_that_takes_long_is_the_last_to_go_through_what_it_found_in_use(
    monkeypatch: pytest.MonkeyPatch, long_seconds: float, *, spares: bool
) -> None:
    monkeypatch.setattr(garbage, "_LONG_SECONDS", long_seconds)
    gc.unfreeze()
    collect_rarely()
    collect_rarely()
    assert len([each for each in gc.callbacks if each.__module__ == garbage.__name__]) == 1
    kept = [[] for _ in range(1000)]
    gc.collect()
    assert (gc.get_freeze_count() > len(kept)) is spares
