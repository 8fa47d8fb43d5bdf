"""The objects of stores."""

from collections.abc import Iterable, Iterator
from typing import Any

from admitq.runtime.resources import Resource
from admitq.runtime.store import Store


def iterate_objects(stores: Iterable[Store]) -> Iterator[tuple[Resource, dict[str, Any]]]:
    """Yield all objects of the stores. The stores may change during the iteration."""
    for store in stores:
        for key in store.keys():  # noqa: SIM118 - keys() returns a copy, because the store may change
            if (obj := store.get(*key)) is not None:
                yield store.resource, obj
