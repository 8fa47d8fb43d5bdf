"""After any fault of a watch, the store equals the API again, without requests in a hot loop."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from admitq.runtime.client import Client
from admitq.runtime.credentials import load_credentials
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import CONFIG_MAPS, Resource
from admitq.runtime.store import ObjectChange, Store
from admitq.runtime.transport import ApiCall
from admitq.runtime.watcher import Outcome, Watcher, WatchTiming
from admitq_api.labels import names_for
from localcluster.cluster import LocalCluster
from localcluster.waiting import eventually
from tests.faults import proxy as p
from tests.faults.proxy import Action, Proxy, SeenRequest

Through = Callable[..., Awaitable[Client]]

QUICK = WatchTiming(first_backoff=0.02, longest_backoff=0.2, inactivity=0.5, healthy=0.05)
PATIENT = replace(QUICK, inactivity=30.0)
"""For watches that must not be abandoned, even on a busy machine."""
NOT_OURS = "metadata.name!=kube-root-ca.crt"


def watching(request: SeenRequest) -> bool:
    return request.is_watch


def listing(request: SeenRequest) -> bool:
    return request.is_list


@dataclass
class WatchedStore:
    """A running watcher of the ConfigMaps of a namespace, with its changes and outcomes."""

    watcher: Watcher
    store: Store
    client: Client
    namespace: str
    changes: list[ObjectChange] = field(default_factory=list[ObjectChange])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    def values(self) -> dict[str, str]:
        return {found["metadata"]["name"]: found["data"]["x"] for found in self.store.list()}

    async def is_equal_to_the_api(self) -> bool:
        items, _ = await self.client.list(CONFIG_MAPS, self.namespace, field_selector=NOT_OURS)
        expected = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}
        held = {
            found["metadata"]["name"]: found["metadata"]["resourceVersion"] for found in self.store.list()
        }
        return expected == held

    async def until_equal_to_the_api(self) -> None:
        await eventually(self.is_equal_to_the_api, interval=0.02, what="the store equals the API")

    async def until_outcome(self, outcome: Outcome, times: int = 1) -> None:
        await eventually(lambda: self.outcomes.count(outcome) >= times, interval=0.01, what=outcome)

    def ended_watches(self) -> int:
        """The number of watches that have ended in any way."""
        return sum(outcome is not Outcome.LISTED for outcome in self.outcomes)

    async def put(self, name: str, x: str) -> dict[str, Any]:
        """Create or change a ConfigMap without the proxy."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.namespace},
            "data": {"x": x},
        }
        return await self.client.apply(CONFIG_MAPS, body, field_manager="test")

    async def delete(self, name: str) -> None:
        await self.client.delete(CONFIG_MAPS, name, self.namespace)


@pytest.fixture
def follow(through: Through, client: Client, namespace: str) -> Callable[..., Any]:
    """An async context manager that runs a watcher through the proxy; three ConfigMaps exist at its start.

    The first list is paged unless ``streams_list`` is set.
    """

    @asynccontextmanager
    async def start(
        timing: WatchTiming = QUICK,
        patience: float = 5.0,
        *,
        streams_list: bool = False,
        **store_options: Any,
    ) -> AsyncGenerator[WatchedStore]:
        store = Store(CONFIG_MAPS, **store_options)
        ours = await through(timeout=patience)
        followed = WatchedStore(Watcher(ours, CONFIG_MAPS, store), store, client, namespace)
        for name in ("a", "b", "c"):
            await followed.put(name, "0")
        followed.watcher = Watcher(
            ours,
            CONFIG_MAPS,
            store,
            namespace=namespace,
            field_selector=NOT_OURS,
            handlers=[followed.changes.append],
            timing=timing,
            observe=lambda _, outcome: followed.outcomes.append(outcome),
            streams_list=streams_list,
        )
        task = asyncio.create_task(followed.watcher.run())
        try:
            yield followed
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    return start


