"""The store keeps the newest version of each object, and reports each change once."""

import tracemalloc
from hashlib import sha256
from typing import Any

import orjson
import pytest

from admitq.runtime.resources import CONFIG_MAPS
from admitq.runtime.store import TOMBSTONE_LIFE_S, UNPACKED_OBJECTS, Key, ListPart, ObjectChange, Store


def obj(
    name: str = "a", version: str = "10", uid: str = "u1", namespace: str = "ns", **more: Any
) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": version},
        **more,
    }


class Watched:
    """A store, and its changes as short texts."""

    def __init__(self, **options: Any) -> None:
        self.changes: list[str] = []
        self.time = 0.0
        self.store = Store(CONFIG_MAPS, clock=lambda: self.time, **options)
        self.store.subscribe(self._record)

    def _record(self, change: ObjectChange) -> None:
        versions = [
            part["metadata"]["resourceVersion"] if part is not None else "-"
            for part in (change.old, change.new)
        ]
        self.changes.append(f"{change.kind} {change.key.name} {versions[0]}>{versions[1]}")


@pytest.mark.parametrize(
    ("first", "second", "changes"),
    [
        ("10", "11", ["added a ->10", "modified a 10>11"]),
        ("10", "10", ["added a ->10"]),
        ("10", "9", ["added a ->10"]),
        ("9", "10", ["added a ->9", "modified a 9>10"]),
        ("xyz", "abc", ["added a ->xyz", "modified a xyz>abc"]),
        ("xyz", "xyz", ["added a ->xyz"]),
    ],
)
def test_upsert_changes_store_only_with_newer_version(first: str, second: str, changes: list[str]):
    watched = Watched()
    watched.store.upsert(obj(version=first))
    watched.store.upsert(obj(version=second))
    assert watched.changes == changes


def test_older_version_after_deletion_does_not_restore_object():
    watched = Watched()
    watched.store.upsert(obj(version="10"))
    watched.store.remove(obj(version="12"))
    watched.store.upsert(obj(version="11"))
    assert watched.changes == ["added a ->10", "deleted a 10>-"]
    assert len(watched.store) == 0


def test_newer_version_after_deletion_adds_object_again():
    watched = Watched()
    watched.store.upsert(obj(version="10"))
    watched.store.remove(obj(version="12"))
    watched.store.upsert(obj(version="13"))
    assert watched.changes == ["added a ->10", "deleted a 10>-", "added a ->13"]


def test_deletion_of_unknown_object_blocks_older_versions_until_tombstone_expires():
    watched = Watched()
    watched.store.remove(obj(version="12"))
    watched.store.upsert(obj(version="11"))
    assert watched.changes == []
    watched.time = TOMBSTONE_LIFE_S + 1
    watched.store.remove(obj(name="other", uid="u2", version="20"))
    watched.store.upsert(obj(version="11"))
    assert watched.changes == ["added a ->11"]


def test_version_older_than_progress_of_watch_adds_no_object():
    watched = Watched()
    watched.store.record_progress("100")
    watched.store.upsert(obj(version="99"))
    assert watched.changes == []
    watched.store.upsert(obj(version="101"))
    assert watched.changes == ["added a ->101"]


def test_object_with_new_uid_is_reported_as_deletion_and_addition():
    watched = Watched()
    watched.store.upsert(obj(version="10", uid="u1"))
    watched.store.upsert(obj(version="15", uid="u2"))
    watched.store.upsert(obj(version="11", uid="u1"))
    watched.store.remove(obj(version="14", uid="u1"))
    assert watched.changes == ["added a ->10", "deleted a 10>-", "added a ->15"]


def test_replaced_object_does_not_return_after_deletion_of_successor():
    watched = Watched()
    watched.store.upsert(obj(version="10", uid="u1"))
    watched.store.upsert(obj(version="15", uid="u2"))
    watched.store.remove(obj(version="20", uid="u2"))
    watched.changes.clear()
    watched.store.upsert(obj(version="12", uid="u1"))
    assert watched.changes == []


