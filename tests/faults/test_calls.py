"""Calls of the client while the server, or a proxy before it, is faulty."""

import asyncio
import datetime as dt
import email.utils
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from admitq.runtime.client import Client
from admitq.runtime.credentials import Credentials, FileToken, TlsContextLoader
from admitq.runtime.errors import ApiError, NotLeadingError
from admitq.runtime.rate_limit import CallPriority, call_priority
from admitq.runtime.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from admitq.runtime.transport import ApiCall
from admitq.runtime.write_scheduler import NoFreeSlotError
from localcluster.cluster import LocalCluster
from localcluster.waiting import eventually
from tests.faults import proxy as p
from tests.faults.proxy import Action, Proxy, SeenRequest

Through = Callable[..., Awaitable[Client]]


def config_map(name: str, namespace: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


@pytest.mark.parametrize(
    ("action", "status", "reason"),
    [
        (p.refuse_with(410, "Expired"), 410, "Expired"),
        (p.refuse_with(409, "Conflict"), 409, "Conflict"),
        (p.refuse_with(429, "TooManyRequests"), 429, "TooManyRequests"),
        (p.refuse_with(500, "InternalError"), 500, "InternalError"),
        (p.refuse_with(503, "ServiceUnavailable"), 503, "ServiceUnavailable"),
        (p.BAD_GATEWAY, 502, "BadGateway"),
        (p.answer_with(504, b"", Content_Type="text/plain"), 504, "Timeout"),
        (p.answer_with(500, b"{half", Content_Type="application/json"), 500, "InternalError"),
        (p.answer_with(500, b'["not a Status"]'), 500, "InternalError"),
        (p.answer_with(302, b"", Location="https://login.example/"), 302, "Unknown"),
        (p.answer_with(200, b"<html>log in</html>", Content_Type="text/html"), 0, "MalformedResponse"),
        (p.answer_with(200, b""), 0, "MalformedResponse"),
        (p.answer_half_a_document, 0, "MalformedResponse"),
        (p.with_content_type("application/vnd.kubernetes.protobuf"), 0, "MalformedResponse"),
        (p.close_after_half_the_body, 0, "ConnectionFailed"),
        (p.reset_before_forwarding, 0, "ConnectionFailed"),
        (p.never_answer, 0, "Timeout"),
    ],
)
async def test_every_failure_of_a_call_raises_api_error(
    proxy: Proxy, through: Through, action: Action, status: int, reason: str
):
    client = await through(timeout=0.5 if action is p.never_answer else 10.0)
    proxy.fault(action, times=100)
    with pytest.raises(ApiError) as caught:
        await client.get(NAMESPACES, "default")
    assert (caught.value.status, caught.value.reason) == (status, reason)
    assert caught.value.is_transient == (status in {0, 429} or status >= 500)
    proxy.faults.clear()
    found = await eventually(lambda: client.get(NAMESPACES, "default"))
    assert found["kind"] == "Namespace"


@pytest.mark.parametrize("status", [429, 503])
async def test_call_is_retried_after_the_retry_after_seconds(proxy: Proxy, through: Through, status: int):
    client = await through()
    proxy.fault(p.refuse_with(status, "Later", Retry_After="1"))
    began = time.monotonic()
    await client.get(NAMESPACES, "default")
    assert time.monotonic() - began >= 1.0
    assert len(proxy.seen) == 2


async def test_call_is_retried_after_the_retry_after_date(proxy: Proxy, through: Through):
    client = await through()
    date = email.utils.format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1), usegmt=True)
    proxy.fault(p.refuse_with(503, "Later", Retry_After=date))
    await client.get(NAMESPACES, "default")
    assert len(proxy.seen) == 2


@pytest.mark.parametrize("is_write", [False, True])
async def test_reports_have_their_smallest_limit_while_a_rejected_call_waits_for_its_retry(
    proxy: Proxy, through: Through, is_write: bool
):
    client = await through()
    proxy.fault(p.refuse_with(429, "TooManyRequests", Retry_After="5"))
    with call_priority(CallPriority.RESERVATION):
        call = (
            client.merge_patch(NAMESPACES, "default", {}) if is_write else client.get(NAMESPACES, "default")
        )
        calling = asyncio.create_task(call)
    first = await client.scheduler.take(CallPriority.STATUS)

    def has_smallest_limit() -> bool:
        try:
            with client.scheduler.free_slot(CallPriority.STATUS):
                return False
        except NoFreeSlotError:
            return True

    await eventually(has_smallest_limit, timeout=5, interval=0.01)
    assert (await calling)["kind"] == "Namespace"
    assert not has_smallest_limit()
    client.scheduler.release(first)


