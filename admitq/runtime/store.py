"""The last observed objects of one resource, as JSON that is packed once an object rests.

Rules of this file:

- An object that is not newer than the stored one is ignored. Resource versions are compared as integers if
  both are decimal. Otherwise a different version counts as newer.
- The response to a write of this process may be stored before the watch delivers the object. It may also
  arrive after the deletion of the object. Then the object stays deleted: a tombstone by uid, or the resource
  version of a list, shows the deletion.
- An object with the same name and another uid is another object. Handlers get the deletion of the old object,
  then the addition of the new one.
- An object that cannot be parsed is quarantined with the reason. Its former value stays in the store, and
  other objects are not affected.
- The objects that changed last are not packed: they are read and changed again soon. So objects of small
  stores are never packed.
- The first list may come in two parts. A watch of all objects begins at the version of the first part, while
  the second part is listed. So each object of the second part is stored only if neither the watch nor a
  response has shown the object: the watch delivers all changes since the first part.
"""

import contextlib
import functools
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, Literal, NamedTuple

import orjson

from admitq.process.logs import logger
from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.runtime.packing import ObjectPacker
from admitq.runtime.resources import Resource

log = logger(__name__)

TOMBSTONE_LIFE_S = 600.0
"""How long a deletion is remembered: far longer than the deadline of a call, after which no response
comes."""
UNPACKED_OBJECTS: Final = 1000
"""How many objects of a store, those that changed last, are not packed."""
_LARGEST_UNPACKED_BYTES: Final = 8 * 1024
"""Larger objects are packed at once, which limits the memory of those that are not packed."""


class Key(NamedTuple):
    """Namespace and name of an object. The namespace is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True)
class ObjectChange:
    """A change of one object. All handlers share the objects, and must not modify them."""

    kind: Literal["added", "modified", "deleted"]
    key: Key
    new: dict[str, Any] | None
    old_bytes: bytes | None

    @functools.cached_property
    def old(self) -> dict[str, Any] | None:
        """The object before the change; None if it was not stored."""
        return None if self.old_bytes is None else orjson.loads(self.old_bytes)

    @property
    def object(self) -> dict[str, Any]:
        """The object after the change, or before its deletion."""
        obj = self.new if self.new is not None else self.old
        if obj is None:
            raise RuntimeError("a change without an object")
        return obj


NAMELESS = Key("", "?")
"""The key of objects without a name."""

Handler = Callable[[ObjectChange], object]
Transform = Callable[[dict[str, Any]], dict[str, Any]]
Index = Callable[[dict[str, Any]], Iterable[str]]


class MalformedObject(Exception):
    """An object without the metadata that every object must have."""


@dataclass(slots=True)
class _Entry:
    uid: str
    resource_version: str
    data: bytes
    """The JSON of the object, or its packed form."""
    indexed: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The version of a quarantined object, and the reason."""

    resource_version: str
    reason: str


@dataclass(slots=True)
class _Tombstone:
    resource_version: str
    at: float


class _ChangeSource(Enum):
    EVENT = auto()
    LIST = auto()
    REWOUND_LIST = auto()


class ListPart(Enum):
    """Which objects a list contains: all, or those of one of two parts."""

    ALL = auto()
    FIRST = auto()
    SECOND = auto()


@dataclass(slots=True)
class Listing:
    """A list, of one resource version, that is being stored.

    ``rewound`` means that the list is older than the store: the API server was restored from a backup, and
    the list replaces everything.
    """

    resource_version: str
    part: ListPart
    rewound: bool
    seen: set[Key] = field(default_factory=set[Key])