async def change_objects(followed: WatchedStore) -> None:
    """Create, change and delete ConfigMaps."""
    await followed.put("b", "1")
    await followed.put("a", "1")
    await followed.put("d", "1")
    await followed.delete("b")
    for x in ("2", "3", "4"):
        await followed.put("a", x)
    await followed.delete("d")
    await followed.put("d", "again")


def status_line(code: int, reason: str) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def after(lines: int, instead: bytes) -> Callable[[int, bytes], bytes]:
    """Pass some lines, then send other bytes instead of the next line, and end."""

    def change(number: int, line: bytes) -> bytes:
        if number < lines:
            return line
        return instead if number == lines else b""

    return change


def line_and_a_half(number: int, line: bytes) -> bytes | None:
    return line if number < 1 else line[: len(line) // 2] if number == 1 else b""


async def reset(exchange: p.Exchange) -> None:
    exchange.reset()


async def drop(exchange: p.Exchange) -> None:
    exchange.drop()


def first_two_lines(number: int, line: bytes) -> bytes:
    return line if number < 2 else b""


def patience_with(action: Action) -> float:
    """The timeout of calls: short if no answer will come."""
    return 1.0 if action is p.never_answer else 5.0


@pytest.mark.parametrize("streams_list", [False, True], ids=["watch", "streamed list and watch"])
@pytest.mark.parametrize(
    ("action", "outcome"),
    [
        pytest.param(p.refuse_with(410, "Expired"), Outcome.EXPIRED, id="410 at the opening"),
        pytest.param(
            p.answer_with(200, status_line(410, "Expired")), Outcome.EXPIRED, id="410 as the first event"
        ),
        pytest.param(
            p.with_lines(after(2, status_line(410, "Expired"))), Outcome.EXPIRED, id="410 amid events"
        ),
        pytest.param(p.answer_with(200, status_line(500, "InternalError")), Outcome.FAILED, id="ERROR 500"),
        pytest.param(p.answer_with(200, status_line(403, "Forbidden")), Outcome.FAILED, id="ERROR 403"),
        pytest.param(
            p.answer_with(200, b'{"type": "ERROR", "object": {}}\n'), Outcome.FAILED, id="ERROR without code"
        ),
        pytest.param(p.refuse_with(403, "Forbidden"), Outcome.FAILED, id="403"),
        pytest.param(
            p.refuse_with(429, "TooManyRequests", Retry_After="30"), Outcome.FAILED, id="429 for long"
        ),
        pytest.param(p.refuse_with(500, "InternalError"), Outcome.FAILED, id="500"),
        pytest.param(p.BAD_GATEWAY, Outcome.FAILED, id="502 with HTML"),
        pytest.param(
            p.answer_with(200, b"<html>", Content_Type="text/html"), Outcome.MALFORMED, id="200 with HTML"
        ),
        pytest.param(p.with_lines(first_two_lines, then=reset), Outcome.FAILED, id="reset"),
        pytest.param(p.with_lines(first_two_lines, then=drop), Outcome.FAILED, id="dropped"),
        pytest.param(p.with_lines(first_two_lines), Outcome.ENDED, id="ended"),
        pytest.param(p.with_lines(line_and_a_half), Outcome.FAILED, id="half a line, then the end"),
        pytest.param(
            p.with_lines(after(1, b'{"type": "ADDED", "obj\n')), Outcome.MALFORMED, id="a broken line"
        ),
        pytest.param(
            p.with_lines(after(1, b'"a string"\n')), Outcome.MALFORMED, id="a line that is no event"
        ),
        pytest.param(
            p.with_lines(after(1, b'{"type": "NEW", "object": {}}\n')), Outcome.MALFORMED, id="unknown type"
        ),
        pytest.param(
            p.with_lines(after(1, b'{"type": "ADDED", "object": null}\n')), Outcome.MALFORMED, id="null"
        ),
        pytest.param(p.with_lines(after(0, b"x" * 9_000_000)), Outcome.MALFORMED, id="a line of 9 MB"),
        pytest.param(p.with_lines(first_two_lines, then=p.never_answer), Outcome.SILENT, id="silent"),
        pytest.param(p.never_answer, Outcome.SILENT, id="never opened"),
        pytest.param(p.reset_before_forwarding, Outcome.FAILED, id="cut at the opening"),
    ],
)
async def test_store_equals_the_api_after_a_watch_fault(
    proxy: Proxy, follow: Callable[..., Any], action: Action, outcome: Outcome, *, streams_list: bool
):
    fault = proxy.fault(action, watching, times=2)
    async with follow(patience=patience_with(action), streams_list=streams_list) as followed:
        await followed.watcher.synced.wait()
        await change_objects(followed)
        await followed.until_outcome(outcome)
        await followed.until_equal_to_the_api()
        await eventually(lambda: fault.hits == 2 or followed.outcomes[-1] is Outcome.LISTED)
        await change_objects(followed)
        await followed.until_equal_to_the_api()
        assert followed.values() == {"a": "4", "c": "0", "d": "again"}
        assert not followed.store.quarantined


async def test_one_request_lists_and_watches(proxy: Proxy, follow: Callable[..., Any]):
    async with follow(PATIENT, streams_list=True) as followed:
        await followed.watcher.synced.wait()
        assert followed.values() == {"a": "0", "b": "0", "c": "0"}
        await change_objects(followed)
        await followed.until_equal_to_the_api()
        assert (proxy.count(watching), proxy.count(listing)) == (1, 0)
        assert followed.outcomes == [Outcome.LISTED]


@pytest.mark.parametrize("status", [400, 422])
async def test_objects_are_listed_in_pages_if_the_server_refuses_to_stream_them(
    proxy: Proxy, follow: Callable[..., Any], status: int
):
    proxy.fault(p.refuse_with(status, "Invalid"), watching)
    async with follow(PATIENT, streams_list=True) as followed:
        await followed.watcher.synced.wait()
        await change_objects(followed)
        await followed.until_equal_to_the_api()
        assert (proxy.count(watching), proxy.count(listing)) == (2, 1)
        assert followed.outcomes == [Outcome.LISTED]


@pytest.mark.parametrize(
    "action",
    [
        p.refuse_with(410, "Expired"),
        p.refuse_with(500, "InternalError"),
        p.refuse_with(429, "TooManyRequests", Retry_After="30"),
        p.BAD_GATEWAY,
        p.answer_with(200, b"{}"),
        p.answer_half_a_document,
        p.close_after_half_the_body,
        p.reset_before_forwarding,
        p.never_answer,
        p.with_document(lambda body: {**body, "metadata": {}}),
    ],
)
async def test_store_equals_the_api_after_a_list_fault(
    proxy: Proxy, follow: Callable[..., Any], action: Action
):
    proxy.fault(action, listing, times=2)
    async with follow(patience=patience_with(action)) as followed:
        await asyncio.wait_for(followed.watcher.synced.wait(), 60)
        await change_objects(followed)
        await followed.until_equal_to_the_api()


async def test_store_keeps_its_objects_while_the_server_is_unreachable(
    proxy: Proxy, follow: Callable[..., Any]
):
    async with follow() as followed:
        await followed.watcher.synced.wait()
        proxy.fault(p.reset_before_forwarding, times=1_000_000)
        await proxy.cut()
        await followed.until_outcome(Outcome.FAILED, times=8)
        assert followed.values() == {"a": "0", "b": "0", "c": "0"}
        assert not [change for change in followed.changes if change.kind == "deleted"]
        await change_objects(followed)
        proxy.faults.clear()
        await followed.until_equal_to_the_api()


@pytest.mark.parametrize(
    "action",
    [
        p.answer_with(200, b""),
        p.refuse_with(500, "InternalError"),
        p.reset_before_forwarding,
        p.answer_with(200, status_line(410, "Expired")),
        p.answer_with(200, b"garbage\n"),
    ],
)
async def test_watcher_backs_off_when_every_watch_ends_at_once(
    proxy: Proxy, follow: Callable[..., Any], action: Action
):
    proxy.fault(action, watching, times=1_000_000)
    timing = WatchTiming(first_backoff=0.1, longest_backoff=30.0, inactivity=0.5, healthy=0.5)
    began = time.monotonic()
    async with follow(timing) as followed:
        await followed.watcher.synced.wait()
        await eventually(lambda: followed.ended_watches() >= 5, interval=0.01)
        # Four waits of at least half of the first backoff.
        assert time.monotonic() - began >= 4 * 0.05
        # A request on a kept connection that was closed is repeated once without a wait.
        assert 5 <= proxy.count(watching) <= 10
        assert proxy.count(listing) <= 6


async def test_only_a_silent_watch_is_abandoned_after_the_inactivity_timeout(
    proxy: Proxy, follow: Callable[..., Any]
):
    async with follow(replace(QUICK, inactivity=2.0)) as followed:
        await followed.watcher.synced.wait()
        await eventually(lambda: proxy.count(watching) == 1, interval=0.01)
        opened = time.monotonic()
        while time.monotonic() - opened < 2.5:
            await followed.put("a", str(time.monotonic()))
            await asyncio.sleep(0.1)
        assert proxy.count(watching) == 1
        assert Outcome.SILENT not in followed.outcomes
        await followed.until_outcome(Outcome.SILENT)


async def test_bookmark_advances_the_resource_version_of_the_next_watch(
    proxy: Proxy, follow: Callable[..., Any]
):
    """The server sends a bookmark shortly before a watch times out, here after three seconds."""
    timing = replace(PATIENT, server_timeout=(3, 3))
    async with follow(timing) as followed:
        await followed.watcher.synced.wait()
        for number in range(3):
            body = {"metadata": {"name": f"elsewhere-{number}"}}
            await followed.client.create(CONFIG_MAPS, body, "default", dry_run=False)
            await followed.client.delete(CONFIG_MAPS, f"elsewhere-{number}", "default")
        await eventually(lambda: proxy.count(watching) >= 2, interval=0.05)
        watches = [request for request in proxy.seen if request.is_watch]
        assert int(watches[1].query["resourceVersion"]) > int(watches[0].query["resourceVersion"])
        assert watches[0].query["allowWatchBookmarks"] == "true"
        assert proxy.count(listing) == 1


async def test_duplicate_and_stale_watch_events_change_nothing(proxy: Proxy, follow: Callable[..., Any]):
    seen: list[bytes] = []

    def repeat(_: int, line: bytes) -> bytes:
        seen.append(line)
        return line + line + seen[0]

    proxy.fault(p.with_lines(repeat), watching, times=100)
    async with follow(PATIENT) as followed:
        await followed.watcher.synced.wait()
        await change_objects(followed)
        await followed.until_equal_to_the_api()
        versions = [
            int(change.new["metadata"]["resourceVersion"])
            for change in followed.changes
            if change.new is not None
        ]
        assert len(versions) == len(set(versions))
        assert versions[3:] == sorted(versions[3:])
        assert proxy.count(watching) == 1


MALFORMED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no metadata": lambda o: {key: value for key, value in o.items() if key != "metadata"},
    "metadata is a list": lambda o: {**o, "metadata": []},
    "no name": lambda o: {**o, "metadata": {**o["metadata"], "name": None}},
    "a number for a version": lambda o: {**o, "metadata": {**o["metadata"], "resourceVersion": 5}},
    "data is a text": lambda o: {**o, "data": "text"},
    "null": lambda _: None,
    "a text": lambda _: "text",
}