async def test_call_fails_at_once_when_retry_after_exceeds_its_timeout(proxy: Proxy, through: Through):
    client = await through(timeout=20.0)
    proxy.fault(p.refuse_with(429, "TooManyRequests", Retry_After="30"))
    began = time.monotonic()
    with pytest.raises(ApiError) as caught:
        await client.get(NAMESPACES, "default")
    assert caught.value.retry_after == 30
    assert time.monotonic() - began < 10.0


async def test_retries_are_limited_when_the_server_always_answers_429(proxy: Proxy, through: Through):
    client = await through(timeout=3.0)
    proxy.fault(p.refuse_with(429, "TooManyRequests", Retry_After="0"), times=1000)
    with pytest.raises(ApiError, match="TooManyRequests"):
        await client.get(NAMESPACES, "default")
    assert 2 <= len(proxy.seen) <= 7


async def test_hung_call_blocks_no_other_call(proxy: Proxy, through: Through):
    client = await through()
    goes_on = asyncio.Event()

    async def held(exchange: p.Exchange) -> None:
        await goes_on.wait()
        await p.pass_through(exchange)

    proxy.fault(held, lambda request: request.path.endswith("/default"))
    hung = asyncio.create_task(client.get(NAMESPACES, "default"))
    await eventually(lambda: proxy.seen, interval=0.01)
    for _ in range(5):
        await client.get(NAMESPACES, "kube-system")
    assert not hung.done()
    goes_on.set()
    assert (await hung)["kind"] == "Namespace"


async def test_open_watches_do_not_use_up_the_connections_of_calls(through: Through):
    client = await through(connections=2)
    watches = [client.watch(CONFIG_MAPS, "0", namespace="kube-system") for _ in range(6)]
    events = [asyncio.ensure_future(anext(watch)) for watch in watches]
    await asyncio.gather(*events)
    assert (await client.get(NAMESPACES, "default"))["kind"] == "Namespace"
    for watch in watches:
        await watch.aclose()


@pytest.mark.parametrize(
    "action", [p.execute_and_reset, p.execute_and_never_answer, p.answer_half_a_document]
)
async def test_write_with_lost_answer_may_have_taken_effect(
    proxy: Proxy, through: Through, client: Client, namespace: str, action: Action
):
    ours = await through(timeout=1.0 if action is p.execute_and_never_answer else 10.0)
    proxy.fault(action, lambda request: request.is_write)
    with pytest.raises(ApiError) as caught:
        await ours.create(CONFIG_MAPS, config_map("lost", namespace))
    assert caught.value.is_transient
    assert await eventually(lambda: client.get(CONFIG_MAPS, "lost", namespace))
    with pytest.raises(ApiError) as caught:
        await client.create(CONFIG_MAPS, config_map("lost", namespace))
    assert caught.value.is_already_exists


