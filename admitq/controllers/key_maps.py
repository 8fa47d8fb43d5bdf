"""Functions with which watches map a change of an object to the keys that a controller reconciles."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from admitq.controllers.controller_specs import MapToKeys
from admitq.runtime.store import Key, ObjectChange
from admitq_api.json_objects import JsonObject, value_at

SPEC: Final = ("spec",)
GENERATION: Final = ("metadata", "generation")
DELETION: Final = ("metadata", "deletionTimestamp")
FINALIZERS: Final = ("metadata", "finalizers")
LABELS: Final = ("metadata", "labels")
OWNERS: Final = ("metadata", "ownerReferences")
"""Paths for `differs`."""


def key_of_change(change: ObjectChange) -> tuple[Key, ...]:
    """Return the key of the changed object."""
    return (change.key,)


def changes_only_status(change: ObjectChange) -> bool:
    """Whether an object that is not being deleted changed at most in its status, labels and annotations."""
    return change.kind == "modified" and not differs(change, GENERATION, DELETION, FINALIZERS)


def iterate_states(change: ObjectChange) -> Iterator[JsonObject]:
    """Yield the object before and after a change, as far as it existed."""
    for obj in (change.old, change.new):
        if obj is not None:
            yield obj


def map_to_named(names_of: Callable[[JsonObject], Iterable[str]]) -> MapToKeys:
    """Return a function that maps a change to the cluster-scoped objects whose names it adds or removes."""

    def keys(change: ObjectChange) -> Iterable[Key]:
        named = [set(names_of(obj)) for obj in iterate_states(change)]
        changed = named[0] ^ named[1] if len(named) > 1 else named[0]
        return {Key("", name) for name in changed}

    return keys


def differs(change: ObjectChange, *paths: tuple[str, ...]) -> bool:
    """Whether the object was created or deleted, or differs at one of these paths."""
    if change.old is None or change.new is None:
        return True
    return any(value_at(change.old, path) != value_at(change.new, path) for path in paths)
