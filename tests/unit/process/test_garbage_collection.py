"""Collections come rarely, and soon pass over objects that live on."""

import gc
from collections.abc import Iterator

import pytest

from admitq.process import garbage_collection
from admitq.process.garbage_collection import exclude_current_objects, reduce_collections


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
    reduce_collections()
    assert gc.get_threshold()[0] > 700


def test_objects_that_are_there_are_spared() -> None:
    before = gc.get_freeze_count()
    exclude_current_objects()
    assert gc.get_freeze_count() > before


@pytest.mark.parametrize(("long_seconds", "spares"), [(-1.0, True), (1e9, False)])
def test_collection_that_takes_long_is_the_last_to_go_through_what_it_found_in_use(
    monkeypatch: pytest.MonkeyPatch, long_seconds: float, *, spares: bool
) -> None:
    monkeypatch.setattr(garbage_collection, "_LONG_SECONDS", long_seconds)
    gc.unfreeze()
    reduce_collections()
    reduce_collections()
    assert len([each for each in gc.callbacks if each.__module__ == garbage_collection.__name__]) == 1
    kept = [[] for _ in range(1000)]
    gc.collect()
    assert (gc.get_freeze_count() > len(kept)) is spares