async def test_write_over_a_newer_version_is_a_conflict(client: Client, namespace: str):
    old = await client.create(CONFIG_MAPS, config_map("a", namespace))
    await client.merge_patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace)
    version = old["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "data": {"x": "2"}}
    test = [{"op": "test", "path": "/data/x", "value": "other"}, {"op": "remove", "path": "/data/x"}]
    with pytest.raises(ApiError) as caught:
        await client.replace(CONFIG_MAPS, old)
    assert caught.value.is_conflict
    with pytest.raises(ApiError) as caught:
        await client.merge_patch(CONFIG_MAPS, "a", patch, namespace)
    assert caught.value.is_conflict
    with pytest.raises(ApiError) as caught:
        await client.delete(CONFIG_MAPS, "a", namespace, resource_version=version)
    assert caught.value.is_conflict
    with pytest.raises(ApiError) as caught:
        await client.delete(CONFIG_MAPS, "a", namespace, uid="another")
    assert caught.value.is_conflict
    with pytest.raises(ApiError) as caught:
        await client.json_patch(CONFIG_MAPS, "a", test, namespace)
    assert caught.value.is_invalid
    assert (await client.get(CONFIG_MAPS, "a", namespace))["data"] == {"x": "1"}


async def test_json_patch_can_test_for_an_absent_field(client: Client, namespace: str):
    await client.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": namespace}})
    patch = [
        {"op": "test", "path": "/data", "value": None},
        {"op": "add", "path": "/data", "value": {"x": "1"}},
    ]
    await client.json_patch(CONFIG_MAPS, "a", patch, namespace)
    with pytest.raises(ApiError) as caught:
        await client.json_patch(CONFIG_MAPS, "a", patch, namespace)
    assert caught.value.is_invalid
    assert not caught.value.concerns("a")
    invalid = [{"op": "add", "path": "/data/not a name", "value": "1"}]
    with pytest.raises(ApiError) as caught:
        await client.json_patch(CONFIG_MAPS, "a", invalid, namespace)
    assert caught.value.is_invalid
    assert caught.value.concerns("a")


async def test_fields_belong_to_the_given_field_manager(client: Client, namespace: str):
    applied = {"apiVersion": "v1", "kind": "ConfigMap", **config_map("a", namespace, x="1")}
    await client.apply(CONFIG_MAPS, applied, field_manager="admitq-one")
    await client.merge_patch(CONFIG_MAPS, "a", {"data": {"y": "2"}}, namespace, field_manager="admitq-two")
    applied["data"] = {"y": "3"}
    with pytest.raises(ApiError) as caught:
        await client.apply(CONFIG_MAPS, applied, field_manager="admitq-one", force=False)
    assert caught.value.is_conflict
    found = await client.apply(CONFIG_MAPS, applied, field_manager="admitq-one")
    assert found["data"] == {"y": "3"}
    assert {entry["manager"] for entry in found["metadata"]["managedFields"]} == {"admitq-one"}


async def test_dry_run_of_a_call_stores_nothing(client: Client, namespace: str):
    await client.create(CONFIG_MAPS, config_map("a", namespace), dry_run=True)
    with pytest.raises(ApiError) as caught:
        await client.get(CONFIG_MAPS, "a", namespace)
    assert caught.value.is_not_found


# Lists


async def fill(client: Client, namespace: str, count: int) -> set[str]:
    names = {f"cm-{number:02}" for number in range(count)}
    await asyncio.gather(*(client.create(CONFIG_MAPS, config_map(name, namespace)) for name in names))
    return names


async def listed(client: Client, namespace: str, page_size: int) -> list[str]:
    names: list[str] = []
    pages = client.pages(
        CONFIG_MAPS, namespace, field_selector="metadata.name!=kube-root-ca.crt", page_size=page_size
    )
    async with aclosing(pages):
        async for page in pages:
            if page.first:
                names.clear()
            assert all(item["kind"] == "ConfigMap" for item in page.items)
            names += [item["metadata"]["name"] for item in page.items]
    return names


def continued(request: SeenRequest) -> bool:
    return "continue" in request.query


@pytest.mark.parametrize("expirations", [0, 1, 2])
async def test_list_restarts_when_its_continue_token_expires(
    proxy: Proxy, through: Through, client: Client, namespace: str, expirations: int
):
    names = await fill(client, namespace, 12)
    proxy.fault(p.refuse_with(410, "Expired"), continued, times=expirations)
    found = await listed(await through(), namespace, page_size=2)
    assert sorted(found) == sorted(names)
    sizes = [int(request.query["limit"]) for request in proxy.seen]
    assert max(sizes) == 2 * 4**expirations


async def test_list_fails_when_its_continue_token_always_expires(
    proxy: Proxy, through: Through, client: Client, namespace: str
):
    await fill(client, namespace, 3)
    proxy.fault(
        p.with_document(lambda body: {**body, "metadata": {**body["metadata"], "continue": "x"}}), times=99
    )
    proxy.faults.insert(0, p.Fault(p.refuse_with(410, "Expired"), continued, times=99))
    with pytest.raises(ApiError) as caught:
        await listed(await through(), namespace, page_size=1)
    assert caught.value.is_gone


@pytest.mark.parametrize("body", ["{}", '{"metadata": {}, "items": "none"}', '{"metadata": 5, "items": []}'])
async def test_list_fails_when_the_answer_is_not_a_list(proxy: Proxy, through: Through, body: str):
    proxy.fault(p.answer_with(200, body.encode()))
    with pytest.raises(ApiError, match="not a list"):
        await (await through()).list(CONFIG_MAPS)


# Credentials


async def token_of(client: Client, namespace: str) -> str:
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600},
    }
    made = await client.create(SERVICE_ACCOUNTS, review, namespace, "token", name="default")
    return made["status"]["token"]