class Store:
    """Objects of one resource by key, with indexes. Not for use by several threads.

    ``transform`` reduces an object before it is stored. It gets a shallow copy without managedFields, and
    must not change nested parts in place. ``indexes`` maps the name of an index to the function that returns
    the values of an object. If one of them raises an exception, the object is quarantined. ``on_quarantine``
    is called when the number of quarantined objects changes. ``errors`` handles exceptions of handlers and of
    ``on_quarantine``.
    """

    def __init__(
        self,
        resource: Resource,
        *,
        transform: Transform | None = None,
        indexes: Mapping[str, Index] | None = None,
        on_quarantine: Callable[[Resource], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        errors: UnexpectedErrors = LOG_ONLY,
    ) -> None:
        self.resource = resource
        self.quarantined: dict[Key, Quarantined] = {}
        self._transform = transform
        self._index_functions = dict(indexes or {})
        self._indexes: dict[str, dict[str, dict[Key, None]]] = {name: {} for name in self._index_functions}
        self._on_quarantine = on_quarantine
        self._clock = clock
        self._errors = errors
        self._packer = ObjectPacker()
        self._entries: dict[Key, _Entry] = {}
        self._unpacked: OrderedDict[Key, None] = OrderedDict()
        """The objects that are not packed. The last one changed last."""
        self._tombstones: dict[str, _Tombstone] = {}
        self._handlers: list[Handler] = []
        self._complete_through = ""
        """All changes up to this version were observed."""
        self._lacks_second_part = False
        """Whether the store has only the first part of a list and the changes since."""

    # Reading. Each read decodes: the result belongs to the caller.

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return Key(*key) in self._entries

    def get(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return an object; None if it is not stored. The namespace is empty for cluster-scoped objects."""
        entry = self._entries.get(Key(namespace, name))
        return None if entry is None else self._decode(entry)

    def keys(self) -> list[Key]:
        """Return the keys of all objects."""
        return list(self._entries)

    def list(self, namespace: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield all objects, or those of one namespace, decoding one at a time."""
        for key, entry in list(self._entries.items()):
            if namespace is None or key.namespace == namespace:
                yield self._decode(entry)

    def keys_by_index(self, index: str, value: str) -> tuple[Key, ...]:
        """Return the keys of the objects with this value in the index, in order of arrival."""
        return tuple(self._indexes[index].get(value, ()))

    def by_index(self, index: str, value: str) -> tuple[dict[str, Any], ...]:
        """Return the objects with this value in the index."""
        return tuple(self._decode(self._entries[key]) for key in self.keys_by_index(index, value))

    def index_values(self, index: str) -> tuple[str, ...]:
        """Return the values in the index."""
        return tuple(self._indexes[index])

    def resource_version(self, key: Key) -> str | None:
        """Return the stored version of an object."""
        entry = self._entries.get(key)
        return None if entry is None else entry.resource_version

    def _decode(self, entry: _Entry) -> dict[str, Any]:
        return orjson.loads(self._packer.unpack(entry.data))

    # Writing

    def subscribe(self, handler: Handler) -> None:
        """Call a handler for every later change. An exception of one handler does not affect the others."""
        self._handlers.append(handler)

    def unsubscribe(self, handler: Handler) -> None:
        """Stop calling a handler."""
        self._handlers.remove(handler)

    def upsert(self, obj: dict[str, Any]) -> ObjectChange | None:
        """Store an object if it is newer, and call the handlers.

        The object is from a watch event, or the response to a write of this process. Store a response only if
        the watch selects the object: only the watch removes objects.
        """
        return self._upsert(obj, _ChangeSource.EVENT)

    def remove(self, obj: dict[str, Any], *, is_deleted: bool = True) -> ObjectChange | None:
        """Remove an object that was deleted, or that a watch no longer selects. ``obj`` is its last state."""
        try:
            key, (uid, version) = _key(obj), _uid_and_version(obj)
        except MalformedObject as error:
            self._quarantine(NAMELESS, "", error)
            return None
        if is_deleted:
            self._add_tombstone(uid, version)
        self._end_quarantine(key)
        entry = self._entries.get(key)
        if entry is None or entry.uid != uid:
            return None
        return self._drop(key, entry)

    @property
    def is_complete(self) -> bool:
        """Whether a complete list was stored."""
        return bool(self._complete_through) and not self._lacks_second_part

    def record_progress(self, resource_version: str) -> str:
        """Record that all changes up to this version of an event or a bookmark were observed.

        An older version is ignored. Return the latest version.
        """
        if not _older(resource_version, self._complete_through):
            self._complete_through = resource_version
        return self._complete_through

    def begin_listing(self, resource_version: str, part: ListPart = ListPart.ALL) -> Listing:
        """Begin to store a list of this version."""
        # The watch has passed the version of the second part by the time that its objects come.
        rewound = part is not ListPart.SECOND and _older(resource_version, self._complete_through)
        return Listing(resource_version, part, rewound)

    def add_listed(self, listing: Listing, obj: dict[str, Any]) -> None:
        """Store one object of the list; of the second part, only if it was not observed otherwise."""
        with contextlib.suppress(MalformedObject):  # _upsert quarantines the object.
            key = _key(obj)
            if listing.part is ListPart.SECOND and (key in self._entries or key in self.quarantined):
                return
            listing.seen.add(key)
        self._upsert(obj, _ChangeSource.REWOUND_LIST if listing.rewound else _ChangeSource.LIST)

    def finish_listing(self, listing: Listing) -> None:
        """Remove the objects that the list does not contain and that are not newer than the list.

        Objects that the first part does not contain may still exist. The second part removes none.
        """
        self._lacks_second_part = listing.part is ListPart.FIRST
        if listing.part is ListPart.SECOND:
            return
        for key, entry in list(self._entries.items()):
            is_newer = not listing.rewound and _older(listing.resource_version, entry.resource_version)
            if key not in listing.seen and not is_newer:
                if listing.part is ListPart.ALL:
                    self._add_tombstone(entry.uid, listing.resource_version)
                self._drop(key, entry)
        for key in self.quarantined.keys() - listing.seen - {NAMELESS}:
            self._end_quarantine(key)
        self._complete_through = listing.resource_version

    def _upsert(self, obj: dict[str, Any], source: "_ChangeSource") -> ObjectChange | None:
        key = NAMELESS
        version = ""
        try:
            key = _key(obj)
            uid, version = _uid_and_version(obj)
            entry = self._entries.get(key)
            if not self._should_store(key, uid, version, entry, source):
                return None
            stored = _without_managed_fields(obj)
            if self._transform is not None:
                stored = self._transform(stored)
            indexed = tuple(
                dict.fromkeys(
                    (name, sys.intern(value))
                    for name, values in self._index_functions.items()
                    for value in values(stored)
                )
            )
            # A copy, because orjson returns bytes in a buffer that is several times as large.
            data = bytes(memoryview(orjson.dumps(stored)))
        except Exception as error:  # noqa: BLE001 - an invalid object must not affect others
            self._quarantine(key, version, error)
            return None
        self._end_quarantine(key)
        if entry is not None and entry.uid != uid:
            self._add_tombstone(entry.uid, version)
            self._drop(key, entry)
            entry = None
        if entry is not None:
            self._unindex(key, entry)
        self._entries[key] = _Entry(uid, version, data, indexed)
        self._pack_resting(key)
        for name, value in indexed:
            self._indexes[name].setdefault(value, {})[key] = None
        old = None if entry is None else self._packer.unpack(entry.data)
        return self._notify(ObjectChange("added" if entry is None else "modified", key, stored, old))

    def _should_store(
        self, key: Key, uid: str, version: str, entry: _Entry | None, source: "_ChangeSource"
    ) -> bool:
        if source is _ChangeSource.REWOUND_LIST:
            return True
        quarantined = self.quarantined.get(key)
        if quarantined is not None and quarantined.resource_version == version:
            return False
        if entry is not None:
            return version != entry.resource_version and not _older(version, entry.resource_version)
        tombstone = self._tombstones.get(uid)
        if tombstone is not None and not _older(tombstone.resource_version, version):
            return False
        # The store has all objects of the last complete version. An object of an older version that is not in
        # the store was deleted. Exceptions are quarantined objects, and objects that a list contains.
        is_deleted = _older(version, self._complete_through)
        return source is _ChangeSource.LIST or quarantined is not None or not is_deleted

    def _drop(self, key: Key, entry: _Entry) -> ObjectChange:
        del self._entries[key]
        self._unpacked.pop(key, None)
        self._unindex(key, entry)
        return self._notify(ObjectChange("deleted", key, None, self._packer.unpack(entry.data)))

    def _pack_resting(self, changed: Key) -> None:
        """Pack the object that has not changed for the longest time, or a large one that has changed."""
        self._unpacked[changed] = None
        self._unpacked.move_to_end(changed)
        is_large = len(self._entries[changed].data) > _LARGEST_UNPACKED_BYTES
        if is_large or len(self._unpacked) > UNPACKED_OBJECTS:
            resting, _ = self._unpacked.popitem(last=is_large)
            entry = self._entries[resting]
            entry.data = self._packer.pack(entry.data)

    def _unindex(self, key: Key, entry: _Entry) -> None:
        for name, value in entry.indexed:
            keys = self._indexes[name][value]
            del keys[key]
            if not keys:
                del self._indexes[name][value]

    def _add_tombstone(self, uid: str, version: str) -> None:
        now = self._clock()
        self._tombstones.pop(uid, None)  # The oldest tombstone must come first.
        self._tombstones[uid] = _Tombstone(version, now)
        # The second part of a list may take longer than the life of a tombstone.
        while self._tombstones and not self._lacks_second_part:
            oldest = next(iter(self._tombstones))
            if now - self._tombstones[oldest].at <= TOMBSTONE_LIFE_S:
                break
            del self._tombstones[oldest]

    def _quarantine(self, key: Key, version: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        self.quarantined[key] = Quarantined(version, reason)
        log.warning(
            "malformed object ignored until it changes",
            resource=str(self.resource),
            object=str(key),
            reason=reason,
        )
        self._report_quarantine()

    def _end_quarantine(self, key: Key) -> None:
        """End the quarantine of an object that can be parsed now, or was deleted."""
        if self.quarantined.pop(key, None) is not None:
            self._report_quarantine()

    def _report_quarantine(self) -> None:
        if self._on_quarantine is not None:
            with self._errors.contain(ErrorPart.METRICS, self.resource):
                self._on_quarantine(self.resource)

    def _notify(self, change: ObjectChange) -> ObjectChange:
        for handler in self._handlers:
            try:
                handler(change)
            except Exception as error:  # noqa: BLE001 - the other handlers have to see the change
                self._errors.report(ErrorPart.OBSERVATION, error, f"{self.resource} {change.key}")
        return change


def _key(obj: Any) -> Key:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict):
        raise MalformedObject("the object has no metadata")
    name, namespace = metadata.get("name"), metadata.get("namespace")
    namespace = "" if namespace is None else namespace
    if not isinstance(name, str) or not name or not isinstance(namespace, str):
        raise MalformedObject("metadata.name and metadata.namespace must be strings")
    return Key(sys.intern(namespace), name)  # Many objects share a namespace, and then also its memory.


def _uid_and_version(obj: dict[str, Any]) -> tuple[str, str]:
    uid, version = obj["metadata"].get("uid"), obj["metadata"].get("resourceVersion")
    if not isinstance(uid, str) or not isinstance(version, str) or not uid or not version:
        raise MalformedObject("metadata.uid and metadata.resourceVersion must be strings")
    return uid, version


def _without_managed_fields(obj: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        key: value for key, value in obj["metadata"].items() if key != "managedFields"
    }
    return {**obj, "metadata": metadata}


def _older(left: str, right: str) -> bool:
    """Whether a version is certainly older than another."""
    return left.isdecimal() and right.isdecimal() and int(left) < int(right)