def malform(change: Callable[[dict[str, Any]], Any], name: str) -> Callable[[dict[str, Any]], Any]:
    def malformed(obj: dict[str, Any]) -> Any:
        return change(obj) if obj["metadata"].get("name") == name else obj

    return malformed


def value_of_x(obj: dict[str, Any]) -> list[str]:
    return [obj["data"]["x"]]


@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_object_in_a_list_blocks_no_other(
    proxy: Proxy, follow: Callable[..., Any], change: Callable[[dict[str, Any]], Any]
):
    reported: list[Resource] = []
    malformed = malform(change, "b")
    proxy.fault(
        p.with_document(lambda body: {**body, "items": [malformed(item) for item in body["items"]]}), listing
    )
    async with follow(indexes={"x": value_of_x}, on_quarantine=reported.append) as followed:
        await asyncio.wait_for(followed.watcher.synced.wait(), 60)
        assert set(followed.values()) == {"a", "c"}
        assert len(reported) == len(followed.store.quarantined) == 1
        await followed.put("b", "good again")
        await followed.until_equal_to_the_api()


@pytest.mark.parametrize(
    "change", [value for key, value in MALFORMED.items() if key not in {"null", "a text"}]
)
async def test_malformed_object_in_a_watch_blocks_no_other(
    proxy: Proxy, follow: Callable[..., Any], change: Callable[[dict[str, Any]], Any]
):
    malformed = malform(change, "b")

    def malform_event(_: int, line: bytes) -> bytes:
        event = json.loads(line)
        return json.dumps({**event, "object": malformed(event["object"])}).encode() + b"\n"

    proxy.fault(p.with_lines(malform_event), watching)
    async with follow(PATIENT, indexes={"x": value_of_x}) as followed:
        await followed.watcher.synced.wait()
        await eventually(lambda: proxy.count(watching) == 1, interval=0.01)
        await followed.put("b", "1")
        await followed.put("a", "1")
        await eventually(lambda: followed.values() == {"a": "1", "b": "0", "c": "0"}, interval=0.01)
        assert len(followed.store.quarantined) == 1
        # The next watch is unchanged.
        await proxy.cut()
        await followed.until_outcome(Outcome.FAILED)
        await followed.put("b", "2")
        await followed.until_equal_to_the_api()