async def test_token_file_is_read_again_after_a_401(
    cluster: LocalCluster, client: Client, namespace: str, tmp_path: Path
):
    path = tmp_path / "token"
    path.write_text("expired")
    calls: list[ApiCall] = []
    credentials = Credentials(
        server=cluster.server, token=FileToken(path), tls=TlsContextLoader(authority=cluster.authority)
    )
    async with Client(credentials, user_agent="admitq-tests", observe=calls.append) as ours:
        with pytest.raises(ApiError) as caught:
            await ours.request_json("GET", "/api")
        assert caught.value.status == 401
        path.write_text(await token_of(client, namespace) + "\n")
        assert (await ours.request_json("GET", "/api"))["kind"] == "APIVersions"
    assert [call.status for call in calls] == [401, 401, 401, 200]


async def test_no_request_is_sent_without_a_readable_token(proxy: Proxy, tmp_path: Path):
    credentials = Credentials(server=proxy.credentials.server, token=FileToken(tmp_path / "none"))
    async with Client(credentials, user_agent="admitq-tests") as ours:
        with pytest.raises(ApiError, match="no token could be read"):
            await ours.get(NAMESPACES, "default")
    assert not proxy.seen


# The fence


async def test_client_without_the_lease_reads_but_does_not_write(
    proxy: Proxy, through: Through, namespace: str
):
    leading = False

    def fence() -> None:
        if not leading:
            raise NotLeadingError("no")

    ours = await through(fence=fence)
    writes: list[Awaitable[Any]] = [
        ours.create(CONFIG_MAPS, config_map("a", namespace)),
        ours.replace(CONFIG_MAPS, config_map("a", namespace)),
        ours.merge_patch(CONFIG_MAPS, "a", {}, namespace),
        ours.json_patch(CONFIG_MAPS, "a", [], namespace),
        ours.apply(CONFIG_MAPS, config_map("a", namespace), field_manager="x"),
        ours.delete(CONFIG_MAPS, "a", namespace),
        ours.request_json("POST", "/api", {}),
    ]
    for write in writes:
        with pytest.raises(NotLeadingError):
            await write
    assert not proxy.seen
    await ours.list(CONFIG_MAPS, namespace)
    leading = True
    await ours.create(CONFIG_MAPS, config_map("a", namespace))


async def test_retried_write_checks_the_lease_again(proxy: Proxy, through: Through, namespace: str):
    calls = 0

    def fence() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise NotLeadingError("lost while waiting")

    ours = await through(fence=fence)
    proxy.fault(p.refuse_with(429, "TooManyRequests", Retry_After="0"))
    with pytest.raises(NotLeadingError):
        await ours.create(CONFIG_MAPS, config_map("a", namespace))
    assert len(proxy.seen) == 1


async def test_requests_carry_the_user_agent_and_are_counted(proxy: Proxy, through: Through, namespace: str):
    calls: list[ApiCall] = []
    ours = await through(observe=calls.append)
    proxy.fault(p.reset_before_forwarding, lambda request: request.is_write)
    await ours.list(CONFIG_MAPS, namespace)
    with pytest.raises(ApiError):
        await ours.create(CONFIG_MAPS, config_map("a", namespace))
    seen = [(call.verb, call.resource, call.status) for call in calls]
    assert seen == [("list", "configmaps", 200), ("create", "configmaps", 0)]
    assert all(call.seconds > 0 for call in calls)
    assert {request.headers["user-agent"] for request in proxy.seen} == {"admitq-tests"}
    assert json.loads(proxy.seen[-1].body)["metadata"]["name"] == "a"