@pytest.mark.parametrize(
    ("held", "listed", "changes"),
    [
        ([], [obj("a"), obj("b", uid="u2")], ["added a ->10", "added b ->10"]),
        ([obj("a")], [], ["deleted a 10>-"]),
        ([obj("a")], [obj("a")], []),
        ([obj("a")], [obj("a", version="20")], ["modified a 10>20"]),
        # the answer to a write of admitq is newer than the list
        ([obj("a", version="60")], [obj("a")], []),
        ([obj("a", version="60")], [], []),
        # recreated while the watch was down
        ([obj("a")], [obj("a", version="20", uid="u2")], ["deleted a 10>-", "added a ->20"]),
    ],
)
def test_listing_makes_store_equal_to_list_except_newer_objects(
    held: list[dict[str, Any]], listed: list[dict[str, Any]], changes: list[str]
):
    watched = Watched()
    for item in held:
        watched.store.upsert(item)
    watched.changes.clear()
    listing = watched.store.begin_listing("50")
    for item in listed:
        watched.store.add_listed(listing, item)
    watched.store.finish_listing(listing)
    assert watched.changes == changes


def test_listing_adds_object_that_watch_missed():
    watched = Watched()
    watched.store.record_progress("100")
    listing = watched.store.begin_listing("100")
    watched.store.add_listed(listing, obj(version="40"))
    watched.store.finish_listing(listing)
    assert watched.changes == ["added a ->40"]


# --- a list in two parts ---------------------------------------------------------------------------------


def list_first_part(watched: Watched, version: str, *objects: dict[str, Any]) -> None:
    store_list(watched, version, ListPart.FIRST, *objects)


def list_second_part(watched: Watched, *objects: dict[str, Any]) -> None:
    store_list(watched, "", ListPart.SECOND, *objects)


def store_list(watched: Watched, version: str, part: ListPart, *objects: dict[str, Any]) -> None:
    listing = watched.store.begin_listing(version, part)
    for item in objects:
        watched.store.add_listed(listing, item)
        assert not watched.store.is_complete
    watched.store.finish_listing(listing)


def test_store_is_complete_after_second_part():
    watched = Watched()
    list_first_part(watched, "50", obj("a"))
    assert not watched.store.is_complete
    list_second_part(watched, obj("b", uid="u2"))
    assert watched.store.is_complete
    assert watched.changes == ["added a ->10", "added b ->10"]


@pytest.mark.parametrize(
    ("seen", "listed", "changes"),
    [
        pytest.param([("upsert", "60", "u1")], "55", ["added a ->60"], id="changed"),
        pytest.param([("upsert", "y", "u1")], "x", ["added a ->y"], id="versions that are no numbers"),
        pytest.param([("upsert", "70", "u2")], "55", ["added a ->70"], id="replaced"),
        pytest.param([("remove", "60", "u1")], "55", [], id="deleted"),
        pytest.param(
            [("upsert", "60", "u1"), ("remove", "61", "u1")],
            "60",
            ["added a ->60", "deleted a 60>-"],
            id="changed and deleted",
        ),
    ],
)
def test_second_part_changes_nothing_that_watch_has_shown(
    seen: list[tuple[str, str, str]], listed: str, changes: list[str]
):
    watched = Watched()
    list_first_part(watched, "50")
    for how, version, uid in seen:
        getattr(watched.store, how)(obj(version=version, uid=uid))
    watched.store.record_progress("80")
    list_second_part(watched, obj(version=listed))
    assert watched.changes == changes


def test_object_deleted_long_before_second_part_ends_is_not_restored():
    watched = Watched()
    list_first_part(watched, "50")
    watched.store.remove(obj(version="60"))
    watched.time = TOMBSTONE_LIFE_S + 1
    watched.store.remove(obj("other", uid="u2", version="61"))
    list_second_part(watched, obj(version="55"))
    assert watched.changes == []


def test_object_that_left_first_part_is_added_by_second_part():
    """It left after a first attempt to list the first part, or while that was sent."""
    watched = Watched()
    watched.store.upsert(obj("a"))
    watched.store.upsert(obj("b", uid="u2"))
    watched.store.remove(obj("b", uid="u2", version="45"), is_deleted=False)
    list_first_part(watched, "50")
    list_second_part(watched, obj("a", version="44"), obj("b", uid="u2", version="45"))
    assert watched.changes[-2:] == ["added a ->44", "added b ->45"]