async def test_own_writes_are_stored_at_once_and_do_not_restore_deleted_objects(
    follow: Callable[..., Any],
):
    async with follow() as followed:
        await followed.watcher.synced.wait()
        written = await followed.put("a", "1")
        followed.store.upsert(written)
        assert followed.values()["a"] == "1"
        await followed.delete("a")
        await eventually(lambda: "a" not in followed.values(), interval=0.01)
        assert followed.store.upsert(written) is None
        created = await followed.put("e", "1")
        await followed.delete("e")
        marker = await followed.put("f", "1")
        await eventually(lambda: "f" in followed.values(), interval=0.01)
        assert followed.store.upsert(created) is None
        assert followed.store.upsert(marker) is None
        await followed.until_equal_to_the_api()
        kinds = [(change.kind, change.key.name) for change in followed.changes[3:]]
        assert kinds.count(("modified", "a")) == kinds.count(("deleted", "a")) == 1


async def test_watcher_recovers_when_resource_versions_go_back(proxy: Proxy, follow: Callable[..., Any]):
    """As after a restore from a backup. The server sends nothing on a watch of a future version."""

    def with_future_version(body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "metadata": {**body["metadata"], "resourceVersion": "999999999999"}}

    proxy.fault(p.with_document(with_future_version), listing)
    async with follow() as followed:
        await followed.watcher.synced.wait()
        await change_objects(followed)
        await followed.until_equal_to_the_api()
        await change_objects(followed)
        await followed.until_equal_to_the_api()


