"""Garbage collections are rare, and exclude objects that stay in use."""

import gc
from collections.abc import Iterator

import pytest

from admitq.process import garbage_collection
from admitq.process.garbage_collection import (
    exclude_current_objects,
    reduce_collections,
    spare_loaded_objects,
)


@pytest.fixture(autouse=True)
def restore_collector() -> Iterator[None]:
    """Restore the garbage collector for other tests."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


def test_reduce_collections_raises_threshold_of_young_generation() -> None:
    # Another test of this process may have run a command that does the same.
    gc.set_threshold(700, 10, 10)
    reduce_collections()
    assert gc.get_threshold()[0] > 700


def test_exclude_current_objects_freezes_objects() -> None:
    before = gc.get_freeze_count()
    exclude_current_objects()
    assert gc.get_freeze_count() > before


def test_no_collection_runs_while_objects_are_loaded_and_later_ones_skip_them() -> None:
    with spare_loaded_objects():
        assert not gc.isenabled()
        loaded = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(loaded)
    with pytest.raises(TimeoutError), spare_loaded_objects():
        raise TimeoutError
    assert gc.isenabled()


@pytest.mark.parametrize(("long_seconds", "freezes"), [(-1.0, True), (1e9, False)])
def test_long_collection_freezes_surviving_objects(
    monkeypatch: pytest.MonkeyPatch, long_seconds: float, *, freezes: bool
) -> None:
    monkeypatch.setattr(garbage_collection, "_LONG_SECONDS", long_seconds)
    gc.unfreeze()
    reduce_collections()
    reduce_collections()
    assert (
        len([callback for callback in gc.callbacks if callback.__module__ == garbage_collection.__name__])
        == 1
    )
    kept = [[] for _ in range(1000)]
    gc.collect()
    assert (gc.get_freeze_count() > len(kept)) is freezes
