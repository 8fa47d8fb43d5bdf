"""Collections come rarely, and pass over what is there."""

import gc
from collections.abc import Iterator

import pytest

from admitq.garbage import collect_rarely, spare_what_is_there


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Leave the collector as other tests expect it."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_young_objects_are_looked_through_more_rarely_than_by_default() -> None:
    # Another test of this process may have let a command run that does the same.
    gc.set_threshold(700, 10, 10)
    collect_rarely()
    assert gc.get_threshold()[0] > 700
    assert gc.get_threshold()[1:] == (10, 10)


def test_what_is_there_is_spared() -> None:
    before = gc.get_freeze_count()
    spare_what_is_there()
    assert gc.get_freeze_count() > before