async def test_watcher_lists_again_after_resource_version_too_large(proxy: Proxy, follow: Callable[..., Any]):
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    status = {"kind": "Status", "status": "Failure", "reason": "Timeout", "code": 504, "details": details}
    proxy.fault(p.answer_with(504, json.dumps(status).encode()), watching)
    async with follow(PATIENT) as followed:
        await followed.until_outcome(Outcome.EXPIRED)
        await change_objects(followed)
        await followed.until_equal_to_the_api()
        assert proxy.count(listing) == 2


async def test_watcher_survives_failing_handlers(client: Client, namespace: str):
    store = Store(CONFIG_MAPS)

    def fails(*_: object) -> None:
        raise RuntimeError("a bug of the listener")

    watcher = Watcher(client, CONFIG_MAPS, store, namespace=namespace, handlers=[fails], observe=fails)
    task = asyncio.create_task(watcher.run())
    await asyncio.wait_for(watcher.synced.wait(), 60)
    await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace)
    await eventually(lambda: (namespace, "a") in store, interval=0.01)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_watcher_stalls_until_its_first_list_is_complete(client: Client, namespace: str):
    watcher = Watcher(client, CONFIG_MAPS, Store(CONFIG_MAPS), namespace=namespace)
    await eventually(lambda: watcher.stalled_for() >= 0.1, interval=0.05)
    task = asyncio.create_task(watcher.run())
    await asyncio.wait_for(watcher.synced.wait(), 60)
    assert watcher.stalled_for() == 0.0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_store_equals_the_api_after_the_api_server_is_killed_and_revived(
    private_cluster: Callable[..., LocalCluster], connect: Callable[..., Awaitable[Client]]
):
    cluster = private_cluster((), component_names=("etcd", "kube-apiserver"))
    client = await connect(cluster)
    store = Store(CONFIG_MAPS)
    attempts: list[ApiCall] = []
    credentials = load_credentials(cluster.kubeconfig)
    async with Client(credentials, user_agent="admitq-tests", timeout=2.0, observe=attempts.append) as ours:
        watcher = Watcher(ours, CONFIG_MAPS, store, namespace="default", field_selector=NOT_OURS)
        followed = WatchedStore(watcher, store, client, "default")
        task = asyncio.create_task(watcher.run())
        await asyncio.wait_for(watcher.synced.wait(), 60)
        await followed.put("a", "1")
        await eventually(lambda: ("default", "a") in store, interval=0.01)
        cluster.kill("kube-apiserver")
        attempts.clear()
        began = time.monotonic()
        await eventually(lambda: len(attempts) >= 3, interval=0.01)
        assert len(attempts) / (time.monotonic() - began) < 10
        assert ("default", "a") in store
        await asyncio.to_thread(cluster.revive, "kube-apiserver")
        await followed.put("a", "2")
        await followed.delete("a")
        await followed.put("b", "1")
        await eventually(followed.is_equal_to_the_api, timeout=90, what="the store equals the API again")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# The client's watch by itself