def test_complete_list_replaces_unfinished_second_part():
    watched = Watched()
    list_first_part(watched, "50", obj("a"))
    watched.store.add_listed(watched.store.begin_listing("", ListPart.SECOND), obj("b", uid="u2"))
    store_list(watched, "90", ListPart.ALL, obj("a"))
    assert watched.store.is_complete
    assert [found["metadata"]["name"] for found in watched.store.list()] == ["a"]


def test_malformed_object_of_second_part_is_quarantined_and_others_are_stored():
    watched = Watched()
    list_first_part(watched, "50")
    list_second_part(watched, obj("a", uid=""), {"metadata": None}, obj("b"))
    assert [key.name for key in watched.store.quarantined] == ["a", "?"]
    assert watched.changes == ["added b ->10"]


def test_listing_older_than_store_is_applied_after_restore_of_api_server():
    watched = Watched()
    watched.store.upsert(obj("kept", version="90", uid="u1"))
    watched.store.upsert(obj("deleted", version="95", uid="u2"))
    watched.store.record_progress("95")
    listing = watched.store.begin_listing("50")
    watched.store.add_listed(listing, obj("kept", version="40", uid="u1"))
    watched.store.finish_listing(listing)
    assert watched.changes[2:] == ["modified kept 90>40", "deleted deleted 95>-"]
    assert watched.store.record_progress("51") == "51"


def test_progress_to_older_version_is_ignored():
    store = Store(CONFIG_MAPS)
    assert [store.record_progress(version) for version in ("10", "9", "11")] == ["10", "10", "11"]


