import tracemalloc
from typing import Any

import orjson
import pytest

from admitq.runtime.resources import CONFIG_MAPS
from admitq.runtime.store import TOMBSTONE_LIFE_S, Change, Key, Store


def obj(
    name: str = "a", version: str = "10", uid: str = "u1", namespace: str = "ns", **more: Any
) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": version},
        **more,
    }


class Watched:
    """A store with its changes recorded as short texts."""

    def __init__(self, **options: Any) -> None:
        self.told: list[str] = []
        self.time = 0.0
        self.store = Store(CONFIG_MAPS, clock=lambda: self.time, **options)
        self.store.subscribe(self._write_down)

    def _write_down(self, change: Change) -> None:
        versions = [
            part["metadata"]["resourceVersion"] if part is not None else "-"
            for part in (change.old, change.new)
        ]
        self.told.append(f"{change.kind} {change.key.name} {versions[0]}>{versions[1]}")


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("10", "11", ["added a ->10", "modified a 10>11"]),
        ("10", "10", ["added a ->10"]),
        ("10", "9", ["added a ->10"]),
        ("9", "10", ["added a ->9", "modified a 9>10"]),
        ("xyz", "abc", ["added a ->xyz", "modified a xyz>abc"]),
        ("xyz", "xyz", ["added a ->xyz"]),
    ],
)
def test_only_what_is_newer_counts(first: str, second: str, told: list[str]):
    watched = Watched()
    watched.store.upsert(obj(version=first))
    watched.store.upsert(obj(version=second))
    assert watched.told == told


def test_a_deleted_object_is_not_brought_back_by_a_late_response_to_our_own_write():
    watched = Watched()
    watched.store.upsert(obj(version="10"))
    watched.store.remove(obj(version="12"))
    watched.store.upsert(obj(version="11"))
    assert watched.told == ["added a ->10", "deleted a 10>-"]
    assert len(watched.store) == 0


def test_an_object_that_leaves_a_selection_and_comes_back_is_there_again():
    watched = Watched()
    watched.store.upsert(obj(version="10"))
    watched.store.remove(obj(version="12"))
    watched.store.upsert(obj(version="13"))
    assert watched.told == ["added a ->10", "deleted a 10>-", "added a ->13"]


def test_a_deletion_is_remembered_even_of_what_was_never_seen_and_forgotten_after_its_time():
    watched = Watched()
    watched.store.remove(obj(version="12"))
    watched.store.upsert(obj(version="11"))
    assert watched.told == []
    watched.time = TOMBSTONE_LIFE_S + 1
    watched.store.remove(obj(name="other", uid="u2", version="20"))
    watched.store.upsert(obj(version="11"))
    assert watched.told == ["added a ->11"]


def test_what_was_created_and_deleted_before_a_version_seen_completely_stays_gone():
    watched = Watched()
    watched.store.progressed("100")
    watched.store.upsert(obj(version="99"))
    assert watched.told == []
    watched.store.upsert(obj(version="101"))
    assert watched.told == ["added a ->101"]


def test_the_same_name_with_another_uid_is_deleted_and_added():
    watched = Watched()
    watched.store.upsert(obj(version="10", uid="u1"))
    watched.store.upsert(obj(version="15", uid="u2"))
    watched.store.upsert(obj(version="11", uid="u1"))
    watched.store.remove(obj(version="14", uid="u1"))
    assert watched.told == ["added a ->10", "deleted a 10>-", "added a ->15"]


def test_a_replaced_object_stays_gone_after_its_successor():
    watched = Watched()
    watched.store.upsert(obj(version="10", uid="u1"))
    watched.store.upsert(obj(version="15", uid="u2"))
    watched.store.remove(obj(version="20", uid="u2"))
    watched.told.clear()
    watched.store.upsert(obj(version="12", uid="u1"))
    assert watched.told == []


@pytest.mark.parametrize(
    ("held", "listed", "told"),
    [
        ([], [obj("a"), obj("b", uid="u2")], ["added a ->10", "added b ->10"]),
        ([obj("a")], [], ["deleted a 10>-"]),
        ([obj("a")], [obj("a")], []),
        ([obj("a")], [obj("a", version="20")], ["modified a 10>20"]),
        # a response of ours that is newer than the list
        ([obj("a", version="60")], [obj("a")], []),
        ([obj("a", version="60")], [], []),
        # recreated while the watch was down
        ([obj("a")], [obj("a", version="20", uid="u2")], ["deleted a 10>-", "added a ->20"]),
    ],
)
def test_a_list_makes_the_store_equal_to_it(
    held: list[dict[str, Any]], listed: list[dict[str, Any]], told: list[str]
):
    watched = Watched()
    for item in held:
        watched.store.upsert(item)
    watched.told.clear()
    listing = watched.store.begin_listing("50")
    for item in listed:
        watched.store.add_listed(listing, item)
    watched.store.finish_listing(listing)
    assert watched.told == told