async def test_watch_of_a_too_old_version_raises_a_gone_error(client: Client, namespace: str, installed: str):
    # The watch cache of a kind has no versions from before its CRD was installed.
    workloads = kinds_of(names_for(installed)).workloads
    async with aclosing(client.watch(workloads, "1", namespace=namespace)) as events:
        with pytest.raises(ApiError) as caught:
            await anext(events)
    assert caught.value.is_gone


async def test_watch_without_listeners_is_closed(proxy: Proxy, through: Through, namespace: str):
    client = await through()
    async with aclosing(client.watch(CONFIG_MAPS, "0", namespace=namespace)) as events:
        await anext(events)
    await eventually(lambda: not proxy.open_connections, interval=0.01)


async def test_watch_reads_lines_as_long_as_the_largest_object(
    client: Client, through: Through, namespace: str
):
    """More than a megabyte, which is beyond the line limits of HTTP libraries."""
    ours = await through()
    big = await client.create(
        CONFIG_MAPS, {"metadata": {"name": "big"}, "data": {"x": "y" * 1_000_000}}, namespace
    )
    before = str(int(big["metadata"]["resourceVersion"]) - 1)
    async with aclosing(ours.watch(CONFIG_MAPS, before, namespace=namespace)) as events:
        event = await anext(events)
    assert event.type == "ADDED"
    assert len(event.object["data"]["x"]) == 1_000_000
    with pytest.raises(ApiError, match="longer than 1000 bytes"):
        async with aclosing(
            ours.watch(CONFIG_MAPS, before, namespace=namespace, max_line_bytes=1000)
        ) as events:
            await anext(events)