@pytest.mark.parametrize(
    "malformed",
    [
        {},
        {"metadata": None},
        {"metadata": {"name": "x", "namespace": "ns"}},
        {"metadata": {"name": 5, "namespace": "ns", "uid": "u", "resourceVersion": "1"}},
        {"metadata": {"name": "x", "namespace": [], "uid": "u", "resourceVersion": "1"}},
        {"metadata": {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": 7}},
        "not even an object",
        None,
        obj("x", data="a transform that expects a mapping fails on this"),
    ],
)
def test_malformed_object_is_quarantined_and_others_are_stored(malformed: Any):
    reports: list[str] = []
    watched = Watched(
        transform=lambda o: {**o, "data": dict(o.get("data", {}).items())},
        on_quarantine=lambda resource: reports.append(str(resource)),
    )
    listing = watched.store.begin_listing("50")
    for item in (obj("a"), malformed, obj("b", uid="u2")):
        watched.store.add_listed(listing, item)
    watched.store.finish_listing(listing)
    assert watched.changes == ["added a ->10", "added b ->10"]
    assert len(reports) == 1
    assert len(watched.store.quarantined) == 1


def test_last_valid_version_of_malformed_object_stays_until_repair_or_deletion():
    watched = Watched(indexes={"data": lambda o: o["data"].split()})
    watched.store.upsert(obj(version="10", data="red"))
    watched.store.upsert(obj(version="11", data=None))
    assert watched.store.by_index("data", "red")[0]["metadata"]["resourceVersion"] == "10"
    assert "NoneType" in watched.store.quarantined[Key("ns", "a")].reason
    watched.store.upsert(obj(version="12", data="blue"))
    assert not watched.store.quarantined
    watched.store.upsert(obj(version="13", data=None))
    watched.store.remove(obj(version="14"))
    assert not watched.store.quarantined
    assert watched.changes == ["added a ->10", "modified a 10>12", "deleted a 12>-"]


def test_malformed_version_is_reported_once_and_its_repair_once():
    reports: list[int] = []
    store = Store(
        CONFIG_MAPS,
        indexes={"data": lambda o: o["data"].split()},
        on_quarantine=lambda _: reports.append(len(store.quarantined)),
    )
    for _ in range(3):
        store.upsert(obj(version="10", data=None))
    store.upsert(obj(version="11", data=None))
    assert reports == [1, 1]
    for _ in range(2):
        store.upsert(obj(version="12", data="blue"))
    assert reports == [1, 1, 0]
    store.upsert(obj(version="13", data=None))
    listing = store.begin_listing("14")
    store.finish_listing(listing)
    assert reports == [1, 1, 0, 1, 0]


def test_indexes_follow_changes_of_objects():
    store = Store(CONFIG_MAPS, indexes={"queue": lambda o: [o["queue"]] if o.get("queue") else []})
    store.upsert(obj("a", uid="u1", queue="q1"))
    store.upsert(obj("b", uid="u2", queue="q1"))
    store.upsert(obj("c", uid="u3"))
    assert store.keys_by_index("queue", "q1") == (Key("ns", "a"), Key("ns", "b"))
    store.upsert(obj("a", uid="u1", version="11", queue="q2"))
    store.remove(obj("b", uid="u2"))
    assert store.keys_by_index("queue", "q1") == ()
    assert [item["metadata"]["name"] for item in store.by_index("queue", "q2")] == ["a"]
    assert store.index_values("queue") == ("q2",)


def test_managed_fields_are_not_stored_and_given_object_is_unchanged():
    store = Store(CONFIG_MAPS)
    given = obj()
    given["metadata"]["managedFields"] = [{"manager": "x"}]
    change = store.upsert(given)
    assert "managedFields" in given["metadata"]
    assert change is not None
    assert change.object["metadata"].get("managedFields") is None
    stored = store.get("ns", "a")
    assert stored is not None
    assert "managedFields" not in stored["metadata"]


def test_stored_object_needs_little_more_memory_than_its_json():
    data = {f"key-{number}": "x" * 50 for number in range(40)}
    size = len(orjson.dumps(obj(data=data)))
    store = Store(CONFIG_MAPS)
    tracemalloc.start()
    try:
        for number in range(500):
            store.upsert(obj(f"n{number}", uid=f"u{number}", data=data))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / 500 < size + 700


def measure_memory_of_objects(size: int, count: int) -> float:
    """Return the bytes of memory that a store needs for each of many objects that resemble each other."""
    store = Store(CONFIG_MAPS)
    text = "".join(sha256(bytes([number % 256])).hexdigest() for number in range(size // 64))
    tracemalloc.start()
    try:
        for number in range(count):
            store.upsert(obj(f"n{number}", uid=f"u{number}", data={"text": text}))
        held, _ = tracemalloc.get_traced_memory()
        assert [item["data"] for item in store.list()] == [{"text": text}] * count
        return held / count
    finally:
        tracemalloc.stop()


def test_objects_that_rest_while_others_change_are_packed():
    assert measure_memory_of_objects(4096, count=6 * UNPACKED_OBJECTS) < 4096 / 3


def test_large_objects_are_packed_at_once():
    assert measure_memory_of_objects(12 * 1024, count=500) < 12 * 1024 / 3


def test_object_is_the_same_before_and_after_it_is_packed():
    store = Store(CONFIG_MAPS)
    first = obj(data={"x": "1"})
    store.upsert(first)
    for number in range(UNPACKED_OBJECTS):
        store.upsert(obj(f"n{number}", uid=f"u{number}"))
    assert store.get("ns", "a") == first
    change = store.upsert(obj(version="11"))
    assert change is not None
    assert change.old == first


def test_change_of_read_object_does_not_change_store():
    store = Store(CONFIG_MAPS)
    store.upsert(obj(data={"x": "1"}))
    first = store.get("ns", "a")
    assert first is not None
    first["data"]["x"] = "changed"
    second = store.get("ns", "a")
    assert second is not None
    assert second["data"] == {"x": "1"}


def test_objects_of_equal_name_in_two_namespaces_are_separate():
    store = Store(CONFIG_MAPS)
    store.upsert(obj(namespace="one", uid="u1"))
    store.upsert(obj(namespace="two", uid="u2"))
    assert [item["metadata"]["uid"] for item in store.list("two")] == ["u2"]
    assert len(list(store.list())) == 2


def test_failing_handler_stops_neither_other_handlers_nor_store():
    watched = Watched()
    watched.store.subscribe(lambda _: 1 // 0)
    handled: list[Key] = []
    watched.store.subscribe(lambda change: handled.append(change.key))
    watched.store.upsert(obj())
    assert watched.changes == ["added a ->10"]
    assert handled == [Key("ns", "a")]