def test_a_list_finds_what_was_missed():
    watched = Watched()
    watched.store.progressed("100")
    listing = watched.store.begin_listing("100")
    watched.store.add_listed(listing, obj(version="40"))
    watched.store.finish_listing(listing)
    assert watched.told == ["added a ->40"]


def test_a_list_older_than_what_was_seen_is_believed_because_the_api_was_restored():
    watched = Watched()
    watched.store.upsert(obj("kept", version="90", uid="u1"))
    watched.store.upsert(obj("gone", version="95", uid="u2"))
    watched.store.progressed("95")
    listing = watched.store.begin_listing("50")
    watched.store.add_listed(listing, obj("kept", version="40", uid="u1"))
    watched.store.finish_listing(listing)
    assert watched.told[2:] == ["modified kept 90>40", "deleted gone 95>-"]
    assert watched.store.progressed("51") == "51"


def test_a_version_that_goes_back_is_not_followed():
    store = Store(CONFIG_MAPS)
    assert [store.progressed(version) for version in ("10", "9", "11")] == ["10", "10", "11"]


@pytest.mark.parametrize(
    "bad",
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
def test_a_bad_object_is_set_aside_and_the_others_go_on(bad: Any):
    aside: list[str] = []
    watched = Watched(
        transform=lambda o: {**o, "data": dict(o.get("data", {}).items())},
        on_quarantine=lambda resource: aside.append(str(resource)),
    )
    listing = watched.store.begin_listing("50")
    for item in (obj("a"), bad, obj("b", uid="u2")):
        watched.store.add_listed(listing, item)
    watched.store.finish_listing(listing)
    assert watched.told == ["added a ->10", "added b ->10"]
    assert len(aside) == 1
    assert len(watched.store.quarantined) == 1


def test_what_was_held_of_a_bad_object_stays_until_it_is_good_again_or_gone():
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
    assert watched.told == ["added a ->10", "modified a 10>12", "deleted a 12>-"]


def test_a_bad_version_is_reported_once_and_so_is_its_end():
    told: list[int] = []
    store = Store(
        CONFIG_MAPS,
        indexes={"data": lambda o: o["data"].split()},
        on_quarantine=lambda _: told.append(len(store.quarantined)),
    )
    for _ in range(3):
        store.upsert(obj(version="10", data=None))
    store.upsert(obj(version="11", data=None))
    assert told == [1, 1]
    for _ in range(2):
        store.upsert(obj(version="12", data="blue"))
    assert told == [1, 1, 0]
    store.upsert(obj(version="13", data=None))
    listing = store.begin_listing("14")
    store.finish_listing(listing)
    assert told == [1, 1, 0, 1, 0]


def test_indexes_follow_the_objects():
    store = Store(CONFIG_MAPS, indexes={"queue": lambda o: [o["queue"]] if o.get("queue") else []})
    store.upsert(obj("a", uid="u1", queue="q1"))
    store.upsert(obj("b", uid="u2", queue="q1"))
    store.upsert(obj("c", uid="u3"))
    assert store.keys_by_index("queue", "q1") == (Key("ns", "a"), Key("ns", "b"))
    store.upsert(obj("a", uid="u1", version="11", queue="q2"))
    store.remove(obj("b", uid="u2"))
    assert store.keys_by_index("queue", "q1") == ()
    assert [found["metadata"]["name"] for found in store.by_index("queue", "q2")] == ["a"]
    assert store.index_values("queue") == ("q2",)


def test_managed_fields_are_not_kept_and_the_given_object_is_left_alone():
    store = Store(CONFIG_MAPS)
    given = obj()
    given["metadata"]["managedFields"] = [{"manager": "x"}]
    change = store.upsert(given)
    assert "managedFields" in given["metadata"]
    assert change is not None
    assert change.object["metadata"].get("managedFields") is None
    found = store.get("ns", "a")
    assert found is not None
    assert "managedFields" not in found["metadata"]


def test_an_object_is_held_in_little_more_than_its_own_bytes():
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


def test_what_is_read_belongs_to_the_reader():
    store = Store(CONFIG_MAPS)
    store.upsert(obj(data={"x": "1"}))
    first = store.get("ns", "a")
    assert first is not None
    first["data"]["x"] = "changed"
    second = store.get("ns", "a")
    assert second is not None
    assert second["data"] == {"x": "1"}


def test_equal_names_in_two_namespaces_are_two_objects():
    store = Store(CONFIG_MAPS)
    store.upsert(obj(namespace="one", uid="u1"))
    store.upsert(obj(namespace="two", uid="u2"))
    assert [found["metadata"]["uid"] for found in store.list("two")] == ["u2"]
    assert len(list(store.list())) == 2


def test_a_handler_that_raises_stops_neither_the_others_nor_the_store():
    watched = Watched()
    watched.store.subscribe(lambda _: 1 // 0)
    later: list[Key] = []
    watched.store.subscribe(lambda change: later.append(change.key))
    watched.store.upsert(obj())
    assert watched.told == ["added a ->10"]
    assert later == [Key("ns", "a")]
